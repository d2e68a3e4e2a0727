"""Warploom: operands that TMA can't load; the producer copies them by cp.async, or through registers."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl
from benchmarks.data import AwkwardData, multiprocessors
from benchmarks.measure import Candidate, each
from warploom.bench import Run
from warploom.kernels.gemm import gemm_pointers, grouped_tile, persistent_grid

NAME = "warploom"
KINDS = ("awkward",)


@wl.jit
def gather_gemm(
    a_ptr: Any,
    rows_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    M: Any,
    N: Any,
    K: Any,
    stride_am: Any,
    stride_ak: Any,
    stride_bk: Any,
    stride_bn: Any,
    stride_cm: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
) -> None:
    """C = A[rows]·B: persistent, as the library's GEMM."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        pid_m, pid_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        rows = tl.load(rows_ptr + offs_m, mask=offs_m < M, other=0)
        a_ptrs = a_ptr + rows[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            left = K - k * BLOCK_K
            a = tl.load(a_ptrs, mask=offs_k[None, :] < left, other=0.0)
            b = tl.load(b_ptrs, mask=(offs_k[:, None] < left) & (offs_n[None, :] < N), other=0.0)
            acc += tl.dot(a, b)
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :]
        c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


# BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, consumer groups, slots
CONFIGS = [
    (128, 256, 64, 16, 2, 3),
    (128, 256, 64, 8, 2, 3),
    (128, 192, 64, 8, 2, 4),
    (128, 128, 64, 8, 2, 5),
    (256, 128, 64, 8, 2, 3),
]


def candidates(data: AwkwardData) -> list[Candidate]:
    case = data.case
    grid = persistent_grid(case.m, case.n, multiprocessors())

    def make(config: tuple[int, ...]) -> Run:
        bm, bn, bk, band, groups, depth = config
        blocks = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": band}
        meta = {**blocks, "num_consumer_groups": groups, "num_buffers_warp_spec": depth}
        launches = []
        for i in range(len(data)):
            a, b, c = data.a[i], data.b[i].t(), data.c[i]
            sizes = (case.m, case.n, case.k, *a.stride(), *b.stride())
            if case.gather:
                args: tuple[Any, ...] = (a, data.rows[i], b, c, *sizes, c.stride(0))
            else:
                args = (a, b, c, *sizes, *c.stride())
            kernel = gather_gemm if case.gather else gemm_pointers
            launches.append(kernel.prepare(*args, grid=grid(blocks), strict=True, **meta))
        return lambda i: launches[i]()

    return each(CONFIGS, make)
