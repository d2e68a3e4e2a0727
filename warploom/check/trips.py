"""Whether loops of different tasks run equally often: what one task fills, another one empties.

Trip counts are told at many inputs, without a run.  A loop whose counts no loop of another task has, where
that one has a loop of its own without partner, parts from it somewhere: those inputs are run, the smallest
first.  Counts that differ by a constant are left to the runs at the trip counts that matter, and so are
loops that the compiler made of one loop, as their id tells: it deals iterations out or peels them.  Loops of
a script have no id.

A `while` that counts (counting.py) is a loop like these.  How often others run is not told at many inputs:
each must be the same loop as one of the other task, or go on by the same computation of the same inputs, or
of the numbers that one hands on to the other.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warploom.check.dependence import Dependence, Source
from warploom.check.drawn import Drawn
from warploom.check.runs import Case
from warploom.check.sums import added
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


@dataclass
class Compared:
    """The loops of different tasks, each without a partner in the other's.  partings: where they part;
    unlike: pairs, one of them a `while` at least, of which nothing shows that they run equally often.
    ranked: loops that replicas, or CTAs of a cluster, run by numbers of their own, which loops carry."""

    partings: list[Parting] = field(default_factory=list)
    unlike: list[tuple[Op, Op]] = field(default_factory=list)
    ranked: list[Op] = field(default_factory=list)


def compared(dependence: Dependence, drawn: Drawn, case: Case) -> Compared:
    """The loops that decide events, of each two tasks that run at once."""
    found = Compared()
    for tasks_op in (o for o in walk(dependence.func.body) if o.kind is task.tasks):
        loops = [list(_rows(dependence, r)) for r in tasks_op.regions]
        everything = [loop for rows in loops for row in rows for loop in row]
        if not everything:
            continue
        counts, inputs = drawn.trips_at_many(everything, case)
        found.ranked += [o for o in everything if drawn.is_ranked(o, case)]
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
                    found.partings.append(Parting(one, other, tuple(wishes)))
            found.unlike += [
                pair
                for pair in itertools.product(
                    _alone(mine, theirs, counts, dependence),
                    _alone(theirs, mine, counts, dependence),
                )
                if any(o.kind is control.while_ and o not in counts for o in pair)
            ]
            found.unlike += _agreeing(mine, theirs, counts, dependence, drawn)
            found.unlike += _agreeing(theirs, mine, counts, dependence, drawn)
    return found


def _alone(
    mine: list[list[Op]], theirs: list[list[Op]], counts: dict[Op, Any], dependence: Dependence
) -> list[Op]:
    """My loops that are not made of the same loop as one of theirs, and that run as often, as far as that can
    be told or shown, as fewer of theirs than of mine: each has one partner, so that a second one is not
    hidden."""
    kinds = dependence.alike_in_loops

    def often(o: Op) -> object:
        if o in counts:
            return counts[o].astype(np.int64).tobytes()
        return o.kind, *(kinds[v] for v in control.deciding(o))

    my_loops, their_loops = (list(itertools.chain(*rows)) for rows in (mine, theirs))
    ids = {o.id for o in my_loops} & {o.id for o in their_loops} - {""}
    left = Counter(often(o) for o in their_loops if o.id not in ids)
    several = {total for loops, total in _windows(theirs, counts) if len(loops) > 1}
    whole = {o for loops, total in _windows(mine, counts) if total in several for o in loops}
    found = list[Op]()
    for o in my_loops:
        if o.id in ids or o in whole:
            continue
        if not left[often(o)]:
            found.append(o)
        left[often(o)] = max(0, left[often(o)] - 1)
    return found


def _agreeing(
    mine: list[list[Op]],
    theirs: list[list[Op]],
    counts: dict[Op, Any],
    dependence: Dependence,
    drawn: Drawn,
) -> Iterator[tuple[Op, Op]]:
    """My loops that run as often as some of theirs at many inputs, where these say little of them and none of
    theirs is counted by the same computation."""

    def computed(o: Op) -> set[object]:
        kinds = dependence.alike_in_loops
        found: set[object] = {("values", o.kind, *(kinds[v] for v in control.deciding(o)))}
        if o.kind is control.for_:
            first, end, step = map(drawn.sums.linear, o.operands[:3])
            span = added(end, first, -1)
            found |= {("sums", frozenset(span.items()), frozenset(step.items()))}
        return found

    every = list(itertools.chain(*theirs))
    shown = set[object]().union(*map(computed, every))
    ids = {o.id for o in every} - {""}
    totals = {total: loops[-1] for loops, total in _windows(theirs, counts)}
    for loops, total in _windows(mine, counts):
        for o in loops if total in totals else ():
            if o.id in ids or not shown.isdisjoint(computed(o)):
                continue
            if drawn.says_little(o, totals[total]):
                yield o, totals[total]


def _may_part(dependence: Dependence, one: Op, other: Op) -> bool:
    """Does an input say how often both run, or are they as deep inside others?"""
    if all(
        any(dependence.sources(v) & ~Source.ITERATION for v in control.deciding(o))
        for o in (one, other)
    ):
        return True
    depths = {len(dependence.loops[o]) for o in (one, other)}
    return len(depths) == 1 and 0 not in depths


def _rows(dependence: Dependence, region: Region) -> Iterator[list[Op]]:
    """The loops that decide events: of each region those that follow each other."""
    yield [o for o in region.ops if o.kind in control.LOOPS and o in dependence.deciding]
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
