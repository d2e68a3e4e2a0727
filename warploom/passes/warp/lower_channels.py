"""Channels as shared memory and mbarriers: what a ring is made of (part of partition_code; what is done with
it: ring_protocol.py).

Items that are read as one (`concat`) lie side by side in one slot, and each is filled as a part of it.

Full barriers expect one arrival for TMA (with the bytes of all its items), one of every thread for
cp.async, one of every warp for ordinary stores.  Empty ones expect every warp of every consumer replica.  A
ring that completes by group has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from warploom.analysis.access import Accesses
from warploom.analysis.matrix_units import doing
from warploom.analysis.structure import Structure
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.core import Builder, Func, Op, Type, Value
from warploom.ir.ops import cluster, control, smem, task, tile, tma
from warploom.ir.types import Channel, Tile, View
from warploom.schedule import rings
from warploom.schedule.model import ChannelPlan, Schedule
from warploom.target import Target

# A box that goes through registers is cut into pieces of at most so many elements a thread: many enough to be
# on their way at a time, few enough for the producer's registers.  Of rows that are not aligned, the units
# around take twice their bytes.
_NEAR = 32
_FAR_BYTES, _REGISTERS_OF_FAR = 128, 104
_PIECES = "cp_async"  # how threads copy, a piece each


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
    """A channel's declarations.  full and empty: its mbarriers, of rings that have them.  generic: does any
    consumer read it by ordinary loads?  by_engine: does one multiply it where it lies?  rank and everyone:
    this CTA's and the mask of all, where some item is multicast."""

    items: tuple[Item, ...]
    depth: int
    barriers: tuple[Value, Value] | None
    generic: bool
    by_engine: bool
    rank: Value | None = None
    everyone: Value | None = None

    @property
    def full(self) -> Value:
        assert self.barriers is not None
        return self.barriers[0]

    @property
    def empty(self) -> Value:
        assert self.barriers is not None
        return self.barriers[1]

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


OwnMaps: TypeAlias = dict[Value, list[Value]]  # view -> descriptors of it that the kernel writes


def declare(
    func: Func, schedule: Schedule, target: Target, structure: Structure, top: Builder
) -> tuple[dict[Value, Ring], OwnMaps]:
    """Declares every channel of tiles of the function before the tasks."""
    channels = [
        o for o in structure.ops if o.kind is task.channel and "number" not in o.attrs["via"]
    ]
    declarations = _Declarations(schedule, Accesses(func, target), top)
    reads = {o.attrs["name"]: declarations.reads(o) for o in channels}
    return {o.result: declarations.ring(o, reads) for o in channels}, declarations.own_maps


