"""Peels loops that the launch is known to run exactly once: their body remains.

Order: after canonicalize, which makes equal bounds one value; before recover_boxes.  Only in the variant
for such launches (`Launch.short`); which loops: analysis/trip_counts.py.
Changes: 3 families: layer norm and losses of rows that fit a block, the norm with hoist_loads 1.14 to 1.41
times as fast (docs/log/2026-11-21-corpus-plain.md).

before:  for %i in 0 … %n step 4096, carrying %s from %zero:  …; yield(%t)          after:  … with %i = 0
"""

from __future__ import annotations

from warploom.analysis.trip_counts import single_trips
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.rewrite import inline, rewrite
from warploom.target import Target


def peel_single_trip_loops(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    once = {o.id for o in single_trips(func, target)}

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if o.id not in once:
            return None
        lo, init = o.operands[0], o.operands[3:]
        return inline(b, o.regions[0], (lo, *init))

    return rewrite(func, rule)
