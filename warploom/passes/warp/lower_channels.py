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
from warploom.ir.core import Builder, Effect, Func, Op, Type, Value
from warploom.ir.ops import arith, cluster, control, mbarrier, smem, task, tile, tma
from warploom.ir.types import Channel, Shared, TensorMap, Tile
from warploom.schedule import rings
from warploom.schedule.model import ChannelPlan, Schedule
from warploom.target import Target


@dataclass(frozen=True)
class Part:
    """An item's place among those with which it shares slots: number `index` of `count` along `axis`."""

    index: int
    count: int
    axis: int


@dataclass(frozen=True, eq=False)
class Item:
    """What a ring brings to each slot.  slots: the memory that it lies in, part: where in it.  maps: its
    tensor maps by the views that it comes from.  piece: bytes of its cp.async copies, or how many of its
    elements a warp group that brings it through registers has in flight.  divided: the axis of which each CTA
    loads its part for all."""

    via: str
    tile: Tile
    slots: Value
    part: Part | None
    maps: Mapping[Value, Value]
    piece: int
    divided: int | None

    def place(self, b: Builder, slot: Value, hint: str = "") -> Value:
        """Where it lies in a slot."""
        place: Value = smem.shared_slot(b, self.slots, slot, hint=hint)
        if self.part is not None:
            at = [build.const(b, 0)] * len(self.tile.shape)
            at[self.part.axis] = build.const(b, self.part.index)
            place = smem.shared_slice(b, place, *at, shape=self.tile.shape, hint=hint)
        return place


@dataclass(frozen=True, eq=False)
class Ring:
    """A channel's declarations.  generic: does any consumer read it by ordinary loads?  rank and everyone:
    this CTA's and the mask of all, where some item is multicast."""

    items: tuple[Item, ...]
    full: Value
    empty: Value
    generic: bool
    rank: Value | None = None
    everyone: Value | None = None

    def filled_by(self, via: str) -> list[Item]:
        """The items that come so."""
        return [x for x in self.items if x.via == via]

    @property
    def expect_bytes(self) -> int:
        """Bytes that TMA brings to one slot."""
        return sum(x.tile.size * x.tile.dtype.bytes for x in self.filled_by("tma"))

    @property
    def only_tma(self) -> bool:
        return len(self.filled_by("tma")) == len(self.items)


def declare(
    func: Func, schedule: Schedule, target: Target, structure: Structure, top: Builder
) -> dict[Value, Ring]:
    """Declares every channel of tiles of the function in front of the tasks."""
    declarations = _Declarations(schedule, Accesses(func, structure, target), top)
    return {
        o.result: declarations.ring(o)
        for o in structure.ops
        if o.kind is task.channel and "number" not in o.attrs["via"]
    }


