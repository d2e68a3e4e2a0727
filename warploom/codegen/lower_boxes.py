"""Boxes of views: from and to global memory by ordinary accesses, and by cp.async.

What the accesses of a thread have in common is computed once and named: how much of the array lies ahead of
the thread along each axis, and a pointer for each row.  The rest are constants, so that few registers hold
addresses while a tile waits in the others.  Copies, which need no tile, are a loop: unrolled, their rows'
addresses would be kept across the loop around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from warploom.codegen.context import Emitter, Lowering, ViewRef, within
from warploom.codegen.formula import Bools, Ints
from warploom.codegen.lower_hopper import cache_policy, geometry
from warploom.codegen.lower_memory import Places, loaded, nothing, words_of
from warploom.codegen.registers import MEMORY_TYPES, Array, affine, per_word, read
from warploom.errors import InternalError
from warploom.ir.analysis import effects
from warploom.ir.core import Op, OpKind, Value, walk
from warploom.ir.ops import arith, control, hopper, task, tile
from warploom.ir.types import DType, Shared, Tile
from warploom.layout import Layout, blocked
from warploom.layout.choose import thread_offsets

UNROLLED = 4  # copies that one turn of the loop issues
TOGETHER = 8  # pairs of units on their way at a time, which take 8 registers each
REGISTERS_OF_KEPT = 152  # with which as many stay on their way from one turn of a loop to the next


@dataclass(frozen=True)
class _Box:
    """A box of a view at offsets."""

    e: Emitter
    view: Op
    offsets: Sequence[Value]
    elem: DType

    @property
    def rank(self) -> int:
        return len(self.offsets)

    def extent(self, axis: int) -> Value:
        return self.view.operands[1 + axis]

    def stride(self, axis: int) -> Value:
        return self.view.operands[1 + self.rank + axis]

    def divisible(self, which: int) -> int:
        """Of base (0, in bytes) and strides (1 + axis, in elements)."""
        known = self.view.attrs.get("divisible") or ()
        return int(known[which]) if which < len(known) else 1

    @property
    def inner(self) -> int | None:
        """The axis whose elements are adjacent."""
        ones = [a for a in range(self.rank) if self.e.const(self.stride(a)) == 1]
        return ones[-1] if ones else None

    def alignment(self, axis: int) -> int:
        """Bytes that divide the address of a row's element at a coordinate that is a multiple of them."""
        size = self.elem.bytes
        others = [self.divisible(1 + a) * size for a in range(self.rank) if a != axis]
        start = self.e.divisor(self.offsets[axis]) * size
        return math.gcd(self.divisible(0), start, *others)

    def index(self, axis: int, coordinate: str) -> str:
        offset = self.e.scalar(self.offsets[axis])
        if offset == "0":
            return coordinate
        return offset if coordinate == "0" else f"{offset} + {coordinate}"

    def step(self, axis: int, by: str) -> str:
        """C for how far `by` elements along an axis are apart in memory."""
        if self.e.const(self.stride(axis)) == 1:
            return f"({by})" if " " in by else by
        amount = f"({by})" if " " in by else by
        return f"(i64){amount} * {self.e.scalar(self.stride(axis))}"

    def vector(self, layout: Layout) -> int:
        """Elements an access moves."""
        inner = self.inner
        if inner is None:
            return 1
        run = layout.contiguous(inner - self.rank + len(layout.shape))
        widest = max(1, math.gcd(self.alignment(inner), 16) // self.elem.bytes)
        return max(1, math.gcd(run, widest))

    def moved(self) -> tuple[int, int] | None:
        """(axis, elements) by which the box moves on from one turn of a loop around to the next; not of one
        that goes through its parts."""
        steps = ((axis, self._step_of(v)) for axis, v in enumerate(self.offsets))
        return next(((axis, by) for axis, by in steps if by > 0), None)

    def _step_of(self, v: Value) -> int:
        """What each turn of the loops around adds to v, as far as its definition tells; 0: nothing."""
        o, loop = self.e.definitions.get(v), self.e.loops.get(v)
        if o is None:
            if loop is None or loop.kind is not control.for_:
                return 0
            is_index = loop.regions[0].params[0] is v and not _goes_through_parts(loop)
            return (self.e.const(loop.operands[2]) or 0) if is_index else 0
        if o.kind is arith.add:
            return sum(map(self._step_of, o.operands))
        if o.kind is arith.mul:
            x, y = o.operands
            n, of = (self.e.const(y), x) if self.e.const(y) is not None else (self.e.const(x), y)
            return (n or 0) * self._step_of(of)
        return 0

    def is_shifted(self, layout: Layout) -> bool:
        """Do accesses of 16 bytes begin anywhere in them?  Loads then take the units around."""
        inner = self.inner
        if inner is None or self.elem.bytes > 4:
            return False
        run = layout.contiguous(inner - self.rank + len(layout.shape))
        return run * self.elem.bytes % 16 == 0 and self.vector(layout) * self.elem.bytes < 16

    def inner_of_vectors(self, n: int) -> int | None:
        """The axis along which an access of n elements may reach over the extent's end."""
        inner = self.inner if n > 1 else None
        if inner is None:
            return None
        aligned = self.e.divisor(self.offsets[inner])
        if not self.endless(inner):
            aligned = math.gcd(aligned, self.e.divisor(self.extent(inner)))
        return inner if aligned % n else None

    def starts_inside(self, axis: int) -> bool:
        """Is no coordinate negative?"""
        return self.e.never_negative(self.offsets[axis])

    def endless(self, axis: int) -> bool:
        """Does no coordinate reach the extent?"""
        return (self.e.const(self.extent(axis)) or 0) >= tile.UNBOUNDED


def _goes_through_parts(loop: Op) -> bool:
    """Does each turn of the loop take another part of the same slot?"""
    (body,) = loop.regions
    return any(o.kind is hopper.shared_slice and body.params[0] in o.operands for o in body.ops)


def _box(e: Emitter, v: Value, offsets: Sequence[Value]) -> _Box:
    ref = e.env[v]
    assert isinstance(ref, ViewRef)
    return _Box(e, ref.op, offsets, v.type.dtype)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Coordinate:
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


_Place = tuple[_Coordinate, ...]  # one an axis of the view


@dataclass
class _Rows:
    """The accesses to a box by threads that hold it in a layout: names for what they share, declared where
    it is first needed."""

    box: _Box
    t: Tile
    ahead: dict[tuple[int, str], tuple[str, str]] = field(default_factory=dict)
    rows: dict[_Place, str] = field(default_factory=dict)
    tests: dict[_Place, str] = field(default_factory=dict)

    def place(self, register: int) -> _Place:
        """Where a register's element lies; 0 on the leading axes, in which the box is one element thick."""
        rank = len(self.t.shape)
        lead = (_Coordinate("0", 0),) * (self.box.rank - rank)
        here = (self.box.e.coordinate_from(self.t.layout, a, register) for a in range(rank))
        return (*lead, *(_Coordinate(*c) for c in here))

    def pointer(self, at: _Place) -> str:
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

    def _row(self, row: _Place) -> str:
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

    def bounds(self, axis: int, c: _Coordinate) -> tuple[str, str]:
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
            if extent is None or before != "0":
                value = f"elements_left({index}, {e.scalar(box.extent(axis))})"
            else:  # the offset may be near 2^31: what is subtracted from it first stays below
                parts = (f"({x})" if " " in x else x for x in (offset, c.base) if x != "0")
                value = " - ".join([extent, *parts])
            e.line(f"const int {left} = {value};")
            self.ahead[key] = before, left
        return self.ahead[key]

    def test(self, at: _Place, but: int | None = None) -> str:
        """C for "the element is in the array" (along all axes but one), "" where there is nothing to ask."""
        outer = tuple(a for a in range(self.box.rank) if a not in (but, self.box.inner))
        texts = [self._row_test(at, outer)]
        inner = self.box.inner
        if inner is not None and inner != but:
            texts.append(self._axis_test(inner, at[inner]))
        return " && ".join(x for x in texts if x)

    def _row_test(self, at: _Place, outer: tuple[int, ...]) -> str:
        """The same along the outer axes: a variable for each row."""
        if not outer:
            return ""
        row = tuple(at[a] for a in outer)
        moving = any(c.step for c in row)
        if moving or row not in self.tests:
            text = " && ".join(x for x in (self._axis_test(a, at[a]) for a in outer) if x)
            if moving or not text:
                return text
            name = self.box.e.name("in_row")
            self.box.e.line(f"const bool {name} = {text};")
            self.tests[row] = name
        return self.tests[row]

    def _axis_test(self, axis: int, c: _Coordinate) -> str:
        box = self.box
        index, starts_inside = box.index(axis, c.text), box.starts_inside(axis)
        if box.endless(axis):
            return "" if starts_inside else f"{index} >= 0"
        if c.text == "0":
            extent = box.e.scalar(box.extent(axis))
            return f"{index} < {extent}" if starts_inside else f"inside({index}, {extent})"
        before, left = self.bounds(axis, c)
        below = f"{c.rest} < {left}"
        return below if before == "0" else f"{c.rest} >= {before} && {below}"

    def valid(self, n: int, axis: int, c: _Coordinate) -> str:
        """C for how many of n elements along an axis are in the array."""
        before, left = self.bounds(axis, c)
        return f"valid<{n}>({c.rest}, {before}, {left})"

    def held(self, at: _Place, registers: Sequence[int]) -> str:
        """C for "the element is in the tile", where the layout overhangs it in any of the registers."""
        lead = self.box.rank - len(self.t.shape)
        tests = []
        for axis, n in enumerate(self.t.shape):
            table = self.t.layout.table[axis]
            if any(int(table[..., r].max()) >= n for r in registers):
                tests.append(f"{at[lead + axis].text} < {n}")
        return " && ".join(tests)

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
        return " && ".join(tests)

    def set_back(self, by: str) -> None:
        """Lets the one row that is named so far, and those that follow it, begin `by` elements earlier."""
        ((row, name),) = self.rows.items()
        e = self.box.e
        self.rows[row] = e.name("units")
        e.line(f"{MEMORY_TYPES[self.box.elem.name]}* const {self.rows[row]} = {name} - {by};")

    def access_from_anywhere(self, register: int, n: int) -> tuple[str, str, str, str]:
        """(address, condition, first byte that exists, end of those) of an access to n elements that may
        begin in front of the array and end behind it."""
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
        if box.e.divisor(box.offsets[inner]) % n == 0:  # wholly in front of it, or not at all
            tests.append(f"{rest} >= {before}")
            first = "0"
        return self.pointer(at), " && ".join(x for x in tests if x), first, end

    def access_later(self, register: int, n: int, axis: int, by: int) -> tuple[str, str]:
        """(address, condition) of an access to n elements, all in the array, `by` elements further on."""
        box, at = self.box, self.place(register)
        inner = box.inner
        assert inner is not None
        before, left = self.bounds(inner, at[inner])
        rest = f"{at[inner].rest} + {by}" if axis == inner else at[inner].rest
        tests = [self.test(at, but=axis), f"{rest} >= {before}", f"{rest} + {n} <= {left}"]
        if axis != inner:
            tests.append(f"{at[axis].rest} + {by} < {self.bounds(axis, at[axis])[1]}")
        there = f"{self.pointer(at)} + {box.step(axis, str(by))}"
        return there, " && ".join(x for x in tests if x)

    def modulo(self, register: int, n: int) -> _Place:
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
        return self.pointer(at), " && ".join(x for x in tests if x), valid


# ---- loads and stores


def _load_box(e: Emitter, o: Op) -> None:
    v, *offsets = o.operands
    t = o.result.type
    assert isinstance(t, Tile)
    box = _box(e, v, offsets)
    if box.is_shifted(t.layout):
        _load_shifted(e, o, box, t, e.array(o.result))
        return
    n = box.vector(t.layout)
    item = box.elem.bytes
    dst = e.array(o.result)
    per = per_word(dst.elem)
    rows = _Rows(box, t)
    policy = cache_policy(o)

    bits = 8 * item * n
    how = "_hinted" * bool(policy)

    def value(start: int) -> str:
        pointer, test, valid = rows.access(start, n)
        if not valid:
            if not test:
                return f"load_global{bits}{how}({pointer}{policy})"
            return f"load_global{bits}_if{how}({test}, {pointer}, {nothing(item * n)}{policy})"
        count = f"{test} ? {valid} : 0" if test else valid
        if not policy:
            return f"load_part{bits}<{item}>({pointer}, {count})"
        name = e.name("count")  # what is at the edge goes without the hint
        e.line(f"const int {name} = {count};")
        whole = f"load_global{bits}{how}({pointer}{policy})"
        return f"({name} == {n} ? {whole} : load_part{bits}<{item}>({pointer}, {name}))"

    if n >= per:
        for start in range(0, t.layout.registers, n):
            loaded(e, dst, start, n * item, value(start))
        return
    for w in range(dst.words):  # packed words of several loads
        starts = range(w * per, (w + 1) * per, n)
        values = [value(r) if r < t.layout.registers else "0u" for r in starts]
        e.line(f"{dst.name}[{w}] = join{8 * item * n}({', '.join(values)});")


def _load_shifted(e: Emitter, o: Op, box: _Box, t: Tile, dst: Array) -> None:
    """A box whose rows begin inside units of 16 bytes: the units around each 16 bytes, several at a time, and
    what is wanted cut out of them.  Where all of the box is in the array, nothing is asked of its parts."""
    inside = _Rows(box, t).inside()
    if inside is None:
        _load_shifted_part(e, box, t, dst)
        return
    starts = range(0, t.layout.registers, 16 // box.elem.bytes)
    by = _early_step(e, o, box) if len(starts) <= TOGETHER else None
    kept = None
    if by is not None:
        units = e.before_loop("units", f"Whole {{}}[{len(starts)}];")
        kept = _Kept(units, e.before_loop("are_kept", "bool {} = false;"), *by)
    with e.block(f"if ({inside})" if inside else ""):
        _load_shifted_whole(e, box, t, dst, kept)
    if inside:
        with e.block("else"):
            _load_shifted_part(e, box, t, dst)
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


def _early_step(e: Emitter, o: Op, box: _Box) -> tuple[int, int] | None:
    """(axis, elements) by which a load's box moves on from turn to turn of the loop that it stands in, if the
    next turn's units may be loaded early: by a producer with registers for them, in whose loop nothing orders
    memory.  It is then as if its ring had a slot more."""
    if not e.entries or e.registers < REGISTERS_OF_KEPT:
        return None
    loop = e.entries[-1][0]
    body = loop.regions[0]
    if o not in body.ops or e.multiplies or body.params[0].hint == "piece":
        return None
    if any(x.kind.effect and x.kind not in _KEEPS_ORDER for x in walk(body)):
        return None
    steps = [_exact_step(e, v, loop) for v in box.offsets]
    moving = [(axis, by) for axis, by in enumerate(steps) if by is not None and by > 0]
    return moving[0] if len(moving) == 1 and steps.count(0) == len(steps) - 1 else None


# What a producer's loop does beside arithmetic: none of it makes another's stores visible.
_KEEPS_ORDER = frozenset(
    {
        task.elect,
        hopper.mbarrier_wait,
        hopper.mbarrier_expect,
        hopper.mbarrier_arrive,
        hopper.tma_load,
        hopper.shared_store,
        hopper.fence_async,
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


def _load_shifted_whole(e: Emitter, box: _Box, t: Tile, dst: Array, kept: _Kept | None) -> None:
    """The same of a box that lies in the array.  Accesses a multiple of 32 bytes apart begin alike in their
    units, and share all but the addresses of their rows.  kept: the next turn's units are loaded as soon as
    this turn's are cut, half by half."""
    item, places, inner = box.elem.bytes, _Rows(box, t), box.inner
    assert inner is not None
    n = 16 // item
    align = max(item, math.gcd(16, box.alignment(inner)))
    starts = range(0, t.layout.registers, n)
    moved = (kept.axis, kept.by) if kept else box.moved()
    alike: dict[_Place, _Alike] = {}

    def of(start: int) -> _Alike:
        key = places.modulo(start, 32 // item)
        if key not in alike:
            alike[key] = _Alike(e, _Rows(box, t), places.place(start))
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

    def __init__(self, e: Emitter, rows: _Rows, at: _Place) -> None:
        self.rows, item = rows, rows.box.elem.bytes
        self.at, self.second = e.name("at"), e.name("second")
        e.line(f"const int {self.at} = in_unit({rows.pointer(at)});")
        e.line(f"const int {self.second} = {self.at} ? 16 : 0;")
        rows.set_back(f"{self.at} / {item}")


def _load_shifted_part(e: Emitter, box: _Box, t: Tile, dst: Array) -> None:
    """The same where parts of the box may not be in the array."""
    item, rows = box.elem.bytes, _Rows(box, t)
    n = 16 // item
    assert box.inner is not None
    align = max(item, math.gcd(16, box.alignment(box.inner)))
    starts = range(0, t.layout.registers, n)
    moved = box.moved()
    # where accesses a multiple of 16 bytes apart begin in their units
    in_unit: dict[_Place, str] = {}
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


def _store_box(e: Emitter, o: Op) -> None:
    v, value, *offsets = o.operands
    t = value.type
    assert isinstance(t, Tile)
    box = _box(e, v, offsets)
    n = box.vector(t.layout)
    item = box.elem.bytes
    r = e.regs(value)
    holder = e.holder(t.layout)
    rows = _Rows(box, t)
    policy = cache_policy(o)
    for start in range(0, t.layout.registers, n):
        pointer, test, valid = rows.access(start, n)
        test = " && ".join(x for x in (holder, test) if x)
        given = ", ".join(words_of(r, start, n * item))
        bits = 8 * n * item
        whole = f"store_global{bits}{'_hinted' * bool(policy)}({pointer}, {given}{policy});"
        part = f"store_part{bits}<{item}>({pointer}, {valid}, {given});"
        if not valid:
            text = whole
        elif policy:  # what is at the edge goes without the hint
            text = f"{{ if ({valid} == {n}) {whole} else {part} }}"
        else:
            text = part
        e.line(f"if ({test}) {text}" if test else text)


def _make_view(e: Emitter, o: Op) -> None:
    e.env[o.result] = ViewRef(o)


# ---- copies


def _cp_async(e: Emitter, o: Op) -> None:
    """Every thread copies pieces of `bytes`; what lies out of bounds is filled with zeros."""
    v, dst, *offsets = o.operands
    t = dst.type
    if isinstance(v.type, Tile):
        _cp_async_pointers(e, o)
        return
    assert isinstance(t, Shared) and e.frame is not None
    box = _box(e, v, offsets)
    size, item = o.attrs["bytes"], t.dtype.bytes
    n = size // item
    inner = box.inner
    if n * item != size or inner is None or t.inner != inner - box.rank + len(t.shape):
        raise InternalError(
            f"codegen: cp_async of {size} bytes along another axis than memory's: {t}"
        )
    layout = blocked(t.shape, t.inner, n, e.frame.warps)
    starts = list(range(0, layout.registers, n))
    table, inside = thread_offsets(layout, geometry(t)), within(layout)
    to, real = [table[..., r] for r in starts], [inside[..., r] for r in starts]
    rows = _Rows(box, Tile(t.shape, t.dtype, layout))
    at = [rows.place(r) for r in starts]
    body, steps, further = _turn(at, to, real)
    turns = len(starts) // body
    places = Places(e, e.shared(dst), to[0], real[0], f"{dst.hint or 'slot'}_at")
    moved = f" + {affine(0, further)}" if further else ""
    lines = []
    for j in range(body):
        place = tuple(replace(c, step=step) for c, step in zip(at[j], steps, strict=True))
        held = " && ".join(x for x in (e.holder(layout), rows.held(place, starts[j::body])) if x)
        test = rows.test(place, but=inner)
        count, name = rows.valid(n, inner, place[inner]), e.name("count")
        count = f"{count} * {item}" if item > 1 else count
        lines.append(f"const int {name} = {f'{test} ? {count} : 0' if test else count};")
        into = places.at(to[j], real[j]) + moved
        source = f"{name} ? {rows.pointer(place)} : {e.scalar(box.view.operands[0])}"
        copy = f"cp_async<{size}>({into}, {source}, {name});"
        lines.append(f"if ({held}) {copy}" if held else copy)
    if turns == 1:
        e.lines((0, text) for text in lines)
        return
    e.line(f"#pragma unroll {max(1, UNROLLED // body)}")
    with e.block(f"for (int i = 0; i < {turns}; ++i)"):
        e.lines((0, text) for text in lines)


def _cp_async_pointers(e: Emitter, o: Op) -> None:
    """Every thread copies the pieces whose pointers it holds, zeros for those that are masked off."""
    v, dst, *masks = o.operands
    t, layout = dst.type, v.type.layout  # type: ignore[attr-defined]
    assert isinstance(t, Shared) and isinstance(layout, Layout)
    size = o.attrs["bytes"]
    n = size // t.dtype.bytes
    if layout.contiguous(t.inner) % n:
        raise InternalError(f"codegen: cp_async of {size} bytes from pointers in {layout}")
    pointers, mask = e.regs(v), e.regs(masks[0]) if masks else None
    table, inside = thread_offsets(layout, geometry(t)), within(layout)
    places = Places(e, e.shared(dst), table[..., 0], inside[..., 0], f"{dst.hint or 'slot'}_at")
    holder = e.holder(layout)
    assert isinstance(v.type, Tile)
    for r in range(0, layout.registers, n):
        into = places.at(table[..., r], inside[..., r])
        kept = read(mask.elements[r], mask.elem) if mask else "true"
        copy = f"cp_async_if<{size}>({into}, {read(pointers.elements[r], pointers.elem)}, {kept});"
        test = " && ".join(x for x in (holder, e.inside(v.type, r)) if x)
        e.line(f"if ({test}) {copy}" if test else copy)


def _turn(
    at: Sequence[_Place], offsets: Sequence[Ints], real: Sequence[Bools]
) -> tuple[int, tuple[int, ...], int]:
    """How the accesses at places `at` and `offsets` in the slot (where `real`) become a loop: accesses in
    its body, what each turn adds to the coordinates, and to the offsets.  The smallest body that there is;
    at worst all."""
    count = len(at)
    for body in range(1, count // 2 + 1):
        if count % body or count <= UNROLLED:
            continue
        steps = tuple(b.more - a.more for a, b in zip(at[0], at[body], strict=True))
        further = int((offsets[body] - offsets[0]).flat[0])
        if all(
            [(c.base, c.more) for c in at[k]]
            == [(c.base, c.more + k // body * s) for c, s in zip(at[k % body], steps, strict=True)]
            and not (real[k] & ~real[k % body]).any()
            and (offsets[k] == offsets[k % body] + k // body * further)[real[k]].all()
            for k in range(count)
        ):
            return body, steps, further
    return count, (0,) * len(at[0]), 0


LOWER: dict[OpKind, Lowering] = {
    hopper.cp_async: _cp_async,
    tile.make_view: _make_view,
    tile.load_box: _load_box,
    tile.store_box: _store_box,
}
