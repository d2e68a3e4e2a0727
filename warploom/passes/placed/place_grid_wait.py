"""Places the wait for earlier grids and the release of the next (programmatic dependent launch).

Order: after allocate_shared, which counts the threads.  PLACED → PLACED.
Changes: every kernel of a target whose grids may begin early.

What needs nothing of earlier grids stands before the wait: scalars of arguments and program ids, and in the
emitted code the barriers' initialisation.  Every thread waits, before any touches global memory: so the end
of this grid implies the end of all before it, and the next grid has to wait for this one alone.  The release
comes after the wait, so no more than two grids are ever in flight.  Where programs are short their ends and
releases queue up (measured: benchmarks/launch_rate.py), so only the last few of a multiprocessor release.

A program that loads by its threads, and multiplies nothing, may live for hardly more than two loads: there
one warp asks whether it is among the last, by its place along the axes that programs are told apart by.  It
asks before the loads, without a branch, across which ptxas would not schedule them: it took more registers
(rotary embedding of 1024 elements by 128 threads: 36 with one, 30 without).

    before:  %t = mul(%pid, %c128)
             %x = load(%p)
    after:   %t = mul(%pid, %c128)
             grid_wait()
             grid_release() {last=1056}                      without dots: {last=1056, by="warp"}
             %x = load(%p)
"""

from __future__ import annotations

from warploom.ir.analysis import effects, touches_global
from warploom.ir.core import Builder, Func
from warploom.ir.engines import MULTIPLIES
from warploom.ir.ops import grid
from warploom.ir.rewrite import with_ops
from warploom.target import Target

LAST_PROGRAMS = 8  # of a multiprocessor, the last it gets, that let the next grid in


def place_grid_wait(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    ops = func.body.ops
    at = next(i for i, o in enumerate(ops) if effects(o))
    resident = min(target.grid.threads_per_sm // func.attrs["threads"], LAST_PROGRAMS)
    last = target.multiprocessors * resident
    b = Builder()
    grid.grid_wait(b)
    grid.grid_release(b, last=last, by="warp" if _only_loads(func) else "all")
    return func.with_(body=with_ops(func.body, (*ops[:at], *b.ops, *ops[at:])))


def _only_loads(func: Func) -> bool:
    """Does the function multiply nothing, and access global memory by its threads only?"""
    if not MULTIPLIES.isdisjoint(func.body.by_kind):
        return False
    return all(o.accesses for o in func.body.all_ops if touches_global(o))
