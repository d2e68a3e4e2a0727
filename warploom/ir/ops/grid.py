"""What a grid has to do with the grids before and after it in its stream: programmatic dependent launch.

Semantics follow the PTX ISA ("griddepcontrol").  A grid may begin before the one ahead of it has ended.
"""

from __future__ import annotations

from warploom.ir.core import Effect, Family, Level, Runs, op, require

_PLACED = frozenset({Level.PLACED})


@op(Family.WAIT, levels=_PLACED, effect=Effect.SYNC, runs=Runs.ALL)
def grid_wait() -> None:
    """griddepcontrol.wait by every thread of the CTA, before `tasks`: the grids that this one was launched
    after are complete and their writes visible.  Nothing before it touches global memory."""


@op(Family.SIGNAL, levels=_PLACED, effect=Effect.SYNC, runs=Runs.ALL)
def grid_release(*, last: int, by: str = "all") -> None:
    """griddepcontrol.launch_dependents by the `last` programs of the grid: the next grid may start once they
    have come here and all others have ended (what ends counts as having released).  by: all threads of a
    program, or its first "warp", which is enough."""
    require(last >= 1, f"a grid is released by one program at least, not {last}")
    require(by in ("all", "warp"), f"a program releases by all threads or one warp, not {by}")
