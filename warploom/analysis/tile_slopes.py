"""How far apart a tile's elements are along an axis, and where a mask ends them, as a launch knows both:

tl.store(out + rows[:, None] * stride + columns, …, mask=columns < n)     by stride; min(n, columns)
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.analysis.facts import Facts
from warploom.analysis.launch_numbers import LaunchNumbers
from warploom.analysis.structure import Structure
from warploom.ir.analysis import converted, moved
from warploom.ir.core import Value
from warploom.ir.host_expressions import Number, least, plus, times
from warploom.ir.ops import arith, tile
from warploom.ir.types import Tile, dtype_of


@dataclass(eq=False)
class TileSlopes:
    """Of a function's tiles."""

    structure: Structure
    facts: Facts
    numbers: LaunchNumbers

    def along(self, v: Value, axis: int | None) -> Number | None:
        """By how much each element along an axis exceeds the one before (of pointers: in elements); None
        where that is not the same for all, or not known at launch."""
        if axis is None or not isinstance(v.type, Tile):
            return 0
        known = self.facts.axis(v, axis).slope
        if known is not None:
            return known
        o = self.structure.maker(v)
        if o is None:
            return self._carried(v, axis)
        if o.kind.axes is None or o.kind is tile.reshape:
            return None
        if moved(o) is None and o.kind not in (arith.add, arith.addptr, arith.mul, arith.cast):
            return None
        if o.kind is arith.cast and not (dtype_of(v.type).is_int and dtype_of(v.type).bits >= 32):
            return None
        slopes = [self.along(x, a) for x, a in zip(o.operands, o.kind.axes(o, axis), strict=True)]
        if None in slopes:
            return None
        if o.kind is arith.mul:
            x, y = o.operands
            one, other = slopes
            return self._product(x, y, one, other)
        total: Number = 0
        for slope in slopes:
            assert slope is not None
            total = plus(total, slope)
        return total

    def _product(
        self, x: Value, y: Value, one: Number | None, other: Number | None
    ) -> Number | None:
        if one == other == 0:
            return 0
        if one == 0:
            x, y, one, other = y, x, other, one
        by = self._number(y) if other == 0 else None
        return None if by is None or one is None else times(one, by)

    def _number(self, v: Value) -> Number | None:
        """What every element of v is."""
        if not isinstance(v.type, Tile):
            return self.numbers.of(v)
        inner = converted(self.structure.maker(v))
        return None if inner is None else self._number(inner)

    def _carried(self, v: Value, axis: int) -> Number | None:
        """Of what a loop carries, where it moves as a whole."""
        c = self.structure.carried(v)
        if c is None:
            return None
        o = self.structure.maker(c.yielded[-1])
        if c.yielded[-1] not in c.params:
            if o is None or o.kind not in (arith.add, arith.addptr):
                return None
            if o.operands[0] not in c.params or self.along(o.operands[1], axis) != 0:
                return None
        return self.along(c.init[0], axis)

    def end(self, mask: Value, axis: int, n: int) -> Number:
        """How many of n elements along an axis a mask leaves, at most."""
        o = self.structure.maker(mask)
        if o is None:
            return n
        if o.kind is arith.and_:
            x, y = (self.end(v, axis, n) for v in o.operands)
            return x if x == y or y == n else y if x == n else least(x, y)
        if (inner := moved(o)) is not None and isinstance(inner.type, Tile):
            along = o.kind.axes(o, axis)[0] if o.kind.axes is not None else None
            return n if along is None else self.end(inner, along, n)
        order = arith.ordered(o)
        if order is None:
            return n
        lesser, greater, differ = order
        by = self._number(greater)
        at = self.facts.interval(lesser).low
        if by is None or at < 0 or self.along(lesser, axis) != 1:
            return n
        return least(n, by if differ else plus(by, 1))
