"""How often a loop runs, as far as that is known while compiling.  Decides nothing.

`single_trips` are loops that a launch may run exactly once: a row that fits into one block.  A kernel that
walks along a row in blocks is compiled for any number of them.  Where there is one, it is no loop: what it
loads can be issued early, and what a second walk loads again is there.  The host counts the iterations of one
loop; others with the same bounds have as many.
"""

from __future__ import annotations

from warploom.analysis.access import Accesses
from warploom.analysis.facts import Facts
from warploom.analysis.structure import structure_of
from warploom.ir.core import Func, Op
from warploom.ir.ops import control, tile
from warploom.target import Target

ENDLESS = 1 << 16  # a bound of a loop that says nothing


def most_trips(facts: Facts, loop: Op) -> int | None:
    """The most iterations of a `for`, from the ranges of its bounds; None where they don't say."""
    lo, hi, step = (facts.interval(v) for v in loop.operands[:3])
    if step.constant is None or step.constant < 1 or not -ENDLESS < lo.low <= hi.high < ENDLESS:
        return None
    return max(0, -((lo.low - hi.high) // step.constant))


def single_trips(func: Func, target: Target) -> list[Op]:
    """The first loops that load and have the same bounds, two or more, where a launch's arguments decide how
    often they run and nothing else does; none in kernels with dots.  For a single walk another variant would
    not be worth its compilation."""
    structure = structure_of(func)
    if any(o.kind is tile.dot for o in structure.ops):
        return []
    accesses = Accesses(func, target)
    walks = [
        o
        for o in func.body.ops
        if o.kind is control.for_
        and o.attrs.get("num_stages") is None
        and any(x.loads for x in o.regions[0].all_ops)
    ]
    for first in walks:
        bounds = first.operands[:3]
        known = [accesses.facts.constant(v) for v in bounds]
        same = [o for o in walks if o.operands[:3] == bounds]
        if len(same) > 1 and None in known and all(map(accesses.invariant, bounds)):
            return same
    return []
