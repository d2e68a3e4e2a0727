"""Which launches a claim about global memory is for: all of them, the one that is asked for, or samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

from warploom.check.aliases import groups_of, merged, unlike
from warploom.check.disjoint import Condition
from warploom.check.global_memory import GlobalMemory, Settled, asked_axes, check_global
from warploom.check.input_space import InputSpace
from warploom.check.report import CheckReport, Failure
from warploom.check.runs import Case
from warploom.check.samples import Sample
from warploom.check.terms import LAUNCH, OWN, atoms_of
from warploom.ir.core import Func, Value

GRIDS = ((2, 1, 1), (7, 3, 2), (132, 2, 2))
FACTORS = (1, 3)
SHORT, LONG = 3, 250  # numbers: one is large so that loops run for long, the others small
MOST_LONG = 4


def add_global_memory(
    report: CheckReport,
    func: Func,
    cases: Sequence[Case] | None,
    searched: Sequence[Case] = (),
    launch: Case | None = None,
) -> None:
    """Adds to a report what is known of global memory: for the given cases; or for all launches, else for
    `launch`.  searched: inputs whose like are tried where nothing is known for all and no launch is given."""
    if cases is not None:
        found = list({c.key: _at(func, c) for c in cases}.values())
    elif launch is None:
        found = [_for_all(func, searched)]
    else:
        found = [at_launch(func, launch)]
        if found[0].launches:
            report.of_launch = found[0].unproved
    races = {(r.code, r.loc): r for one in found for r in one.broken}
    report.failures += map(Failure, races.values())
    report.unproved += dict.fromkeys(u for one in found for u in one.unproved)
    if not report.unproved and not report.failures:
        report.claims += dict.fromkeys(one.claim for one in found)


def at_launch(func: Func, launch: Case) -> GlobalMemory:
    """The verdict for all launches, where it is *proved* under conditions that this one keeps; else that for
    this one alone.  Its arrays that share memory are one."""
    one = merged(func, launch)
    found = _at_launch(one, launch, one is func)
    found.unproved += unlike(func, launch)
    found.shared = tuple(func.params[i].hint for g in groups_of(launch) for i in g)
    return found


def _at_launch(func: Func, launch: Case, is_any: bool) -> GlobalMemory:
    """is_any: other launches run this function, too."""
    whole = check_global(func)
    if func.attrs.get("grid"):  # the kernel itself says which grids it has
        if is_any and whole.verdict == "broken":
            return whole
    elif any(n > 1 for axis, n in enumerate(launch.grid) if axis not in asked_axes(func)):
        return _at(func, launch)
    if whole.verdict == "proved" and all(
        c is None or _holds(c, func, launch) for c in whole.conditions.values()
    ):
        return whole
    settled = {
        pair
        for pair, conditions in whole.settled.items()
        if all(_holds(c, func, launch) for c in conditions)
    }
    return _at(func, launch, settled)


def _at(func: Func, case: Case, settled: Settled = frozenset()) -> GlobalMemory:
    found = check_global(func, case, True, settled)
    found.launches = (case.describe(func),)
    return found


def _holds(c: Condition, func: Func, launch: Case) -> bool:
    """Does a launch keep a condition, as its numbers tell?"""
    if c.least is None:
        return False
    numbers, sample = launch.numbers(func), Sample(0)
    for a in atoms_of([c.big, c.least]):
        if isinstance(a.about, Value) and a.about in numbers:
            sample.values[a] = numbers[a.about]
        elif a.kind == "programs" and isinstance(a.about, int):
            sample.values[a] = (*launch.grid, 1, 1)[a.about]
        elif a.kind in LAUNCH or a.kind in OWN or a.kind == "load":
            return False
    return sample(c.big) >= sample(c.least)


def _for_all(func: Func, searched: Sequence[Case]) -> GlobalMemory:
    """The verdict for all launches; where there is none, that for some, which the claim then names."""
    whole = check_global(func)
    if whole.verdict != "not proved":
        return whole
    few, more = examples(func, searched)
    settled = {pair for pair, conditions in whole.settled.items() if not conditions}
    each, launches = [], []
    for case in (*few, *more):
        one = check_global(func, case, False, settled)
        if one.broken and func.attrs.get("grid"):
            return one
        if one.verdict == "proved":
            each.append(one)
            launches.append(case)
        elif case in few or one.broken:
            return whole
    reached = {o for one in each for o in one.reached}
    left = {o for one in each for o in one.asked} - reached
    if not each or left:
        return whole
    found = each[0]
    found.conditions = {c: held for one in each for c, held in one.conditions.items()}
    found.launches = tuple(case.describe(func) for case in launches)
    return found


def examples(func: Func, searched: Sequence[Case]) -> tuple[list[Case], list[Case]]:
    """The largest of the inputs that were searched for, and one with all numbers three times as large (so
    that strides keep their relation to extents), on small and on large grids.  Then some in which one
    number alone is large, and one in which all are; these may be too large to be looked at."""
    space = InputSpace(func)
    free = sorted(space.free)
    if not searched:
        return [], []
    largest = max(searched, key=lambda c: math.prod(1 + int(c.args[i]) for i in free))
    axes = asked_axes(func)
    found = []
    for factor in FACTORS:
        more = {i: factor * int(largest.args[i]) for i in free}
        case = space.case(largest.values[: len(func.params) + 1], more)
        grids = (case.grid,) if space.has_own_grid else map(tuple, _grids(axes))
        found += [Case(case.args, grid) for grid in grids]
    small = {i: SHORT * space.divisor(i) for i in free}
    long = {i: LONG * space.divisor(i) for i in free}
    changes = [*({**small, i: long[i]} for i in free[:MOST_LONG]), long]
    large = (space.case(largest.values[: len(func.params) + 1], more) for more in changes)
    grid = None if space.has_own_grid else _grids(axes)[0]
    longer = [Case(c.args, grid or c.grid) for c in large]
    return list({c.key: c for c in found}.values()), longer


def _grids(axes: set[int]) -> list[tuple[int, ...]]:
    """On the axes that programs ask for."""
    return list(dict.fromkeys(tuple(n if i in axes else 1 for i, n in enumerate(g)) for g in GRIDS))
