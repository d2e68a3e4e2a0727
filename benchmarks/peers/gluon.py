# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""Gluon, specialized by hand: one TMA producer warp beside eight consumer warps, persistent.

At 8192³ this is the best of all peers that we know of.
"""

from __future__ import annotations

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from benchmarks.data import Data, multiprocessors
from benchmarks.measure import Candidate, each
from warploom.bench import Run

NAME = "Gluon, specialized by hand"


@gluon.jit
def place(tile, m_tiles, n_tiles, BM: gl.constexpr, BN: gl.constexpr, BAND: gl.constexpr):
    band = tile // (BAND * n_tiles)
    in_band = tile % (BAND * n_tiles)
    rows = min(m_tiles - band * BAND, BAND)
    return (band * BAND + in_band % rows) * BM, (in_band // rows) * BN


@gluon.jit
def produce(a, b, a_ring, b_ring, full, empty, m_tiles, n_tiles, k_steps,
            BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, BAND: gl.constexpr,
            DEPTH: gl.constexpr, B_IS_NK: gl.constexpr):  # fmt: skip
    count = 0
    for tile in range(gl.program_id(0), m_tiles * n_tiles, gl.num_programs(0)):
        row, column = place(tile, m_tiles, n_tiles, BM, BN, BAND)
        for step in range(k_steps):
            slot = count % DEPTH
            mbarrier.wait(empty.index(slot), ((count // DEPTH) & 1) ^ 1)
            ready = full.index(slot)
            mbarrier.expect(ready, a.block_type.nbytes + b.block_type.nbytes)
            tma.async_copy_global_to_shared(a, [row, step * BK], ready, a_ring.index(slot))
            if B_IS_NK:
                tma.async_copy_global_to_shared(b, [column, step * BK], ready, b_ring.index(slot))
            else:
                tma.async_copy_global_to_shared(b, [step * BK, column], ready, b_ring.index(slot))
            count += 1


@gluon.jit
def consume(c, a_ring, b_ring, c_staging, full, empty, m_tiles, n_tiles, k_steps,
            BM: gl.constexpr, BN: gl.constexpr, BAND: gl.constexpr, DEPTH: gl.constexpr,
            B_IS_NK: gl.constexpr, WARPS: gl.constexpr):  # fmt: skip
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BN, 16]
    )
    count = 0
    for tile in range(gl.program_id(0), m_tiles * n_tiles, gl.num_programs(0)):
        row, column = place(tile, m_tiles, n_tiles, BM, BN, BAND)
        acc = gl.zeros((BM, BN), dtype=gl.float32, layout=layout)
        for step in range(k_steps):
            slot = count % DEPTH
            mbarrier.wait(full.index(slot), (count // DEPTH) & 1)
            y = b_ring.index(slot)
            if B_IS_NK:
                y = y.permute((1, 0))
            acc = warpgroup_mma(a_ring.index(slot), y, acc, is_async=True, use_acc=step > 0)
            acc = warpgroup_mma_wait(num_outstanding=1, deps=(acc,))
            # Only this step is in flight: the slot before it is free.
            mbarrier.arrive(empty.index((count + DEPTH - 1) % DEPTH), count=1, pred=step > 0)
            count += 1
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index((count + DEPTH - 1) % DEPTH), count=1)
        tma.store_wait(pendings=0)  # the store of the tile before
        c_staging.store(acc.to(c.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(c, [row, column], c_staging)
    tma.store_wait(pendings=0)


@gluon.jit
def gemm(a, b, c, M, N, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
         BAND: gl.constexpr, DEPTH: gl.constexpr, B_IS_NK: gl.constexpr,
         num_warps: gl.constexpr):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [DEPTH] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [DEPTH] + b.block_type.shape, b.layout)  # noqa: RUF005
    c_staging = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(DEPTH):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
    fence_async_shared()
    m_tiles, n_tiles, k_steps = gl.cdiv(M, BM), gl.cdiv(N, BN), gl.cdiv(K, BK)
    gl.warp_specialize(
        [
            (consume, (c, a_ring, b_ring, c_staging, full, empty, m_tiles, n_tiles, k_steps,
                       BM, BN, BAND, DEPTH, B_IS_NK, num_warps)),
            (produce, (a, b, a_ring, b_ring, full, empty, m_tiles, n_tiles, k_steps,
                       BM, BN, BK, BAND, DEPTH, B_IS_NK)),
        ],
        [1],
        [40],
    )  # fmt: skip


# BM, BN, BK, BAND, depth, warps, register cap (0: none)
LARGE = [
    (128, 256, 64, 8, 3, 8, 168),
    (128, 256, 64, 16, 3, 8, 168),
    (256, 128, 64, 8, 3, 8, 168),
    (128, 128, 64, 8, 5, 8, 168),
    (128, 128, 64, 8, 5, 4, 0),
]
SMALL_M = [(64, 128, 128, 8, 4, 4, 0), (64, 64, 128, 8, 6, 4, 0), (64, 128, 64, 8, 7, 4, 0)]
DTYPES = {"bf16": gl.bfloat16, "fp16": gl.float16}


def candidates(data: Data) -> list[Candidate]:
    case = data.case
    dtype = DTYPES[case.dtype]
    b_is_nk = case.layout == "TN"
    sms = multiprocessors()

    def make(config: tuple[int, ...]) -> Run:
        bm, bn, bk, band, depth, warps, cap = config

        def describe(tensor, block):  # type: ignore[no-untyped-def]
            layout = gl.NVMMASharedLayout.get_default_for(block, dtype)
            return TensorDescriptor.from_tensor(tensor, block, layout)

        bound = [
            (
                describe(data.a[i], [bm, bk]),
                describe(data.b[i].t(), [bn, bk]) if b_is_nk else describe(data.b[i], [bk, bn]),
                describe(data.c[i], [bm, bn]),
            )
            for i in range(len(data))
        ]
        grid = (min(sms, triton.cdiv(case.m, bm) * triton.cdiv(case.n, bn)),)
        options = {"num_warps": warps} | ({"maxnreg": cap} if cap else {})

        def run(i: int) -> None:
            gemm[grid](
                *bound[i], case.m, case.n, case.k, bm, bn, bk, band, depth, b_is_nk, **options
            )

        return run

    configs = SMALL_M if case.m <= 64 else LARGE
    return each(configs, make)
