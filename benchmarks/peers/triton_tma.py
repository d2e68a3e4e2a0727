# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""Triton with tensor descriptors: persistent programs, loads and stores by TMA."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.data import Data, multiprocessors
from benchmarks.measure import Candidate, each
from warploom.bench import Run

NAME = "Triton persistent TMA"


@triton.jit
def gemm(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr, PROGRAMS: tl.constexpr,
    B_IS_NK: tl.constexpr, HALVES: tl.constexpr, FLATTEN: tl.constexpr, SPECIALIZE: tl.constexpr,
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
            acc = tl.dot(x, y, acc)

        if HALVES:  # two narrower stores need half of the staging memory
            left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
            c.store([row, column], left.to(c.dtype))
            c.store([row, column + BN // 2], right.to(c.dtype))
        else:
            c.store([row, column], acc.to(c.dtype))


# BM, BN, BK, BAND, warps, stages, halves
LARGE = [
    (128, 256, 64, 8, 8, 3, True),
    (128, 256, 64, 16, 8, 3, True),
    (128, 256, 64, 8, 8, 4, True),
    (256, 128, 64, 8, 8, 3, True),
    (128, 128, 64, 8, 8, 4, False),
    (128, 128, 64, 8, 4, 4, False),
    (128, 128, 64, 8, 4, 5, True),
]
SMALL_M = [
    (64, 128, 128, 8, 4, 4, False),
    (64, 64, 128, 8, 4, 5, False),
    (64, 128, 64, 8, 4, 6, False),
]


def bind(data: Data, config: tuple[int, ...], flatten: bool, specialize: bool) -> Run:
    """A run of one configuration; the descriptors are made beforehand."""
    case = data.case
    bm, bn, bk, band, warps, stages, halves = config
    b_is_nk = case.layout == "TN"
    columns = bn // 2 if halves else bn
    descriptors = []
    for i in range(len(data)):
        stored, block = (data.b[i].t(), [bn, bk]) if b_is_nk else (data.b[i], [bk, bn])
        descriptors.append(
            (
                TensorDescriptor.from_tensor(data.a[i], [bm, bk]),
                TensorDescriptor.from_tensor(stored, block),
                TensorDescriptor.from_tensor(data.c[i], [bm, columns]),
            )
        )
    sms = multiprocessors()
    programs = min(sms, triton.cdiv(case.m, bm) * triton.cdiv(case.n, bn))

    def run(i: int) -> None:
        gemm[(programs,)](
            *descriptors[i], case.m, case.n, case.k,
            BM=bm, BN=bn, BK=bk, BAND=band, PROGRAMS=programs, B_IS_NK=b_is_nk, HALVES=bool(halves),
            FLATTEN=flatten, SPECIALIZE=specialize, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    return run


def candidates(data: Data) -> list[Candidate]:
    configs = SMALL_M if data.case.m <= 64 else LARGE
    return each(configs, lambda config: bind(data, config, True, False))
