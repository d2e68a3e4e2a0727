# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""Triton with plain pointers: row-wise scaled e4m3, one program a tile, software-pipelined."""

from __future__ import annotations

import triton
import triton.language as tl

from benchmarks.data import Fp8Data
from benchmarks.measure import Candidate, each
from warploom.bench import Run

NAME = "Triton fp8, pointers"
KINDS = ("fp8",)


@triton.jit
def gemm(
    a, b, scale_a, scale_b, c, M, N, K, stride_bn, stride_bk,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    m_tiles, n_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    band = pid // (BAND * n_tiles)
    in_band = pid % (BAND * n_tiles)
    rows = tl.minimum(m_tiles - band * BAND, BAND)
    row = (band * BAND + in_band % rows) * BM
    column = (in_band // rows) * BN

    # Rows past the end wrap around: what they give is masked at the store.
    m = (row + tl.arange(0, BM)) % M
    n = (column + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a_at = a + m[:, None] * K + k[None, :]
    b_at = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        x = tl.load(a_at, mask=k[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=k[:, None] < left, other=0.0)
        acc = tl.dot(x, y, acc)
        a_at += BK
        b_at += BK * stride_bk

    acc = acc * tl.load(scale_a + m)[:, None] * tl.load(scale_b + n)[None, :]
    m = row + tl.arange(0, BM)
    n = column + tl.arange(0, BN)
    c_at = c + m[:, None] * N + n[None, :]
    tl.store(c_at, acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


# BM, BN, BK, BAND, warps, stages
CONFIGS = [
    (128, 256, 128, 8, 8, 3),
    (128, 256, 128, 16, 8, 3),
    (128, 256, 64, 8, 8, 4),
    (256, 128, 128, 8, 8, 3),
    (128, 128, 128, 8, 4, 4),
]


def candidates(data: Fp8Data) -> list[Candidate]:
    case = data.case

    def make(config: tuple[int, ...]) -> Run:
        bm, bn, bk, band, warps, stages = config
        grid = (triton.cdiv(case.m, bm) * triton.cdiv(case.n, bn),)

        def run(i: int) -> None:
            gemm[grid](
                data.a[i], data.b[i], data.scale_a[i], data.scale_b[i], data.c[i],
                case.m, case.n, case.k, *data.b[i].stride(),
                BM=bm, BN=bn, BK=bk, BAND=band, num_warps=warps, num_stages=stages,
            )  # fmt: skip

        return run

    return each(CONFIGS, make)
