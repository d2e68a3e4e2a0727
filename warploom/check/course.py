"""How the conditions inside a loop go along its iterations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.check.dependence import COMPARISONS, CONNECTING, Condition, Source
from warploom.check.runs import Case
from warploom.check.sums import Sums, added
from warploom.check.values import Values
from warploom.ir.analysis import closure
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control, smem

_DRAWN = Source.SHARED_WORD | Source.TILE
SWEEP = 1024  # iterations for which a condition on constants is told without a run


@dataclass(frozen=True)
class Course:
    """How a condition goes along a loop's iterations.  head: it may differ in so many of the first; tail: of
    the last; period: of the others.  is_known: this holds for every input."""

    head: int = 0
    tail: int = 0
    period: int = 1
    is_known: bool = True


class Courses:
    """For the conditions of one function."""

    def __init__(self, values: Values, sums: Sums) -> None:
        self.values, self.sums = values, sums
        self.dependence, self.func = values.dependence, values.func

    def of(self, condition: Condition, loop: Op) -> Course:
        """How a condition goes along the iterations of a loop around it."""
        return self._of(condition.value, loop)

    def _of(self, v: Value, loop: Op) -> Course:
        o = self.dependence.made.get(v)
        if o is not None and o.kind in (*CONNECTING, arith.not_):
            return _joined(self._of(x, loop) for x in o.operands)
        if self.sums.outcome(v) is not None:
            return Course()
        behind = self._behind(v, loop)
        body = loop.regions[-1]
        carried = {p for r in loop.regions for p in r.params} - set(body.params[:1])
        if loop.kind is control.while_:
            carried |= set(body.params[:1])
        if any(self.dependence.own(p) for p in carried & behind) or self._is_drawn(loop, behind):
            return Course(is_known=False)
        iterations = {x for x in behind if x is body.params[0] or self.sums.is_iteration(x, loop)}
        if loop.kind is control.while_ or not iterations:
            return Course()
        return self._table(v, loop, behind, iterations) or self._relative(v, loop)

    def _behind(self, v: Value, loop: Op) -> set[Value]:
        """What a value flows from, the number of the loop's iteration from nothing."""
        return closure(
            [v], lambda x: () if self.sums.is_iteration(x, loop) else self.dependence.flow_of(x)
        )

    def _is_drawn(self, loop: Op, behind: set[Value]) -> bool:
        """Is something read in each iteration that others may have changed since the one before?"""
        for o in loop.regions[-1].all_ops:
            if behind.isdisjoint(o.results):
                continue
            if o.kind is smem.shared_get:  # put there by another agent, in an iteration of its own
                if self.dependence.sources(o.result) & (_DRAWN | Source.ITERATION):
                    return True
            elif any(self.dependence.own(v) & _DRAWN for v in o.results):
                return True
        return False

    def _table(self, v: Value, loop: Op, behind: set[Value], counts: set[Value]) -> Course | None:
        """Where it hangs on constants and `counts` alone, the loop's variable and numbers of its iteration:
        told without a run."""
        if any(self.dependence.own(x) for x in behind - counts):
            return None
        case = Case((0,) * len(self.func.params), (1,))
        given, least = dict[Value, Any](), 1 << 62  # how much these grow by an iteration, at least
        for x in counts:
            first, step = self._progress(x, loop)
            if first is None or step is None:
                return None
            given[x] = np.arange(SWEEP, dtype=np.int64) * step + first
            least = min(least, step)
        found = self.values(v, case, given)
        if found is None:
            return None
        seen = np.broadcast_to(found, (SWEEP,))
        for period in range(1, SWEEP // 4):
            unlike = np.flatnonzero(seen[:-period] != seen[period:])
            head = int(unlike[-1]) + 1 if unlike.size else 0
            if head + 2 * period <= SWEEP // 2 and not self._flips_later(v, loop, behind, least):
                return Course(head=head, period=period)
        return Course(is_known=False)

    def _progress(self, x: Value, loop: Op) -> tuple[int | None, int | None]:
        """Where the loop's variable, or the number of its iteration, begins, and by how much it grows."""
        if self.sums.is_iteration(x, loop):
            return 0, 1
        return self.sums.constant(loop.operands[0]), self.sums.constant(loop.operands[2])

    def _flips_later(self, v: Value, loop: Op, behind: set[Value], step: int) -> bool:
        """Whether a constant that the condition compares with is reached after the sweep."""
        known = self._relative(v, loop)
        if known.is_known:
            return known.head >= SWEEP // 2
        made = (self.dependence.made.get(x) for x in behind)
        constants = [o.attrs["value"] for o in made if o is not None and o.kind is arith.const]
        return any(abs(int(n)) >= step * SWEEP // 2 for n in constants)

    def _relative(self, v: Value, loop: Op) -> Course:
        """Where it compares the loop's variable with the loop's begin or end, or the number of the iteration
        with 0, constants apart."""
        unknown, o = Course(is_known=False), self.dependence.made.get(v)
        if o is None or o.kind not in COMPARISONS:
            return unknown
        x, y = o.operands
        iteration, (lo, hi, step) = loop.regions[0].params[0], loop.operands[:3]
        g = added(self.sums.linear(x), self.sums.linear(y), -1)
        count, slope = g.pop(loop, 0), g.pop(iteration, 0)
        if count and not slope and not set(g) - {1}:
            return Course(head=abs(g.get(1, 0)) // abs(count) + 2)
        stride = self.sums.constant(step)
        if count or not slope or stride is None or stride <= 0:
            return unknown
        for end in (lo, hi):
            rest = added(g, self.sums.linear(end), slope)
            if not set(rest) - {1}:
                switch = abs(rest.get(1, 0)) // (abs(slope) * stride) + 2
                return Course(head=switch) if end is lo else Course(tail=switch)
        return unknown

    def of_loops(self) -> dict[Op, Course]:
        """How the conditions in each loop go, all together."""
        found: dict[Op, list[Course]] = {}
        for condition in self.dependence.conditions:
            for loop in self.dependence.loops.get(condition.op, ()):
                if loop.kind is not control.while_ or condition.op not in loop.regions[0].all_ops:
                    found.setdefault(loop, []).append(self.of(condition, loop))
        return {loop: _joined(courses) for loop, courses in found.items()}


def _joined(courses: Iterable[Course]) -> Course:
    """How several conditions go, all together."""
    every = tuple(courses)
    return Course(
        max((c.head for c in every), default=0),
        max((c.tail for c in every), default=0),
        math.lcm(*(c.period for c in every)),
        all(c.is_known for c in every),
    )
