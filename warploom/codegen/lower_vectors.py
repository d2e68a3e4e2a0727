"""Boxes whose rows begin inside units of 16 bytes: a thread loads the units around each of its 16 bytes,
several at a time, and cuts out what is wanted (Units and Whole in the prelude).

A box that lies in the array goes a way of its own, where nothing is asked or masked.  There a producer may
keep units on their way from one turn of its loop to the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from warploom.codegen.boxes import Box, Place, Rows, goes_through_parts
from warploom.codegen.context import Emitter
from warploom.codegen.lower_memory import loaded
from warploom.codegen.registers import Array
from warploom.ir.analysis import effects
from warploom.ir.core import Op, Value, walk
from warploom.ir.ops import arith, mbarrier, smem, task, tile, tma
from warploom.ir.types import Tile

TOGETHER = 8  # pairs of units on their way at a time, which take 8 registers each
REGISTERS_OF_KEPT = 152  # with which as many stay on their way from one turn of a loop to the next


def load_shifted(e: Emitter, o: Op, box: Box, t: Tile, dst: Array) -> None:
    """A box whose rows begin inside units of 16 bytes: the units around each 16 bytes, several at a time, and
    what is wanted cut out of them.  Where all of the box is in the array, nothing is asked of its parts."""
    inside = Rows(box, t).inside()
    if inside is None:
        _load_part(e, box, t, dst)
        return
    starts = range(0, t.layout.registers, 16 // box.elem.bytes)
    by = _early_step(e, o, box) if len(starts) <= TOGETHER else None
    kept = None
    if by is not None:
        units = e.before_loop("units", f"Whole {{}}[{len(starts)}];")
        kept = _Kept(units, e.before_loop("are_kept", "bool {} = false;"), *by)
    with e.block(f"if ({inside})" if inside else ""):
        _load_whole(e, box, t, dst, kept)
    if inside:
        with e.block("else"):
            _load_part(e, box, t, dst)
            if kept is not None:  # whose registers are free until it has another value
                e.line(f"{kept.flag} = false;")
                e.lines((0, f"{kept.units}[{i}] = {{}};") for i in range(len(starts)))


@dataclass(frozen=True)
class _Kept:
    """Units that are loaded a turn of the loop early: where they are kept, whether they are; and the next
    turn's box: by how many elements it is further along an axis."""

    units: str
    flag: str
    axis: int
    by: int


def _early_step(e: Emitter, o: Op, box: Box) -> tuple[int, int] | None:
    """(axis, elements) by which a load's box moves on from turn to turn of the loop that it stands in, if the
    next turn's units may be loaded early: by a producer with registers for them, in whose loop nothing orders
    memory, and of an array whose end is known.  It is then as if its ring had a slot more."""
    if not e.entries or e.registers < REGISTERS_OF_KEPT:
        return None
    loop = e.entries[-1][0]
    body = loop.regions[0]
    if o not in body.ops or e.multiplies or goes_through_parts(loop):
        return None
    if any(x.kind.effect and x.kind not in _KEEPS_ORDER for x in walk(body)):
        return None
    if any(_exact_step(e, v, loop) != 0 for v in box.view.operands):
        return None
    steps = [_exact_step(e, v, loop) for v in box.offsets]
    moving = [(axis, by) for axis, by in enumerate(steps) if by is not None and by > 0]
    if len(moving) != 1 or steps.count(0) != len(steps) - 1:
        return None
    # Of an array whose end nobody tells, what lies behind the loop's last box may not exist.
    return None if box.endless(moving[0][0]) else moving[0]


# What a producer's loop does beside arithmetic: none of it makes another's stores visible.
_KEEPS_ORDER = frozenset(
    {
        task.elect,
        smem.stamp,
        mbarrier.mbarrier_wait,
        mbarrier.mbarrier_expect,
        mbarrier.mbarrier_arrive,
        tma.tma_load,
        smem.shared_store,
        smem.fence_async,
        tile.load_box,
    }
)


def _exact_step(e: Emitter, v: Value, loop: Op) -> int | None:
    """What each turn of a loop adds to v; None where that isn't known."""
    body = loop.regions[0]
    if v in body.params:
        return e.const(loop.operands[2]) if v is body.params[0] else None
    o = next((x for x in body.ops if v in x.results), None)
    if o is None:
        return 0 if all(v not in x.results for x in walk(body)) else None
    steps = [_exact_step(e, x, loop) for x in o.operands]
    if o.kind is arith.add:
        return None if None in steps else sum(steps)  # type: ignore[arg-type]
    if o.kind is arith.mul and None not in steps and 0 in steps:
        factors = [e.const(x) for x in o.operands]
        moving = steps.index(0) ^ 1
        if steps[moving] == 0:
            return 0
        factor, step = factors[moving ^ 1], steps[moving]
        return None if factor is None or step is None else factor * step
    return 0 if not effects(o) and not o.regions and not any(steps) and None not in steps else None


