"""TMA: boxes of tensors between global and shared memory, which one thread asks for (inside elect).

Semantics follow the PTX ISA, cp.async.bulk.tensor.
"""

from __future__ import annotations

import math

from warploom.ir.core import HARDWARE, Effect, Family, Runs, op, require
from warploom.ir.ops.mbarrier import check_barrier
from warploom.ir.ops.smem import SWIZZLES
from warploom.ir.ops.tile import check_policy
from warploom.ir.types import Barriers, DType, Scalar, Shared, TensorMap, View
from warploom.layout.shared import aligned_panels

PROMOTIONS = (64, 128, 256)
MAP_BYTES = 128  # of a descriptor


_WHOLE, _FLOAT16 = ("i32", "u32", "u64"), ("f16", "bf16")


_BITS = ("i32", "u32", "i64", "u64")


# Element types of TMA's reductions (PTX ISA, "cp.reduce.async.bulk.tensor").
REDUCTIONS: dict[str, tuple[str, ...]] = {
    "add": (*_WHOLE, "f32", *_FLOAT16),
    **dict.fromkeys(("min", "max"), (*_BITS, *_FLOAT16)),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("and", "or", "xor"), _BITS),
}


@op(Family.PLACE, levels=HARDWARE)
def tensor_map(
    v: View,
    *,
    box: tuple[int, ...],
    inner: int,
    swizzle: int,
    promote: int = 256,
    thin: tuple[int, ...] | None = None,
) -> TensorMap:
    """A TMA descriptor of the view, encoded by the host at launch from launch-invariant operands.

    The emitted kernel takes it as a __grid_constant__ parameter.  `box` and `inner` count the tile's axes,
    which are the view's without the `thin` ones (none given: without its first ones); in those the box is
    one element thick.
    promote: bytes (64, 128, 256) that the L2 fetches together along a row (cuTensorMapEncodeTiled).
    """
    return _map(v.rank, v.dtype, box, inner, swizzle, promote, thin)


@op(Family.PLACE, levels=HARDWARE)
def map_alloc(
    *,
    name: str,
    rank: int,
    dtype: DType,
    box: tuple[int, ...],
    inner: int,
    swizzle: int,
    promote: int = 256,
    thin: tuple[int, ...] | None = None,
) -> TensorMap:
    """Global memory of the CTA's own for a TMA descriptor that the kernel writes (`map_write`), of views of
    so many axes.  The attributes are those of `tensor_map`."""
    return _map(rank, dtype, box, inner, swizzle, promote, thin)


@op(Family.FENCE, levels=HARDWARE, effect=Effect.SYNC | Effect.READ | Effect.WRITE, runs=Runs.ONE)
def map_write(m: TensorMap, v: View) -> None:
    """Makes m the TMA descriptor of the view, for loads that the executing thread asks for from now on
    (tensormap.replace, fence.proxy.tensormap).  Those by the descriptor before are over.

    The base and all strides but that of `inner`, which is 1, are multiples of 16 bytes, and strides are
    positive.  A view with an extent of 0 or less has no elements in bounds."""
    require((v.rank, v.dtype) == (m.rank, m.dtype), f"map_write of {v} to {m}")


def _map(
    rank: int,
    dtype: DType,
    box: tuple[int, ...],
    inner: int,
    swizzle: int,
    promote: int,
    thin: tuple[int, ...] | None,
) -> TensorMap:
    """The type rule of what declares a descriptor."""
    if thin is None:
        thin = tuple(range(rank - len(box)))
    proper = list(thin) == sorted(set(thin)) and all(0 <= a < rank for a in thin)
    require(proper and len(box) + len(thin) == rank, f"box {box} of {rank} axes, thin along {thin}")
    require(promote in PROMOTIONS, f"promote is one of {PROMOTIONS} bytes, not {promote}")
    require(swizzle in SWIZZLES, f"swizzle is one of {SWIZZLES} bytes, not {swizzle}")
    row, rows = box[inner] * dtype.bytes, math.prod(box) // box[inner]
    require(
        not swizzle or aligned_panels(row, rows, swizzle),
        f"a box of {rows} rows of {row} bytes, in panels of {swizzle}: whole panels of a multiple of 8 rows",
        "tma-shape",
    )
    return TensorMap(box, dtype, inner, swizzle, thin)


