"""Boxes whose rows begin inside aligned units of 16 bytes: the units around each 16 bytes, shifted.

A box that lies wholly in the array goes a way of its own, where nothing is tested or masked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from warploom.codegen.boxes import Box, Place, Rows, box_of
from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.lower_memory import loaded
from warploom.codegen.registers import Array
from warploom.codegen.text import all_of
from warploom.ir.core import Op, OpKind
from warploom.ir.ops import unaligned
from warploom.ir.ops.unaligned import UNIT_BYTES
from warploom.ir.types import Tile

WORDS = 8  # of a pair of units


def _starts(box: Box, t: Tile) -> range:
    """The first register of each 16 bytes."""
    return range(0, t.layout.registers, UNIT_BYTES // box.elem.bytes)


def _align(box: Box) -> int:
    """What divides the distance from a unit to the 16 bytes in it."""
    assert box.inner is not None
    return max(box.elem.bytes, math.gcd(UNIT_BYTES, box.alignment(box.inner)))


class _Pieces:
    """The accesses to a box that is wholly in the array: for each 16 bytes a pointer to the unit in which
    they begin, `at` bytes from there, and `second` bytes to the unit in which they end.  Those a multiple of
    32 bytes apart begin alike, and share all but the addresses of their rows."""

    def __init__(self, e: Emitter, box: Box, t: Tile) -> None:
        self.e, self.box = e, box
        self.pointers: dict[int, str] = {}
        self.at: dict[int, str] = {}
        self.second: dict[int, str] = {}
        alike: dict[Place, tuple[Rows, str, str]] = {}
        places = Rows(box, t)
        for start in _starts(box, t):
            key = places.modulo(start, 32 // box.elem.bytes)
            if key not in alike:
                alike[key] = self._begin(Rows(box, t), places.place(start))
            rows, self.at[start], self.second[start] = alike[key]
            self.pointers[start] = rows.pointer(places.place(start))

    def _begin(self, rows: Rows, first: Place) -> tuple[Rows, str, str]:
        e = self.e
        at, second = e.name("at"), e.name("second")
        e.line(f"const int {at} = in_unit({rows.pointer(first)});")
        e.line(f"const int {second} = {at} ? {UNIT_BYTES} : 0;")
        rows.set_back(f"{at} / {self.box.elem.bytes}")
        return rows, at, second

    def further(self, start: int, axis: int, by: int) -> str:
        """The unit `by` elements further along an axis."""
        return f"{self.pointers[start]} + {self.box.step(axis, str(by))}"

    def load(self, start: int, units: str, pointer: str = "") -> None:
        self.e.line(
            f"load_whole({units}, {pointer or self.pointers[start]}, {self.second[start]});"
        )

    def cut(self, dst: Array, start: int, units: str, more: str = "") -> None:
        value = f"cut<{_align(self.box)}>({units}, {self.at[start]}{more})"
        loaded(self.e, dst, start, UNIT_BYTES, value)


def _pieces(e: Emitter, box: Box, t: Tile) -> _Pieces:
    """Those of a box, which ops of one block share."""
    key = ("pieces", box.view, tuple(box.offsets), t)
    found: _Pieces = e.shared_in_scope(key, lambda: _Pieces(e, box, t))
    return found


def _in_batches(starts: Sequence[int], n: int) -> Iterable[Sequence[int]]:
    return (starts[i : i + n] for i in range(0, len(starts), n))


def _load_unaligned(e: Emitter, o: Op) -> None:
    v, *offsets = o.operands
    t, dst = o.result.typed(Tile), e.array(o.result)
    box = box_of(e, v, offsets, t.shape)
    n, inside = o.attrs["in_flight"], Rows(box, t).inside()
    if inside is None:
        _load_part(e, box, t, dst, n)
        return
    with e.block(f"if ({inside})" if inside else ""):
        pieces = _pieces(e, box, t)
        for batch in _in_batches(_starts(box, t), n):
            names = {start: e.name("units") for start in batch}
            for start, name in names.items():
                e.line(f"u32 {name}[{WORDS}];")
                pieces.load(start, name)
            later = _later(e, f"{names[batch[-1]]}[{WORDS - 1}]")
            for start, name in names.items():
                pieces.cut(dst, start, name, f" + {later}")
    if inside:
        with e.block("else"):
            _load_part(e, box, t, dst, n)


def _later(e: Emitter, last: str) -> str:
    """A zero that is known once the last of a batch of loads is there: see `behind` in the prelude."""
    name = e.name("later")
    e.line(f"const int {name} = behind({last});")
    return name


def _load_part(e: Emitter, box: Box, t: Tile, dst: Array, n: int) -> None:
    """A box of which parts may not be in the array, n pairs of units at a time."""
    item, rows, align = box.elem.bytes, Rows(box, t), _align(box)
    in_unit: dict[Place, str] = {}  # where accesses a multiple of 16 bytes apart begin
    for batch in _in_batches(_starts(box, t), n):
        names = []
        for start in batch:
            pointer, test, first, end = rows.access_from_anywhere(start, UNIT_BYTES // item)
            sizes = [f"{test} ? {end} : 0" if test else end, *([first] if first != "0" else [])]
            at = rows.modulo(start, UNIT_BYTES // item)
            if at not in in_unit:
                in_unit[at] = e.name("at")
                e.line(f"const int {in_unit[at]} = in_unit({pointer});")
            names.append(e.name("units"))
            given = ", ".join([pointer, in_unit[at], *sizes])
            e.line(f"const Units {names[-1]} = load_units({given});")
        later = _later(e, f"{names[-1]}.w[7]")
        for start, name in zip(batch, names, strict=True):
            loaded(e, dst, start, UNIT_BYTES, f"shifted<{align}>({name}, {later})")


def _no_units(e: Emitter, o: Op) -> None:
    e.array(o.result)
    e.line(f"{e.units_flag(o.result)} = false;")


def _load_unaligned_ahead(e: Emitter, o: Op) -> None:
    """The units of the next box are read as soon as these are shifted, half by half, so that they need no
    more registers than one box."""
    v, before, *offsets = o.operands
    result, after = o.results
    axis, by = o.attrs["axis"], o.attrs["by"]
    t = result.typed(Tile)
    box = box_of(e, v, offsets, t.shape)
    dst = e.array(result)
    e.assign(after, before)
    units, flag = e.array(after), e.units_flag(after)
    rows = Rows(box, t)
    inside = rows.inside()
    pieces = _pieces(e, box, t)
    starts = list(_starts(box, t))
    names = {start: f"{units.name} + {WORDS * i}" for i, start in enumerate(starts)}
    with e.block(f"if ({inside})" if inside else ""):
        with e.block(f"if (!{flag})"):
            for start in starts:
                pieces.load(start, names[start])
        e.line(f"{flag} = {rows.inside(axis, by) or 'true'};")
        for half in _in_batches(starts, (len(starts) + 1) // 2):
            for start in half:
                pieces.cut(dst, start, names[start])
            with e.block(f"if ({flag})"):
                for start in half:
                    pieces.load(start, names[start], pieces.further(start, axis, by))
    if not inside:
        return
    with e.block("else"):
        _load_part(e, box, t, dst, len(starts))
        e.line(f"{flag} = false;")
        # Their registers are free until they have another value.
        e.unrolled("i", units.words, f"{units.name}[i] = 0;")


def _prefetch_box(e: Emitter, o: Op) -> None:
    v, on, *offsets = o.operands
    axis, by = o.attrs["axis"], o.attrs["by"]
    box = box_of(e, v, offsets, o.attrs["shape"])
    t = Tile(o.attrs["shape"], box.elem, o.attrs["layout"])
    tests = ["" if e.const(on) else e.scalar(on), Rows(box, t).inside(axis, by) or ""]
    goes_on = e.name("goes_on")
    e.line(f"const bool {goes_on} = {all_of(tests) or 'true'};")
    pieces = _pieces(e, box, t)
    begins: dict[str, str] = {}
    for start in _starts(box, t):
        there, at = pieces.further(start, axis, by), pieces.at[start]
        if at not in begins:
            begins[at] = e.name("begins")
            e.line(f"const bool {begins[at]} = {goes_on} && ends_sector({there});")
        e.line(f"ahead_of({there}, {begins[at]});")


LOWER: dict[OpKind, Lowering] = {
    unaligned.load_unaligned: _load_unaligned,
    unaligned.no_units: _no_units,
    unaligned.load_unaligned_ahead: _load_unaligned_ahead,
    unaligned.prefetch_box: _prefetch_box,
}