def _load_whole(e: Emitter, box: Box, t: Tile, dst: Array, kept: _Kept | None) -> None:
    """The same of a box that lies in the array.  Accesses a multiple of 32 bytes apart begin alike in their
    units, and share all but the addresses of their rows.  kept: the next turn's units are loaded as soon as
    this turn's are cut, half by half."""
    item, places, inner = box.elem.bytes, Rows(box, t), box.inner
    assert inner is not None
    n = 16 // item
    align = max(item, math.gcd(16, box.alignment(inner)))
    starts = range(0, t.layout.registers, n)
    moved = (kept.axis, kept.by) if kept else box.moved()
    alike: dict[Place, _Alike] = {}

    def of(start: int) -> _Alike:
        key = places.modulo(start, 32 // item)
        if key not in alike:
            alike[key] = _Alike(e, Rows(box, t), places.place(start))
        return alike[key]

    def later(start: int, turns: int) -> str:
        assert moved is not None
        there = box.step(moved[0], str(turns * moved[1]))
        return f"{of(start).rows.pointer(places.place(start))} + {there}"

    def fetch(starts: Sequence[int]) -> None:
        """Has the L2 bring what is loaded after this."""
        if moved is None:
            return
        turns = 2 if kept else 1
        goes_on = e.name("goes_on")
        test = places.inside(moved[0], turns * moved[1])
        e.line(f"const bool {goes_on} = {test or 'true'};")
        begins: dict[str, str] = {}
        for start in starts:
            one = of(start)
            if one.at not in begins:
                begins[one.at] = e.name("begins")
                test = f"{goes_on} && ends_sector({later(start, turns)})"
                e.line(f"const bool {begins[one.at]} = {test};")
            e.line(f"ahead_of({later(start, turns)}, {begins[one.at]});")

    def cut(start: int, name: str, more: str = "") -> None:
        loaded(e, dst, start, 16, f"cut<{align}>({name}, {of(start).at}{more})")

    def load(start: int, name: str) -> None:
        pointer = of(start).rows.pointer(places.place(start))
        e.line(f"load_whole({name}, {pointer}, {of(start).second});")

    if kept is None:
        for batch in (starts[i : i + TOGETHER] for i in range(0, len(starts), TOGETHER)):
            names = []
            for start in batch:
                names.append(e.name("units"))
                e.line(f"Whole {names[-1]};")
                load(start, names[-1])
            fetch(batch)
            behind = e.name("later")
            e.line(f"const int {behind} = behind({names[-1]}.w[7]);")
            for start, name in zip(batch, names, strict=True):
                cut(start, name, f" + {behind}")
        return
    for start in starts:
        of(start).rows.pointer(places.place(start))  # named for all that follows
    with e.block(f"if (!{kept.flag})"):
        for i, start in enumerate(starts):
            load(start, f"{kept.units}[{i}]")
    e.line(f"{kept.flag} = {places.inside(kept.axis, kept.by) or 'true'};")
    half = (len(starts) + 1) // 2
    for part in (range(half), range(half, len(starts))):
        for i in part:
            cut(starts[i], f"{kept.units}[{i}]")
        with e.block(f"if ({kept.flag})"):
            for i in part:
                second = of(starts[i]).second
                e.line(f"load_whole({kept.units}[{i}], {later(starts[i], 1)}, {second});")
    fetch(starts)


class _Alike:
    """What accesses share that begin alike in their units.  rows: pointers to the unit in which an access
    begins; at: bytes from there to it; second: bytes to the unit in which it ends."""

    def __init__(self, e: Emitter, rows: Rows, at: Place) -> None:
        self.rows, item = rows, rows.box.elem.bytes
        self.at, self.second = e.name("at"), e.name("second")
        e.line(f"const int {self.at} = in_unit({rows.pointer(at)});")
        e.line(f"const int {self.second} = {self.at} ? 16 : 0;")
        rows.set_back(f"{self.at} / {item}")


def _load_part(e: Emitter, box: Box, t: Tile, dst: Array) -> None:
    """The same where parts of the box may not be in the array."""
    item, rows = box.elem.bytes, Rows(box, t)
    n = 16 // item
    assert box.inner is not None
    align = max(item, math.gcd(16, box.alignment(box.inner)))
    starts = range(0, t.layout.registers, n)
    moved = box.moved()
    # where accesses a multiple of 16 bytes apart begin in their units
    in_unit: dict[Place, str] = {}
    for batch in (starts[i : i + TOGETHER] for i in range(0, len(starts), TOGETHER)):
        names = []
        for start in batch:
            pointer, test, first, end = rows.access_from_anywhere(start, n)
            sizes = [f"{test} ? {end} : 0" if test else end, *([first] if first != "0" else [])]
            at = rows.modulo(start, 16 // item)
            if at not in in_unit:
                in_unit[at] = e.name("at")
                e.line(f"const int {in_unit[at]} = in_unit({pointer});")
            names.append(e.name("units"))
            given = ", ".join([pointer, in_unit[at], *sizes])
            e.line(f"const Units {names[-1]} = load_units({given});")
        if moved is not None:
            for start in batch:
                there, test = rows.access_later(start, n, *moved)
                e.line(f"ahead({there}, {test});")
        later = e.name("later")
        e.line(f"const int {later} = behind({names[-1]}.w[7]);")
        for start, name in zip(batch, names, strict=True):
            loaded(e, dst, start, 16, f"shifted<{align}>({name}, {later})")
