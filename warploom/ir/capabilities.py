"""Whether a target has what the ops of a function are made of."""

from __future__ import annotations

import math

from warploom.errors import CompileError, Loc
from warploom.ir.core import Func, Op, OpKind, walk
from warploom.ir.ops import mbarrier, mma, regs, smem, tile, tma
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.types import dtype_of
from warploom.target import Target, supported


def refuse_missing(func: Func, loc: Loc | None) -> None:
    """Raises CompileError `target` where the target of a function lacks something that it is made of.
    loc: of the function, for what is no op's."""
    found = missing(func, func.target)
    if found is None:
        return
    o, why = found
    raise CompileError(
        "target",
        f"{'the cluster' if o is None else o.kind.name}: {why}",
        o.loc if o is not None and o.loc is not None else loc,
        help=f"write it without, or compile for another target: {supported()}",
    )


def missing(func: Func, target: Target) -> tuple[Op | None, str] | None:
    """The first op that the target can't do, and what the target lacks for it; None where it can do all.
    Without an op: it can't run clusters of that size."""
    lacks = _lacks(target)
    for o in walk(func.body):
        if why := lacks.get(o.kind) or _dtypes(o, target):
            return o, f"{target.name} has {why}"
    if math.prod(cluster_of(func)) > target.sync.cluster_ctas:
        return None, f"a cluster of {target.name} has {target.sync.cluster_ctas} CTAs at most"
    return None


def _dtypes(o: Op, target: Target) -> str:
    """What is missing for the dtypes of an op."""
    if o.kind is tile.dot:
        a, b, total, *scales = (dtype_of(v.type).name for v in o.operands)
        unit = o.attrs.get("unit")
        if unit and not target.unit_of(unit):
            return "no such matrix unit"
        if unit is None and not any(
            u.product(a, b, total, (*scales, "")[0], o.attrs.get("ieee", False))
            for u in target.matrix_units
        ):
            return f"no matrix unit for {a} by {b}"
    return ""


def _lacks(target: Target) -> dict[OpKind, str]:
    """Kind -> what is missing for it; only of the kinds for which something is."""
    boxes = "" if target.box_limit else "no engine that moves boxes"
    pieces = "" if target.pieces else "no engine that copies beside the threads"
    own_maps = "" if target.writes_maps else "no engine whose descriptors kernels write"
    completed = "" if target.sync.barriers == "mbarrier" else "no barriers that engines complete"
    named = "" if target.sync.named_barriers else "no named barriers"
    product = "" if target.unit_of("wgmma") else "no such matrix unit"
    changed = "" if target.registers.reallocation else "registers that stay as they were launched"
    found = {
        **dict.fromkeys((tma.tensor_map, tma.tma_store, tma.tma_store_commit), boxes),
        tma.tma_store_wait: boxes,
        **dict.fromkeys((tma.map_alloc, tma.map_write), own_maps),
        tma.tma_load: boxes or completed,
        **dict.fromkeys((smem.cp_async, smem.cp_async_commit, smem.cp_async_wait), pieces),
        mbarrier.cp_async_arrive: pieces or completed,
        mbarrier.mbarrier_expect: completed,
        smem.named_barrier: named,
        mma.wgmma: product,
        regs.setmaxnreg: changed,
    }
    return {kind: why for kind, why in found.items() if why}
