"""What the four communication ops become (part of partition_code, which knows no rings itself).

    producer_acquire   mbarrier_wait(empty[slot], phase ^ 1); TMA: mbarrier_expect(full[slot], bytes)
    produce, put       tma_load (completes on full[slot]) | cp_async | load, shared_store
    producer_commit    TMA: nothing | cp_async_arrive | fence_async, mbarrier_arrive
    consumer_wait      mbarrier_wait(full[slot], phase); after cp.async: fence_async where wgmma reads
    consumer_release   mbarrier_arrive(empty[slot]) by each warp; fence_async before, where ordinary loads
                       read what TMA will overwrite

In a cluster, an item that all CTAs need is loaded once: each CTA multicasts its part of it.  Every full
barrier still expects all bytes; a slot is free when the consumers of all CTAs have released it, each at all
CTAs.

Where who reads a ring fills it, and its copies complete by group, it has no barriers:

    producer_acquire   nothing, but a barrier of the task where the ring has one slot
    producer_commit    cp_async_commit
    consumer_wait      cp_async_wait, then a barrier of the task: others' copies are there, and what was read
                       before it, in slots before this one, is over
    consumer_release   nothing

`b` stands in the task; values are those of the task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warploom.errors import InternalError
from warploom.ir import build, engines
from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import arith, control, mbarrier, smem, task, tile, tma
from warploom.ir.types import Shared, TensorMap, Tile
from warploom.passes.warp.lower_channels import Item, Ring


@dataclass(frozen=True, eq=False)
class Source:
    """What fills one item: a box of a view, pointers and perhaps their mask, or a tile that `load` puts in
    registers.  view: of the box, as the function at CHANNEL has it.  policy: the load's `cache_policy`."""

    box: tuple[Value, ...] = ()
    view: Value | None = None
    load: Callable[[Builder], Value] | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)


def fill(
    b: Builder,
    ring: Ring,
    slot: Value,
    phase: Value,
    sources: Sequence[Source],
    elected: bool,
    replicas: int,
) -> None:
    """From acquire to commit.  elected: one thread runs this already.  replicas: so many are going to
    share the copies (partition_copies)."""

    def comes(via: str) -> list[tuple[Item, Source]]:
        return [(x, y) for x, y in zip(ring.items, sources, strict=True) if x.via == via]

    def copies(b: Builder) -> None:
        mbarrier.mbarrier_expect(b, ring.full, slot, bytes=ring.expect_bytes)
        for x, source in comes("tma"):
            _, *at = source.box
            place = x.place(b, slot, hint=x.slots.hint.replace("_smem", "_slot"))
            if x.divided is not None:
                _load_part(b, ring, x, place, slot, source)
            else:
                tma.tma_load(b, _map(x, source), place, ring.full, slot, *at, **source.policy)

    def both(b: Builder) -> None:
        _acquire(b, ring, slot, phase)
        copies(b)

    if ring.only_tma:
        if elected:
            both(b)
        else:
            build.elect(b, both)
        return
    loaded = {x: x.load(b) for x in sources if x.load is not None}
    _acquire(b, ring, slot, phase)
    if comes("tma"):
        build.elect(b, copies)
    for x, source in comes("cp_async"):
        place = x.place(b, slot)
        pointers, *rest = source.box
        smem.cp_async(b, pointers, place, *rest, bytes=x.piece)
    if comes("cp_async") and ring.barriers:
        mbarrier.cp_async_arrive(b, ring.full, slot)
    for x, source in comes("registers"):
        place = x.place(b, slot)
        if source in loaded:
            smem.shared_store(b, place, loaded[source])
        else:
            _copy_box(b, source, place, replicas, x.piece)
    if ring.barriers is None:
        engines.CLOSES["copies"](b)
    elif comes("registers"):
        smem.fence_async(b)
        mbarrier.mbarrier_arrive(b, ring.full, slot, by="warp")


def _acquire(b: Builder, ring: Ring, slot: Value, phase: Value) -> None:
    """producer_acquire, but for the bytes that TMA brings."""
    if ring.barriers is None:
        if ring.depth == 1:
            smem.group_sync(b, scope="task")
        return
    free = arith.xor(b, phase, build.const(b, 1), hint="free")
    # what consumers of other CTAs read by ordinary loads is over, too
    wide: dict[str, Any] = {"scope": "cluster"} if ring.everyone and ring.generic else {}
    mbarrier.mbarrier_wait(b, ring.empty, slot, free, **wide)


def _map(item: Item, source: Source) -> Value:
    assert source.view is not None
    return item.maps[source.view]


def _load_part(
    b: Builder, ring: Ring, item: Item, place: Value, slot: Value, source: Source
) -> None:
    """This CTA's part of an item, for all CTAs of the cluster."""
    axis, rank, everyone = item.divided, ring.rank, ring.everyone
    tensor_map = _map(item, source)
    assert isinstance(tensor_map.type, TensorMap) and axis is not None
    assert rank is not None and everyone is not None
    shape = tensor_map.type.box
    zero = build.const(b, 0)
    blocks = [rank if a == axis else zero for a in range(len(shape))]
    part = smem.shared_slice(b, place, *blocks, shape=shape, hint=place.hint)
    at = list(source.box[1:])
    along = tensor_map.type.axes[axis]
    share = arith.mul(b, rank, build.const(b, shape[axis]))
    at[along] = arith.add(b, at[along], share)
    how = {"multicast": True, **source.policy}
    tma.tma_load(b, tensor_map, part, ring.full, slot, *at, everyone, **how)


