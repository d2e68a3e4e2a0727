"""The rings of a function: which buffers and barriers one cursor walks, and how deep they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from warploom.eject.flow import Flow
from warploom.ir.core import Op, Value, walk
from warploom.ir.ops import arith, mbarrier, smem, task


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
        if found := _indexing(o):
            maker = flow.made.get(found[0])
            if maker is not None and found[1] not in flow.folded:
                uses.setdefault(flow.find(found[1]), set()).add(maker)
        if o.kind is mbarrier.mbarrier_wait:
            parity = flow.made.get(o.operands[2])
            if parity is not None and parity.kind is arith.xor:
                filling.add(flow.find(o.operands[1]))
    made: list[Ring] = []
    for slot, n in depth.items():
        mine = {o for o in uses.get(slot, ()) if _slots(o) == n}
        ring = next((r for r in made if mine & {*r.allocations}), None)
        if ring is None:
            ring = Ring(n)
            made.append(ring)
        ring.allocations += [o for o in mine if o not in ring.allocations]
        ring.cursors.append(slot)
        if slot in filling:
            ring.filling |= {slot}
    at = {o: i for i, o in enumerate(flow.func.body.ops)}
    for ring in made:
        ring.allocations.sort(key=lambda o: (o.kind is mbarrier.mbarrier_alloc, at[o]))
    return sorted(made, key=lambda r: min((at[o] for o in r.allocations), default=0))


def _indexing(o: Op) -> tuple[Value, Value] | None:
    """(array, index) of what an op indexes."""
    if o.kind is smem.shared_slot and len(o.operands) == 2:
        return o.operands[0], o.operands[1]
    return mbarrier.barrier_of(o)


def _slots(o: Op) -> int:
    if o.kind is mbarrier.mbarrier_alloc:
        return int(o.attrs["n"])
    lead: tuple[int, ...] = o.attrs.get("lead", ())
    return lead[0] if len(lead) == 1 else 0
