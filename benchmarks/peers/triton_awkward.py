# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""Triton, plain pointers, one program a tile: rows of A by an index, or operands with any strides."""

from __future__ import annotations

import triton
import triton.language as tl

from benchmarks.data import AwkwardData
from benchmarks.measure import Candidate, each
from warploom.bench import Run

NAME = "Triton pointers"
KINDS = ("awkward",)


@triton.jit
def gemm(
    a, index, b, c, M, N, K, stride_am, stride_ak, stride_bn, stride_bk, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr, GATHER: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    m_tiles, n_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    band = pid // (BAND * n_tiles)
    in_band = pid % (BAND * n_tiles)
    rows = tl.minimum(m_tiles - band * BAND, BAND)
    row = (band * BAND + in_band % rows) * BM
    column = (in_band // rows) * BN

    m = (row + tl.arange(0, BM)) % M
    if GATHER:
        m = tl.load(index + m)
    n = (column + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    a_at = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_at = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        x = tl.load(a_at, mask=k[None, :] < left, other=0.0)
        y = tl.load(b_at, mask=k[:, None] < left, other=0.0)
        acc = tl.dot(x, y, acc)
        a_at += BK * stride_ak
        b_at += BK * stride_bk

    m = row + tl.arange(0, BM)
    n = column + tl.arange(0, BN)
    c_at = c + m[:, None] * stride_cm + n[None, :]
    tl.store(c_at, acc.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


# BM, BN, BK, BAND, warps, stages
CONFIGS = [
    (128, 256, 64, 8, 8, 3),
    (128, 256, 64, 16, 8, 3),
    (256, 128, 64, 8, 8, 3),
    (128, 128, 64, 8, 4, 4),
]


def candidates(data: AwkwardData) -> list[Candidate]:
    case = data.case

    def make(config: tuple[int, ...]) -> Run:
        bm, bn, bk, band, warps, stages = config
        grid = (triton.cdiv(case.m, bm) * triton.cdiv(case.n, bn),)

        def run(i: int) -> None:
            a, b, c = data.a[i], data.b[i], data.c[i]
            gemm[grid](
                a, data.rows[i], b, c, case.m, case.n, case.k, *a.stride(), *b.stride(),
                c.stride(0), BM=bm, BN=bn, BK=bk, BAND=band, GATHER=case.gather, num_warps=warps,
                num_stages=stages,
            )  # fmt: skip

        return run

    return each(CONFIGS, make)
