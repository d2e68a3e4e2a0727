"""Gives the barriers at which a replica or a task meets their numbers.

A part of allocate_shared: exchanges meet as well.  Barrier 0 is that of all threads of the CTA; a program's
own `named_barrier`s keep theirs.  Each task takes a barrier for each replica, and one for all of them
together, where it meets there: the first that are free.

    before:  group_sync() {scope="replica"}          in a task of two replicas of 4 warps
    after:   group_sync() {scope="replica", id=1}    replica 1 meets at barrier 2
"""

from __future__ import annotations

from warploom.errors import CompileError
from warploom.ir.core import Func
from warploom.ir.named_barriers import meetings
from warploom.ir.rewrite import annotate
from warploom.target import Target


def with_barriers(func: Func, target: Target) -> Func:
    """The function with an `id` at every group_sync and exchange of more than a warp.  Raises CompileError
    `named-barriers` where there are not enough.  Where the target has none, groups synchronise by counters
    in shared memory."""
    limit = target.sync.named_barriers
    unnamed = [m for m in meetings(func) if m.barriers and not m.ids] if limit else []
    free = set(range(1, limit)).difference(*(m.ids for m in meetings(func)))
    first: dict[tuple[str, str] | None, int] = {None: 0}
    for m in unnamed:
        if m.owner in first:
            continue
        places = (i for i in free if free.issuperset(range(i, i + m.barriers)))
        first[m.owner] = at = min(places, default=0)
        if not at:
            raise CompileError(
                "named-barriers",
                f"the kernel needs more than the {limit} named barriers of a program",
                loc=func.loc,
                help="fewer tasks or consumer groups",
            )
        free -= set(range(at, at + m.barriers))
    ids = {m.op: first[m.owner] for m in unnamed}
    return annotate(func, lambda o: {"id": ids[o]} if o in ids else {})
