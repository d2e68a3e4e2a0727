"""Boxes of views as threads reach them: addresses and tests of their accesses, as C.

What the accesses of a thread have in common is computed once and named: how much of the array lies ahead of
the thread along each axis, and a pointer for each row.  The rest are constants, so that few registers hold
addresses while a tile waits in the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from warploom.analysis.box_access import BoxAccess
from warploom.codegen.context import Emitter, ViewRef
from warploom.codegen.registers import MEMORY_TYPES, affine
from warploom.codegen.text import all_of
from warploom.ir.core import Value
from warploom.ir.ops import arith
from warploom.ir.types import Tile

# A term of an offset that is at most so large never decides that a box begins more than 2^30 elements before
# the array's end: what `elements_left` tells apart.
NEAR = 1 << 20


@dataclass(frozen=True)
class Box(BoxAccess):
    """A box of a view at offsets, whose numbers have C."""

    e: Emitter

    def index(self, axis: int, coordinate: str) -> str:
        offset = self.e.scalar(self.offsets[axis])
        if offset == "0":
            return coordinate
        return offset if coordinate == "0" else f"{offset} + {coordinate}"

    def split(self, axis: int) -> tuple[str, list[str]]:
        """C for an offset along an axis without what loops around add to it, and for each of these terms."""
        still, steps = self.offsets[axis], []
        while (o := self.facts.maker(still)) is not None and o.kind is arith.add:
            step = next((v for v in o.operands if self._steps(v)), None)
            if step is None or any(map(self._changes, o.operands)):
                break
            still = o.operands[o.operands[0] is step]
            steps.append(self.e.scalar(step))
        return self.e.scalar(still), steps

    def _changes(self, v: Value) -> bool:
        """Does its variable hold other values, too, perhaps by now?"""
        variable = self.e.storage.variables.get(v)
        return variable is not None and variable.is_mutable

    def _steps(self, v: Value) -> bool:
        """Is it a loop's index, or a multiple of one, and small?"""
        o, scope, x = self.facts.maker(v), self.facts.scope, self.facts.interval(v)
        index = o.operands[0] if o is not None and o.kind is arith.mul else v
        return scope is not None and index in scope.indices and x.low >= 0 and x.high <= NEAR

    def step(self, axis: int, by: str) -> str:
        """C for how far `by` elements along an axis are apart in memory."""
        amount = f"({by})" if " " in by else by
        if self.facts.constant(self.stride(axis)) == 1:
            return amount
        return f"(i64){amount} * {self.e.scalar(self.stride(axis))}"


def box_of(e: Emitter, v: Value, offsets: Sequence[Value], shape: tuple[int, ...]) -> Box:
    ref = e.env[v]
    assert isinstance(ref, ViewRef)
    return Box(e.facts, ref.op, offsets, v.type.dtype, shape, e)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Coordinate:
    """base + more + step · i: `base` depends on the thread, i counts the turns of a loop around."""

    base: str
    more: int
    step: int = 0

    @property
    def rest(self) -> str:
        return affine(self.more, self.step)

    @property
    def text(self) -> str:
        if self.base.isdigit():
            return affine(int(self.base) + self.more, self.step)
        return self.base if self.rest == "0" else f"{self.base} + {self.rest}"


Place = tuple[Coordinate, ...]  # one an axis of the view


