"""Hoists stores of a kernel without dots before reductions that they don't need.

Order: at TILE after convert_ifs, before the choice of a schedule.
Changes: 3 families: losses that store each element's part and add them up, norms of sums that are kept,
gradients of norms.

After a reduction across warps all threads have met, and then all store at once, while nothing is computed.
Before it each warp stores what it has while others compute.

    before:  %s = reduce(%x)                after:   %p = addptr(%out, %c)
             %p = addptr(%out, %c)                   store(%p, %x, %m)
             store(%p, %x, %m)                       %s = reduce(%x)
             use(%s)                                 use(%s)

A store passes only what computes: accesses to memory keep their order, and need not be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from warploom.ir.analysis import closure, waits
from warploom.ir.core import Func, Op, Region
from warploom.ir.ops import tile
from warploom.ir.rewrite import with_ops, with_regions


def hoist_stores(func: Func) -> Func:
    """See the module's docstring."""
    body = _region(func.body)
    return func if body is func.body else func.with_(body=body)


def has_no_dots(func: Func) -> bool:
    """Does the function multiply no matrices?"""
    return not any(o.kind is tile.dot for o in func.body.all_ops)


def _region(region: Region) -> Region:
    ops = list(region.ops)
    for o in region.ops:
        if o.stores:
            ops = _hoisted(ops, o)
    return with_ops(region, [with_regions(o, _region) for o in ops])


def _hoisted(ops: list[Op], store: Op) -> list[Op]:
    """The ops with a store, and what it needs, before the first op that waits and that it may pass."""
    end = start = ops.index(store)
    while start and ops[start - 1].computes:
        start -= 1
    for at in range(start, end):
        moved = _needed(ops[at : end + 1], store) if waits(ops[at]) else set()
        if moved and not any(map(waits, moved)):
            passed = [o for o in ops[at:end] if o not in moved]
            first = [o for o in ops[at : end + 1] if o in moved]
            return [*ops[:at], *first, *passed, *ops[end + 1 :]]
    return ops


def _needed(ops: Sequence[Op], store: Op) -> set[Op]:
    made = {v: o for o in ops for v in o.results}
    return closure([store], lambda o: [made[v] for v in o.operands if v in made])
