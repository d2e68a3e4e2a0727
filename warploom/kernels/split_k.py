"""C = A·B of few tiles: K is split among programs, whose sums meet in memory, in one launch.

With few rows a product takes the time in which B is read, and a grid of fewer tiles than there are
multiprocessors reads it with a part of the chip.  Here SPLIT_K programs share a tile's steps along K.  Each
leaves its sum (f32) in a workspace and draws a number from the tile's counter; who draws the last one adds up
all of them, always in the same order, so that the result does not depend on who that was.

B is read once, so it leaves the L2 first.  Programs begin at different steps of K: where all read the same
columns of B's rows at a time, a few banks of memory answer (3 % of 16×8192×8192 and 16×14336×4096, an H200;
docs/log/2026-11-24-products-of-few-rows.md).

    gemm_split_k   the kernel
    short_gemm     tuned: the fastest of its configs is found at the first call
    workspace      the memory that it needs
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import warploom as wl
import warploom.language as tl
from warploom.kernels.entry import Entry, Given, target_at
from warploom.kernels.gemm import check_gemm
from warploom.runtime.args import device_among
from warploom.target import DEFAULT, Target, named

APART: tl.constexpr = tl.constexpr(5)  # steps between the first ones of neighbouring tiles


@wl.jit
def gemm_split_k(
    a_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    parts_ptr: Any,
    counts_ptr: Any,
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
    SPLIT_K: tl.constexpr,
) -> None:
    """C (M×N) = A (M×K) · B (K×N): A and B f16 or bf16, sums in f32, C of its pointer's dtype.  Strides are
    in elements.

    Grid: tiles of C by SPLIT_K (`programs`).  parts_ptr: BLOCK_M·BLOCK_N f32 for each program.
    counts_ptr: an i32 for each tile, 0 at the first launch; each launch leaves them 0."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0)
    part = tl.program_id(1)
    offs_m = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K)
    first = part * share
    steps = min(share, tl.cdiv(K, BLOCK_K) - first)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, steps):
        at = (first + (tile * APART + step) % steps) * BLOCK_K + offs_k
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + at[None, :] * stride_ak
        b_ptrs = b_ptr + at[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (at[None, :] < K), other=0.0)
        b_mask = (at[:, None] < K) & (offs_n[None, :] < N)
        b = tl.load(b_ptrs, mask=b_mask, other=0.0, eviction_policy="evict_first")
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if SPLIT_K == 1:
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=c_mask)
    else:
        size = BLOCK_M * BLOCK_N
        place = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        of_tile = parts_ptr + tile * (SPLIT_K * size)
        tl.store(of_tile + part * size + place, acc)
        tl.debug_barrier()
        before = tl.atomic_add(counts_ptr + tile, 1)
        if before == SPLIT_K - 1:
            total = tl.load(of_tile + place)
            for z in tl.static_range(1, SPLIT_K):
                total += tl.load(of_tile + z * size + place)
            tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=c_mask)
            tl.store(counts_ptr + tile, 0)  # for the next launch


def config(m: int, n: int, k: int, split: int, depth: int) -> wl.Config:
    """Tiles of m×n in steps of k, each tile's steps shared by `split` programs; slots of the ring."""
    tile = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "SPLIT_K": split}
    return wl.Config(tile, num_consumer_groups=1, num_buffers_warp_spec=depth)


SPLIT_K_CONFIGS = [
    *(config(16, 64, 128, split, 11) for split in (1, 2, 4, 8)),
    config(16, 64, 256, 1, 5),
    *(config(16, 128, 128, split, 6) for split in (1, 2, 4, 8)),
    *(config(32, 64, 128, split, 9) for split in (1, 2, 4, 8)),
]


def in_order_config(m: int, n: int, k: int, split: int, depth: int) -> wl.Config:
    """The same for chips whose products are done in registers, in order: so many stages."""
    tile = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "SPLIT_K": split}
    return wl.Config(tile, num_stages=depth, num_consumer_groups=0)


# In 99 KB of shared memory and without spills on sm_80 to sm_120a (test_library_targets.py); not timed there.
SPLIT_K_IN_ORDER_CONFIGS = [
    *(in_order_config(16, 64, 128, split, 4) for split in (1, 2, 4, 8)),
    *(in_order_config(16, 128, 64, split, 5) for split in (1, 2, 4, 8)),
    *(in_order_config(32, 64, 128, split, 4) for split in (1, 2, 4, 8)),
]


def programs(m: int, n: int) -> Any:
    """A grid function: tiles of C by parts of K."""

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        tiles = wl.cdiv(m, meta["BLOCK_M"]) * wl.cdiv(n, meta["BLOCK_N"])
        return tiles, meta["SPLIT_K"]

    return grid


def worth_trying(configs: list[wl.Config], args: dict[str, Any], **_: Any) -> list[wl.Config]:
    """Of these configs those of the fewest rows that hold `args["M"]` (else of the most), whose programs run
    all at once on the GPU where the arrays are; where none's do, those that don't split."""
    return _worth_trying(configs, args["M"], args["N"], target_at(device_among(args.values())))


def _worth_trying(configs: Sequence[wl.Config], m: int, n: int, target: Target) -> list[wl.Config]:
    heights = sorted({c.kwargs["BLOCK_M"] for c in configs})
    rows = next((rows for rows in heights if m <= rows), heights[-1])
    mine = [c for c in configs if c.kwargs["BLOCK_M"] == rows]
    fit = [c for c in mine if math.prod(programs(m, n)(dict(c.kwargs))) <= target.multiprocessors]
    return fit or [c for c in mine if c.kwargs["SPLIT_K"] == 1]


def workspace(m: int, n: int, target: str = DEFAULT.name) -> tuple[int, int]:
    """(elements of f32, elements of i32): `parts_ptr` and `counts_ptr` of `short_gemm` at these sizes, on
    GPUs of this target.  The latter are 0 before the first product, and need not be set again.  Raises
    CompileError where there is no such target."""
    parts = counts = 1
    chip = named(target)
    for c in _worth_trying(short_gemm.configs_for(chip), m, n, chip):
        tiles, split = programs(m, n)(dict(c.kwargs))
        counts = max(counts, tiles)
        if split > 1:
            parts = max(parts, tiles * split * c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"])
    return parts, counts


def check_short_gemm(given: Given) -> None:
    """As `check_gemm`, and a workspace apart from the matrices.  Raises LaunchError."""
    check_gemm(given)
    target = target_at(device_among(given.named.values())).name
    needed = workspace(given.number("M"), given.number("N"), target)
    for name, dtype, size in zip(("parts_ptr", "counts_ptr"), ("f32", "i32"), needed, strict=True):
        found = given.array(name, (dtype,))
        given.dense(name, (math.prod(found.shape),), (dtype,), written=True)
        if math.prod(found.shape) < size:
            help = f"allocate what workspace(M, N, {target!r}) says"
            raise given.refuse(name, f"of shape {found.shape}", f"{size} elements", help)
    given.apart("c_ptr", "parts_ptr", "counts_ptr")


short_gemm = Entry(
    "short_gemm",
    gemm_split_k,
    check_short_gemm,
    configs=SPLIT_K_CONFIGS,
    key=["M", "N", "K", "stride_ak", "stride_bk"],
    prune_configs_by={"early_config_prune": worth_trying},
    in_order=SPLIT_K_IN_ORDER_CONFIGS,
    tiles=lambda named: programs(named["M"], named["N"])(named),
)
"""`gemm_split_k`, tuned: `short_gemm[programs(M, N)](a, b, c, parts, counts, M, N, K, *strides)`."""
