"""Matrix products C = A·B as a Triton-style kernel: the library's GEMM.

It is persistent and doubly nested: a program takes tiles of C in turn (`num_programs` apart), and
for each walks along K.  Launch it with as many programs as there are multiprocessors, or with fewer
where C has fewer tiles.  Tiles are visited in groups of GROUP_M rows, so that the programs that run at
the same time share rows of A and columns of B in the L2 cache.

    gemm_pointers   pointers, strides and masks: any operand order, any size, any alignment
    gemm            gemm_pointers with a list of configs: the fastest is found at the first call

A is M×K, B is K×N, C is M×N; sums are made in f32 and rounded once, to C's dtype.
"""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl
from warploom.kernels.entry import FLOATS, HALVES, Entry, Given


@wl.jit
def grouped_tile(
    tile: Any, tiles_m: Any, tiles_n: Any, GROUP_M: tl.constexpr, SERPENTINE: tl.constexpr = False
) -> Any:
    """Row and column (in tiles) of the tile-th tile, in groups of GROUP_M rows, column by column.

    SERPENTINE: every second group is walked from the last column to the first, which the group before has
    just left in the L2."""
    in_group = GROUP_M * tiles_n
    group = tile // in_group
    first_m = group * GROUP_M
    rows = tl.minimum(tiles_m - first_m, GROUP_M)
    pid_m = first_m + (tile % in_group) % rows
    pid_n = (tile % in_group) // rows
    if SERPENTINE:
        pid_n += (group % 2) * (tiles_n - 1 - 2 * pid_n)
    return pid_m, pid_n


