"""Where a comparison of tiles is false, or true, everywhere, as scalars.  Decides nothing.

`columns[None, :] <= last[:, None]`, with columns = j + arange(0, 128) and last = min(row + arange(0, 64),
seq - 1), is false everywhere from j = min(row + 63, seq - 1) + 1 on: the least element of the left side
against the greatest of the right one, each computed from the scalars that the tile is made of.  Nothing
wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from warploom.ir import build
from warploom.ir.analysis import is_pure
from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import arith, tile
from warploom.ir.types import DType, Scalar, dtype_of
from warploom.schedule.demand import Structure

_SHAPES = (tile.expand_dims, tile.broadcast, tile.reshape, tile.transpose)
_TURNED = {arith.ge: arith.le, arith.gt: arith.lt}


class UnknownError(Exception):
    """No scalar says it; the message tells which op stands in the way."""


@dataclass(frozen=True)
class Extreme:
    """The least or greatest element of a tile: value, and the loop's index on top of it where it `moves`."""

    value: Value
    moves: bool = False


@dataclass(frozen=True)
class Stretch:
    """The part of a loop in which something is true everywhere: up to the index `end`, or, where it `rises`,
    from there on."""

    end: Value
    rises: bool


class Makers(Protocol):
    """Whoever knows which op makes a value."""

    def maker(self, v: Value) -> Op | None: ...


def known_before(structure: Structure, at: Op, v: Value) -> bool:
    """Can v be computed in front of op `at`, of what is known there?"""
    made = structure.made[v]
    o = made.op
    if o is None:
        return True
    if made.region is not None:
        return o in structure.enclosing(at)
    block = structure.block[o]
    here = structure.within(at, block)
    if here is not None and block.ops.index(o) < block.ops.index(here):
        return True
    return is_pure(o) and not o.regions and all(known_before(structure, at, x) for x in o.operands)


def bare(structure: Makers, v: Value) -> Value:
    """What v is but for its shape."""
    while (o := structure.maker(v)) is not None and o.kind in _SHAPES:
        v = o.operands[0]
    return v


@dataclass(eq=False)
class Bounds:
    """Writes scalars through `b`.  scalar: what stands for a scalar of the function in front of the loop;
    index: the loop's (None: all that is asked for is in front of it)."""

    b: Builder
    structure: Makers
    scalar: Callable[[Value], Value]
    index: Value | None = None

    def never(self, mask: Value) -> Value:
        """Whether a tile of booleans is false everywhere.  Raises UnknownError."""
        o = self.maker(mask)
        if o.kind in _SHAPES:
            return self.never(o.operands[0])
        if o.kind is arith.and_:
            x, y = (self.never(v) for v in o.operands)
            found: Value = arith.or_(self.b, x, y)
            return found
        least, most, strict = self.sides(o)
        if least.moves or most.moves:
            raise UnknownError("the loop's index")
        compare = arith.ge if strict else arith.gt
        found = compare(self.b, least.value, most.value)
        return found

    def false_from(self, mask: Value) -> Value:
        """The index from which on a tile of booleans is false everywhere.  Raises UnknownError."""
        o = self.maker(mask)
        if o.kind in _SHAPES:
            return self.false_from(o.operands[0])
        if o.kind is arith.and_:
            x, y = (self.false_from(v) for v in o.operands)
            found: Value = arith.minimum(self.b, x, y)
            return found
        least, most, strict = self.sides(o)
        if not least.moves or most.moves:
            raise UnknownError(f"{o.id}, which does not become false as the loop goes on")
        found = arith.sub(self.b, most.value, least.value)
        if not strict:
            found = arith.add(self.b, found, self.const(1, dtype_of(found.type)))
        return found

    def always(self, mask: Value) -> Stretch:
        """Where a tile of booleans is true everywhere.  Raises UnknownError."""
        o = self.maker(mask)
        if o.kind in _SHAPES:
            return self.always(o.operands[0])
        if o.kind is arith.and_:
            one, other = (self.always(v) for v in o.operands)
            if one.rises != other.rises:
                raise UnknownError(f"{o.id}, which is true up to one index and from another on")
            both = arith.maximum if one.rises else arith.minimum
            return Stretch(both(self.b, one.end, other.end), one.rises)
        x, y, strict = self.sides(o, least_first=False)
        if x.moves == y.moves:
            raise UnknownError(f"{o.id}, which does not turn as the loop goes on")
        rises = (
            y.moves
        )  # x < index + y from index = x - y + 1 on, index + x < y up to index = y - x
        found = arith.sub(self.b, *((x.value, y.value) if rises else (y.value, x.value)))
        if rises == strict:
            found = arith.add(self.b, found, self.const(1, dtype_of(found.type)))
        return Stretch(found, rises)

    def sides(self, o: Op, least_first: bool = True) -> tuple[Extreme, Extreme, bool]:
        """Of x < y or x ≤ y (turned round where it is the other way): the least of x, the greatest of y (or
        the greatest of x, the least of y), and whether it is <."""
        x, y = o.operands if o.kind not in _TURNED else reversed(o.operands)
        kind = _TURNED.get(o.kind, o.kind)
        if kind not in (arith.lt, arith.le) or not dtype_of(x.type).is_int:
            raise UnknownError(o.id or o.kind.name)
        first, second = self.extreme(x, not least_first), self.extreme(y, least_first)
        return first, second, kind is arith.lt

    def extreme(self, v: Value, most: bool) -> Extreme:
        """The greatest (`most`) or least element of a tile of integers, or a scalar."""
        if isinstance(v.type, Scalar):
            if v is self.index:
                return Extreme(self.const(0, v.type.dtype), moves=True)
            try:
                return Extreme(self.scalar(v))
            except UnknownError:
                if self.structure.maker(v) is None:
                    raise
        o = self.maker(v)
        if o.kind in _SHAPES or o.kind is tile.splat:
            return self.extreme(o.operands[0], most)
        if o.kind is tile.arange:
            at = o.attrs["end"] - 1 if most else o.attrs["start"]
            return Extreme(self.const(at, dtype_of(v.type)))
        if o.kind is arith.cast and dtype_of(v.type).is_int:
            inner = self.extreme(o.operands[0], most)
            return Extreme(arith.cast(self.b, inner.value, dtype=dtype_of(v.type)), inner.moves)
        if o.kind in (arith.add, arith.sub):
            x = self.extreme(o.operands[0], most)
            y = self.extreme(o.operands[1], most if o.kind is arith.add else not most)
            if y.moves and (x.moves or o.kind is arith.sub):
                raise UnknownError(o.id)
            return Extreme(o.kind(self.b, x.value, y.value), x.moves or y.moves)
        if o.kind in (arith.minimum, arith.maximum):
            x, y = (self.extreme(u, most) for u in o.operands)
            if x.moves or y.moves:
                raise UnknownError(o.id)
            return Extreme(o.kind(self.b, x.value, y.value))
        raise UnknownError(o.id or o.kind.name)

    def maker(self, v: Value) -> Op:
        o = self.structure.maker(v)
        if o is None:
            raise UnknownError(v.hint or "a value that a loop carries")
        return o

    def const(self, n: int, dtype: DType) -> Value:
        return build.const(self.b, n, dtype)
