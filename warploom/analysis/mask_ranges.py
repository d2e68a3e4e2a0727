"""Where a comparison of tiles is false, or true, everywhere, as scalars.  Decides nothing.

`columns[None, :] <= last[:, None]`, with columns = j + arange(0, 128) and last = min(row + arange(0, 64),
seq - 1), is false everywhere from j = min(row + 63, seq - 1) + 1 on: the least element of the left side
against the greatest of the right one, each computed from the scalars that the tile is made of.  Nothing
wraps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from warploom.analysis.structure import Structure
from warploom.ir import build
from warploom.ir.analysis import is_pure, moved
from warploom.ir.core import Builder, Op, OpKind, Value
from warploom.ir.ops import arith, tile
from warploom.ir.types import DType, Scalar, dtype_of, i64

T = TypeVar("T")


class UnknownError(Exception):
    """No scalar says it; the message tells which op stands in the way."""


@dataclass(frozen=True)
class Extreme:
    """The least or greatest element of a tile: value, and the loop's index on top of it where it `moves`."""

    value: Value
    moves: bool = False


@dataclass(frozen=True)
class Stretch:
    """The part of a loop in which something is true everywhere: from index `begin` on, up to index `end`
    (both i64).  None: there is no such bound."""

    begin: Value | None
    end: Value | None


class Makers(Protocol):
    """Whoever knows which op makes a value."""

    def maker(self, v: Value) -> Op | None: ...


def known_before(structure: Structure, at: Op, v: Value) -> bool:
    """Can v be computed before op `at`, of what is known there?"""
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


def ahead_of(
    structure: Structure, at: Op, get: Callable[[Value], Value] = lambda v: v
) -> Callable[[Value], Value]:
    """`get`, of scalars that are known before op `at`; raises UnknownError for others."""

    def scalar(v: Value) -> Value:
        if not known_before(structure, at, v):
            raise UnknownError(v.hint or "a value")
        return get(v)

    return scalar


def bare(structure: Makers, v: Value) -> Value:
    """What v is but for its shape."""
    while (o := structure.maker(v)) is not None and (x := moved(o)) is not None:
        v = x
    return v


def clamped(b: Builder, at: Value, lo: Value, hi: Value) -> Value:
    """An index (i64) as one of a loop from lo to hi, which is as wide as these."""
    low, high = (arith.cast(b, v, dtype=i64) for v in (lo, hi))
    at = arith.minimum(b, arith.maximum(b, at, low), high)
    return arith.cast(b, at, dtype=dtype_of(hi.type), hint="iteration")


