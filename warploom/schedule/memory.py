"""What shared memory is for: the rings, how each is filled and how deep it is, and staging beside them.

Rings are as deep, staging as wide as shared memory allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import prod

from warploom.analysis.scalars import NUMBER_DEPTH, SLOT_BYTES
from warploom.analysis.trip_counts import most_trips
from warploom.errors import CompileError, Loc, SharedMemoryError
from warploom.ir.core import Op
from warploom.ir.ops import control
from warploom.ir.ops.cluster import cluster_of, cluster_sum
from warploom.ir.types import Tile, dtype_of, shape_of
from warploom.schedule import clusters, rings
from warploom.schedule.consumer_partition import ConsumerPartition
from warploom.schedule.context import Context
from warploom.schedule.model import ChannelPlan, Knobs, Reason, Schedule, StorePlan, forwarded
from warploom.schedule.resources import excess, fits
from warploom.schedule.roles import TRANSPOSE, Roles
from warploom.schedule.stores import BUFFERS, WHOLE, Stores

MAX_DEPTH = 8  # slots beyond which a ring hides nothing more
ARRIVAL_DEPTH = 2  # slots before transpose warps: one arrives, the other is transposed
ENOUGH_SLOTS = 3  # of a ring in a loop: with fewer, rings that can are shared widely
MOST_HELD = 8  # loads that go to registers where shared memory is short
VECTOR_DEPTH = 2  # slots of vectors between loops: the next ones come before these are read


def fillings(context: Context, roles: Roles, partition: ConsumerPartition) -> dict[Op, str]:
    """How each load's items get to their slots."""
    found = {}
    for o in roles.loads:
        via, fact = rings.choose_via(context.accesses, o, partition.parts, o in roles.forwards)
        context.because(o.id, f"filled by {via}", fact)
        if o in roles.forwards:
            why = rings.misplaced(context.accesses, o, partition.parts)
            assert why is not None
            context.because(o.id, "transposed by transpose warps", why)
        found[o] = via
    return found


def number_channels(context: Context, roles: Roles) -> tuple[ChannelPlan, ...]:
    """A ring for each number that the producer alone gets to know."""
    plans, names = [], roles.names
    for v, tasks in roles.demand.crossings.items():
        o = context.structure.maker(v)
        assert o is not None
        if isinstance(v.type, Tile):
            continue
        name = v.hint or o.id.rsplit("/", 1)[-1]
        readers = tuple(names[t] for t in names if t in tasks)
        plans.append(ChannelPlan(name, (o.id,), ("number",), names["load"], readers, NUMBER_DEPTH))
        context.because(
            o.id,
            f"done once, by the {names['load']}; the number crosses to the {readers[0]}",
            "both need it, and it must not be done twice",
        )
    return tuple(plans)


