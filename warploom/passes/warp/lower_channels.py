"""Channels as shared memory and mbarriers: the part of partition_code that knows rings.

    producer_acquire   mbarrier_wait(empty[slot], phase ^ 1); TMA: mbarrier_expect(full[slot], bytes)
    produce, put       tma_load (completes on full[slot]) | cp_async | load, shared_store
    producer_commit    TMA: nothing | cp_async_arrive | fence_async, mbarrier_arrive
    consumer_wait      mbarrier_wait(full[slot], phase); after cp.async: fence_async where wgmma reads
    consumer_release   mbarrier_arrive(empty[slot]) by each warp; fence_async before, where ordinary loads
                       read what TMA will overwrite

In a cluster, an item that all CTAs need is loaded once: each CTA multicasts its part of it.  Every full
barrier still expects all bytes; a slot is free when the consumers of all CTAs have released it, each at all
CTAs.

Items that are read as one (`concat`) lie side by side in one slot, and each is filled as a part of it.

Full barriers expect one arrival for TMA (with the bytes of all its items), one of every thread for
cp.async, one of every warp for ordinary stores.  Empty ones expect every warp of every consumer replica.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warploom.analysis.access import Accesses
from warploom.analysis.matrix_units import doing
from warploom.analysis.structure import Structure
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.core import Builder, Effect, Func, Op, Value
from warploom.ir.ops import arith, cluster, control, mbarrier, smem, task, tile, tma
from warploom.ir.types import Channel, Shared, TensorMap, Tile
from warploom.schedule import rings
from warploom.schedule.model import Schedule, TaskPlan
from warploom.target import Target


@dataclass(frozen=True)
class Part:
    """An item's place among those with which it shares slots: number `index` of `count` along `axis`."""

    index: int
    count: int
    axis: int


@dataclass(frozen=True, eq=False)
class Ring:
    """A channel's declarations.  items[i]: the slots that item i lies in, parts[i] where in them; maps[i] are
    item i's tensor maps by the views that it comes from, pieces[i] the bytes of its cp.async copies, or how
    many of its elements a warp group that brings it through registers has on their way; generic: does any
    consumer read it by ordinary loads?  multicast[i]: the axis of item i that the CTAs divide; rank and
    everyone: this CTA's and the mask of all, where some item is multicast."""

    via: tuple[str, ...]
    tiles: tuple[Tile, ...]
    items: tuple[Value, ...]
    parts: tuple[Part | None, ...]
    maps: tuple[Mapping[Value, Value], ...]
    pieces: tuple[int, ...]
    full: Value
    empty: Value
    generic: bool
    multicast: tuple[int | None, ...]
    rank: Value | None = None
    everyone: Value | None = None

    @property
    def expect_bytes(self) -> int:
        """Bytes that TMA brings to one slot."""
        tiles = (t for t, via in zip(self.tiles, self.via, strict=True) if via == "tma")
        return sum(t.size * t.dtype.bytes for t in tiles)

    @property
    def only_tma(self) -> bool:
        return all(v == "tma" for v in self.via)


def declare(
    func: Func, schedule: Schedule, target: Target, structure: Structure, top: Builder
) -> dict[Value, Ring]:
    """Declares every channel of tiles of the function in front of the tasks."""
    accesses = Accesses(func, structure, target)
    plans = {t.name: t for t in schedule.tasks}
    names: set[str] = set()
    found = {}
    for o in structure.ops:
        if o.kind is task.channel and "number" not in o.attrs["via"]:
            found[o.result] = _declare(o, schedule, accesses, plans, names, top)
    return found


