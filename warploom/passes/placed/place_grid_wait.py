"""Places the wait for earlier grids and the release of the next (programmatic dependent launch).

Order: after allocate_shared, which counts the threads.  PLACED → PLACED.
Changes: every kernel of a target whose grids may begin early.

What needs nothing of earlier grids stands before the wait: scalars of arguments and program ids, and in the
emitted code the barriers' initialisation.  Every thread waits, before any touches global memory: so the end
of this grid implies the end of all before it, and the next grid has to wait for this one alone.  The release
comes after the wait, so no more than two grids are ever in flight.  Where programs are short their ends and
releases queue up (measured: benchmarks/launch_rate.py), so only the last few of a multiprocessor release.

    before:  %t = mul(%pid, %c128)
             %x = load(%p)
    after:   %t = mul(%pid, %c128)
             grid_wait()
             grid_release() {last=1056}
             %x = load(%p)
"""

from __future__ import annotations

from warploom.ir.analysis import effects
from warploom.ir.core import Builder, Func
from warploom.ir.ops import grid
from warploom.ir.rewrite import with_ops
from warploom.schedule.model import Schedule
from warploom.target import Target

LAST_PROGRAMS = 8  # of a multiprocessor, the last it gets, that let the next grid in


def place_grid_wait(func: Func, schedule: Schedule | None, target: Target) -> Func:
    """See the module's docstring."""
    ops = func.body.ops
    at = next(i for i, o in enumerate(ops) if effects(o))
    resident = min(target.grid.threads_per_sm // func.attrs["threads"], LAST_PROGRAMS)
    b = Builder()
    grid.grid_wait(b)
    grid.grid_release(b, last=target.multiprocessors * resident)
    return func.with_(body=with_ops(func.body, (*ops[:at], *b.ops, *ops[at:])))
