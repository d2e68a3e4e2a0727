"""Selections by a load's own mask: what the mask keeps out is what the load gives there anyway.

Programs say both, as Triton's masked-off elements may be anything unless `other` says so:

    before:  %x = load(%p, and(%m, %n), -inf)
             %y = select(%m, cast(%x), -inf)
    after:   %y = cast(%x)
"""

from __future__ import annotations

import math
from collections.abc import Callable

from warploom.ir.core import Op, Value
from warploom.ir.fold import Number, fold
from warploom.ir.ops import arith, tile
from warploom.ir.types import DType, dtype_of


def masked_before(
    o: Op, made: Callable[[Value], Op | None], number: Callable[[Value], Number | None]
) -> bool:
    """Does a select give what it selects where its condition holds everywhere?  number: the constant that a
    value is full of."""
    condition, x, y = o.operands
    casts = list[tuple[DType, DType]]()
    while (load := made(x)) is not None and load.kind is arith.cast:
        (inner,) = load.operands
        casts.append((dtype_of(inner.type), dtype_of(x.type)))
        x = inner
    if load is None or load.kind is not tile.load or len(load.operands) < 2:
        return False
    if not _holds_with(made, load.operands[1], condition):
        return False
    other = number(load.operands[2]) if len(load.operands) > 2 else 0
    for dtype, to in reversed(casts):
        other = None if other is None else fold(arith.cast, [other], dtype, to)
    return _is_same(other, number(y))


def _holds_with(made: Callable[[Value], Op | None], mask: Value, condition: Value) -> bool:
    """Does the condition hold wherever the mask does?"""
    if mask is condition:
        return True
    o = made(mask)
    both = o is not None and o.kind is arith.and_
    return both and any(_holds_with(made, v, condition) for v in o.operands)  # type: ignore[union-attr]


def _is_same(x: Number | None, y: Number | None) -> bool:
    """Are these one number, as bits?"""
    return x is not None and y is not None and x == y and math.copysign(1, x) == math.copysign(1, y)