def _fits(m: TensorMap, s: Shared) -> bool:
    """Whether a slot, or a part whose rows are adjacent in each panel, is a box of the map."""
    outer = [a for a, n in enumerate(s.shape) if a != s.inner and n > 1]
    if s.peer or any(s.shape[a] != s.box[a] for a in outer[1:]):
        return False
    box = m.box, m.dtype, m.inner, m.swizzle
    return not s.lead and (s.shape, s.dtype, s.inner, s.swizzle) == box


@op(Family.ISSUE, levels=HARDWARE, effect=Effect.SYNC | Effect.READ | Effect.WRITE, runs=Runs.ONE)
def tma_load(
    m: TensorMap,
    dst: Shared,
    b: Barriers,
    index: Scalar,
    *offsets: Scalar,
    multicast: bool = False,
    cache_policy: str | None = None,
) -> None:
    """cp.async.bulk.tensor global → shared of the box at offsets (i32, the view's axes); elements out of
    bounds are 0.  Its tile_bytes complete on barrier b[index] (complete_tx, counted also for zeros).

    multicast: the last operand is a mask (i32) of CTAs of the cluster, bit r for rank r.  The box goes to the
    same place in each one's shared memory, and its bytes complete on each one's barrier b[index].
    cache_policy: a hint for the L2 (tile.CACHE_POLICIES)."""
    check_policy(cache_policy)
    require(_fits(m, dst), f"tma_load of {m} into {dst}", "tma-shape")
    require(len(offsets) == m.rank + multicast, f"{m} takes {m.rank} offsets")
    check_barrier(b, index)


@op(Family.ISSUE, levels=HARDWARE, effect=Effect.SYNC | Effect.READ | Effect.WRITE, runs=Runs.ONE)
def tma_store(
    m: TensorMap,
    src: Shared,
    *offsets: Scalar,
    reduce: str | None = None,
    cache_policy: str | None = None,
) -> None:
    """cp.async.bulk.tensor shared → global, in the executing thread's current bulk group; elements out
    of bounds are dropped, but along the inner axis in whole units of 16 bytes: a unit that holds one
    element in bounds is written whole (seen on an H200).

    reduce: combines each element into global memory (cp.reduce.async.bulk.tensor), atomically one by one,
    for the dtypes of REDUCTIONS; at the end of a row whole units of 16 bytes likewise.  inc: 0 where the old
    value is at least the slot's, else one more; dec: the slot's where the old value is 0 or greater, else one
    less.  cache_policy: a hint for the L2.
    """
    check_policy(cache_policy)
    if reduce is not None:
        known = ", ".join(REDUCTIONS)
        require(reduce in REDUCTIONS, f"TMA reduces by {known}, not {reduce}", "tma-reduce")
        dtypes = REDUCTIONS[reduce]
        require(
            m.dtype.name in dtypes,
            f"TMA has no {reduce} of {m.dtype} (there is one of {', '.join(dtypes)})",
            "tma-reduce",
        )
    require(_fits(m, src), f"tma_store of {src} to {m}")
    require(len(offsets) == m.rank, f"{m} takes {m.rank} offsets")


@op(Family.SIGNAL, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ONE)
def tma_store_commit() -> None:
    """cp.async.bulk.commit_group: closes the executing thread's bulk group."""


@op(Family.WAIT, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ONE)
def tma_store_wait(*, pending: int, read: bool = True) -> None:
    """cp.async.bulk.wait_group(.read): until at most `pending` of the thread's latest bulk groups have
    not finished (reading their source, where read)."""
    require(pending >= 0, "pending is not negative")
