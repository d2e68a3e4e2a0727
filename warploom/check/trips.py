"""Whether loops of different tasks run equally often: what one task fills, another one empties.

Trip counts are told at many inputs, without a run.  A loop whose counts no loop of another task has, where
that one has a loop of its own without partner, parts from it somewhere: those inputs are run, the smallest
first.  Counts that differ by a constant are left to the runs at the trip counts that matter, and so are
loops that the compiler made of one loop, as their id tells: it deals iterations out or peels them.  Loops of
a script have no id.

How often `while` loops run is not told at many inputs: those of different tasks must be the same loop, or go
on by the same computation of the same inputs, or of the numbers that one hands on to the other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.check.cases import Case
from warploom.check.dependence import Dependence, Source
from warploom.check.drawn import Drawn
from warploom.check.values import Wish
from warploom.ir.core import Op, Region, walk
from warploom.ir.ops import control, task

MOST_DIFFERENCES = 4  # inputs that are run of two loops


@dataclass(frozen=True, eq=False)
class Parting:
    """Two loops of different tasks whose trip counts differ by more than a constant, and inputs at which
    their difference is another one each, small ones first."""

    one: Op
    other: Op
    wishes: tuple[Wish, ...]


def partings(dependence: Dependence, drawn: Drawn, case: Case) -> Iterator[Parting]:
    """The pairs of loops that part, where each is without a partner in the other's task."""
    tasks = [o for o in walk(dependence.func.body) if o.kind is task.tasks]
    for tasks_op in tasks:
        loops = [list(_rows(dependence, r)) for r in tasks_op.regions]
        everything = [loop for rows in loops for row in rows for loop in row]
        if not everything:
            continue
        counts, inputs = drawn.trips_at_many(everything, case)
        for mine, theirs in itertools.combinations(loops, 2):
            for one, other in itertools.product(
                _unmatched(mine, theirs, counts), _unmatched(theirs, mine, counts)
            ):
                if not _may_part(dependence, one, other):
                    continue
                differ = counts[one] - counts[other]
                firsts = _smallest_of_each(differ, inputs.sizes)
                if len(firsts) > 1:
                    wishes = map(inputs.wish, firsts[: MOST_DIFFERENCES + 1])
                    yield Parting(one, other, tuple(wishes))


def unlike_whiles(dependence: Dependence) -> Iterator[tuple[Op, Op]]:
    """The pairs of `while` loops of different tasks, each without a partner in the other's task, of which
    nothing shows that they run equally often."""
    for tasks_op in (o for o in walk(dependence.func.body) if o.kind is task.tasks):
        whiles = [
            [o for o in r.all_ops if o.kind is control.while_ and o in dependence.deciding]
            for r in tasks_op.regions
        ]
        for mine, theirs in itertools.combinations(whiles, 2):
            yield from itertools.product(
                _alone(mine, theirs, dependence), _alone(theirs, mine, dependence)
            )


def _alone(mine: list[Op], theirs: list[Op], dependence: Dependence) -> list[Op]:
    """My `while` loops that are not made of the same loop as one of theirs, and go on by a condition that
    fewer of theirs have than of mine: each has one partner, so that a second one is not hidden."""
    kinds = dependence.alike_in_loops
    ids = {o.id for o in mine} & {o.id for o in theirs} - {""}
    left = Counter(kinds[control.deciding(o)[0]] for o in theirs if o.id not in ids)
    found = list[Op]()
    for o in mine:
        if o.id in ids:
            continue
        kind = kinds[control.deciding(o)[0]]
        if not left[kind]:
            found.append(o)
        left[kind] = max(0, left[kind] - 1)
    return found


def _may_part(dependence: Dependence, one: Op, other: Op) -> bool:
    """Does an input say how often both run, or are they as deep inside others?"""
    if all(
        any(dependence.sources(v) & ~Source.ITERATION for v in o.operands[:3]) for o in (one, other)
    ):
        return True
    depths = {len(dependence.loops[o]) for o in (one, other)}
    return len(depths) == 1 and 0 not in depths


def _rows(dependence: Dependence, region: Region) -> Iterator[list[Op]]:
    """The loops that decide events: of each region those that follow each other."""
    yield [o for o in region.ops if o.kind is control.for_ and o in dependence.deciding]
    for o in region.ops:
        for inner in o.regions:
            yield from _rows(dependence, inner)


def _unmatched(mine: list[list[Op]], theirs: list[list[Op]], counts: dict[Op, Any]) -> list[Op]:
    """Those of my loops whose counts can be told and that none of theirs has, nor is made of the same loop.
    A loop may be cut in two, one after the other, which make up its iterations together."""
    theirs_in_all = {total for _, total in _windows(theirs, counts)}
    matched = {o for one, total in _windows(mine, counts) if total in theirs_in_all for o in one}
    ids = {o.id for o in itertools.chain(*theirs)} - {""}
    return [
        o for o in itertools.chain(*mine) if o in counts and o not in matched and o.id not in ids
    ]


def _windows(rows: list[list[Op]], counts: dict[Op, Any]) -> Iterator[tuple[list[Op], bytes]]:
    """The loops of each row that follow each other, one or several, and their iterations in all, as bytes."""
    for row in rows:
        known = [o for o in row if o in counts]
        for i in range(len(known)):
            totals = itertools.accumulate(counts[o] for o in known[i:])
            for j, total in enumerate(totals, i + 1):
                yield known[i:j], total.astype(np.int64).tobytes()


def _smallest_of_each(differ: Any, size: Any) -> list[int]:
    """The smallest of the inputs with each difference, in the order of their sizes."""
    order = np.argsort(size, kind="stable")
    _, firsts = np.unique(differ[order], return_index=True)
    return [int(order[i]) for i in sorted(firsts)]
