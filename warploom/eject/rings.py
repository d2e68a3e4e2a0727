"""The rings of a function: which buffers and barriers one cursor walks, and how deep they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from warploom.eject.flow import Flow
from warploom.ir.core import Op, Value, walk
from warploom.ir.ops import arith, mbarrier, smem, task, tma

_BARRIER_OPS = frozenset(
    {
        mbarrier.mbarrier_wait,
        mbarrier.mbarrier_arrive,
        mbarrier.mbarrier_expect,
        mbarrier.cp_async_arrive,
    }
)


@dataclass
class Ring:
    """allocations: the ops of its buffers and barriers, buffers first.  cursors: the variables (leaders of
    their classes) that hold a slot of it.  filling: those of them that whoever fills the ring moves."""

    depth: int
    allocations: list[Op] = field(default_factory=list)
    cursors: list[Value] = field(default_factory=list)
    filling: set[Value] = field(default_factory=set)


def rings(flow: Flow) -> list[Ring]:
    """The rings that some cursor walks with ring_next, in the order of their declaration."""
    depth: dict[Value, int] = {}
    uses: dict[Value, set[Op]] = {}
    filling: set[Value] = set()
    for o in walk(flow.func.body):
        if o.kind is task.ring_next:
            moved = o.results if o.operands[0] in flow.folded else o.operands
            if o not in flow.late or moved is o.operands:
                depth[flow.find(moved[0])] = o.attrs["depth"]
        for array, index in _indexings(o):
            maker = flow.made.get(array)
            if maker is not None and index not in flow.folded:
                uses.setdefault(flow.find(index), set()).add(maker)
        if o.kind is mbarrier.mbarrier_wait:
            parity = flow.made.get(o.operands[2])
            if parity is not None and parity.kind is arith.xor:
                filling.add(flow.find(o.operands[1]))
    found: list[Ring] = []
    for slot, n in depth.items():
        mine = {o for o in uses.get(slot, ()) if _slots(o) == n}
        ring = next((r for r in found if mine & {*r.allocations}), None)
        if ring is None:
            ring = Ring(n)
            found.append(ring)
        ring.allocations += [o for o in mine if o not in ring.allocations]
        ring.cursors.append(slot)
        if slot in filling:
            ring.filling |= {slot}
    at = {o: i for i, o in enumerate(flow.func.body.ops)}
    for ring in found:
        ring.allocations.sort(key=lambda o: (o.kind is mbarrier.mbarrier_alloc, at[o]))
    return sorted(found, key=lambda r: min((at[o] for o in r.allocations), default=0))


def _indexings(o: Op) -> list[tuple[Value, Value]]:
    """(array, index) of what an op indexes."""
    if o.kind in _BARRIER_OPS:
        return [(o.operands[0], o.operands[1])]
    if o.kind is tma.tma_load:
        return [(o.operands[2], o.operands[3])]
    if o.kind is smem.shared_slot and len(o.operands) == 2:
        return [(o.operands[0], o.operands[1])]
    return []


def _slots(o: Op) -> int:
    if o.kind is mbarrier.mbarrier_alloc:
        return int(o.attrs["n"])
    lead: tuple[int, ...] = o.attrs.get("lead", ())
    return lead[0] if len(lead) == 1 else 0
