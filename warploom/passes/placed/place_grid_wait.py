"""Places the wait for earlier grids and the release of the next (programmatic dependent launch).

Order: after allocate_shared, which counts the threads.  PLACED → PLACED.
Changes: every kernel of a target whose grids may begin early.

What needs nothing of earlier grids stands before the wait: scalars of arguments and program ids, and in the
emitted code the barriers' initialisation.  Every thread waits, before any touches global memory: so the end
of this grid implies the end of all before it, and the next grid has to wait for this one alone.  The release
comes after the wait, so no more than two grids are ever in flight.  Where programs are short their ends and
releases queue up (measured: benchmarks/launch_rate.py), so only the last few of a multiprocessor release.

Which are the last is some ten instructions.  A program that loads by its threads, and multiplies nothing,
may live for hardly more than two loads: there one warp asks, while the first loads are on their way.

    before:  %t = mul(%pid, %c128)
             %x = load(%p)
    after:   %t = mul(%pid, %c128)
             grid_wait()
             grid_release() {last=1056}
             %x = load(%p)

    without dots:
             grid_wait()
             %x = load(%p)
             grid_release() {last=1056, by="warp"}
"""

from __future__ import annotations

from warploom.ir.analysis import effects, touches_global
from warploom.ir.core import Builder, Func, Region, Value
from warploom.ir.engines import MULTIPLIES
from warploom.ir.ops import grid, task
from warploom.ir.rewrite import with_ops, with_regions
from warploom.target import Target

LAST_PROGRAMS = 8  # of a multiprocessor, the last it gets, that let the next grid in


def place_grid_wait(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    ops = func.body.ops
    at = next(i for i, o in enumerate(ops) if effects(o))
    resident = min(target.grid.threads_per_sm // func.attrs["threads"], LAST_PROGRAMS)
    last = target.multiprocessors * resident
    wait, b = Builder(), Builder()
    grid.grid_wait(wait)
    after = _after_loads(func.body, at) if _only_loads(func) else None
    if after is None:
        grid.grid_release(b, last=last)
        after = func.body, at
    else:
        grid.grid_release(b, last=last, by="warp")
    place, n = after

    def released(region: Region) -> Region:
        if region is not place:
            return with_ops(region, [with_regions(o, released) for o in region.ops])
        return with_ops(region, (*region.ops[:n], *b.ops, *region.ops[n:]))

    body = released(func.body)
    return func.with_(body=with_ops(body, (*body.ops[:at], *wait.ops, *body.ops[at:])))


def _only_loads(func: Func) -> bool:
    """Does the function multiply nothing, and access global memory by its threads only?"""
    if not MULTIPLIES.isdisjoint(func.body.by_kind):
        return False
    return all(o.accesses for o in func.body.all_ops if touches_global(o))


def _after_loads(region: Region, at: int = 0) -> tuple[Region, int] | None:
    """After which ops of a region, or of its only task, the first loads from op `at` on are on their way;
    None where the threads do something else first."""
    waited: set[Value] = set()
    found = None
    for i, o in enumerate(region.ops[at:], at):
        if o.kind is task.tasks and found is None and len(o.regions) == 1:
            return _after_loads(o.regions[0])
        is_late = not waited.isdisjoint(o.operands)
        if not (o.loads and not is_late) and effects(o):
            break
        if o.loads:
            found = region, i + 1
        if o.loads or is_late:
            waited.update(o.results)
    return found
