"""More slots than num_stages says, in shared memory that nobody else would use.

A uniform kernel that walks tiles begins the copies of each tile's loop anew, and keeps as many on their way
as its rings have slots.  How many programs share a multiprocessor registers decide, or the grid; the shared
memory that is left to each of them is for slots.

Products grouped by addresses (128x128x32, one program a multiprocessor) took 568 us with three
slots, 420 with four and 366 with six; by descriptors (128x128x64) 420, 380 and 377
(docs/log/2026-11-29-loads-that-may-be-stored.md).
"""

from __future__ import annotations

from dataclasses import replace

from warploom.analysis.trip_counts import most_trips
from warploom.ir.core import Op
from warploom.ir.ops import control
from warploom.schedule import forms, rings
from warploom.schedule.context import Context
from warploom.schedule.memory import MAX_DEPTH
from warploom.schedule.model import Knobs, Launch, Reason, Schedule


def with_spare_slots(context: Context, schedule: Schedule, launch: Launch) -> Schedule:
    """The schedule of a uniform kernel with the slots that there is room for; itself where its rings are no
    such ones, or the launch says how many slots it wants."""
    if not _is_for_more(context, schedule):
        return schedule
    depths = [_depth(context, schedule, n) for n in (launch.waves, 0, 1)]
    by_waves = schedule.by_waves or depths[1] != depths[2]
    now = schedule.channels[0].depth
    more = depths[0] - now
    if more <= 0:
        return replace(schedule, by_waves=by_waves)
    why = "shared memory has room for them beside all programs that share it"
    reasons = [Reason(c.name, f"{now + more} slots", why) for c in schedule.channels]
    return replace(
        _deeper(schedule, more), by_waves=by_waves, reasons=(*schedule.reasons, *reasons)
    )


def _deeper(schedule: Schedule, more: int) -> Schedule:
    return replace(
        schedule,
        channels=tuple(replace(c, depth=c.depth + more) for c in schedule.channels),
        prefetched=tuple((loop, n + more) for loop, n in schedule.prefetched),
    )


def _is_for_more(context: Context, schedule: Schedule) -> bool:
    """Do copies fill all rings, in loops of unknown length in loops over tiles, and nothing else takes shared
    memory?"""
    if schedule.specialized or not schedule.channels or not schedule.prefetched:
        return False
    if context.knobs.num_stages != Knobs().num_stages or any(
        s.via != "direct" for s in schedule.stores
    ):
        return False
    loads = {o.id: o for o in context.ops if o.id}
    brought = [loads[i] for c in schedule.channels for i in c.all_items if i in loads]
    others = {"registers", "number"}
    if not context.aliased.issuperset(brought):  # of what TMA copies anyhow nothing was measured
        others.add("tma")
    copied = all(others.isdisjoint(c.via) for c in schedule.channels)
    alike = len({c.depth for c in schedule.channels}) == 1
    in_place = all(
        rings.viewed(context.structure, v) in {o.result for o in brought}
        for dot in context.dots
        for v in dot.operands[:2]
    )
    units = all(forms.unit_by(schedule, o, context.target).is_async for o in context.dots)
    ahead = {loop for loop, _ in schedule.prefetched}
    return (
        copied and alike and in_place and units and all(_walked(context, o, ahead) for o in brought)
    )


def _walked(context: Context, o: Op, ahead: set[str]) -> bool:
    """Does load o run ahead in a loop inside another one, and may that have many iterations?"""
    around = context.structure.loops(o)
    if len(around) < 2 or around[0].kind is not control.for_ or around[0].id not in ahead:
        return False
    asked = context.hints.stages(o) is not None
    return not asked and most_trips(context.accesses.facts, around[0]) is None


def _depth(context: Context, schedule: Schedule, waves: int) -> int:
    """The most slots with which as many programs share a multiprocessor as with those that the schedule has,
    or as a launch of so many waves (0: not known) gives it."""
    now, need = schedule.channels[0].depth, schedule.tasks[0].needed or 0

    def programs(more: int) -> int:
        room, deeper = context.headroom.shared, _deeper(schedule, more)
        return forms.resident(context.accesses, deeper, need, context.target, beside=room)

    there = min(programs(0), waves or programs(0))
    return max((n for n in range(now, MAX_DEPTH + 1) if programs(n - now) >= there), default=now)