def _declare(
    o: Op,
    schedule: Schedule,
    accesses: Accesses,
    plans: dict[str, TaskPlan],
    names: set[str],
    top: Builder,
) -> Ring:
    structure = accesses.structure
    plan = next(c for c in schedule.channels if c.name == o.attrs["name"])
    channel = o.result.type
    assert isinstance(channel, Channel)
    ctas = math.prod(cluster.cluster_of(accesses.func)) if plan.multicast else 1
    multicast = plan.multicast or (None,) * len(channel.items)
    users = structure.users.get(o.result, [])
    takes = {u.attrs["item"]: u.result for u in reversed(users) if u.kind is task.take}
    shared: dict[Op, Value] = {}  # concat -> slots of its parts
    tiles: list[Tile] = []
    items: list[Value] = []
    parts: list[Part | None] = []
    maps: list[dict[Value, Value]] = []
    pieces: list[int] = []
    for n, t in enumerate(channel.items):
        via = plan.via[n]
        assert isinstance(t, Tile)
        tiles.append(t)
        fills = [u for u in users if u.kind in (task.produce, task.put) and u.attrs["item"] == n]
        memory_inner = _memory_inner(accesses, fills[0], len(t.shape))
        inner, swizzle = rings.item_layout(structure, takes[n], memory_inner)
        hint = takes[n].hint or f"{plan.name}{n}"
        shape, slots_hint, place = t.shape, hint, None
        joined = rings.joined(structure, takes[n])
        parts.append(None)
        if joined is not None:
            concat, index, axis = joined
            part = parts[-1] = Part(index, len(concat.operands), axis)
            shape = tuple(n * part.count if a == axis else n for a, n in enumerate(shape))
            slots_hint, place = concat.result.hint or hint, shared.get(concat)
        if place is None:
            place = smem.shared_alloc(
                top,
                name=build.unique(slots_hint, names),
                lead=(plan.depth,),
                shape=shape,
                dtype=t.dtype,
                inner=inner,
                swizzle=swizzle,
                hint=f"{slots_hint}_smem",
            )
        if joined is not None:
            shared[joined[0]] = place
        items.append(place)
        maps.append({})
        pieces.append(0)
        if via == "tma":
            if inner != memory_inner:
                raise InternalError(f"TMA can't transpose item {n} of channel {plan.name}")
            box = _part(t.shape, multicast[n], ctas)
            for u in fills:
                view, walks = u.operands[2], _walks_rows(accesses, u, t, inner)
                if view in maps[n]:
                    continue
                narrow: dict[str, Any] = {} if walks else {"promote": 128}
                how = {"box": box, "inner": inner, "swizzle": swizzle, **narrow}
                maps[n][view] = tma.tensor_map(top, view, hint=f"{hint}_map", **how)
        elif via == "cp_async":
            pieces[n] = _piece_bytes(accesses, fills[0], t)
            if not pieces[n]:
                raise InternalError(f"item {n} of channel {plan.name} can't be copied by cp.async")
        elif via == "registers":
            budget = plans[plan.producer].registers or 0
            far = inner == memory_inner and budget >= _REGISTERS_OF_FAR
            near = max(_NEAR, _FAR_BYTES // t.dtype.bytes) if far else _NEAR
            pieces[n] = near * accesses.target.group_threads
    producer = plans[plan.producer]
    first = next(iter(plans.values()))
    filling = producer.warps or first.warps * first.replicas  # an inline task runs in the first
    count = int("tma" in plan.via) + ("cp_async" in plan.via) * accesses.target.warp_size * filling
    count += ("registers" in plan.via) * filling
    # Where replicas take the iterations of a loop in turn, one of them reads what is loaded in it.
    alone = bool(schedule.ping_pong_loop) and any(
        p.id == schedule.ping_pong_loop for p in structure.enclosing(users[0])
    )
    readers = sum(plans[c].warps * (1 if alone else plans[c].replicas) for c in plan.consumers)
    empty = readers * ctas

    def loaded(v: Value) -> bool:
        return needs_registers(structure, v, accesses.target, first.warps)

    everyone = build.const(top, (1 << ctas) - 1, hint="everyone") if ctas > 1 else None
    suffix = "" if len(schedule.channels) == 1 else f"_{plan.name}"
    full_name, empty_name = (build.unique(f"{k}{suffix}", names) for k in ("full", "empty"))
    return Ring(
        via=plan.via,
        tiles=tuple(tiles),
        items=tuple(items),
        parts=tuple(parts),
        maps=tuple(maps),
        pieces=tuple(pieces),
        full=mbarrier.mbarrier_alloc(
            top, name=full_name, n=plan.depth, count=count, hint=full_name
        ),
        empty=mbarrier.mbarrier_alloc(
            top, name=empty_name, n=plan.depth, count=empty, hint=empty_name
        ),
        generic=any(loaded(u.result) for u in users if u.kind is task.take),
        multicast=multicast,
        rank=cluster.cta_rank(top, hint="cta") if ctas > 1 else None,
        everyone=everyone,
    )


def _part(shape: tuple[int, ...], axis: int | None, ctas: int) -> tuple[int, ...]:
    """The shape of what one CTA loads of an item."""
    return tuple(n // ctas if a == axis else n for a, n in enumerate(shape))


def _walks_rows(accesses: Accesses, fill: Op, t: Tile, inner: int) -> bool:
    """Does this program soon read what lies behind a box's row in memory?  Then the L2 may fetch 256 bytes
    at once; else half of that would be another program's (measured:
    docs/log/2026-11-21-dependent-launches.md)."""
    if t.shape[inner] * t.dtype.bytes >= 256:
        return True
    offset = fill.operands[len(fill.operands) - len(t.shape) + inner]
    structure = accesses.structure
    loop = next((o for o in structure.enclosing(fill) if o.kind is control.for_), None)
    made = structure.made[offset].op
    if loop is None or made is None:
        return False
    return made is loop or structure.within(made, loop.regions[0]) is not None


def _memory_inner(accesses: Accesses, fill: Op, rank: int) -> int | None:
    """The axis of an item that is adjacent in memory, where it comes from a view."""
    if fill.kind is task.produce:
        source, *masks = fill.operands[2:]
        if isinstance(source.type, Tile):
            return rings.pointer_pieces(accesses, source, masks, fill.attrs.get("run", ()))[0]
        view = accesses.structure.maker(source)
    else:
        load = accesses.structure.maker(fill.operands[2])
        boxed = load is not None and load.kind is tile.load_box
        view = accesses.view(load) if load is not None and boxed else None
    return accesses.inner_axis(view, rank)


def _piece_bytes(accesses: Accesses, fill: Op, t: Tile) -> int:
    """Bytes of one cp.async of an item."""
    source, *rest = fill.operands[2:]
    if isinstance(source.type, Tile):
        return rings.pointer_pieces(accesses, source, rest, fill.attrs.get("run", ()))[1]
    return accesses.piece_bytes(fill.with_(operands=(source, *rest)), t.shape)


def in_place(o: Op, v: Value) -> bool:
    """Does `o` take the item (or view of one) v where it lies, as a dot takes its operands?"""
    views = o.kind in rings.VIEWS and v in o.operands
    return views or (o.kind is tile.dot and v is not o.operands[2])


def needs_registers(structure: Structure, v: Value, target: Target, warps: int) -> bool:
    """Is a taken item, or a view of it, read by ordinary loads?  warps: of the task that reads it."""
    users = structure.users.get(v, ())
    return any(
        needs_registers(structure, o.result, target, warps)
        if o.kind in rings.VIEWS
        else not in_place(o, v) or not doing(o, target, warps).reads_shared
        for o in users
    )


def place_of(b: Builder, ring: Ring, item: int, slot: Value, hint: str = "") -> Value:
    """Where an item lies in a slot."""
    place: Value = smem.shared_slot(b, ring.items[item], slot, hint=hint)
    part = ring.parts[item]
    if part is None:
        return place
    zero = build.const(b, 0)
    at = [zero] * len(ring.tiles[item].shape)
    at[part.axis] = build.const(b, part.index)
    place = smem.shared_slice(b, place, *at, shape=ring.tiles[item].shape, hint=hint)
    return place


# ---- what the ops become.  `b` stands in the task; values are those of the task.


@dataclass(frozen=True, eq=False)
class Source:
    """What fills one item: a box of a view, pointers and perhaps their mask, or a tile that `load` puts in
    registers.  policy: the load's `cache_policy`."""

    box: tuple[Value, ...] = ()
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

    def wait(b: Builder) -> None:
        free = arith.xor(b, phase, build.const(b, 1), hint="free")
        # what consumers of other CTAs read by ordinary loads is over, too
        foreign = ring.everyone is not None and ring.generic
        wide: dict[str, Any] = {"scope": "cluster"} if foreign else {}
        mbarrier.mbarrier_wait(b, ring.empty, slot, free, **wide)

    def copies(b: Builder) -> None:
        mbarrier.mbarrier_expect(b, ring.full, slot, bytes=ring.expect_bytes)
        for n, (item, maps) in enumerate(zip(ring.items, ring.maps, strict=True)):
            if not maps:
                continue
            tensor_map = maps[sources[n].box[0]]
            place = place_of(b, ring, n, slot, hint=item.hint.replace("_smem", "_slot"))
            if ring.multicast[n] is not None:
                _load_part(b, ring, n, tensor_map, place, slot, sources[n])
            else:
                at, policy = sources[n].box[1:], sources[n].policy
                tma.tma_load(b, tensor_map, place, ring.full, slot, *at, **policy)

    def both(b: Builder) -> None:
        wait(b)
        copies(b)

    if ring.only_tma:
        if elected:
            both(b)
        else:
            build.elect(b, both)
        return
    loaded = {n: x.load(b) for n, x in enumerate(sources) if x.load is not None}
    wait(b)
    if "tma" in ring.via:
        build.elect(b, copies)
    for n, via in enumerate(ring.via):
        if via == "cp_async":
            place = place_of(b, ring, n, slot)
            source, *rest = sources[n].box
            smem.cp_async(b, source, place, *rest, bytes=ring.pieces[n])
    if "cp_async" in ring.via:
        mbarrier.cp_async_arrive(b, ring.full, slot)
    for n, via in enumerate(ring.via):
        if via == "registers":
            place = place_of(b, ring, n, slot)
            if n in loaded:
                smem.shared_store(b, place, loaded[n])
            else:
                _copy_box(b, sources[n], place, replicas, ring.pieces[n])
    if "registers" in ring.via:
        smem.fence_async(b)
        mbarrier.mbarrier_arrive(b, ring.full, slot, by="warp")


def _load_part(
    b: Builder,
    ring: Ring,
    item: int,
    tensor_map: Value,
    place: Value,
    slot: Value,
    source: Source,
) -> None:
    """This CTA's part of an item, for all CTAs of the cluster."""
    axis, rank, everyone = ring.multicast[item], ring.rank, ring.everyone
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


# A box that goes through registers is cut into pieces of at most so many elements a thread: many enough to be
# on their way at a time, few enough for the producer's registers.  Of rows that are not aligned, the units
# around take twice their bytes.
_NEAR = 32
_FAR_BYTES, _REGISTERS_OF_FAR = 128, 104


def _copy_box(b: Builder, source: Source, place: Value, replicas: int, piece_elements: int) -> None:
    """A two-dimensional box through registers, in a loop over pieces (unrolled, the addresses of all
    would be kept in registers across the loop around)."""
    t = place.type
    assert isinstance(t, Shared)
    (view, *offsets), policy = source.box, source.policy
    axis = 1 - t.inner  # cut where rows of 8 keep the swizzle's pattern, in each replica's part
    extent, other = t.shape[axis], t.shape[t.inner]
    unit = 8 * replicas
    most = piece_elements * replicas // other
    rows = [n for n in range(unit, extent + 1, unit) if extent % n == 0 and n <= most]
    step = max(rows, default=unit if extent % unit == 0 else extent)
    if step == extent:
        value = tile.load_box(b, view, *offsets, shape=t.shape, **policy)
        smem.shared_store(b, place, value)
        return
    shape = (step, other) if axis == 0 else (other, step)
    zero, one = build.const(b, 0), build.const(b, 1)

    def piece(inner: Builder, n: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        at = list(offsets)
        along = len(at) - 2 + axis
        at[along] = arith.add(inner, at[along], arith.mul(inner, n, build.const(inner, step)))
        value = tile.load_box(inner, view, *at, shape=shape, hint="piece", **policy)
        blocks = [n if i == axis else zero for i in range(2)]
        part = smem.shared_slice(inner, place, *blocks, shape=shape)
        smem.shared_store(inner, part, value)
        return carried

    build.for_(b, (zero, build.const(b, extent // step), one), (), piece, iv="piece", unroll=1)


def wait(b: Builder, ring: Ring, slot: Value, phase: Value) -> None:
    """consumer_wait.  cp.async wrote by the generic proxy; whoever has observed that fences."""
    mbarrier.mbarrier_wait(b, ring.full, slot, phase)
    if "cp_async" in ring.via:
        smem.fence_async(b)


def release(b: Builder, ring: Ring, slot: Value) -> None:
    """consumer_release, in front of what was computed since something last read memory: the adding up of a
    promoted sum need not keep the slot."""
    at = len(b.ops)
    while at and _only_computes(b.ops[at - 1]) and slot not in b.ops[at - 1].results:
        at -= 1
    after = b.ops[at:]
    del b.ops[at:]
    _release(b, ring, slot)
    b.ops += after


def _only_computes(o: Op) -> bool:
    """A dot in registers does not: its operands would all have to be loaded before the release."""
    return o.kind.effect is Effect.NONE and not o.regions and o.kind is not tile.dot


def _release(b: Builder, ring: Ring, slot: Value) -> None:
    if ring.generic and "tma" in ring.via:
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
    t = o.result.type
    assert isinstance(t, Tile)
    part: Value = place
    if o.kind is tile.transpose:
        part = smem.shared_transpose(b, place, perm=o.attrs["perm"], hint=o.result.hint)
    elif o.kind is task.slice_block:
        part = smem.shared_slice(b, place, *blocks, shape=t.shape, hint=o.result.hint)
    elif o.kind is not tile.concat:  # each part of which stands for the whole already
        raise InternalError(f"{o.kind.name} is no view")
    return part
