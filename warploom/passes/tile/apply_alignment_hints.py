"""Alignment hints (`multiple_of`) become the width of vectors that loads and stores may move.

Order: after recover_boxes, since a box says by itself what divides its rows; before a schedule is chosen,
which asks what cp.async can copy.
Changes: kernels that say `multiple_of`: attention, serving, tutorials, products.

before:  multiple_of(%pointers) {by=(16, 16)}        after:  %x = load(%pointers) {run=(1, 8)}
         %x = load(%pointers)

A promise counts from the block on in which its value is made, as Triton's does: not one under a condition.
"""

from __future__ import annotations

from warploom.analysis.contiguity import with_runs
from warploom.ir.core import Builder, Func, Op, Value, walk
from warploom.ir.ops import tile
from warploom.ir.rewrite import rewrite


def apply_alignment_hints(func: Func) -> Func:
    """See the module's docstring."""
    if not any(o.kind is tile.multiple_of for o in walk(func.body)):
        return func

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        return () if o.kind is tile.multiple_of else None

    return rewrite(with_runs(func), rule)
