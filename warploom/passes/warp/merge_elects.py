"""Neighbouring `elect` regions become one: the elected thread is always the same.

Order: at WARP, after everything that makes elects: each store or load has its own, and so has in an explicit
kernel every TMA instruction outside of single_thread().  Computations between the two move before them.
Changes: 16 families: products, attention forward and backward, convolutions, states.

    before:  elect() do { tma_load(…) }
             %y = mul(%x, %c) : i32
             elect() do { tma_load(…, %y) }
    after:   %y = mul(%x, %c) : i32
             elect() do { tma_load(…); tma_load(…, %y) }

Refuses nothing.
"""

from __future__ import annotations

from warploom.ir.analysis import is_pure
from warploom.ir.core import Func, Op, Region
from warploom.ir.ops import task
from warploom.ir.rewrite import with_regions


def merge_elects(func: Func) -> Func:
    """See the module's docstring."""
    return func.with_(body=_merged(func.body))


def _merged(region: Region) -> Region:
    ops: list[Op] = []
    # where in ops the last elect stands, with nothing but pure ops after it
    open_at: int | None = None
    for o in region.ops:
        o = with_regions(o, _merged)
        if o.kind is task.elect:
            if open_at is not None:
                before = ops.pop(open_at)
                (first,), (second,) = before.regions, o.regions
                o = before.with_(regions=(Region((), (*first.ops[:-1], *second.ops)),))
            open_at = len(ops)
        elif not is_pure(o):
            open_at = None
        ops.append(o)
    return Region(region.params, tuple(ops))
