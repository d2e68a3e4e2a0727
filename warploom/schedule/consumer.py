"""What the task of the dots does with them: which become one, how sums are promoted, which row sums are
added up late, which iterations a group skips.

Asks dot_fusion, carried_sums and idle_iterations, and records what they say.
"""

from __future__ import annotations

from dataclasses import replace

from warploom.analysis import carried_sums, dot_fusion, idle_iterations
from warploom.analysis.matrix_units import operand_registers
from warploom.ir.core import Op
from warploom.ir.ops import control, tile
from warploom.ir.types import shape_of
from warploom.schedule import rings
from warploom.schedule.consumer_partition import ConsumerPartition, piece_counts
from warploom.schedule.context import Context, named
from warploom.schedule.model import (
    IdlePlan,
    PipelinePlan,
    PromotionPlan,
)
from warploom.schedule.roles import Roles

# An operand that is loaded before a loop is at least 1 / LEAST_HELD of what the loop loads for its dots:
# the registers may cost a resident program.
LEAST_HELD = 8


def joins(
    context: Context, roles: Roles, partition: ConsumerPartition, vias: dict[Op, str]
) -> dot_fusion.Joins:
    """Dots that multiply the same left operand, as one."""
    units = {partition.unit(o) for o in context.dots}
    most = min((u.n_max for u in units), default=0)
    threads = partition.threads(partition.replicas)
    if threads > context.target.group_threads:  # what one instruction may take: see why_cramped
        entry = context.target.entry_registers(threads)
        room = entry - context.target.registers.instruction_reserve
        most = min(most, *(room * u.threads // u.m for u in units))

    def columns(dot: Op) -> int:
        return shape_of(dot.result.type)[1] if partition.parts(dot)[1] == 1 else 0

    def way(o: Op) -> object:  # what transpose warps make of them lies in rings of their own
        via = None if o in roles.forwards else vias.get(o)
        return None if via is None else (via, rings.slot_layout(context.accesses, o))

    found = dot_fusion.find(context.structure, way, columns, most)
    for g in found.groups:
        n = sum(map(columns, g))
        context.because(
            g[-1].id,
            f"one product of {n} columns with {named(g[:-1])}",
            "they multiply the same tile; the right operands lie side by side in a slot",
        )
    for o, why in found.refused:
        context.because(o.id, "a product of its own", why)
    return found


def promotions(
    context: Context, partition: ConsumerPartition, joins: dot_fusion.Joins, registers: int
) -> tuple[PromotionPlan, ...]:
    """How the promoting dots add up their partial sums, dots that become one as one.  registers: that a
    thread of the consumer has."""
    rest = partition.need - partition.partial(partition.pieces)
    plans = []
    promoted = (o for o in context.dots if o.attrs.get("max_imprecise"))
    for o in (o for o in promoted if partition.unit(o).is_async):
        group = next((g for g in joins.groups if o in g), (o,))
        rows, columns = (
            n // parts for n, parts in zip(shape_of(o.result.type), partition.parts(o), strict=True)
        )
        counts = piece_counts([columns * len(group)])
        size = rows * columns * len(group) // context.target.group_threads
        fits = (p for p in counts if rest + size // p <= registers)
        at_once = columns * len(group) // next(fits, counts[-1])
        plans.append(PromotionPlan(o.id, at_once))
        said = f"promoted each {o.attrs['max_imprecise']} of K, {at_once} columns at a time"
        context.because(o.id, said, "a partial sum and the total fit the registers")
    return tuple(plans)


def deferred(
    context: Context, partition: ConsumerPartition, overlaps: tuple[PipelinePlan, ...]
) -> tuple[str, ...]:
    """Row sums that cross lanes after their loop: of loops whose iterations overlap, or whose dots complete
    in order, so that a thread waits for all that it does."""
    loops = {p.loop for p in overlaps}
    inside: dict[str, list[bool]] = {}
    for o in context.dots:
        for loop in context.structure.loops(o):
            inside.setdefault(loop.id, []).append(partition.unit(o).is_async)
    loops |= {loop for loop, waits in inside.items() if not any(waits)}
    found = [
        o
        for p in context.ops
        if p.id in loops and p.kind is control.for_
        for o in carried_sums.deferrable(p, context.from_dot)
    ]
    for o in found:
        context.because(
            o.id,
            "its lanes are added up behind the loop",
            "the loop only scales the sum and adds to it",
        )
    return tuple(o.id for o in found)


def held_operands(
    context: Context, roles: Roles, partition: ConsumerPartition, registers: int
) -> tuple[str, ...]:
    """Loops whose dots in registers multiply what no iteration changes, loaded once, before them: where that
    is a part of their loads that counts, and a thread's registers hold it as well."""
    found = []
    threads = partition.warps * context.target.warp_size
    for loop in (o for o in context.ops if o.kind is control.for_ and roles.mine(o)):
        dots = [o for o in context.dots if context.structure.loops(o)[:1] == [loop]]
        if not dots or any(partition.unit(o).reads_shared for o in dots):
            continue
        words = {
            (o, axis): operand_registers(
                o, axis, partition.parts(o), threads, context.target, chained=len(dots) > 1
            )
            for o in dots
            for axis in (0, 1)
        }
        fixed = [at for at in words if _comes_before(context, roles, loop, *at)]
        held = sum(words[at] for at in fixed)
        room = registers - context.headroom.consumer - partition.need
        if fixed and LEAST_HELD * held >= sum(words.values()) and held <= room:
            loads = named({o for o, _ in fixed})
            what = f"{held} registers of {room} that are left hold them"
            context.because(loop.id, f"operands of {loads} are loaded before it", what)
            found.append(loop.id)
    return tuple(found)


def _comes_before(context: Context, roles: Roles, loop: Op, dot: Op, axis: int) -> bool:
    """Does a dot read, as its left (axis 0) or right operand, an item that comes before the loop?"""
    load = context.structure.maker(rings.viewed(context.structure, dot.operands[axis]))
    return load in roles.loads and loop not in context.structure.enclosing(load)


def idles(context: Context, roles: Roles, partition: ConsumerPartition) -> tuple[IdlePlan, ...]:
    """Loops that a group may leave before their end: where that is asked for, as long as it has not run on
    a GPU."""
    if not context.knobs.skip_idle:
        return ()
    if partition.axis is None:
        why = "groups don't share a tile"
        context.unmet(
            context.dots[0], "every group stays to its loop's end, against skip_idle", why
        )
        return ()
    found = []
    for o in context.ops:
        dots = any(x.kind is tile.dot for r in o.regions for x in r.ops)
        if o.kind is control.for_ and roles.mine(o) and dots:
            found.append(_idle(context, roles, partition, o))
    return tuple(p for p in found if p.stores or p.mask)


def _idle(context: Context, roles: Roles, partition: ConsumerPartition, loop: Op) -> IdlePlan:
    """Why a group may leave a loop, as a plan; it may be empty."""
    plan = IdlePlan(loop.id)
    masks = context.knobs.skip_idle == "masked"

    def stays(used: idle_iterations.UsedError, wanted: bool) -> None:
        against = ", against skip_idle" * wanted
        context.decided(loop, f"every group stays to its end{against}", str(used), wanted)

    try:
        _check_channels(context, roles, loop)
        cut, _ = partition.cut
        stores = idle_iterations.dropping(context.accesses, loop, cut.get, roles.mine)
        plan = replace(plan, stores=tuple((o.id, cut[o.operands[1]]) for o in stores))
        context.because(
            loop.id,
            "a group leaves it where its part of a tile lies behind the end of what is stored",
            f"all that it computes goes to {named(stores)}",
        )
    except idle_iterations.UsedError as used:
        stays(used, not masks)
    if not masks:
        return plan
    try:
        _check_channels(context, roles, loop)
        mask = idle_iterations.masked(context.structure, loop, roles.mine)
        branch = mask.branch.id if mask.branch is not None else ""
        plan = replace(plan, mask=mask.select.id, branch=branch, positive=mask.positive)
        context.because(
            loop.id,
            "a group leaves it where its part of the mask lets nothing more through",
            f"what {mask.select.id} then gives changes nothing, if numbers are finite",
        )
    except idle_iterations.UsedError as used:
        stays(used, True)
    return plan


def _check_channels(context: Context, roles: Roles, loop: Op) -> None:
    """Raises UsedError where what comes in a loop is not taken in its own block."""

    def inside(o: Op | None) -> bool:
        return o is not None and loop in context.structure.enclosing(o)

    if context.knobs.num_ctas > 1:
        raise idle_iterations.UsedError("in clusters, groups don't leave loops yet")
    if any(inside(o) and context.structure.parent[o] is not loop for o in roles.loads):
        raise idle_iterations.UsedError("some of what it reads comes in control flow inside it")
    numbers = (context.structure.made[v].op for v in roles.demand.crossings)
    if any(inside(o) and o not in roles.loads for o in numbers):
        raise idle_iterations.UsedError("numbers come in it")
