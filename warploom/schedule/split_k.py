"""Automatic split-K: in which launches several CTAs share the iterations of a program's loop.

With fewer programs than multiprocessors the rest of the chip idles, and a launch takes what the steps of one
program take.  n CTAs of a cluster do a part of them each, and then add up what they have.  What that is worth
is weighed by the cost table: a step takes its arithmetic or the way of its operands, whichever is longer, and
all CTAs together get no more of these than memory gives.

Decides which launches; each knows its grid and its steps, and takes its variant (runtime/variants.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warploom.analysis.shared_loops import NoReductionError, reduction_of
from warploom.schedule import forms
from warploom.schedule.context import Context
from warploom.schedule.model import SPLITS, Launch, Reason, Schedule, SplitK
from warploom.schedule.rings import slot_bytes
from warploom.target import Target

MANY = 1 << 12  # steps at which it has to be worth it
WORTH = 0.9  # of the time of fewer CTAs: costs are not known better than that
ROOM = 0.3  # of shared memory, for the parts that CTA 0 gets: rings want the rest
# Of the multiprocessors, those with room for clusters of so many, which lie within one part of a chip each.
WHOLE = {2: 0.97, 4: 0.75, 8: 0.75}


def with_split_k(context: Context, schedule: Schedule, launch: Launch) -> Schedule:
    """The schedule, and in which launches CTAs share the iterations of its main loop."""
    found = _decided(context, schedule, launch)
    if found is None:
        return schedule
    loop, rows = found
    pairs = [(ctas, programs, steps) for programs, row in rows for steps, ctas in row]
    widest = {ctas: (programs, steps) for ctas, programs, steps in sorted(pairs)}
    told = "; ".join(
        f"{ctas} where there are at most {programs} programs and at least {steps} steps"
        for ctas, (programs, steps) in widest.items()
    )
    most = f"split-K by up to {max(widest)} CTAs where the grid is short"
    return replace(
        schedule,
        split_k=found,
        reasons=(*schedule.reasons, Reason(loop, most, f"by the cost table: {told}")),
    )


def _decided(context: Context, schedule: Schedule, launch: Launch) -> SplitK | None:
    knobs, target = context.knobs, context.target
    asked = knobs.split_k is not None or knobs.num_ctas > 1
    if asked or launch.split_k > 1 or launch.short or target.sync.cluster_ctas == 1:
        return None
    try:
        found = reduction_of(context.accesses)
    except NoReductionError:
        return None
    if not all(map(context.accesses.invariant, found.loop.operands[:3])):
        return None
    tiles = sum(slot_bytes(found.loop.results[i]) for i in found.sums)
    room = [n for n in SPLITS if (n - 1) * tiles <= ROOM * target.shared.per_cta]
    time = _times(context, schedule, tiles)
    if time is None or not room:
        return None
    limits = {n: most_programs(target, n) for n in room}
    powers = (1 << i for i in range(target.multiprocessors.bit_length()))
    rows: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    for programs in sorted({*limits.values(), *powers}):
        possible = [n for n in room if programs <= limits[n]]
        by_steps, before, steps = [], 1, 1
        while (steps := 2 * steps) <= MANY:
            best = _best(time, programs, steps, possible)
            if best > before:
                by_steps.append((steps, best))
                before = best
        if rows and rows[-1][1] == tuple(by_steps):
            rows.pop()
        rows.append((programs, tuple(by_steps)))
    while rows and not rows[-1][1]:
        rows.pop()
    return (found.loop.id, tuple(rows)) if rows else None


def most_programs(target: Target, ctas: int) -> int:
    """How many programs of so many CTAs there may be, so that all run at once."""
    return int(target.multiprocessors * WHOLE[ctas]) // ctas


Time = Callable[[int, int, int], float]


def _times(context: Context, schedule: Schedule, tiles: int) -> Time | None:
    """Cycles of a launch of so many programs, steps of each, and CTAs that share these."""
    work = forms.work_of(context.accesses, schedule)
    if work is None:
        return None
    cost, need = context.target.cost, schedule.tasks[0].needed or 1
    form = forms.form_of(context.accesses, schedule, work, need, context.target)

    def time(programs: int, steps: int, ctas: int) -> float:
        way = work.loaded / cost.own_bytes
        way = max(way, work.loaded * programs * ctas / cost.memory_bytes)
        alone = replace(work, loaded=way * cost.tma_bytes)
        meeting = (cost.cluster + (ctas - 1) * tiles / cost.store_bytes) * (ctas > 1)
        return forms.cycles(alone, form, 1, -(-steps // ctas)) + meeting

    return time


def _best(time: Time, programs: int, steps: int, possible: list[int]) -> int:
    """The CTAs for a launch, from 1 on."""
    best, least = 1, time(programs, steps, 1)
    for n in possible:
        if (cycles := time(programs, steps, n)) <= WORTH * least:
            best, least = n, cycles
    return best
