"""Hoists loads before the first op of their block that makes their threads wait.

Order: before expand_pipeline.  Which loads says the schedule (`Schedule.hoisted_loads`, ids).
Changes: 4 families: layer norm of rows that fit a block, once peel_single_trip_loops has taken its loops away
(together 1.14 to 1.41 times as fast: docs/log/2026-11-21-corpus-plain.md); gates and scales of recurrences,
in loops of dots.

before:  %x = load_box(%v, …)           after:  %x = load_box(%v, …)
         %s = reduce(%x)                        %w = load_box(%u, …)
         %w = load_box(%u, …)                   %s = reduce(%x)
         use(%x, %s, %w)                        use(%x, %s, %w)

What computes their places moves with them.  One that the block has loaded before is not loaded again.
"""

from __future__ import annotations

from collections.abc import Collection

from warploom.ir.analysis import closure, waits
from warploom.ir.core import Func, Region, Value
from warploom.ir.rewrite import substitute, substitute_operands, with_regions
from warploom.schedule.model import Schedule
from warploom.schedule.prefetch import same_load


def hoist_loads(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    wanted = frozenset(schedule.hoisted_loads)
    return func.with_(body=_region(func.body, wanted))


def _region(r: Region, wanted: Collection[str]) -> Region:
    ops = [with_regions(o, lambda x: _region(x, wanted)) for o in r.ops]
    loads = [o for o in ops if o.id in wanted]
    at = next((i for i, o in enumerate(ops) if waits(o)), None)
    if not loads or at is None:  # what waited may have been code that no task needs
        return Region(r.params, tuple(ops))
    made = {v: o for o in ops[at:] for v in o.results}
    moved = closure(loads, lambda o: [made[v] for v in o.operands if v in made])
    first = [o for o in ops[at:] if o in moved]
    rest = [o for o in ops[at:] if o not in moved]
    env: dict[Value, Value] = {}
    seen = {same_load(o): o for o in ops[:at] if o.loads}
    kept = []
    for o in first:
        o = substitute_operands(o, env)
        twin = seen.setdefault(same_load(o), o) if o.id in wanted else o
        if twin is o:
            kept.append(o)
        else:
            env[o.result] = twin.result
    return substitute(Region(r.params, (*ops[:at], *kept, *rest)), env)