@dataclass(frozen=True, eq=False)
class Memory:
    """The rings of a context, with the roles and the partition that were chosen.

    groups: loads that share a ring; vias: how each is filled; again: as rings.Sharing.find.
    """

    context: Context
    roles: Roles
    partition: ConsumerPartition
    stores: Stores
    groups: list[tuple[Op, ...]]
    vias: dict[Op, str]
    again: Mapping[tuple[Op, ...], Sequence[tuple[Op, ...]]] = field(default_factory=dict)

    def plans(
        self, wanted: int, numbers: tuple[ChannelPlan, ...]
    ) -> tuple[tuple[ChannelPlan, ...], tuple[StorePlan, ...]]:
        """Depths and staging that fit together: rings of `wanted` slots come before more than one buffer of
        staging, two slots before any."""
        links = _named_apart([x for g in self.groups for x in self.links(g)])
        slot = [sum(rings.slot_bytes(o.result) for o in x.loads) for x in links]
        other = self.operand_staging() + sum(c.depth * SLOT_BYTES for c in numbers)
        other += self.context.headroom.shared + clusters.sum_bytes(self.context.func)
        self.check_depth()

        def depths(common: int) -> list[int]:
            return [min(x.wish.most, common) if not x.wish.exact else x.wish.most for x in links]

        def ring_bytes(common: int) -> int:
            return sum(n * d for n, d in zip(slot, depths(common), strict=True))

        most = max((x.wish.most for x in links if not x.wish.exact), default=1)
        asked, whole = self.context.knobs.store_buffers, self.context.knobs.store_whole
        counts = (*((WHOLE,) if whole else ()), *BUFFERS) if asked is None else (asked,)
        common = buffers = 0
        for buffers, enough in (*((n, wanted) for n in counts), *((n, 2) for n in (*counts, 0))):
            staging = sum(self.stores.staging_bytes(buffers).values())
            fit = (
                d
                for d in range(most, 0, -1)
                if fits(ring_bytes(d), staging, other, self.context.target)
            )
            common = next(fit, 0)
            if common >= min(enough, most):
                break
        if not common:
            raise self.memory_error(ring_bytes(1) + other, depths(1), slot, [x.wish for x in links])
        channels = tuple(map(self.channel, links, depths(common)))
        for x, c, n in zip(links, channels, slot, strict=True):
            self.say_depth(x, c, n, sum(slot))
        return channels, self.stores.plans(buffers)

    def channel(self, x: _Link, depth: int) -> ChannelPlan:
        """The plan of a ring."""
        is_forwarded = x.producer == TRANSPOSE
        return ChannelPlan(
            name=x.name,
            items=tuple(forwarded(o.id) if is_forwarded else o.id for o in x.loads),
            via=tuple("registers" if is_forwarded else self.vias[o] for o in x.loads),
            producer=x.producer,
            consumers=(x.consumer,),
            depth=depth,
            multicast=() if TRANSPOSE in (x.producer, x.consumer) else self.multicast(x.loads),
            also=tuple(tuple(o.id for o in g) for g in self.again.get(x.loads, ())),
        )

    def say_depth(self, x: _Link, c: ChannelPlan, slot: int, slots: int) -> None:
        """Why a ring is as deep as it is.  slot, slots: bytes of one slot of it, and of one of each ring."""
        w = x.wish
        source = w.by if w.by and c.depth == w.most else "what fits"
        self.context.because(c.name, f"{c.depth} slots of {slot} bytes", source)
        if c.also:
            loops = ", ".join(i for site in c.also for i in site)
            why = "what follows brings the same kind of blocks"
            self.context.because(c.name, f"its slots serve {loops} as well", why)
        if c.depth < w.most and w.by and not w.exact and w.most != Knobs().num_stages:
            fewer = f"shared memory has no room for {w.most} slots of {slots} bytes"
            self.context.unmet(x.loads[0], f"{c.depth} stages instead of {w.most}", fewer)

    def links(self, g: tuple[Op, ...]) -> list[_Link]:
        """The rings of loads that are read together: one, and two for each with transpose warps between."""
        main, side = self.roles.main, self.roles.side
        wish = self.wish(g)
        direct = tuple(o for o in g if o not in self.roles.forwards)
        found = [_Link(_name(direct), direct, side, main, wish)] if direct else []
        for o in (o for o in g if o in self.roles.forwards):
            name = _name((o,))
            arriving = _Wish(min(ARRIVAL_DEPTH, wish.most))
            found.append(_Link(f"{name}_arrived", (o,), side, TRANSPOSE, arriving))
            found.append(_Link(name, (o,), TRANSPOSE, main, wish))
        return found

    def wish(self, g: tuple[Op, ...]) -> _Wish:
        """How deep the ring of loads g shall be."""
        specialized = self.roles.specialized
        loop, asked = self.context.hints.speaker(g[0]), self.context.hints.stages(g[0])
        inner = self.innermost(g[0])
        if loop is not None and asked is not None:
            if specialized or inner or asked == 1:
                return _Wish(asked, "num_stages of its loop", specialized, loop.loc)
            why = "in a uniform kernel only innermost loops run ahead"
            self.context.unmet(loop, f"one stage instead of {asked}", why)
        if not inner and all(map(rings.is_vector, g)):
            return _Wish(VECTOR_DEPTH)
        if not inner or loop is not None:
            return _Wish(1)
        knob = _depth_knob(specialized)
        asked = getattr(self.context.knobs, knob)
        return _Wish(MAX_DEPTH) if asked is None else _Wish(asked, knob, specialized)

    def innermost(self, o: Op) -> bool:
        """Does o stand in a loop that holds no further loop with a channel?"""
        loops = self.context.structure.loops
        return bool(loops(o)) and all(loops(o)[0] not in loops(g[0])[1:] for g in self.groups)

    def multicast(self, g: tuple[Op, ...]) -> tuple[int | None, ...]:
        """Of each load of a ring the axis of which the cluster's CTAs load a part each, for all."""
        ctas = prod(cluster_of(self.context.func))
        if ctas == 1 or self.context.func.body.by_kind.get(cluster_sum):
            return ()  # CTAs that share a loop load each its own
        found: list[int | None] = []
        for o in g:
            axis, why = None, "it is another one in each CTA"
            if clusters.is_common(self.context.func, self.context.structure, o):
                axis, why = self.part_axis(o, ctas)
            what = "every CTA loads its own"
            if axis is not None:
                what = f"multicast: each CTA loads 1/{ctas} of axis {axis} for all"
            self.context.because(o.id, what, why)
            found.append(axis)
        return tuple(found) if any(a is not None for a in found) else ()

    def part_axis(self, o: Op, ctas: int) -> tuple[int | None, str]:
        if self.vias[o] != "tma" or not self.roles.specialized:
            return None, "only a producer's TMA multicasts"
        view = self.context.accesses.view(o)
        shape = shape_of(o.result.type)
        memory_inner = self.context.accesses.inner_axis(view, len(shape))
        inner, _ = rings.item_layout(self.context.structure, o.result, memory_inner)
        axis = clusters.part_axis(shape, inner, dtype_of(o.result.type).bytes, ctas)
        if axis is None:
            return None, "its rows and panels have no equal parts"
        return axis, "all CTAs of the cluster need the same"

    def check_depth(self) -> None:
        knob = _depth_knob(self.roles.specialized)
        asked = getattr(self.context.knobs, knob)
        if asked is not None and asked < 1:
            raise CompileError(
                "depth",
                f"{knob}={asked}: a ring has at least one slot",
                self.context.func.loc,
                help=f"use {knob}=3, or leave it out for what fits",
            )

    def operand_staging(self) -> int:
        """Bytes of operands that are computed in registers and have to go back to shared memory.  Where
        room is short, one after the other in the same bytes: `allocate_shared` sees whether they can."""
        items = {o.result for o in self.vias}
        each = [
            rings.slot_bytes(o.operands[axis])
            * (self.partition.replicas // self.partition.parts(o)[axis])
            for o in self.context.dots
            for axis in ((0, 1) if self.partition.unit(o).is_scalar else (1,))
            if rings.viewed(self.context.structure, o.operands[axis]) not in items
        ]
        return max(each, default=0) if self.context.held is not None else sum(each)

    def memory_error(
        self, need: int, depths: list[int], slot: list[int], wishes: list[_Wish]
    ) -> SharedMemoryError:
        over = excess(need, 0, 0, self.context.target)
        by = next((w for w in wishes if w.exact and w.most > 1), None)
        depth = max(depths, default=1)
        smaller = "lower the block sizes"
        if clusters.sum_bytes(self.context.func):
            smaller = (
                "lower split_k or the block sizes: CTA 0 holds a part of each other CTA's sums"
            )
        slots = "slot" if depth == 1 else "slots"
        error = SharedMemoryError(
            "shared-memory",
            f"rings of {depth} {slots} of {sum(slot)} bytes need {need} bytes of shared memory, "
            f"{over} more than there are ({self.context.target.shared_bytes}, less a reserve)",
            (by and by.loc) or self.context.dots[0].loc,
            help=f"lower {by.by} or the block sizes" if by else smaller,
        )
        if by is None:
            error.widest = self.widest(over)
        return error

    def widest(self, over: int) -> tuple[str, ...] | None:
        """The widest loads, which registers can hold: as many as take so many bytes of slots.  None where
        they are many, as of a loop of many steps unrolled: too much code."""
        threads = self.context.target.warp_size * self.context.knobs.num_warps
        most = (self.context.target.registers.per_thread + 1) // 2 * 4 * threads
        sizes = {o: rings.slot_bytes(o.result) for g in self.groups for o in g}
        found = []
        for o, size in sorted(sizes.items(), key=lambda x: -x[1]):
            if over > 0 and size <= most:
                found.append(o.id)
                over -= size
        return tuple(found) if len(found) <= MOST_HELD else None


Plans = tuple[tuple[ChannelPlan, ...], tuple[StorePlan, ...]]


def plan_memory(
    memory: Memory,
    sharing: rings.Sharing | None,
    wanted: int,
    numbers: tuple[ChannelPlan, ...],
) -> Plans:
    """As Memory.plans, with groups that share a ring: where rings are shallow, all that can, if that makes
    them deeper.  sharing: None where none does."""
    if sharing is None:
        return memory.plans(wanted, numbers)
    reasons = memory.context.reasons
    start = len(reasons)

    def tried(sharing: rings.Sharing) -> Plans | CompileError:
        groups, again = sharing.find(memory.groups)
        try:
            return replace(memory, groups=groups, again=again).plans(wanted, numbers)
        except CompileError as e:
            return e

    def depth(plans: Plans | CompileError) -> int:
        """Of the shallowest ring in a loop."""
        if isinstance(plans, CompileError):
            return 0
        looped = {o.id for g in memory.groups for o in g if memory.innermost(g[0])}
        return min((c.depth for c in plans[0] if c.items[0] in looped), default=ENOUGH_SLOTS)

    first = tried(sharing)
    if depth(first) < ENOUGH_SLOTS:
        said = reasons[start:]
        del reasons[start:]
        second = tried(replace(sharing, widely=True))
        if depth(second) > depth(first):
            first = second
        else:
            reasons[start:] = said
    if isinstance(first, CompileError):
        raise first
    return first


def without_idle_slots(context: Context, schedule: Schedule) -> Schedule:
    """The schedule without slots that its loops have no iterations for; two stay: overlaps count on them."""
    if schedule.specialized and context.knobs.num_buffers_warp_spec is not None:
        return schedule
    loads = {o.id: o for o in context.ops if o.id}
    channels, why = [], []
    for c in schedule.channels:
        ops = [loads.get(i) for site in c.sites for i in site[:1]]
        most = sum(_trips(context, o, schedule.specialized, c.depth) for o in ops)
        depth = min(c.depth, max(2, most))
        if depth < c.depth:
            why.append(Reason(c.name, f"{depth} slots", "its loop has no more iterations"))
        channels.append(replace(c, depth=depth))
    return replace(schedule, channels=tuple(channels), reasons=(*schedule.reasons, *why))


def _trips(context: Context, o: Op | None, specialized: bool, otherwise: int) -> int:
    """The most items that load o brings before its ring stands still: the producer runs ahead into the next
    walk of its loop, a uniform kernel does not.  otherwise: where that is unknown, or depths are asked."""
    loops = context.structure.loops(o) if o is not None else []
    if o is None or not loops or context.hints.stages(o) is not None:
        return otherwise
    total = 1
    for loop in loops if specialized else loops[:1]:
        n = most_trips(context.accesses.facts, loop) if loop.kind is control.for_ else None
        if n is None:
            return otherwise
        total *= n
    return total


@dataclass(frozen=True)
class _Link:
    """A ring between two tasks: of what these loads bring."""

    name: str
    loads: tuple[Op, ...]
    producer: str
    consumer: str
    wish: _Wish


@dataclass(frozen=True)
class _Wish:
    """How deep a ring shall be at most, who says so (empty: nobody), and whether not less will do."""

    most: int
    by: str = ""
    exact: bool = False
    loc: Loc | None = None


def _depth_knob(specialized: bool) -> str:
    return "num_buffers_warp_spec" if specialized else "num_stages"


def _named_apart(links: list[_Link]) -> list[_Link]:
    """Passes find a channel's plan by its name: loads of two loops may be called alike."""
    seen: set[str] = set()
    out = []
    for x in links:
        name = next(n for i in count() if (n := f"{x.name}{i or ''}") not in seen)
        seen.add(name)
        out.append(replace(x, name=name))
    return out


def _name(group: tuple[Op, ...]) -> str:
    return "_".join(o.result.hint or o.id.rsplit("/", 1)[-1] for o in group)
