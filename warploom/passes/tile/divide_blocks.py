"""Divides where a block of numbers begins instead of each of its numbers.

Order: at TILE, after canonicalize, before the passes that look at places (strip_mine_rows, recover_boxes).
Changes: 3 families: elementwise kernels and products that count the elements of an array and take them apart
as row and column.

A block of n adjacent numbers from a multiple of n on has one quotient by any multiple of n, and its
remainders are adjacent as well: a division of 64 bits for each element becomes one for the block, and the
places of a row's elements are seen to be adjacent.

    before:  %i = add(splat(%first), arange(0, 2048))        where 2048 divides %first, and it isn't negative
             %row = idiv(%i, splat(%c4096))
             %column = rem(%i, splat(%c4096))
    after:   %row = splat(idiv(%first, %c4096))
             %column = add(splat(rem(%first, %c4096)), arange(0, 2048))
"""

from __future__ import annotations

from warploom.analysis.facts import Facts, facts_of
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Tile, shape_of


def divide_blocks(func: Func) -> Func:
    """See the module's docstring."""
    facts = facts_of(func)

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if not _is_quotient(o):
            return None
        block, divisor = _block(facts, o.operands[0]), _splat(facts, o.operands[1])
        if block is None or divisor is None or not _divides_whole(facts, *block, divisor):
            return None
        first, inside = block
        shape, hint = shape_of(o.result.type), o.result.hint
        value = tile.splat(b, o.kind(b, first, divisor), shape=shape, hint=hint)
        return (arith.add(b, value, inside, hint=hint) if o.kind is arith.rem else value,)

    return rewrite(func, rule)


def has_quotients(func: Func) -> bool:
    """Are there quotients or remainders of tiles?"""
    return any(map(_is_quotient, func.body.all_ops))


def _is_quotient(o: Op) -> bool:
    return o.kind in (arith.idiv, arith.rem) and isinstance(o.result.type, Tile)


def _block(facts: Facts, v: Value) -> tuple[Value, Value] | None:
    """A tile as a scalar and what is added to it."""
    o = facts.maker(v)
    if o is None or o.kind is not arith.add:
        return None
    for x, y in (o.operands, o.operands[::-1]):
        if (first := _splat(facts, x)) is not None:
            return first, y
    return None


def _splat(facts: Facts, v: Value) -> Value | None:
    """The scalar that a tile is full of."""
    o = facts.maker(v)
    return o.operands[0] if o is not None and o.kind is tile.splat else None


def _divides_whole(facts: Facts, first: Value, inside: Value, divisor: Value) -> bool:
    """Has the block one quotient?"""
    start, extent, by = map(facts.interval, (first, inside, divisor))
    size = 1 << max(0, extent.high).bit_length()
    return extent.low >= 0 <= start.low and by.low > 0 and min(start.divisor, by.divisor) >= size