@dataclass(eq=False)
class _Declarations:
    """Written to `top`, each with a name of its own."""

    schedule: Schedule
    accesses: Accesses
    top: Builder
    names: set[str] = field(default_factory=set)
    shared: dict[Op, Value] = field(default_factory=dict)  # concat -> slots of its parts

    def __post_init__(self) -> None:
        self.structure = self.accesses.structure
        self.tasks = {t.name: t for t in self.schedule.tasks}

    def ring(self, o: Op) -> Ring:
        plan, top = next(c for c in self.schedule.channels if c.name == o.attrs["name"]), self.top
        channel = o.result.type
        assert isinstance(channel, Channel)
        ctas = math.prod(cluster.cluster_of(self.accesses.func)) if plan.multicast else 1
        users = self.structure.users.get(o.result, [])
        items = tuple(self.item(plan, n, t, users, ctas) for n, t in enumerate(channel.items))
        producer, first = self.tasks[plan.producer], self.schedule.tasks[0]
        filling = producer.warps or first.warps * first.replicas  # an inline task runs in the first
        threads = self.accesses.target.warp_size * filling
        arrivals = {"tma": 1, "cp_async": threads, "registers": filling}
        # Where replicas take the iterations of a loop in turn, one of them reads what is loaded in it.
        loop = self.schedule.ping_pong_loop
        alone = loop and any(p.id == loop for p in self.structure.enclosing(users[0]))
        readers = (self.tasks[c] for c in plan.consumers)
        reading = sum(t.warps * (1 if alone else t.replicas) for t in readers)
        everyone = build.const(top, (1 << ctas) - 1, hint="everyone") if ctas > 1 else None
        suffix = "" if len(self.schedule.channels) == 1 else f"_{plan.name}"
        full, empty = (
            mbarrier.mbarrier_alloc(top, name=name, n=plan.depth, count=count, hint=name)
            for name, count in (
                (build.unique(f"full{suffix}", self.names), sum(arrivals[v] for v in {*plan.via})),
                (build.unique(f"empty{suffix}", self.names), reading * ctas),
            )
        )
        target = self.accesses.target
        taken = [u.result for u in users if u.kind is task.take]
        return Ring(
            items,
            full,
            empty,
            generic=any(needs_registers(self.structure, v, target, first.warps) for v in taken),
            rank=cluster.cta_rank(top, hint="cta") if ctas > 1 else None,
            everyone=everyone,
        )

    def item(self, plan: ChannelPlan, n: int, t: Type, users: Sequence[Op], ctas: int) -> Item:
        assert isinstance(t, Tile)
        via, divided = plan.via[n], plan.multicast[n] if plan.multicast else None
        own = [u for u in users if u.attrs.get("item") == n]
        take = next(u.result for u in own if u.kind is task.take)
        fills = [u for u in own if u.kind in (task.produce, task.put)]
        memory_inner = _memory_inner(self.accesses, fills[0], len(t.shape))
        inner, swizzle = rings.item_layout(self.structure, take, memory_inner)
        hint = take.hint or f"{plan.name}{n}"
        slots, part = self.slots(take, t, hint, plan.depth, inner, swizzle)
        maps: dict[Value, Value] = {}
        piece = 0
        if via == "tma":
            if inner != memory_inner:
                raise InternalError(f"TMA can't transpose item {n} of channel {plan.name}")
            box = _part(t.shape, divided, ctas)
            for u in fills:
                view, walks = u.operands[2], _walks_rows(self.accesses, u, t, inner)
                if view in maps:
                    continue
                narrow: dict[str, Any] = {} if walks else {"promote": 128}
                how = {"box": box, "inner": inner, "swizzle": swizzle, **narrow}
                maps[view] = tma.tensor_map(self.top, view, hint=f"{hint}_map", **how)
        elif via == "cp_async":
            piece = _piece_bytes(self.accesses, fills[0], t)
            if not piece:
                raise InternalError(f"item {n} of channel {plan.name} can't be copied by cp.async")
        elif via == "registers":
            budget = self.tasks[plan.producer].registers or 0
            far = inner == memory_inner and budget >= _REGISTERS_OF_FAR
            near = max(_NEAR, _FAR_BYTES // t.dtype.bytes) if far else _NEAR
            piece = near * self.accesses.target.group_threads
        return Item(via, t, slots, part, maps, piece, divided)

    def slots(
        self, take: Value, t: Tile, hint: str, depth: int, inner: int, swizzle: int
    ) -> tuple[Value, Part | None]:
        """The memory that an item lies in, and where; items that are read as one share it."""
        shape, part = t.shape, None
        joined = rings.joined(self.structure, take)
        if joined is not None:
            concat, index, axis = joined
            part = Part(index, len(concat.operands), axis)
            if concat in self.shared:
                return self.shared[concat], part
            shape = tuple(n * part.count if a == axis else n for a, n in enumerate(shape))
            hint = concat.result.hint or hint
        slots: Value = smem.shared_alloc(
            self.top,
            name=build.unique(hint, self.names),
            lead=(depth,),
            shape=shape,
            dtype=t.dtype,
            inner=inner,
            swizzle=swizzle,
            hint=f"{hint}_smem",
        )
        if joined is not None:
            self.shared[joined[0]] = slots
        return slots, part


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

    def comes(via: str) -> list[tuple[Item, Source]]:
        return [(x, y) for x, y in zip(ring.items, sources, strict=True) if x.via == via]

    def wait(b: Builder) -> None:
        free = arith.xor(b, phase, build.const(b, 1), hint="free")
        # what consumers of other CTAs read by ordinary loads is over, too
        foreign = ring.everyone is not None and ring.generic
        wide: dict[str, Any] = {"scope": "cluster"} if foreign else {}
        mbarrier.mbarrier_wait(b, ring.empty, slot, free, **wide)

    def copies(b: Builder) -> None:
        mbarrier.mbarrier_expect(b, ring.full, slot, bytes=ring.expect_bytes)
        for x, source in comes("tma"):
            view, *at = source.box
            place = x.place(b, slot, hint=x.slots.hint.replace("_smem", "_slot"))
            if x.divided is not None:
                _load_part(b, ring, x, place, slot, source)
            else:
                tma.tma_load(b, x.maps[view], place, ring.full, slot, *at, **source.policy)

    def both(b: Builder) -> None:
        wait(b)
        copies(b)

    if ring.only_tma:
        if elected:
            both(b)
        else:
            build.elect(b, both)
        return
    loaded = {x: x.load(b) for x in sources if x.load is not None}
    wait(b)
    if comes("tma"):
        build.elect(b, copies)
    for x, source in comes("cp_async"):
        place = x.place(b, slot)
        pointers, *rest = source.box
        smem.cp_async(b, pointers, place, *rest, bytes=x.piece)
    if comes("cp_async"):
        mbarrier.cp_async_arrive(b, ring.full, slot)
    for x, source in comes("registers"):
        place = x.place(b, slot)
        if source in loaded:
            smem.shared_store(b, place, loaded[source])
        else:
            _copy_box(b, source, place, replicas, x.piece)
    if comes("registers"):
        smem.fence_async(b)
        mbarrier.mbarrier_arrive(b, ring.full, slot, by="warp")


def _load_part(
    b: Builder, ring: Ring, item: Item, place: Value, slot: Value, source: Source
) -> None:
    """This CTA's part of an item, for all CTAs of the cluster."""
    axis, rank, everyone = item.divided, ring.rank, ring.everyone
    tensor_map = item.maps[source.box[0]]
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
    if ring.filled_by("cp_async"):
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