@dataclass(eq=False)
class _Declarations:
    """Written to `top`, each with a name of its own."""

    schedule: Schedule
    accesses: Accesses
    top: Builder
    names: set[str] = field(default_factory=set)
    shared: dict[Op, Value] = field(default_factory=dict)  # concat -> slots of its parts
    own_maps: OwnMaps = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.structure = self.accesses.structure
        self.tasks = {t.name: t for t in self.schedule.tasks}

    def reads(self, o: Op) -> set[bool]:
        """Of those who read a channel's items: are they engines, which multiply these where they lie?"""
        users, target = self.structure.users.get(o.result, ()), self.accesses.target
        taken = (u.result for u in users if u.kind is task.take)
        readers = (r for v in taken for r in rings.real_users(self.structure, v))
        warps = self.schedule.tasks[0].warps
        return {in_place(u, x) and doing(u, target, warps).is_async for u, x in readers}

    def ring(self, o: Op, reads: Mapping[str, set[bool]]) -> Ring:
        plan, top = next(c for c in self.schedule.channels if c.name == o.attrs["name"]), self.top
        channel = o.result.typed(Channel)
        ctas = math.prod(cluster.cluster_of(self.accesses.func)) if plan.multicast else 1
        users = self.structure.users.get(o.result, [])
        items = tuple(self.item(plan, n, t, users, ctas) for n, t in enumerate(channel.items))
        everyone = build.const(top, (1 << ctas) - 1, hint="everyone") if ctas > 1 else None
        return Ring(
            items,
            plan.depth,
            None if self.in_groups(plan, reads) else self.barriers(plan, users, ctas),
            generic=False in reads[plan.name],
            by_engine=True in reads[plan.name],
            rank=cluster.cta_rank(top, hint="cta") if ctas > 1 else None,
            everyone=everyone,
        )

    def in_groups(self, plan: ChannelPlan, reads: Mapping[str, set[bool]]) -> bool:
        """Do those who read a ring fill it themselves, and wait for groups of their own copies?  Where
        copies can also arrive at mbarriers, groups take fewer instructions in loops that load by them alone,
        for no engine, before which they would have to be fenced."""
        engine = self.accesses.target.copy_engine("pieces")
        if engine is None or self.tasks[plan.producer].warps or "tma" in plan.via:
            return False
        ahead = [c for c in self.schedule.channels if c.depth > 1 and c.name in reads]
        alone = all({*c.via} == {_PIECES} and True not in reads[c.name] for c in ahead)
        return engine.completes == "group" or (plan in ahead and alone)

    def barriers(self, plan: ChannelPlan, users: Sequence[Op], ctas: int) -> tuple[Value, Value]:
        """The mbarriers of a ring, full and empty."""
        producer, first = self.tasks[plan.producer], self.schedule.tasks[0]
        filling = producer.warps or first.warps * first.replicas  # an inline task runs in the first
        threads = self.accesses.target.warp_size * filling
        arrivals = {"tma": 1, _PIECES: threads, "registers": filling}
        # Where replicas take the iterations of a loop in turn, one of them reads what is loaded in it.
        loop = self.schedule.ping_pong_loop
        alone = loop and any(p.id == loop for p in self.structure.enclosing(users[0]))
        readers = (self.tasks[c] for c in plan.consumers)
        reading = sum(t.warps * (1 if alone else t.replicas) for t in readers)
        suffix = "" if len(self.schedule.channels) == 1 else f"_{plan.name}"
        full, empty = (build.unique(f"{x}{suffix}", self.names) for x in ("full", "empty"))
        filled = sum(arrivals[v] for v in {*plan.via})
        return (
            build.barriers(self.top, full, plan.depth, filled),
            build.barriers(self.top, empty, plan.depth, reading * ctas),
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
                maps[view] = self.map(view, f"{hint}_map", how)
        elif via == _PIECES:
            piece = _piece_bytes(self.accesses, fills[0], t)
            if not piece:
                raise InternalError(f"item {n} of channel {plan.name} can't be copied by cp.async")
        elif via == "registers":
            budget = self.tasks[plan.producer].registers or 0
            far = inner == memory_inner and budget >= _REGISTERS_OF_FAR
            near = max(_NEAR, _FAR_BYTES // t.dtype.bytes) if far else _NEAR
            piece = near * self.accesses.target.group_threads
        return Item(via, t, slots, part, maps, piece, divided)

    def map(self, view: Value, hint: str, how: dict[str, Any]) -> Value:
        """A descriptor of a view: the launch encodes it, or where it can't, the kernel writes it."""
        made = self.structure.maker(view)
        if made is not None and all(map(self.accesses.invariant, made.operands)):
            return tma.tensor_map(self.top, view, hint=hint, **how)
        t, name = view.typed(View), build.unique(hint, self.names)
        own = tma.map_alloc(self.top, name=name, rank=t.rank, dtype=t.dtype, hint=hint, **how)
        self.own_maps.setdefault(view, []).append(own)
        return own

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
        name, held = build.unique(hint, self.names), Tile(shape, t.dtype)
        slots = build.slots(self.top, held, (depth,), name, f"{hint}_smem", inner, swizzle)
        if joined is not None:
            self.shared[joined[0]] = slots
        return slots, part


def _part(shape: tuple[int, ...], axis: int | None, ctas: int) -> tuple[int, ...]:
    """The shape of what one CTA loads of an item."""
    return tuple(n // ctas if a == axis else n for a, n in enumerate(shape))


def _walks_rows(accesses: Accesses, fill: Op, t: Tile, inner: int) -> bool:
    """Does this program soon read what lies after a box's row in memory?  Then the L2 may fetch 256 bytes
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
    views = rings.is_view(o) and v in o.operands
    return views or (o.kind is tile.dot and v in o.operands[:2])
