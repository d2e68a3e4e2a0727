"""Dots with few rows, turned so that their columns are the rows of the instruction.

wgmma multiplies 64 rows at a time by 8, 16 … 256 columns (PTX ISA, "Asynchronous warpgroup level matrix
shape"), so C = A·B of 16 rows and 128 columns is Cᵀ = Bᵀ·Aᵀ of 128 rows and 16 columns.

before:  %c = dot(%a, %b, %acc)                  16x64 · 64x128
after:   %t = dot(transpose(%b), transpose(%a), transpose(%acc))
         %c = transpose(%t)
"""

from __future__ import annotations

from collections.abc import Sequence

from warploom.ir.core import Builder, Func, Level, Op, Value
from warploom.ir.ops import tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Tile, shape_of

ROWS, COLUMNS = 64, 8  # that an instruction takes whole multiples of


def turn_dots(func: Func) -> Func:
    """At TILE, the dots that can be done only so are turned: of 16-bit operands, as wgmma reads others with
    the axis of summation adjacent alone."""
    return rewrite(func, _turn) if func.level is Level.TILE else func


def _turn(o: Op, b: Builder) -> Sequence[Value] | None:
    if o.kind is not tile.dot:
        return None
    rows, columns = shape_of(o.result.type)
    left = o.operands[0].type
    assert isinstance(left, Tile)
    if rows % ROWS == 0 or rows % COLUMNS or columns % ROWS or left.dtype.bits != 16:
        return None
    x, y, acc = (tile.transpose(b, v, perm=(1, 0), hint=v.hint) for v in o.operands)
    turned = tile.dot(b, y, x, acc, hint=o.result.hint, **o.attrs)
    return (tile.transpose(b, turned, perm=(1, 0), hint=o.result.hint),)
