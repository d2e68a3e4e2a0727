"""Whether a target has what the ops of a function are made of."""

from __future__ import annotations

import math

from warploom.ir.core import Func, Op, OpKind, walk
from warploom.ir.ops import mbarrier, mma, regs, smem, tile, tma
from warploom.ir.ops.cluster import cluster_of
from warploom.target import Target


def missing(func: Func, target: Target) -> tuple[Op | None, str] | None:
    """The first op that the target can't do, and what the target lacks for it; None where it can do all.
    Without an op: it can't run clusters of that size."""
    lacks = _lacks(target)
    for o in walk(func.body):
        why = lacks.get(o.kind)
        if o.kind is tile.dot and o.attrs.get("unit") and not target.unit_of(o.attrs["unit"]):
            why = "no such matrix unit"
        if why:
            return o, f"{target.name} has {why}"
    if math.prod(cluster_of(func)) > target.sync.cluster_ctas:
        return None, f"a cluster of {target.name} has {target.sync.cluster_ctas} CTAs at most"
    return None


def _lacks(target: Target) -> dict[OpKind, str]:
    """Kind -> what is missing for it; only of the kinds for which something is."""
    boxes = "" if target.box_limit else "no engine that moves boxes"
    pieces = "" if target.pieces else "no engine that copies beside the threads"
    completed = "" if target.sync.barriers == "mbarrier" else "no barriers that engines complete"
    named = "" if target.sync.named_barriers else "no named barriers"
    product = "" if target.unit_of("wgmma") else "no such matrix unit"
    changed = "" if target.registers.reallocation else "registers that stay as they were launched"
    found = {
        **dict.fromkeys((tma.tensor_map, tma.tma_store, tma.tma_store_commit), boxes),
        tma.tma_store_wait: boxes,
        tma.tma_load: boxes or completed,
        smem.cp_async: pieces,
        mbarrier.cp_async_arrive: pieces or completed,
        mbarrier.mbarrier_expect: completed,
        smem.named_barrier: named,
        mma.wgmma: product,
        regs.setmaxnreg: changed,
    }
    return {kind: why for kind, why in found.items() if why}
