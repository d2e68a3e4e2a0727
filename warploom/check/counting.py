"""`while` loops that count: in each iteration one number comes closer to another one by as much, and the loop
ends where it meets or passes it.  So they run as often as a `for`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warploom.check.dependence import Dependence
from warploom.check.passing import is_kept
from warploom.check.sums import Sums, added
from warploom.ir.analysis import closure
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control

_LESS = {arith.lt: 0, arith.le: 1}  # what must be left, but for one, for the loop to go on
_MORE = {arith.gt: 0, arith.ge: 1}


@dataclass(frozen=True)
class Counting:
    """A loop goes on while `low` + 1 ≤ `high` + `more`, and brings them closer by `by` (> 0).  steps: by how
    much each number that its condition hangs on grows."""

    low: Value
    high: Value
    more: int
    by: int
    steps: Mapping[Value, int]


def counting(dependence: Dependence, sums: Sums, loop: Op) -> Counting | None:
    """How a `while` counts; None where that is not seen."""
    condition = loop.regions[0]
    goes_on = dependence.made.get(condition.yielded[0])
    if goes_on is None or goes_on.kind not in _LESS | _MORE:
        return None
    low, high = goes_on.operands
    if goes_on.kind in _MORE:
        low, high = high, low
    steps: dict[Value, int] = {}
    behind = closure([goes_on.result], dependence.flow_of)
    for i, c in enumerate(control.carried(loop)):
        step = added(sums.linear(c.yielded[1]), {c.params[1]: 1}, -1)
        if condition.yielded[i + 1] is c.params[0] and not set(step) - {1}:
            steps[c.params[0]] = step.get(1, 0)
        elif not behind.isdisjoint(c.params):
            return None
    gap, by = added(sums.linear(high), sums.linear(low), -1), 0
    for term, factor in gap.items():
        if term in steps:
            by -= factor * steps[term]
        elif term != 1 and not is_kept(dependence, term, dependence.loops[loop]):
            return None
    more = (_LESS | _MORE)[goes_on.kind]
    return Counting(low, high, more, by, steps) if by > 0 else None
