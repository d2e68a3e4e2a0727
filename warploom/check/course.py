"""How the conditions inside a loop go along its iterations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warploom.check.cases import Case
from warploom.check.dependence import COMPARISONS, Condition, Source
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
        behind = closure([condition.value], self.dependence.flow_of)
        body = loop.regions[-1]
        carried = {p for r in loop.regions for p in r.params} - set(body.params[:1])
        if loop.kind is control.while_:
            carried |= set(body.params[:1])
        if any(self.dependence.own(p) for p in carried & behind) or self._is_drawn(loop, behind):
            return Course(is_known=False)
        if loop.kind is control.while_ or body.params[0] not in behind:
            return Course()
        return self._table(condition, loop, behind) or self._relative(condition, loop)

    def _is_drawn(self, loop: Op, behind: set[Value]) -> bool:
        """Is something read in each iteration that others may have changed since the one before?"""
        for o in loop.regions[-1].all_ops:
            if behind.isdisjoint(o.results):
                continue
            if o.kind is smem.shared_get:  # put there by another agent, in an iteration of its own
                if self.dependence.sources(o.result) & (_DRAWN | Source.TURN):
                    return True
            elif any(self.dependence.own(v) & _DRAWN for v in o.results):
                return True
        return False

    def _table(self, condition: Condition, loop: Op, behind: set[Value]) -> Course | None:
        """Where it hangs on constants and the loop's variable alone: told without a run."""
        turn, (lo, _, step) = loop.regions[0].params[0], loop.operands[:3]
        if any(self.dependence.own(x) for x in behind - {turn}):
            return None
        case = Case((0,) * len(self.func.params), (1,))
        if any(self.dependence.sources(v) for v in (lo, step)):
            return None
        first, stride = self.values(lo, case), self.values(step, case)
        if first is None or stride is None:
            return None
        turns = np.arange(SWEEP, dtype=np.int64) * int(stride) + int(first)
        found = self.values(condition.value, case, {turn: turns})
        if found is None:
            return None
        seen = np.broadcast_to(found, turns.shape)
        for period in range(1, SWEEP // 4):
            unlike = np.flatnonzero(seen[:-period] != seen[period:])
            head = int(unlike[-1]) + 1 if unlike.size else 0
            if head + 2 * period <= SWEEP // 2 and not self._turns_later(condition, loop):
                return Course(head=head, period=period)
        return Course(is_known=False)

    def _turns_later(self, condition: Condition, loop: Op) -> bool:
        """Whether a constant that the condition compares with is reached after the sweep."""
        known = self._relative(condition, loop)
        if known.is_known:
            return known.head >= SWEEP // 2
        behind = closure([condition.value], self.dependence.flow_of)
        made = (self.dependence.made.get(x) for x in behind)
        step = self.values(loop.operands[2], Case((0,) * len(self.func.params), (1,)))
        constants = [o.attrs["value"] for o in made if o is not None and o.kind is arith.const]
        return any(abs(int(n)) >= int(step) * SWEEP // 2 for n in constants)

    def _relative(self, condition: Condition, loop: Op) -> Course:
        """Where it compares the loop's variable with the loop's begin or end, constants apart."""
        unknown = Course(is_known=False)
        if condition.op.kind not in COMPARISONS:
            return unknown
        x, y = condition.op.operands
        turn, (lo, hi, step) = loop.regions[0].params[0], loop.operands[:3]
        stride = self.sums.constant(step)
        if stride is None or stride <= 0:
            return unknown
        g = added(self.sums.linear(x), self.sums.linear(y), -1)
        slope = g.pop(turn, 0)
        if not slope:
            return unknown
        for end in (lo, hi):
            rest = added(g, self.sums.linear(end), slope)
            if not set(rest) - {1}:
                switch = abs(rest.get(1, 0)) // (abs(slope) * stride) + 2
                return Course(head=switch) if end is lo else Course(tail=switch)
        return unknown

    def of_loops(self) -> dict[Op, Course]:
        """How the conditions in each loop go, all together."""
        found: dict[Op, Course] = {}
        for condition in self.dependence.conditions:
            for loop in self.dependence.loops.get(condition.op, ()):
                if loop.kind is control.while_ and condition.op in loop.regions[0].all_ops:
                    continue
                one, all_ = self.of(condition, loop), found.get(loop, Course())
                found[loop] = Course(
                    max(one.head, all_.head),
                    max(one.tail, all_.tail),
                    math.lcm(one.period, all_.period),
                    one.is_known and all_.is_known,
                )
        return found