@dataclass
class Rows:
    """The accesses to a box by threads that hold it in a layout: names for what they share, declared where
    it is first needed."""

    box: Box
    t: Tile
    ahead: dict[tuple[int, str], tuple[str, str]] = field(default_factory=dict)
    rows: dict[Place, str] = field(default_factory=dict)
    tests: dict[Place, str] = field(default_factory=dict)

    def place(self, register: int) -> Place:
        """Where a register's element lies; 0 on the leading axes, in which the box is one element thick."""
        rank = len(self.t.shape)
        lead = (Coordinate("0", 0),) * (self.box.rank - rank)
        here = (self.box.e.coordinate_from(self.t.layout, a, register) for a in range(rank))
        return (*lead, *(Coordinate(*c) for c in here))

    def pointer(self, at: Place) -> str:
        """The address of the element."""
        box = self.box
        inner = box.inner
        row = tuple(replace(c, more=0 if a == inner else c.more, step=0) for a, c in enumerate(at))
        if row not in self.rows:
            self.rows[row] = self._row(row)
        terms = [box.step(a, affine(0, c.step)) for a, c in enumerate(at) if c.step and a != inner]
        if inner is not None and at[inner].rest != "0":
            terms.append(at[inner].rest)
        return " + ".join([self.rows[row], *terms])

    def _row(self, row: Place) -> str:
        """Declares the pointer to a row: from the row before, where they differ by constants."""
        box, e = self.box, self.box.e
        text = ""
        for before, name in reversed(self.rows.items()):
            if all(a.base == b.base for a, b in zip(before, row, strict=True)):
                apart = [b.more - a.more for a, b in zip(before, row, strict=True)]
                terms = (box.step(a, str(n)) for a, n in enumerate(apart) if n)
                text = " + ".join([name, *terms])
                break
        if not text:
            indices = ((a, box.index(a, c.text)) for a, c in enumerate(row))
            terms = (box.step(a, x) for a, x in indices if x != "0")
            text = " + ".join([e.scalar(box.view.operands[0]), *terms])
        name = e.name("row")
        e.line(f"{MEMORY_TYPES[box.elem.name]}* const {name} = {text};")
        return name

    def bounds(self, axis: int, c: Coordinate) -> tuple[str, str]:
        """Of the elements that follow coordinate c.base: how many lie before the array, how many before its
        end."""
        key = axis, c.base
        if key not in self.ahead:
            box, e = self.box, self.box.e
            offset, extent = e.scalar(box.offsets[axis]), e.int_of(box.extent(axis))
            index = c.base if offset == "0" else f"(i64){offset} + {c.base}"
            before, left = "0", e.name("left")
            if not box.starts_inside(axis):
                before = e.name("before")
                e.line(f"const int {before} = elements_before({index});")
            parts = [offset, c.base]  # the offset may be near 2^31: extent - offset stays below
            if extent is None or before != "0":
                # Limited once, outside of the loop that takes the steps.
                still, steps = box.split(axis)
                first, parts = (still, [*steps, c.base]) if steps else (index, [])
                extent = f"elements_left({first}, {e.scalar(box.extent(axis))})"
            subtracted = (f"({x})" if " " in x else x for x in parts if x != "0")
            value = " - ".join([extent, *subtracted])
            e.line(f"const int {left} = {value};")
            self.ahead[key] = before, left
        return self.ahead[key]

    def test(self, at: Place, but: int | None = None) -> str:
        """C for "the element is in the array" (along all axes but one), "" where there is nothing to ask."""
        outer = tuple(a for a in range(self.box.rank) if a not in (but, self.box.inner))
        texts = [self._row_test(at, outer)]
        inner = self.box.inner
        if inner is not None and inner != but:
            texts.append(self._axis_test(inner, at[inner]))
        return all_of(texts)

    def _row_test(self, at: Place, outer: tuple[int, ...]) -> str:
        """The same along the outer axes: a variable for each row."""
        if not outer:
            return ""
        row = tuple(at[a] for a in outer)
        moving = any(c.step for c in row)
        if moving or row not in self.tests:
            text = all_of(self._axis_test(a, at[a]) for a in outer)
            if moving or not text:
                return text
            name = self.box.e.name("in_row")
            self.box.e.line(f"const bool {name} = {text};")
            self.tests[row] = name
        return self.tests[row]

    def _axis_test(self, axis: int, c: Coordinate) -> str:
        box = self.box
        index, starts_inside = box.index(axis, c.text), box.starts_inside(axis)
        if box.endless(axis) or self._ends_inside(axis):
            return "" if starts_inside else f"{index} >= 0"
        if c.text == "0":
            extent = box.e.scalar(box.extent(axis))
            return f"{index} < {extent}" if starts_inside else f"inside({index}, {extent})"
        before, left = self.bounds(axis, c)
        below = f"{c.rest} < {left}"
        return below if before == "0" else f"{c.rest} >= {before} && {below}"

    def valid(self, n: int, axis: int, c: Coordinate) -> str:
        """C for how many of n elements along an axis are in the array."""
        before, left = self.bounds(axis, c)
        return f"valid<{n}>({c.rest}, {before}, {left})"

    def _ends_inside(self, axis: int) -> bool:
        """Does the whole tile lie before the array's end, wherever its box is?"""
        box, at = self.box, axis - self.box.rank + len(self.t.shape)
        size = self.t.shape[at] if at >= 0 else 1
        offset, extent = box.facts.interval(box.offsets[axis]), box.facts.interval(box.extent(axis))
        return offset.high + size <= extent.low

    def is_outside(self, register: int) -> bool:
        """Is what every thread holds in a register known to lie after the array's end?"""
        box, lead = self.box, self.box.rank - len(self.t.shape)
        for axis in range(len(self.t.shape)):
            offset = box.facts.interval(box.offsets[lead + axis])
            extent = box.facts.interval(box.extent(lead + axis))
            first = int(self.t.layout.table[axis][..., register].min())
            if not box.endless(lead + axis) and offset.low + first >= extent.high:
                return True
        return False

    def held(self, at: Place, registers: Sequence[int]) -> str:
        """C for "the element is in the tile", where the layout overhangs it in any of the registers."""
        lead = self.box.rank - len(self.t.shape)
        tests = []
        for axis, n in enumerate(self.t.shape):
            table = self.t.layout.table[axis]
            if any(int(table[..., r].max()) >= n for r in registers):
                tests.append(f"{at[lead + axis].text} < {n}")
        return all_of(tests)

    def inside(self, along: int | None = None, by: int = 0) -> str | None:
        """C for "all of the box, moved by so many elements along an axis, is in the array", "" where there is
        nothing to ask; None where the layout overhangs the tile."""
        if self.held(self.place(0), range(self.t.layout.registers)):
            return None
        box, e = self.box, self.box.e
        sizes = (1,) * (box.rank - len(self.t.shape)) + self.t.shape
        tests = []
        for axis, n in enumerate(sizes):
            index = box.index(axis, str(by) if axis == along and by else "0")
            if not box.starts_inside(axis):
                tests.append(f"{index} >= 0")
            if not box.endless(axis):
                tests.append(f"elements_left({index}, {e.scalar(box.extent(axis))}) >= {n}")
        return all_of(tests)

    def set_back(self, by: str) -> None:
        """Lets the one row that is named so far, and those that follow it, begin `by` elements earlier."""
        ((row, name),) = self.rows.items()
        e = self.box.e
        self.rows[row] = e.name("units")
        e.line(f"{MEMORY_TYPES[self.box.elem.name]}* const {self.rows[row]} = {name} - {by};")

    def access_from_anywhere(self, register: int, n: int) -> tuple[str, str, str, str]:
        """(address, condition, first byte that exists, end of those) of an access to n elements that may
        begin before the array and end after it."""
        box, at = self.box, self.place(register)
        inner, item = box.inner, box.elem.bytes
        assert inner is not None
        partial = box.inner_of_vectors(n)
        if partial is None:
            pointer, test, _ = self.access(register, n)
            return pointer, test, "0", str(n * item)
        tests = [self.held(at, [register]), self.test(at, but=inner)]
        before, left = self.bounds(inner, at[inner])
        rest = at[inner].rest
        first, end = (f"{item} * min(max({x} - {rest}, 0), {n})" for x in (before, left))
        if box.facts.divisor(box.offsets[inner]) % n == 0:  # wholly before it, or not at all
            tests.append(f"{rest} >= {before}")
            first = "0"
        return self.pointer(at), all_of(tests), first, end

    def modulo(self, register: int, n: int) -> Place:
        """What tells elements apart whose places in memory are no multiple of n elements apart."""
        steps = [
            math.gcd(n, 1 if a == self.box.inner else self.box.divisible(1 + a))
            for a in range(self.box.rank)
        ]
        return tuple(
            replace(c, more=c.more % (n // step))
            for c, step in zip(self.place(register), steps, strict=True)
        )

    def access(self, register: int, n: int) -> tuple[str, str, str]:
        """(address, condition, how many of n elements there are; "" where an access is wholly inside or
        wholly outside) of the access that starts with a register."""
        at = self.place(register)
        partial = self.box.inner_of_vectors(n)
        tests = [self.held(at, [register]), self.test(at, but=partial)]
        valid = "" if partial is None else self.valid(n, partial, at[partial])
        return self.pointer(at), all_of(tests), valid