@wl.jit
def gemm_pointers(
    a_ptr: Any,
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
    stride_cn: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
) -> None:
    """C (M×N) = A (M×K) · B (K×N) by pointers: A and B f16 or bf16, sums in f32, C of its pointer's dtype.

    Strides are in elements, so each matrix may be stored in either order.  Persistent: the grid has one
    axis, of any length up to the number of tiles (`persistent_grid`)."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        pid_m, pid_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            left = K - k * BLOCK_K
            a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < left)
            b_mask = (offs_k[:, None] < left) & (offs_n[None, :] < N)
            a = tl.load(a_ptrs, mask=a_mask, other=0.0)
            b = tl.load(b_ptrs, mask=b_mask, other=0.0)
            acc += tl.dot(a, b)
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
        c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)


def config(
    m: int,
    n: int,
    k: int,
    group: int,
    groups: int,
    depth: int,
    ping_pong: bool = False,
    task: bool | None = None,
    whole: bool | None = None,
    buffers: int | None = None,
    **more: Any,
) -> wl.Config:
    """A tile of m×n walked in steps of k, in bands of `group` rows of tiles; consumer groups and slots of the
    ring.  ping_pong: each group has tiles of its own.  task: a task of its own stores.  whole: a group's tile
    leaves whole.  buffers: of staging.  more: further meta-parameters."""
    tile = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": group, **more}
    return wl.Config(
        tile,
        num_consumer_groups=groups,
        num_buffers_warp_spec=depth,
        ping_pong="tiles" if ping_pong else None,
        store_task=task,
        store_whole=whole,
        store_buffers=buffers,
    )


# What was fastest somewhere among the shapes of docs/performance.md, on an H200.
GEMM_CONFIGS = [
    config(128, 256, 64, 16, 2, 3),
    config(128, 256, 64, 8, 2, 3),
    config(128, 256, 64, 4, 2, 3),
    config(128, 256, 64, 4, 2, 4, task=True),
    config(128, 192, 64, 16, 2, 4, ping_pong=True, buffers=1),
    config(128, 128, 64, 16, 2, 5),
    config(128, 128, 64, 4, 2, 6),
    config(64, 128, 64, 8, 1, 7),
    config(64, 64, 128, 8, 1, 6),
    config(64, 64, 64, 8, 1, 10),
    config(64, 64, 64, 8, 1, 12),
    config(128, 192, 64, 4, 2, 4, ping_pong=True, buffers=1),
    config(128, 128, 64, 4, 2, 5, ping_pong=True, task=True),
    # Few rows, made as columns of the transpose (swap-AB): a stream of B, as many bytes in flight as fit.
    config(16, 64, 128, 8, 1, 11),
    config(16, 64, 256, 8, 1, 5),
    config(16, 128, 64, 8, 1, 12),
    config(16, 128, 128, 8, 1, 6),
    config(32, 64, 128, 8, 1, 9),
    config(32, 128, 64, 8, 1, 11),
]


def in_order_config(
    m: int, n: int, k: int, group: int, warps: int, depth: int, **more: Any
) -> wl.Config:
    """The same for chips whose products are done in registers, in order: so many warps and stages."""
    tile = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": group, **more}
    return wl.Config(tile, num_warps=warps, num_stages=depth, num_consumer_groups=0)


# In 99 KB of shared memory and without spills on sm_80 to sm_120a (test_targets.py); not timed there.
GEMM_IN_ORDER_CONFIGS = [
    in_order_config(128, 128, 32, 8, 4, 4),
    in_order_config(128, 128, 32, 8, 8, 3),
    in_order_config(128, 256, 32, 8, 8, 3),
    in_order_config(128, 64, 32, 8, 4, 4),
    in_order_config(64, 128, 64, 8, 4, 3),
    in_order_config(64, 64, 64, 8, 4, 4),
    in_order_config(16, 128, 64, 8, 4, 4),
    in_order_config(32, 128, 64, 8, 4, 4),
]
SHORT = (16, 32, 64)  # BLOCK_M of the configs for products of few rows


def worth_trying(configs: list[wl.Config], args: dict[str, Any], **_: Any) -> list[wl.Config]:
    """Of these configs those of the fewest rows (`SHORT`) that hold `args["M"]`, else the others."""
    short = [rows for rows in SHORT if args["M"] <= rows]
    mine = short[:1] or {c.kwargs["BLOCK_M"] for c in configs}.difference(SHORT)
    return [c for c in configs if c.kwargs["BLOCK_M"] in mine]


def check_gemm(given: Given) -> None:
    """A and B hold M×K and K×N elements of one 16-bit dtype with the strides given; C has a place of its own
    for each result.  Raises LaunchError."""
    m, n, k = (given.number(name) for name in "MNK")
    a_strides, b_strides, c_strides = (
        (given.number(f"stride_{first}"), given.number(f"stride_{second}"))
        for first, second in (("am", "ak"), ("bk", "bn"), ("cm", "cn"))
    )
    a = given.matrix("a_ptr", (m, k), a_strides, HALVES)
    given.matrix("b_ptr", (k, n), b_strides, (a.dtype,))
    given.matrix("c_ptr", (m, n), c_strides, FLOATS)
    given.one_place_each("c_ptr", (m, n), c_strides)
    given.apart("c_ptr")


gemm = Entry(
    "gemm",
    gemm_pointers,
    check_gemm,
    configs=GEMM_CONFIGS,
    key=["M", "N", "K", "stride_ak", "stride_bk"],
    prune_configs_by={"early_config_prune": worth_trying},
    in_order=GEMM_IN_ORDER_CONFIGS,
)
"""`gemm_pointers`, tuned: `gemm[persistent_grid(M, N, sms)](a, b, c, M, N, K, *strides)`."""


def persistent_grid(m: int, n: int, multiprocessors: int) -> Any:
    """A grid function for the kernels of this file: one program a multiprocessor, or the fewest that
    take no more waves (512 tiles on 132 multiprocessors: 4 waves, for which 128 programs suffice, and
    what idles draws no power)."""

    def grid(meta: dict[str, Any]) -> tuple[int]:
        tiles = wl.cdiv(m, meta["BLOCK_M"]) * wl.cdiv(n, meta["BLOCK_N"])
        waves = wl.cdiv(tiles, multiprocessors)
        return (wl.cdiv(tiles, waves) if tiles else 0,)

    return grid
