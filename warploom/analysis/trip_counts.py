"""How often a loop runs, as far as that is known while compiling.  Decides nothing."""

from __future__ import annotations

from warploom.analysis.facts import Facts
from warploom.ir.core import Op

ENDLESS = 1 << 16  # a bound of a loop that says nothing


def most_trips(facts: Facts, loop: Op) -> int | None:
    """The most iterations of a `for`, from the ranges of its bounds; None where they don't say."""
    lo, hi, step = (facts.interval(v) for v in loop.operands[:3])
    if step.constant is None or step.constant < 1 or not -ENDLESS < lo.low <= hi.high < ENDLESS:
        return None
    return max(0, -((lo.low - hi.high) // step.constant))
