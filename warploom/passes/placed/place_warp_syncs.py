"""Says where a warp's lanes meet, at arrivals and after elects, and where phases part without a barrier.

Order: PLACED → PLACED, after allocate_shared, whose aliases say which allocations are one.

Lane 0 arrives for its warp after all lanes (`synced`), so that the arrival releases what they wrote and read
by ordinary accesses.  A task has nothing to release if its ordinary instructions neither write global memory
nor reach another CTA, and touch nothing that other tasks of its phase touch (or its own copies and products,
where it waits for its own arrivals).  TMA and wgmma are waited for by each lane.

After an elect whose thread waits, or copies boxes where the task multiplies by wgmma, lanes meet unless it is
the task's only one: else ptxas takes the warp for diverged after it, and keeps ring slots and wgmma's
descriptors in vector registers, with moves between the instructions.

Between two phases stands a barrier of the CTA, unless the first ends in one of the cluster that releases what
all threads did.

    before:  mbarrier_arrive(%empty, %slot)
             elect() do { mbarrier_wait(%full, %slot, %phase); … }
    after:   mbarrier_arrive(%empty, %slot) {synced=False}
             elect() {synced=True} do { mbarrier_wait(%full, %slot, %phase); … }

Changes: 21 families: products, attention, states whose consumers read shared memory by wgmma alone, or wait
by one thread.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from warploom.ir import engines
from warploom.ir.analysis import allocations_of
from warploom.ir.core import Func, Op, Region, Value, walk
from warploom.ir.ops import cluster, mbarrier, mma, smem, task
from warploom.ir.rewrite import rewrite_tasks, with_ops, with_regions
from warploom.ir.types import Shared

_WRITES = engines.COPIES_PIECES | {smem.shared_store, *smem.BY_ELEMENT}
_READS = frozenset({smem.shared_load, smem.shared_atomic, mma.fma})
_ORDINARY = _WRITES | _READS
_ASYNCHRONOUS = engines.COPIES_BOXES | engines.MULTIPLIES


def place_warp_syncs(func: Func) -> Func:
    """See the module's docstring."""
    made = allocations_of(func)
    last = task.phases(func)[-1]

    def phase(o: Op) -> Op:
        if o is not last and _ends_in_meeting(o):
            o = o.with_(attrs={**o.attrs, "synced": False})
        used = [_names(walk(r), made) for r in o.regions]
        regions = []
        for i, r in enumerate(o.regions):
            others = {name for j, names in enumerate(used) if j != i for name in names}
            others |= _handed_on(r, made)
            parting = {mbarrier.mbarrier_wait}
            if any(engines.ISSUED.get(o.kind) == "products" for o in walk(r)):
                parting |= engines.COPIES_BOXES
            parted = {o for o in walk(r) if any(x.kind in parting for x in o.all_ops)}
            parted -= {task.sole_elect(r)}
            regions.append(_synced(r, _is_released(r, made, others), parted))
        return o.with_(regions=tuple(regions))

    return rewrite_tasks(func, phase)


def _ends_in_meeting(phase: Op) -> bool:
    """Do all threads of a phase end in a barrier of the cluster that orders what they did?"""
    arrivals = (o for o in phase.all_ops if o.kind is cluster.cluster_arrive)
    if len(phase.regions) > 1 or any(o.attrs.get("sem") == "relaxed" for o in arrivals):
        return False
    return any(o.kind is cluster.cluster_wait for o in phase.regions[0].ops[-2:-1])


def _names(ops: Iterable[Op], made: dict[Value, Op]) -> set[str]:
    """Of the allocations (not their aliases) that operands of ops are parts of."""
    found = {made[v] for o in ops for v in o.operands if v in made}
    return {a.attrs.get("alias") or a.attrs["name"] for a in found}


def _handed_on(region: Region, made: dict[Value, Op]) -> set[str]:
    """The allocations of a task's own copies and products, and those that its threads both write and read,
    where it waits for what it arrives at itself: the one task of a uniform kernel."""
    ops = list(walk(region))
    arrivals, waits = (
        {o.operands[0] for o in ops if o.kind is kind}
        for kind in (mbarrier.mbarrier_arrive, mbarrier.mbarrier_wait)
    )
    if not arrivals & waits:
        return set()
    asynchronous, written, read = (
        _names((o for o in ops if o.kind in kinds), made)
        for kinds in (_ASYNCHRONOUS, _WRITES, _READS)
    )
    return asynchronous | (written & read)


def _is_released(region: Region, made: dict[Value, Op], others: set[str]) -> bool:
    """Do the task's threads access, by ordinary instructions, what others may depend on?"""
    if any(o.accesses and not o.loads for o in walk(region)):
        return True
    ordinary = [o for o in walk(region) if o.kind in _ORDINARY]
    if any(isinstance(v.type, Shared) and v.type.peer for o in ordinary for v in o.operands):
        return True
    return bool(_names(ordinary, made) & others)


def _synced(region: Region, is_released: bool, parted: Container[Op]) -> Region:
    ops = []
    for o in region.ops:
        if o.kind is mbarrier.mbarrier_arrive and o.attrs.get("by", "warp") == "warp":
            o = o if is_released else o.with_(attrs={**o.attrs, "synced": False})
        elif o.kind is not task.elect:
            o = with_regions(o, lambda r: _synced(r, is_released, parted))
        elif o in parted:
            o = o.with_(attrs={**o.attrs, "synced": True})
        ops.append(o)
    return with_ops(region, ops)
