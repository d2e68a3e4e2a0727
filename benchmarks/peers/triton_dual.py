# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""Triton's gated pair of products: one persistent kernel with tensor descriptors, weights as given."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.data import DualData, multiprocessors, zeros
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "Triton dual, persistent TMA"
KINDS = ("dual",)


@triton.jit
def dual_gemm(
    a, b1, b2, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
    PROGRAMS: tl.constexpr, FLATTEN: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """With SPECIALIZE pointers stand in for the descriptors: Triton 3.6's pass hangs on those of the host."""
    if SPECIALIZE:
        a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
        b1 = tl.make_tensor_descriptor(b1, [N, K], [K, 1], [BN, BK])
        b2 = tl.make_tensor_descriptor(b2, [N, K], [K, 1], [BN, BK])
        c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
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
        gate = tl.zeros((BM, BN), dtype=tl.float32)
        up = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(k_steps):
            x = a.load([row, step * BK])
            gate = tl.dot(x, b1.load([column, step * BK]).T, gate)
            up = tl.dot(x, b2.load([column, step * BK]).T, up)
        c.store([row, column], (gate / (1 + tl.exp(-gate)) * up).to(c.dtype))


# BM, BN, BK, BAND, warps, stages
CONFIGS = [
    (128, 128, 64, 8, 8, 3),
    (128, 128, 64, 16, 8, 3),
    (128, 128, 64, 8, 8, 4),
    (128, 128, 32, 8, 8, 4),
    (128, 64, 64, 8, 4, 4),
    (128, 64, 64, 8, 8, 4),
]


def bind(data: DualData, config: tuple[int, ...], flatten: bool, specialize: bool) -> Run:
    """A run of one configuration; the descriptors are made beforehand."""
    case = data.case
    bm, bn, bk, band, warps, stages = config
    sets = [list(abbc) for abbc in zip(data.a, data.b1, data.b2, data.c, strict=True)]
    if specialize:
        triton.set_allocator(lambda size, align, stream: zeros(data.a[0], size, dtype="int8"))
    else:
        blocks = ([bm, bk], [bn, bk], [bn, bk], [bm, bn])
        sets = [list(map(TensorDescriptor.from_tensor, abbc, blocks)) for abbc in sets]
    sms = multiprocessors()
    programs = min(sms, triton.cdiv(case.m, bm) * triton.cdiv(case.n, bn))

    def run(i: int) -> None:
        dual_gemm[(programs,)](
            *sets[i], case.m, case.n, case.k, BM=bm, BN=bn, BK=bk, BAND=band, PROGRAMS=programs,
            FLATTEN=flatten, SPECIALIZE=specialize, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    return run


def candidates(data: DualData) -> list[Candidate]:
    if data.case.dtype != "bf16":
        return []
    return [
        Candidate(
            f"{config}{' flatten' if flatten else ''}",
            lambda config=config, flatten=flatten: bind(data, config, flatten, False),  # type: ignore[misc]
        )
        for config in CONFIGS
        for flatten in (False, True)
    ]
