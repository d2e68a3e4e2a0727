"""Whether loops of different tasks run equally often: what one task fills, another one empties.

Trip counts are told at many inputs, without a run.  A loop whose counts no loop of another task has, where
that one has a loop of its own without partner, parts from it somewhere: those inputs are run, the smallest
first.  Counts that differ by a constant are left to the runs at the trip counts that matter, and so are
loops that the compiler made of one loop, as their id tells: it deals iterations out or peels them.  Loops of
a script have no id.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.check.cases import Case
from warploom.check.dependence import Dependence, Source
from warploom.check.drawn import SAMPLES, Drawn
from warploom.check.values import Wish
from warploom.ir.analysis import loops as loops_around
from warploom.ir.core import Op, walk
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
    around = loops_around(dependence.func.body)
    for tasks_op in tasks:
        loops = [_deciding(dependence, list(r.all_ops)) for r in tasks_op.regions]
        everything = [loop for own in loops for loop in own]
        if not everything:
            continue
        counts, numbers, ids = drawn.trips_at_many(everything, case)
        for o in [o for o in everything if o in counts]:  # none where a loop around it has none
            for outer in around.get(o, ()):
                counts[o] = np.where(counts.get(outer, 1) == 0, 0, counts[o])
        size = sum(
            (np.log2(x + 1.0) for x in (*numbers.values(), *ids.values())), np.zeros(SAMPLES)
        )
        for mine, theirs in itertools.combinations(loops, 2):
            for one, other in itertools.product(
                _unmatched(mine, theirs, counts), _unmatched(theirs, mine, counts)
            ):
                differ = counts[one] - counts[other]
                firsts = _smallest_of_each(differ, size)
                if len(firsts) > 1:
                    wishes = (
                        Wish(*({i: int(x[n]) for i, x in part.items()} for part in (numbers, ids)))
                        for n in firsts[: MOST_DIFFERENCES + 1]
                    )
                    yield Parting(one, other, tuple(wishes))


def _deciding(dependence: Dependence, ops: list[Op]) -> list[Op]:
    """The loops among ops that decide events, for a number of iterations that an input says."""
    return [
        o
        for o in ops
        if o.kind is control.for_
        and o in dependence.deciding
        and any(dependence.sources(v) & ~Source.TURN for v in o.operands[:3])
    ]


def _unmatched(mine: list[Op], theirs: list[Op], counts: dict[Op, Any]) -> list[Op]:
    """Those of my loops whose counts can be told and that none of theirs has, nor is made of the same
    loop."""
    told = [o for o in theirs if o in counts]
    return [
        o
        for o in mine
        if o in counts
        and not any(np.array_equal(counts[o], counts[x]) for x in told)
        and not (o.id and any(o.id == x.id for x in theirs))
    ]


def _smallest_of_each(differ: Any, size: Any) -> list[int]:
    """The smallest of the inputs with each difference, in the order of their sizes."""
    order = np.argsort(size, kind="stable")
    _, firsts = np.unique(differ[order], return_index=True)
    return [int(order[i]) for i in sorted(firsts)]