@dataclass(eq=False)
class Bounds:
    """Writes scalars through `b`.  scalar: what stands for a scalar of the function before the loop;
    index: the loop's (None: all that is asked for is before it)."""

    b: Builder
    structure: Makers
    scalar: Callable[[Value], Value]
    index: Value | None = None

    def never(self, mask: Value) -> Value:
        """Whether a tile of booleans is false everywhere.  Raises UnknownError."""

        def tell(least: Extreme, most: Extreme, strict: bool) -> Value:
            if least.moves or most.moves:
                raise UnknownError("the loop's index")
            compare = arith.ge if strict else arith.gt
            return compare(self.b, least.value, most.value)

        return self.of_all(mask, tell, lambda x, y: arith.or_(self.b, x, y))

    def false_from(self, mask: Value) -> Value:
        """The index (i64) from which on a tile of booleans is false everywhere.  Raises UnknownError."""

        def tell(least: Extreme, most: Extreme, strict: bool) -> Value:
            if not least.moves or most.moves:
                raise UnknownError("a comparison that does not become false as the loop goes on")
            return self.difference(most, least, one=not strict)

        return self.of_all(mask, tell, lambda x, y: arith.minimum(self.b, x, y))

    def always(self, mask: Value) -> Stretch:
        """Where a tile of booleans is true everywhere.  Raises UnknownError."""

        def tell(most: Extreme, least: Extreme, strict: bool) -> Stretch:
            if most.moves == least.moves:
                raise UnknownError("a comparison that does not change its way as the loop goes on")
            # x < index + y from index = x - y + 1 on, index + x < y up to index = y - x
            rises = least.moves
            ends = (most, least) if rises else (least, most)
            found = self.difference(*ends, one=rises == strict)
            return Stretch(found, None) if rises else Stretch(None, found)

        def both(kind: OpKind, x: Value | None, y: Value | None) -> Value | None:
            if x is None or y is None:
                return x if y is None else y
            return kind(self.b, x, y)

        def join(one: Stretch, other: Stretch) -> Stretch:
            begin = both(arith.maximum, one.begin, other.begin)
            return Stretch(begin, both(arith.minimum, one.end, other.end))

        return self.of_all(mask, tell, join, least_first=False)

    def of_all(
        self,
        mask: Value,
        tell: Callable[[Extreme, Extreme, bool], T],
        join: Callable[[T, T], T],
        least_first: bool = True,
    ) -> T:
        """What `tell` says of the comparisons (as `sides`) that have to be true together, joined."""
        o = self.maker(mask)
        if (inner := moved(o)) is not None:
            return self.of_all(inner, tell, join, least_first)
        if o.kind is arith.and_:
            one, other = (self.of_all(v, tell, join, least_first) for v in o.operands)
            return join(one, other)
        return tell(*self.sides(o, least_first))

    def difference(self, x: Extreme, y: Extreme, one: bool) -> Value:
        """x - y, plus 1 if asked for, as i64: either may be the greatest number that there is, to say that
        there is no bound."""
        left, right = (arith.cast(self.b, e.value, dtype=i64) for e in (x, y))
        found: Value = arith.sub(self.b, left, right)
        return arith.add(self.b, found, self.const(1, i64)) if one else found

    def sides(self, o: Op, least_first: bool) -> tuple[Extreme, Extreme, bool]:
        """Of x < y or x ≤ y (reversed where it is the other way): the least of x, the greatest of y (or
        the greatest of x, the least of y), and whether it is <."""
        known = arith.ordered(o)
        if known is None or dtype_of(o.operands[0].type).kind != "int":
            raise UnknownError(o.id or o.kind.name)
        x, y, strict = known
        return self.extreme(x, not least_first), self.extreme(y, least_first), strict

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
        if (x := moved(o)) is not None:
            return self.extreme(x, most)
        if o.kind is tile.arange:
            at = o.attrs["end"] - 1 if most else o.attrs["start"]
            return Extreme(self.const(at, dtype_of(v.type)))
        if o.kind is arith.cast and _keeps_numbers(o):
            least = self.extreme(o.operands[0], most)
            return Extreme(arith.cast(self.b, least.value, dtype=dtype_of(v.type)), least.moves)
        if o.kind in (arith.add, arith.sub):
            left = self.extreme(o.operands[0], most)
            right = self.extreme(o.operands[1], most if o.kind is arith.add else not most)
            if right.moves and (left.moves or o.kind is arith.sub):
                raise UnknownError(o.id)
            return Extreme(o.kind(self.b, left.value, right.value), left.moves or right.moves)
        if o.kind in (arith.minimum, arith.maximum):
            left, right = (self.extreme(u, most) for u in o.operands)
            if left.moves or right.moves:
                raise UnknownError(o.id)
            return Extreme(o.kind(self.b, left.value, right.value))
        raise UnknownError(o.id or o.kind.name)

    def maker(self, v: Value) -> Op:
        o = self.structure.maker(v)
        if o is None:
            raise UnknownError(v.hint or "a value that a loop carries")
        return o

    def const(self, n: int, dtype: DType) -> Value:
        return build.const(self.b, n, dtype)


def _keeps_numbers(o: Op) -> bool:
    """Is the cast one of signed integers to as many bits, or more?"""
    from_, to = (dtype_of(v.type) for v in (o.operands[0], o.result))
    return from_.kind == to.kind == "int" and from_.bits <= to.bits
