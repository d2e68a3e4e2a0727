"""Iterations that are on their way from one kind to another.

Of several conditions that compare a loop's variable with one number, each a constant apart (`k < n` and
`k + 128 < n`: a load and its use), one flips some iterations before the other.  An iteration in which one has
flipped and the other has not is one of these few, however long the loop is, so that no longer stretch of them
is to be looked for.  Likewise the one iteration in which `k == n`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from warploom.check.dependence import Dependence, Source
from warploom.check.sums import Sums, added
from warploom.ir.analysis import closure
from warploom.ir.core import Op, Region, Value
from warploom.ir.ops import arith, control

_LESS = (arith.lt, arith.le)
_MORE = (arith.gt, arith.ge)


@dataclass(frozen=True)
class Switch:
    """An `if` whose condition flips at most once along a loop (or holds at most once).

    group: equal for those that flip at the same time, but for constants.  before: the arm that is taken until
    then; None: `once` is the outcome that one iteration has at most."""

    op: Op
    group: Any
    before: bool | None
    once: bool = False


class Passing:
    """The switches of one loop."""

    def __init__(self, loop: Op, switches: Collection[Switch]) -> None:
        self.loop, self.switches = loop, switches

    def holds(self, done: Collection[Op], known: Collection[Op]) -> bool:
        """Whether an iteration that does this is one of the few; known: what any iteration does."""
        arms = dict(_arms(self.loop.regions[0], done, known))
        flipped: dict[Any, set[bool]] = {}
        for s in self.switches:
            if s.op not in arms:
                continue
            if s.before is None and arms[s.op] is s.once:
                return True
            if s.before is not None:
                flipped.setdefault(s.group, set()).add(arms[s.op] is not s.before)
        return any(len(both) == 2 for both in flipped.values())


def passings(dependence: Dependence, sums: Sums) -> dict[Op, Passing]:
    """Those of all `for` loops that have any."""
    switches: dict[Op, list[Switch]] = {}
    for o, loops in dependence.loops.items():
        if o.kind is control.if_ and loops and loops[-1].kind is control.for_:
            switch = _switch(dependence, sums, o, loops)
            if switch is not None:
                switches.setdefault(loops[-1], []).append(switch)
    return {loop: Passing(loop, found) for loop, found in switches.items()}


def _switch(dependence: Dependence, sums: Sums, o: Op, loops: tuple[Op, ...]) -> Switch | None:
    """What the condition of an `if` compares the innermost loop's variable, or the number of its iteration,
    with."""
    made, is_meant = dependence.made.get(o.operands[0]), True
    while made is not None and made.kind is arith.not_:
        made, is_meant = dependence.made.get(made.operands[0]), not is_meant
    if made is None or made.kind not in (*_LESS, *_MORE, arith.eq, arith.ne):
        return None
    *outer, loop = loops
    iteration = loop.regions[0].params[0]
    step = sums.constant(loop.operands[2])
    x, y = made.operands
    gap = added(sums.linear(x), sums.linear(y), -1)
    by_iteration, by_count = gap.pop(iteration, 0), gap.pop(loop, 0)
    slope = by_iteration or by_count
    if (
        not slope
        or (by_iteration and (by_count or step is None or step <= 0))
        or not all(is_kept(dependence, t, outer) for t in gap)
    ):
        return None
    sign = 1 if slope > 0 else -1
    rest = frozenset((t, sign * n) for t, n in gap.items() if t != 1)
    group = sign * by_iteration, sign * by_count, rest
    if made.kind in (arith.eq, arith.ne):
        return Switch(o, group, None, (made.kind is arith.eq) is is_meant)
    is_less_first = (made.kind in _LESS) is (slope > 0)
    return Switch(o, group, is_less_first is is_meant)


def is_kept(dependence: Dependence, term: Any, outer: Collection[Op]) -> bool:
    """Whether a term of a sum stays as it is while a loop runs; outer: the loops around that one."""
    if isinstance(term, Op):
        return term in outer
    if not isinstance(term, Value):
        parts = term[1:] if isinstance(term, tuple) else ()
        return all(is_kept(dependence, t, outer) for part in parts for t, _ in part)
    own = {p for loop in outer for r in loop.regions for p in r.params}
    for v in closure([term], dependence.flow_of):
        by = dependence.own(v)
        if by & (Source.SHARED_WORD | Source.TILE) or (by & Source.ITERATION and v not in own):
            return False
    return True


def _arms(region: Region, done: Collection[Op], known: Collection[Op]) -> Iterator[tuple[Op, bool]]:
    """The arm of each `if` that an iteration comes by, as far as what it does tells."""
    for o in region.ops:
        if o.kind is control.if_:
            then, other = o.regions
            if any(x in done for x in then.all_ops):
                arm = True
            elif any(x in done for x in other.all_ops) or any(x in known for x in _always(then)):
                arm = False
            elif any(x in known for x in _always(other)):
                arm = True
            else:
                continue
            yield o, arm
            yield from _arms(then if arm else other, done, known)
        elif o.kind not in control.LOOPS:
            for inner in o.regions:
                yield from _arms(inner, done, known)


def _always(region: Region) -> Iterator[Op]:
    """The ops that are run whenever a region is."""
    for o in region.ops:
        yield o
        if o.kind not in control.LEAD:
            for inner in o.regions:
                yield from _always(inner)