def _copy_box(b: Builder, source: Source, place: Value, replicas: int, piece_elements: int) -> None:
    """A box of two axes or more through registers, in a loop over pieces (unrolled, the addresses of all
    would be kept in registers across the loop around)."""
    t = place.typed(Shared)
    (view, *offsets), policy = source.box, source.policy
    rank = len(t.shape)
    # Cut where rows of 8 keep the swizzle's pattern, in each replica's part.
    axis = int(t.inner == 0)
    extent, other = t.shape[axis], math.prod(t.shape) // t.shape[axis]
    unit = 8 // math.gcd(8, other // t.shape[t.inner]) * replicas
    most = piece_elements * replicas // other
    rows = [n for n in range(unit, extent + 1, unit) if extent % n == 0 and n <= most]
    step = max(rows, default=unit if extent % unit == 0 else extent)
    if step == extent:
        value = tile.load_box(b, view, *offsets, shape=t.shape, **policy)
        smem.shared_store(b, place, value)
        return
    shape = tuple(step if a == axis else n for a, n in enumerate(t.shape))
    zero, one = build.const(b, 0), build.const(b, 1)

    def piece(inner: Builder, n: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        at = list(offsets)
        along = len(at) - rank + axis
        at[along] = arith.add(inner, at[along], arith.mul(inner, n, build.const(inner, step)))
        value = tile.load_box(inner, view, *at, shape=shape, hint="piece", **policy)
        blocks = [n if i == axis else zero for i in range(rank)]
        part = smem.shared_slice(inner, place, *blocks, shape=shape)
        smem.shared_store(inner, part, value)
        return carried

    build.for_(b, (zero, build.const(b, extent // step), one), (), piece, iv="piece", unroll=1)


def wait(b: Builder, ring: Ring, slot: Value, phase: Value) -> None:
    """consumer_wait.  cp.async wrote by the generic proxy: whoever has observed that fences before an engine
    reads it.  Ordinary loads, those of mma.sync's operands among them, read by the same proxy."""
    if ring.barriers is None:
        engines.WAITS["copies"](b, pending=0)
        smem.group_sync(b, scope="task")
        return
    mbarrier.mbarrier_wait(b, ring.full, slot, phase)
    if ring.by_engine and ring.filled_by("cp_async"):
        smem.fence_async(b)


def release(b: Builder, ring: Ring, slot: Value) -> None:
    """consumer_release, before what was computed since something last read memory: the adding up of a
    promoted sum need not keep the slot; nor need a loop that finds in registers what was loaded before it."""
    at = _loaded(b.ops, ring) or len(b.ops)
    while at and _only_computes(b.ops[at - 1]) and slot not in b.ops[at - 1].results:
        at -= 1
    after = b.ops[at:]
    del b.ops[at:]
    _release(b, ring, slot)
    b.ops += after


def _loaded(ops: Sequence[Op], ring: Ring) -> int | None:
    """How many of the ops load all of a slot into registers, where a loop follows them; None where others
    read it."""
    places = {x.slots for x in ring.items}
    last = 0
    for at, o in enumerate(ops, 1):
        for x in o.all_ops:
            if places.isdisjoint(x.operands):
                continue
            last = at
            if x.kind in smem.PARTS:
                places.update(x.results)
            elif x.kind is not smem.shared_load:
                return None
    return last if last and any(o.kind in control.LOOPS for o in ops[last:]) else None


def _only_computes(o: Op) -> bool:
    """A dot in registers does not: its operands would all have to be loaded before the release."""
    return o.computes and o.kind is not tile.dot


def _release(b: Builder, ring: Ring, slot: Value) -> None:
    if ring.barriers is None:
        return
    if ring.generic and ring.filled_by("tma"):
        smem.fence_async(b)
    if ring.everyone is None:
        mbarrier.mbarrier_arrive(b, ring.empty, slot, by="warp")
        return
    # wgmma's reads are over: only ordinary ones have to be released, and what was stored by ordinary ones
    ordinary = ring.generic or not ring.only_tma
    relaxed: dict[str, Any] = {} if ordinary else {"sem": "relaxed"}
    mbarrier.mbarrier_arrive(b, ring.empty, slot, ring.everyone, by="warp", **relaxed)


def view(b: Builder, o: Op, place: Value, blocks: Sequence[Value]) -> Value:
    """A transpose, slice_block or concat of an item, as a view of its slot."""
    t = o.result.typed(Tile)
    part: Value = place
    if o.kind is tile.transpose:
        part = smem.shared_transpose(b, place, perm=o.attrs["perm"], hint=o.result.hint)
    elif o.kind is task.slice_block:
        part = smem.shared_slice(b, place, *blocks, shape=t.shape, hint=o.result.hint)
    elif o.kind is tile.slice_tile:
        parts = zip(o.attrs["offset"], t.shape, strict=True)
        at = [build.const(b, first // n) for first, n in parts]
        part = smem.shared_slice(b, place, *at, shape=t.shape, hint=o.result.hint)
    elif o.kind is not tile.concat:  # each part of which stands for the whole already
        raise InternalError(f"{o.kind.name} is no view")
    return part
