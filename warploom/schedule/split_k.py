"""Automatic split-K and Stream-K: in which launches several CTAs share the iterations of a program's loop.

With fewer programs than multiprocessors the rest of the chip idles, and a launch takes what the steps of one
program take.  n CTAs of a cluster do a part of them each, and then add up what they have.  What that is worth
is weighed by the cost table: a step takes its arithmetic or the way of its operands, whichever is longer, and
all CTAs together get no more of these than memory gives.

Beyond one wave a launch takes as long as if its last wave were full.  There the programs of that wave alone
are shared (passes/tile/split_last_wave.py): their parts meet in memory, where each is stored and loaded.
Parts of fewer programs have less in common: of so many parts each loads as if √parts as much were its own
(docs/log/2026-11-28-stream-k.md has what was predicted beside what was measured).

Decides which launches; each knows its grid and its steps, and takes its variant (runtime/variants.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from warploom.analysis.shared_loops import NoReductionError, reduction_of
from warploom.schedule import forms
from warploom.schedule.context import Context
from warploom.schedule.model import (
    LAST_WAVE,
    SPLITS,
    Launch,
    Parts,
    Reason,
    Schedule,
    SplitK,
)
from warploom.schedule.rings import slot_bytes
from warploom.target import Target

MOST_PARTS = 4  # of a program of the last wave: who comes last adds up a tile of sums of each
MOST_WAVES = 2  # full ones before a last one that is shared: after more of them nothing was gained
WORTH_OF_WAVES = 0.94  # of the time of whole programs, likewise
MANY = 1 << 12  # steps at which it has to be worth it
WORTH = 0.9  # of the time of fewer CTAs: costs are not known better than that
ROOM = 0.3  # of shared memory, for the parts that CTA 0 gets: rings want the rest
# Of the multiprocessors, those with room for clusters of so many, which lie within one part of a chip each.
WHOLE = {2: 0.97, 4: 0.75, 8: 0.75}


def with_split_k(
    context: Context, schedule: Schedule, launch: Launch, alone: Callable[[], Schedule | None]
) -> Schedule:
    """The schedule, and in which launches CTAs share the iterations of its main loop.  alone: gives that of
    programs which have a multiprocessor to themselves, as in a last wave that is shared, if there is one."""
    found = _decided(context, schedule, launch, alone)
    if found is None:
        return schedule
    loop, rows = found
    reasons = list(schedule.reasons)
    pairs = [(ctas, programs, steps) for programs, row in rows for steps, ctas in row]
    widest = {n: found for n, *found in sorted(p for p in pairs if p[0] != LAST_WAVE)}
    if widest:
        predicted = "; ".join(
            f"{ctas} where there are at most {programs} programs and at least {steps} steps"
            for ctas, (programs, steps) in widest.items()
        )
        most = f"split-K by up to {max(widest)} CTAs where the grid is short"
        reasons.append(Reason(loop, most, f"by the cost table: {predicted}"))
    if last := [p for p in pairs if p[0] == LAST_WAVE]:
        steps, programs = min(steps for *_, steps in last), max(programs for _, programs, _ in last)
        predicted = f"from {steps} steps on, at up to {programs} programs"
        what = "Stream-K for the last wave where that is not nearly full"
        reasons.append(Reason(loop, what, f"by the cost table: {predicted}"))
    return replace(schedule, split_k=found, reasons=tuple(reasons))


def _decided(
    context: Context, schedule: Schedule, launch: Launch, alone: Callable[[], Schedule | None]
) -> SplitK | None:
    knobs = context.knobs
    asked = knobs.split_k is not None or knobs.num_ctas > 1
    if asked or launch.split_k != 1 or launch.short:
        return None
    try:
        found = reduction_of(context.accesses)
    except NoReductionError:
        return None
    if not all(map(context.accesses.invariant, found.loop.operands[:3])):
        return None
    tiles = sum(slot_bytes(found.loop.results[i]) for i in found.sums)
    work, need = forms.work_of(context.accesses, schedule), schedule.tasks[0].needed or 1
    whole: Schedule | None = schedule
    if work and forms.ends_in_slots(context.accesses, schedule, work, need, context.target):
        whole = alone()
    last = _of_last_waves(context, whole, tiles) if whole is not None else ()
    rows = (*_of_clusters(context, schedule, tiles), *last)
    return (found.loop.id, rows) if rows else None


def _of_clusters(context: Context, schedule: Schedule, tiles: int) -> Rows:
    """Rows of grids that are short, by the CTAs of a cluster that share the steps.  tiles: bytes of sums."""
    target = context.target
    if target.sync.cluster_ctas == 1:
        return ()
    room = [n for n in SPLITS if (n - 1) * tiles <= ROOM * target.shared.per_cta]
    time = _times(context, schedule, tiles)
    if time is None or not room:
        return ()
    limits = {n: most_programs(target, n) for n in room}
    powers = (1 << i for i in range(target.multiprocessors.bit_length()))
    rows: list[Row] = []
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
    return tuple(rows)


def _of_last_waves(context: Context, schedule: Schedule, tiles: int) -> Rows:
    """Rows of grids whose last wave does not fill the chip, where a program fills a multiprocessor."""
    target, cost = context.target, context.target.cost
    work = forms.work_of(context.accesses, schedule)
    if work is None:
        return ()
    need = schedule.tasks[0].needed or 1
    form = forms.form_of(context.accesses, schedule, work, need, target)
    if form.resident > 1:  # what its last programs leave idle is not known
        return ()
    full, rows = target.multiprocessors, list[Row]()
    for whole in range(1, MOST_WAVES + 1):
        rows.append((whole * full, ()))
        for parts in range(MOST_PARTS, 1, -1):
            apart = replace(work, loaded=work.loaded * parts**0.5)
            meet = cost.meeting + tiles / cost.parts_bytes + parts * tiles / cost.own_bytes
            least = None
            for steps in (1 << i for i in range(1, MANY.bit_length())):
                each = forms.cycles(work, form, whole + 1, steps)
                split = forms.cycles(apart, form, 1, -(-steps // parts)) + meet
                if whole * each + split <= WORTH_OF_WAVES * (whole + 1) * each:
                    least = steps
                    break
            found: tuple[tuple[int, Parts], ...] = ((least, LAST_WAVE),) if least else ()
            if rows[-1][1] == found and found:
                rows.pop()
            rows.append((whole * full + full // parts, found))
    while rows and not rows[-1][1]:
        rows.pop()
    return tuple(rows)


def most_programs(target: Target, ctas: int) -> int:
    """How many programs of so many CTAs there may be, so that all run at once."""
    return int(target.multiprocessors * WHOLE[ctas]) // ctas


Row = tuple[int, tuple[tuple[int, Parts], ...]]
Rows = tuple[Row, ...]
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
