"""Runs: which elements of a tile of pointers are adjacent, aligned, and masked alike, so that one access may
move several.

For pointers that are no box of a strided array (rows that an index names, a base read from memory, `other`
that is not zero).  Along one axis a tile of integers or pointers is a *line*: it grows by 0 or by 1 (of
pointers: element) from coordinate to coordinate, and a power of two divides its first value, whatever the
other coordinates.  An aligned group of n elements of a line that grows by 1 from multiples of n is a run; a
comparison of such a line with a constant one that n divides has one outcome in the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from warploom.analysis.access import Accesses
from warploom.analysis.structure import Structure
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import DType, Pointer, Tile, elem_of, f32, shape_of
from warploom.target import Target

_MOST = 1 << 16  # as Accesses: stands for any power of two
_VECTOR_BYTES = 16


@dataclass(frozen=True)
class Line:
    """slope 0 or 1 along the axis, None: anything.  first: divides every element at coordinate 0; every:
    divides all.  Of pointers in bytes."""

    slope: int | None
    first: int
    every: int


_UNKNOWN = Line(None, 1, 1)


@dataclass(eq=False)
class Runs:
    """What is known of one function's tiles."""

    accesses: Accesses
    _lines: dict[tuple[Value, int], Line] = field(default_factory=dict)
    _assumed: dict[tuple[Value, int], Line] = field(default_factory=dict)  # of what loops carry
    _trial: dict[tuple[Value, int], Line] = field(default_factory=dict)  # what follows from that

    def of(self, o: Op) -> tuple[int, int] | None:
        """(axis, n): groups of n > 1 elements that a load or store by pointers may move at once."""
        if o.attrs.get("volatile"):
            return None
        if told := o.attrs.get("run"):
            axis, n = told
            return axis, n
        return self.groups(o.operands[0], o.operands[1 if o.kind is tile.load else 2 :][:1])

    def groups(self, pointers: Value, masks: Sequence[Value]) -> tuple[int, int] | None:
        """The same of pointers and the masks of an access (none, or one)."""
        if not isinstance(pointers.type, Tile):
            return None
        size = _size(pointers)
        for axis, extent in reversed(tuple(enumerate(pointers.type.shape))):
            line = self.line(pointers, axis)
            if line.slope != 1 or extent == 1:
                continue
            n = math.gcd(_VECTOR_BYTES // size, max(1, line.first // size), extent)
            for mask in masks:
                n = math.gcd(n, self.alike(mask, axis))
            return (axis, n) if n > 1 else None
        return None

    # ---- lines

    def line(self, v: Value, axis: int) -> Line:
        key = v, axis
        if key in self._assumed:
            return self._assumed[key]
        if key in self._lines:
            return self._lines[key]
        if key not in self._trial:
            found = self._line(v, axis)
            by = self.accesses.promised(v)
            if by and found.slope == 1:
                found = replace(found, first=max(found.first, by[axis]))
            (self._trial if self._assumed else self._lines)[key] = found
            return found
        return self._trial[key]

    def _line(self, v: Value, axis: int) -> Line:
        if not isinstance(v.type, Tile):
            d = self.accesses.divisor(v)
            return Line(0, d, d)
        made = self.accesses.structure.made[v]
        o = made.op
        if o is None or (made.region is None and o.kind is control.for_) or made.region is not None:
            return self._carried(v, axis)
        if o.kind in (tile.expand_dims, tile.broadcast, tile.transpose):
            return self._moved(o, axis)
        match o.kind:
            case tile.splat:
                return self.line(o.operands[0], axis)
            case tile.arange:
                start = o.attrs["start"]
                return Line(1, start & -start or _MOST, 1)
            case arith.cast if o.attrs["dtype"].is_int and _is_int(o.operands[0]):
                return self.line(o.operands[0], axis)
            case arith.add | arith.addptr | arith.sub | arith.mul:
                return self._combined(o, axis)
        return _same_in_a_row(v, axis)

    def _moved(self, o: Op, axis: int) -> Line:
        (x,) = o.operands
        if o.kind is tile.transpose:
            return self.line(x, o.attrs["perm"][axis])
        if o.kind is tile.expand_dims:
            at = o.attrs["axis"]
            if axis == at:
                every = self.line(x, 0).every
                return Line(0, every, every)
            return self.line(x, axis - (axis > at))
        line = self.line(x, axis)
        return Line(0, line.first, line.every) if shape_of(x.type)[axis] == 1 else line

    def _combined(self, o: Op, axis: int) -> Line:
        x, y = (self.line(v, axis) for v in o.operands)
        if o.kind is arith.mul:
            slope = 0 if x.slope == y.slope == 0 else None
            return Line(slope, min(_MOST, x.first * y.first), min(_MOST, x.every * y.every))
        if o.kind is arith.addptr:  # offsets count elements
            size = _size(o.result)
            y = Line(y.slope, min(_MOST, y.first * size), min(_MOST, y.every * size))
        slope = None
        if x.slope is not None and y.slope is not None:
            total = x.slope - y.slope if o.kind is arith.sub else x.slope + y.slope
            slope = total if total in (0, 1) else None
        return Line(slope, math.gcd(x.first, y.first), math.gcd(x.every, y.every))

    def _carried(self, v: Value, axis: int) -> Line:
        """What a loop carries: its start, where every iteration's step keeps to it."""
        made = self.accesses.structure.made[v]
        o = made.op
        if o is None or o.kind is not control.for_ or (made.region is not None and made.index == 0):
            return _same_in_a_row(v, axis)
        i = made.index - (made.region is not None)
        body = o.regions[0]
        param, key = body.params[1 + i], (body.params[1 + i], axis)
        if made.region is None:
            return self.line(param, axis)
        line = self.line(o.operands[3 + i], axis)
        while True:
            self._assume(key, line)
            after = self.line(body.yielded[i], axis)
            self._assume(key, None)
            slope = line.slope if line.slope == after.slope else None
            met = Line(slope, math.gcd(line.first, after.first), math.gcd(line.every, after.every))
            if met == line:
                return line
            line = met

    def _assume(self, key: tuple[Value, int], line: Line | None) -> None:
        self._trial.clear()
        if line is None:
            del self._assumed[key]
        else:
            self._assumed[key] = line

    # ---- equal elements

    def alike(self, v: Value, axis: int) -> int:
        """A power of two: aligned groups of so many elements along the axis are all the same."""
        if not isinstance(v.type, Tile):
            return _MOST
        o = self.accesses.structure.maker(v)
        if o is None or v.type.shape[axis] == 1:
            return _MOST if v.type.shape[axis] == 1 else 1
        (*_, x) = o.operands or (v,)
        match o.kind:
            case tile.splat:
                return _MOST
            case tile.transpose:
                return self.alike(x, o.attrs["perm"][axis])
            case tile.expand_dims:
                return self.alike(x, axis - (axis > o.attrs["axis"]))
            case tile.broadcast:
                return _MOST if shape_of(x.type)[axis] == 1 else self.alike(x, axis)
        if o.kind not in arith.ELEMENTWISE:
            return 1
        found = min(self.alike(x, axis) for x in o.operands)
        if o.kind in arith.COMPARE:
            found = max(found, self._compared(o, axis))
        elif o.kind is arith.idiv:
            found = max(found, self._divided(o, axis))
        return found

    def _divided(self, o: Op, axis: int) -> int:
        """x // y of a moving x that is not negative (division truncates) changes only at multiples of y."""
        x, y = (self.line(v, axis) for v in o.operands)
        if (x.slope, y.slope) != (1, 0) or not self.accesses.never_negative(o.operands[0]):
            return 1
        return math.gcd(x.first, y.every)

    def _compared(self, o: Op, axis: int) -> int:
        """x < y and x >= y change only where a moving x passes y (and, mirrored, y > x and y <= x)."""
        if not _is_int(o.operands[0]):
            return 1
        x, y = (self.line(v, axis) for v in o.operands)
        if x.slope == y.slope == 0:
            return _MOST
        left = o.kind in (arith.lt, arith.ge) and (x.slope, y.slope) == (1, 0)
        right = o.kind in (arith.gt, arith.le) and (x.slope, y.slope) == (0, 1)
        return math.gcd(x.first, y.first) if left or right else 1


def _same_in_a_row(v: Value, axis: int) -> Line:
    """Of a tile of which nothing is known: one element is all alike."""
    return Line(0, 1, 1) if shape_of(v.type)[axis : axis + 1] == (1,) else _UNKNOWN


def _is_int(v: Value) -> bool:
    e = elem_of(v.type)
    return isinstance(e, DType) and e.is_int


def _size(pointers: Value) -> int:
    e = elem_of(pointers.type)
    assert isinstance(e, Pointer)
    return e.dtype.bytes


def with_runs(func: Func, target: Target) -> Func:
    """Loads and stores by pointers say which elements they may move at once; so do atomics that add f32 and
    whose result nobody looks at (PTX ISA, "red", of vectors)."""
    structure = Structure(func.body)
    runs = Runs(Accesses(func, structure, target))

    def may(o: Op) -> bool:
        if o.kind is not tile.atomic:
            return o.kind in (tile.load, tile.store)
        adds = o.attrs["fn"] == "add" and elem_of(o.result.type) == f32
        return adds and o.result not in structure.users

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if not may(o) or o.attrs.get("run"):
            return None
        run = runs.of(o)
        if run is None:
            return None
        b.append(o.with_(attrs={**o.attrs, "run": run}))
        return o.results

    return rewrite(func, rule)
