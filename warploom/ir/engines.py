"""What runs beside the threads that asked for it: by which op it begins, and how its end is learnt.

Work in groups (PTX ISA, wgmma.commit_group, cp.async.bulk.commit_group, cp.async.commit_group): an op begins
it, one closes the group, one waits for groups.  Copies that tell an mbarrier have no groups."""

from __future__ import annotations

from warploom.ir.core import Op, OpKind
from warploom.ir.ops import mbarrier, mma, smem, task, tile, tma

ISSUED: dict[OpKind, str] = {
    mma.wgmma: "products",
    tma.tma_store: "stores",
    smem.cp_async: "copies",
}
OPENED: dict[OpKind, str] = {mma.wgmma_fence: "products"}  # before those that follow are issued
CLOSED: dict[OpKind, str] = {
    mma.wgmma_commit: "products",
    tma.tma_store_commit: "stores",
    smem.cp_async_commit: "copies",
}
WAITED: dict[OpKind, str] = {
    mma.wgmma_wait: "products",
    tma.tma_store_wait: "stores",
    smem.cp_async_wait: "copies",
}
# By the work: what opens a group, closes it, waits for groups.
OPENS, CLOSES, WAITS = (
    {work: kind for kind, work in kinds.items()} for kinds in (OPENED, CLOSED, WAITED)
)
STORES_BOXES = frozenset((tma.tma_store,))
COPIES_BOXES = frozenset((tma.tma_load,))  # and tells the mbarrier among its operands
MOVES_BOXES = COPIES_BOXES | STORES_BOXES
READS_BY_ASYNC_PROXY = STORES_BOXES | {mma.wgmma}
COPIES_PIECES = frozenset((smem.cp_async,))
TELLS_OF_PIECES = frozenset((mbarrier.cp_async_arrive,))
FILLS = COPIES_BOXES | COPIES_PIECES
# The operand that says where in shared memory an op writes.
DESTINATION: dict[OpKind, int] = {
    **dict.fromkeys((smem.shared_store, smem.shared_put, *smem.BY_ELEMENT), 0),
    **dict.fromkeys(FILLS, 1),
}
WRITES_GLOBAL = STORES_BOXES | {tile.store, tile.store_box, tile.atomic}
MULTIPLIES = frozenset((tile.dot, mma.wgmma))  # in whichever way the chip does
_PROTOCOL = (mbarrier.mbarrier_wait, mbarrier.mbarrier_expect, mbarrier.mbarrier_arrive)
# What brings data to shared memory and tells of it: none of it shows others' stores to global memory.
BRINGS = COPIES_BOXES | {*_PROTOCOL, smem.shared_store, smem.fence_async, task.elect}


def copies_boxes(o: Op) -> bool:
    """Does an op copy boxes, or write the descriptors for that, and do nothing by groups, which are a
    thread's own?"""
    kinds = {x.kind for x in o.all_ops}
    by_group = ISSUED.keys() | CLOSED.keys() | WAITED.keys()
    return not kinds.isdisjoint(COPIES_BOXES | {tma.map_write}) and kinds.isdisjoint(by_group)
