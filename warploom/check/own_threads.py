"""Accesses to global memory by the threads of one group: which of them no barrier parts.

Two executions of one thread come in its program's order.  Of different threads the later one comes after a
barrier of its group; where a path has none between two accesses, each element has to be one thread's: the two
touch one word at equal places of their tiles alone (global_memory.py), which are of the same thread."""

from __future__ import annotations

from dataclasses import dataclass, field

from warploom.check.global_accesses import Access
from warploom.ir.core import Func, Level, Op, Region
from warploom.ir.ops import cluster, control, mbarrier, smem, task
from warploom.sim.global_order import SEVERAL, WRITES, Threads, is_of_one_thread, is_ordered

_Ops = frozenset[Op]
_MEETINGS = frozenset({smem.group_sync, smem.exchange})


def unparted(func: Func, by_task: bool = False) -> set[tuple[Op, Op]]:
    """Ordinary accesses of one group, the first of which writes or the second, that no barrier parts.
    by_task: no barrier of all replicas of their task."""
    found: set[tuple[Op, Op]] = set()
    if func.level is not Level.PLACED:  # the barriers that are kept are not known, nor the threads
        return found
    for phase in task.phases(func):
        for region, warps in zip(phase.regions, phase.attrs["warps"], strict=True):
            walk = _Walk(warps == 1, by_task)
            walk.region(region, frozenset())
            found |= walk.found
    return found


@dataclass
class _Walk:
    """The accesses of one task.  is_lone: of one warp, whose lanes meet more often.  by_task: its replicas
    have to meet."""

    is_lone: bool
    by_task: bool
    found: set[tuple[Op, Op]] = field(default_factory=set)
    arrived: _Ops = frozenset()  # before the last arrival at the cluster's barrier

    def region(self, region: Region, since: _Ops) -> _Ops:
        """What came since the last barrier: before the region, and after it."""
        for o in region.ops:
            since = self.op(o, since)
        return since

    def op(self, o: Op, since: _Ops) -> _Ops:
        if o.kind in control.LOOPS:
            for _ in range(2):  # what one iteration leaves the next one finds
                since = since.union(*[self.region(r, since) for r in o.regions])
            return since
        if o.regions:
            after = [self.region(r, since) for r in o.regions]
            return frozenset() if self._is_meeting(o) else since.union(*after)
        if self._is_meeting(o):
            return frozenset()
        if o.kind is cluster.cluster_arrive:
            self.arrived = since
        elif o.kind is cluster.cluster_wait:
            return since - self.arrived
        if is_ordered(o):
            self.found |= {(x, o) for x in since if x.kind in WRITES or o.kind in WRITES}
            return since | {o}
        return since

    def _is_meeting(self, o: Op) -> bool:
        if self.by_task:
            return o.kind is smem.group_sync and o.attrs["scope"] != "replica"
        if o.kind in _MEETINGS:
            return True
        if o.kind is smem.named_barrier:
            return not o.attrs["arrive"]
        if o.kind is mbarrier.mbarrier_arrive:
            is_synced = o.attrs.get("by", "warp") == "warp" and o.attrs.get("synced", True)
            return self.is_lone and is_synced
        return self.is_lone and o.kind is task.elect and bool(o.attrs.get("synced"))


def same_threads(threads: Threads, a: Access, b: Access) -> bool:
    """Are elements at equal places of the tiles of both one thread's?  (Of boxes side by side, which are one
    access, equal places are of one of them.)"""
    if all(is_of_one_thread(o) for o in (*a.ops, *b.ops)):
        return True
    if a is not b and len(a.ops) + len(b.ops) > 2:
        return False
    one, other = threads.of(a.op), threads.of(b.op)
    if one is None or other is None or (one == SEVERAL).any():
        return False
    return a.coordinates == b.coordinates and bool((one == other).all())
