"""Inputs that make a function's loops run for the trip counts that matter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection

from warploom.check.input_space import InputSpace
from warploom.check.runs import UNFIT, Case, Runs, limit_trips, ring_depth
from warploom.ir.analysis import loops
from warploom.ir.core import Func, Op
from warploom.sim.report import NeedsData, SimError, StepLimit, TripLimit

MAX_CASES = 60
MAX_VOLUME = 64  # of iterations in all, where several loops run for more than the least


def find_cases(
    func: Func,
    runs: Runs | None = None,
    space: InputSpace | None = None,
    base: Case | None = None,
) -> list[Case]:
    """Inputs that make the function's loops run for the trip counts that matter.

    Whatever a loop's bounds or a branch are computed from (integer parameters; the grid, where it is not the
    kernel's own) is tried at multiples of the constants that they are computed with; what brings a loop to a
    trip count not seen yet is kept, then combined.  Where one goes wrong on the way, it is the only one.
    runs: keeps those that it takes.  base: where the search begins."""
    try:
        space = space or InputSpace(func)
        return _search(func, runs or Runs(func), space, base or space.smallest)
    except _Wrong as wrong:
        return [wrong.case]


class _Wrong(Exception):
    """An input on which something goes wrong."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case


def _search(func: Func, runs: Runs, space: InputSpace, base: Case) -> list[Case]:
    depth = ring_depth(func)
    wanted = sorted({0, 1, 2, max(depth - 1, 1), depth, depth + 1, 2 * depth + 1, 3 * depth + 3})
    seen, least = _trips(runs, base), space.least(base)
    is_told = runs.path(base, 0) is not None
    # The smaller, the shorter are all runs from here, where paths do not spare them; where one loop is as
    # long as any need be, no other one can be made longer from here.
    is_long = any(n > wanted[-1] for _, n in seen)
    if not seen or is_long or (not is_told and seen == _trips(runs, least)):
        base, seen = least, seen or _trips(runs, least)
    kept: dict[int, dict[int, set[tuple[Op, int]]]] = {}  # variable -> value -> what it is good for
    usual, work = _iterations(func, _trips(runs, base)), dict[tuple[int, int], float]()
    for i in space.variables:
        tried: set[int] = set()
        for unit in space.units(i):
            for t in wanted:
                if unit * t in tried:
                    continue
                tried.add(unit * t)
                try:
                    reached = _trips(runs, space.case(base.values, {i: unit * t}), wanted[-1])
                except TripLimit:
                    break  # further multiples only run longer
                new = {(o, n) for o, n in reached if n in wanted} - seen
                if new:
                    seen |= new
                    kept.setdefault(i, {})[unit * t] = new
                    work[i, unit * t] = _iterations(func, reached) / usual
    base = _widest(runs, space, base, kept)
    values = base.values
    choices = [sorted({*kept[i], values[i]}) if i in kept else [a] for i, a in enumerate(values)]
    combined = itertools.product(*(list(enumerate(c)) for c in choices))
    cases = [
        space.case([a for _, a in picked])
        for picked in combined
        if sum(rank > 3 for rank, _ in picked) <= 1  # no two loops long at once
    ]
    steered = {i: {o for good in found.values() for o, _ in good} for i, found in kept.items()}

    def steers_twice(c: Case) -> bool:
        """Two numbers that count in the same loops are both out of the ordinary: one is enough."""
        changed = [steered[i] for i in kept if c.values[i] != values[i]]
        return any(changed.count(one) > 1 for one in changed)

    cases = [c for c in cases if not steers_twice(c)]

    def volume(c: Case) -> float:
        return math.prod(work.get((i, c.values[i]), 1) for i in kept)

    small = [c for c in cases if volume(c) <= MAX_VOLUME]
    cases = [c for c in cases if sum(c.values[i] != values[i] for i in kept) <= 1 or c in small]
    cases.sort(key=volume)
    if space.has_own_grid or space.grid in kept:
        return cases[:MAX_CASES]
    more = [Case(c.args, (2,), c.memory) for c in cases[:3]]  # with fewer tiles than programs, too
    return cases[:MAX_CASES] + more


def _iterations(func: Func, reached: set[tuple[Op, int]]) -> int:
    """Of the loop that runs for most, in all iterations of the loops around it, by trip counts."""
    most, around = dict(sorted(reached, key=lambda loop: loop[1])), loops(func.body)
    return max([1, *(math.prod(most.get(x, 1) for x in (o, *around[o])) for o in most)])


def _widest(runs: Runs, space: InputSpace, base: Case, kept: Collection[int]) -> Case:
    """The numbers that steer no loop as large as one tile allows, so that data fills it."""
    trips = _trips(runs, base)
    for i in sorted(space.free.difference(kept)):
        for unit in space.units(i):
            wide = space.case(base.values, {i: unit})
            if unit > base.args[i] and wide.grid == base.grid and _trips(runs, wide) == trips:
                base = wide
                break
    return base


def _trips(runs: Runs, case: Case, most: int | None = None) -> set[tuple[Op, int]]:
    """(loop, trip count) of the task loops in one run, of the first and the last program (which have the
    most and the least to do); empty where the input does not fit.  Raises TripLimit where a program runs a
    loop more often than `most`."""
    programs = math.prod(case.grid)
    found: set[tuple[Op, int]] = set()
    for program in sorted({0, programs - 1}) if programs else ():
        path = runs.path(case, program)
        if path is not None:
            limit_trips(path, most)
        try:
            result = runs.trips(case, program, most)
        except TripLimit:
            raise
        except (StepLimit, NeedsData):
            return set()
        except SimError as e:
            if e.code in UNFIT:
                return set()
            raise _Wrong(case) from e
        found |= {(o, n) for o, trips in result.trips.items() for n in trips}
    return found
