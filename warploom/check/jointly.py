"""Conditions that choose one slot, phase or bound together, as in `phase ^ (x * y * z)`: what one of them
says may matter with one outcome of each other alone, so all their outcomes are to be run together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warploom.check.dependence import CONNECTING, Condition, Dependence, Source, asked
from warploom.ir.analysis import closure
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control
from warploom.ir.types import Scalar, i1


@dataclass(frozen=True, eq=False)
class Joint:
    """An event or a loop, and the conditions that choose numbers which its slot, phase or CTA, or its bounds,
    are made of."""

    op: Op
    conditions: tuple[Condition, ...]


def joints(dependence: Dependence) -> list[Joint]:
    """Those of several conditions that are the same in all iterations; one of each that are equal.  What
    chooses among a ring's cursors is left out: these go on by events, which runs count.  So are loops that
    another one is counted like, which is of another task: its conditions are the same."""
    found: dict[frozenset[int], Joint] = {}
    of_value = {c.value: c for c in dependence.conditions if c.op.kind not in CONNECTING}
    kinds, loops = dependence.alike_in_loops, dict[object, list[Op]]()
    for o in dependence.deciding:
        if o.kind is control.for_:
            loops.setdefault(tuple(kinds[v] for v in control.deciding(o)), []).append(o)
    alone = (one[0] for one in loops.values() if len(one) == 1 and len(loops) > 1)
    for op in (*dependence.events, *alone):
        for v in op.operands[:3] if op.kind is control.for_ else asked(op):
            behind = (x for c in _choosing(dependence, v) for x in closure([c], dependence.flow_of))
            those = {dependence.alike[x]: of_value[x] for x in behind if x in of_value}
            each = {k: c for k, c in those.items() if Source.ITERATION not in c.sources}
            if len(each) > 1:
                found.setdefault(frozenset(each), Joint(op, tuple(each.values())))
    return list(found.values())


def _choosing(dependence: Dependence, v: Value) -> Iterator[Value]:
    """The i1s that choose among the numbers that a value is made of, or are made numbers themselves."""
    for x in closure([v], dependence.flow_of):
        o = dependence.made.get(x)
        if o is None or dependence.is_cursor(x):
            continue
        if o.kind in (control.if_, arith.select) or (
            o.kind is arith.cast and o.operands[0].type == Scalar(i1)
        ):
            yield o.operands[0]
