# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""Triton with tensor descriptors: row-wise scaled e4m3, persistent programs, loads and stores by TMA.

Sums are left to the tensor core (fast accumulation), or promoted to float32."""

from __future__ import annotations

from collections.abc import Sequence

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.data import Fp8Data, multiprocessors
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "Triton fp8, persistent TMA"
KINDS = ("fp8",)


@triton.jit
def gemm(
    a, b, scale_a, scale_b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr, PROGRAMS: tl.constexpr,
    B_IS_NK: tl.constexpr, IMPRECISE: tl.constexpr, HALVES: tl.constexpr, FLATTEN: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):  # fmt: skip
    m_tiles, n_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    k_steps = tl.cdiv(K, BK)
    for tile in tl.range(
        tl.program_id(0), m_tiles * n_tiles, PROGRAMS, flatten=FLATTEN, warp_specialize=SPECIALIZE
    ):
        band = tile // (BAND * n_tiles)
        in_band = tile % (BAND * n_tiles)
        rows = tl.minimum(m_tiles - band * BAND, BAND)
        row = (band * BAND + in_band % rows) * BM
        column = (in_band // rows) * BN

        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(k_steps):
            x = a.load([row, step * BK])
            if B_IS_NK:  # noqa: SIM108 (a branch at compile time)
                y = b.load([column, step * BK]).T
            else:
                y = b.load([step * BK, column])
            acc = tl.dot(x, y, acc, max_num_imprecise_acc=IMPRECISE)

        m, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
        by_row = tl.load(scale_a + m, mask=m < M, other=0.0)
        by_column = tl.load(scale_b + n, mask=n < N, other=0.0)
        acc = acc * by_row[:, None] * by_column[None, :]
        if HALVES:  # two narrower stores need half of the staging memory
            left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
            c.store([row, column], left.to(c.dtype))
            c.store([row, column + BN // 2], right.to(c.dtype))
        else:
            c.store([row, column], acc.to(c.dtype))


# BM, BN, BK, BAND, warps, stages, halves
CONFIGS = [
    (128, 256, 128, 8, 8, 3, True),
    (128, 256, 128, 16, 8, 3, True),
    (128, 256, 64, 8, 8, 6, True),
    (256, 128, 128, 8, 8, 3, True),
    (128, 128, 128, 8, 8, 4, False),
    (128, 128, 128, 8, 4, 4, False),
]
PROMOTED = [
    (128, 128, 128, 8, 8, 4, False),
    (128, 128, 128, 16, 8, 4, False),
    (128, 128, 128, 8, 4, 4, False),
    (128, 256, 128, 8, 8, 3, True),
    (64, 256, 128, 8, 4, 3, False),
]


def bind(
    data: Fp8Data, config: tuple[int, ...], flatten: bool, specialize: bool, imprecise: int | None
) -> Run:
    """A run of one configuration; the descriptors are made beforehand."""
    case = data.case
    bm, bn, bk, band, warps, stages, halves = config
    columns = bn // 2 if halves else bn
    b_is_nk = case.layout == "TN"
    stored = data.b if b_is_nk else [b.t() for b in data.b]
    b_block = [bn, bk] if b_is_nk else [bk, bn]
    arguments = [
        (
            TensorDescriptor.from_tensor(data.a[i], [bm, bk]),
            TensorDescriptor.from_tensor(stored[i], b_block),
            data.scale_a[i],
            data.scale_b[i],
            TensorDescriptor.from_tensor(data.c[i], [bm, columns]),
        )
        for i in range(len(data))
    ]
    sms = multiprocessors()
    programs = min(sms, triton.cdiv(case.m, bm) * triton.cdiv(case.n, bn))

    def run(i: int) -> None:
        gemm[(programs,)](
            *arguments[i], case.m, case.n, case.k,
            BM=bm, BN=bn, BK=bk, BAND=band, PROGRAMS=programs, IMPRECISE=imprecise,
            B_IS_NK=b_is_nk, HALVES=bool(halves), FLATTEN=flatten, SPECIALIZE=specialize, num_warps=warps,
            num_stages=stages,
        )  # fmt: skip

    return run


def variants(
    data: Fp8Data,
    configs: Sequence[tuple[int, ...]],
    *,
    specialize: bool = False,
    imprecise: int | None = None,
) -> list[Candidate]:
    """Every configuration; specialized ones flattened and not, as either may be refused."""
    return [
        Candidate(
            f"{config}{' flatten' if flatten else ''}",
            lambda config=config, flatten=flatten: bind(  # type: ignore[misc]
                data, config, flatten, specialize, imprecise
            ),
        )
        for config in configs
        for flatten in ((False, True) if specialize else (True,))
    ]


def candidates(data: Fp8Data) -> list[Candidate]:
    return variants(data, CONFIGS)
