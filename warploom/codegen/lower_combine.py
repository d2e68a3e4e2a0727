"""Scans, and reductions by any function, of several tiles at once (ir/ops/combine.py).

The function is one of the emitted source.  Shuffles keep the order of elements, so that the lowest lane of a
group has what all would have; it tells the others, and they agree to the last bit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.codegen.context import Emitter, Lowering
from warploom.codegen.formula import Ints
from warploom.codegen.lower_arith import expression, literal
from warploom.codegen.lower_casts import converted, paren, rounded, same_bits
from warploom.codegen.lower_tiles import at_register, crossing, groups, load_text, store_text
from warploom.codegen.registers import Regs, c_type, read
from warploom.codegen.text import all_of
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind
from warploom.ir.ops import arith, combine, tile
from warploom.ir.types import DType, Scalar, Tile, dtype_of, i1, i8
from warploom.layout import Layout
from warploom.layout.choose import scan_form

Names = tuple[str, ...]  # an element: one C expression for each tile


def _kept(d: DType) -> DType:
    """As what it is in shared memory."""
    return i8 if d == i1 else d


def _function(e: Emitter, o: Op) -> str:
    """The name of the emitted function `name(a…, b…, result&…)`; results may be arguments as well."""
    if o.kind is tile.scan:
        elem = dtype_of(o.result.type)
        c, text = c_type(elem), expression(tile.COMBINES[o.attrs["fn"]], elem, "a0", "b0")
        return _defined(e, f"{c} a0, {c} b0, {c}& r0", [f"  r0 = {text};"])
    dtypes = tuple(dtype_of(v.type) for v in o.operands)
    how = combine.combination(o.attrs["combine"], dtypes)
    env = {v: f"{'ab'[i >= len(dtypes)]}{i % len(dtypes)}" for i, v in enumerate(how.params)}
    taken = [f"{c_type(dtype_of(v.type))} {env[v]}" for v in how.params]
    taken += [f"{c_type(d)}& r{i}" for i, d in enumerate(dtypes)]
    lines = []
    for i, s in enumerate(how.ops):
        found = _step(s, [env[v] for v in s.operands])
        if s.kind is arith.const:
            env[s.result] = found
            continue
        env[s.result] = f"x{i}"
        lines.append(f"  const {c_type(dtype_of(s.result.type))} x{i} = {found};")
    lines += [f"  r{i} = {env[v]};" for i, v in enumerate(how.results)]
    return _defined(e, ", ".join(taken), lines)


def _defined(e: Emitter, taken: str, lines: Sequence[str]) -> str:
    """The name of a function of these parameters and lines, which has been emitted, or will be."""
    head, body = f"({taken}) {{", "\n".join([*lines, "}\n"])
    for name, definition in e.made.items():
        if definition == f"DEV void {name}{head}\n{body}":
            return name
    count = len(e.made)
    name = next(n for i in range(count, 1 << 20) if (n := f"combine{i}") not in e.given)
    e.scopes[0].add(name)
    e.made[name] = f"DEV void {name}{head}\n{body}"
    return name


def _step(s: Op, x: Sequence[str]) -> str:
    """C for an op on scalars."""
    to = dtype_of(s.result.type)
    if s.kind is arith.const:
        return literal(s.attrs["value"], to)
    of = dtype_of(s.operands[0].type)
    if s.kind is arith.select:
        return f"{x[0]} ? {x[1]} : {x[2]}"
    if s.kind is arith.bitcast:
        return same_bits(x[0], of, to)
    if s.kind is arith.cast:
        return x[0] if of == to else rounded(converted(x[0], of, to), to)
    text = expression(s.kind, of, *map(paren, x))
    return text if s.kind in arith.COMPARE else rounded(text, of)


@dataclass(frozen=True)
class _Parts:
    """What an op combines: the dtypes of its tiles, their layout, and how C combines two elements.  neutral:
    what combines with each to that; None where it isn't known."""

    e: Emitter
    o: Op
    dtypes: tuple[DType, ...]
    layout: Layout
    function: str
    neutral: str | None

    @classmethod
    def of(cls, e: Emitter, o: Op) -> _Parts:
        t = o.operands[0].typed(Tile)
        overhangs = int(t.layout.table[o.attrs["axis"]].max()) >= t.shape[o.attrs["axis"]]
        if overhangs and o.kind is not tile.scan:
            raise InternalError(f"codegen: {t.layout} has places outside of {t}")
        dtypes = tuple(dtype_of(v.type) for v in o.operands)
        neutral = None
        if o.kind is tile.scan:
            neutral = literal(tile.neutral(o.attrs["fn"], dtypes[0]), dtypes[0])
        return cls(e, o, dtypes, t.layout, _function(e, o), neutral)

    def elements(self, sources: Sequence[Regs], r: int) -> Names:
        """Those of a register; outside of the tile what changes nothing."""
        texts = (read(s.elements[r], s.elem) for s in sources)
        if self.neutral is None:
            return tuple(texts)
        t: Any = self.o.operands[0].type
        return tuple(self.e.guarded(t, r, text, self.neutral) for text in texts)

    def combined(self, a: Names, b: Names, to: Names, *tests: str) -> None:
        """Combines a and b into `to`, where the tests hold.  A function of several steps is computed by all
        lanes: branches around it would follow each other, where several runs can be scanned side by side."""
        test = all_of(tests)
        if not test or self.is_short:
            self.e.line_if([test], f"{self.function}({', '.join((*a, *b, *to))});")
            return
        both = self.declared("both")
        self.combined(a, b, both)
        for name, value in zip(to, both, strict=True):
            self.e.line(f"{name} = {test} ? {value} : {name};")

    @property
    def is_short(self) -> bool:
        """Is the function one instruction?"""
        o = self.o
        return o.kind is tile.scan or (
            len(combine.combination(o.attrs["combine"], self.dtypes).ops) == 1
        )

    def declared(self, hint: str, values: Names | None = None) -> Names:
        """New variables."""
        names = tuple(self.e.name(hint) for _ in self.dtypes)
        for i, (name, d) in enumerate(zip(names, self.dtypes, strict=True)):
            self.e.line(f"{c_type(d)} {name}{f' = {values[i]}' if values else ''};")
        return names

    def folded(self, elements: Sequence[Names]) -> Names:
        """Elements in order, as one: a tree."""
        if len(elements) == 1:
            return elements[0]
        half = len(elements) // 2
        a, b = self.folded(elements[:half]), self.folded(elements[half:])
        to = self.declared("both")
        self.combined(a, b, to)
        return to

    def shuffled(self, how: str, x: Names, by: str) -> Names:
        """Those of another lane.  how: `__shfl_xor_sync` …"""
        texts = []
        for name, d in zip(x, self.dtypes, strict=True):
            kind = c_type(d)
            small = d.bits < 32 and not d.is_float
            given = f"(int){name}" if small else name
            texts.append(
                f"({kind}){how}(~0u, {given}, {by})" if small else f"{how}(~0u, {name}, {by})"
            )
        return self.declared("other", tuple(texts))

    def across_lanes(self, x: Names, bits: Iterable[int]) -> None:
        """Into the lanes that have none of these bits what all lanes that differ in them have."""
        for bit in bits:
            self.combined(x, self.shuffled("__shfl_xor_sync", x, str(1 << bit)), x)

    def broadcast(self, x: Names, bits: Iterable[int]) -> None:
        """To all lanes that differ in some bits, what the one has that has none of them."""
        mask = sum(1 << b for b in bits)
        if mask:
            other = self.shuffled("__shfl_sync", x, f"{self.e.use('lane')} & {31 ^ mask}")
            for name, value in zip(x, other, strict=True):
                self.e.line(f"{name} = {value};")


class _Scratch:
    """Memory by which warps exchange `count` elements of each tile.  result: how these lie in threads."""

    def __init__(self, p: _Parts, result: Layout, count: int) -> None:
        ends = np.cumsum([0, *(-(-count * d.bytes // 16) * 16 for d in p.dtypes)])
        self.p, self.base = p, p.e.exchange(int(ends[-1]))
        self.tiles = [(d, int(n)) for d, n in zip(p.dtypes, ends, strict=False)]
        self.kept = Tile(result.shape, p.dtypes[0], result)

    def _places(self, table: Ints, r: int, first: int, hint: str) -> Iterator[tuple[DType, str]]:
        for d, begin in self.tiles:
            where = at_register(self.p.e, table, r, d.bytes, hint)
            yield d, f"{self.base} + {where} + {begin + first * d.bytes}"

    def _inside(self, r: int) -> str:
        return self.p.e.inside(self.kept, r) if self.kept.shape else ""

    def put(self, x: Names, table: Ints, r: int, first: int, test: str) -> None:
        """Keeps an element, where the test holds: that of register r, by the table, after `first` others."""
        inside = self._inside(r)
        places = self._places(table, r, first, "partial_at")
        for name, (d, place) in zip(x, places, strict=True):
            self.p.e.line_if([test, inside], store_text(_kept(d), place, name))

    def get(self, table: Ints, r: int, first: int) -> Names:
        """What was put there."""
        inside, found = self._inside(r), []
        for d, place in self._places(table, r, first, "total_at"):
            load = load_text(_kept(d), place)
            found.append(f"{inside} ? {load} : {literal(0, d)}" if inside else load)
        return self.p.declared("of_warp", tuple(found))


# ---- reductions


def _reduce_by(e: Emitter, o: Op) -> None:
    """In the thread, then across lanes by shuffles, then across warps through scratch."""
    p, axis = _Parts.of(e, o), o.attrs["axis"]
    result = p.layout.drop(axis)
    sources = [e.regs(v) for v in o.operands]
    lanes = [b for b, v in enumerate(p.layout.lane) if v[axis]]
    warps = [b for b, v in enumerate(p.layout.warp) if v[axis]]
    found = []
    for members in groups(p.layout, axis, result):
        elements = [p.elements(sources, r) for r in members]
        x = p.declared("part", p.folded(elements))
        p.across_lanes(x, lanes)
        if not warps:
            p.broadcast(x, lanes)
        found.append(x)
    if warps:
        _across_warps(p, result, found, lanes, warps)
    for i, v in enumerate(o.results):
        if isinstance(v.type, Scalar):
            e.define(v, found[0][i])
            continue
        assert isinstance(v.type, Tile)
        order = result.permutation(v.type.layout)
        if order is None:
            raise InternalError(f"codegen: a reduction gives {result}, not {v.type.layout}")
        e.put(v, [found[r][i] for r in order])


def _across_warps(
    p: _Parts, result: Layout, found: Sequence[Names], lanes: Sequence[int], warps: Sequence[int]
) -> None:
    """Each warp's lowest lane writes; then the lanes of each warp read one warp's each, where they are
    enough, and combine them as before, else each thread all of them."""
    e, parts, elements = p.e, 1 << len(warps), math.prod(result.shape)
    flat, rank = crossing(p.layout, result, warps)
    scratch = _Scratch(p, result, parts * elements)
    mask = sum(1 << b for b in lanes)
    first = f"({e.use('lane')} & {mask}) == 0" if mask else ""
    for i, x in enumerate(found):
        scratch.put(x, rank[:, None, None] * elements + flat, i, 0, first)
    e.exchanged()
    spread = lanes[: len(warps)] if len(lanes) >= len(warps) else []
    number = np.arange(32)
    lane = sum((((number >> b) & 1) << i for i, b in enumerate(spread)), np.zeros_like(number))
    there = lane[None, :, None] * elements + flat
    for i, x in enumerate(found):
        total = p.folded(
            [scratch.get(there, i, w * elements) for w in range(1 if spread else parts)]
        )
        if spread:
            p.across_lanes(total, spread)
            p.broadcast(total, spread)
        for name, value in zip(x, total, strict=True):
            e.line(f"{name} = {value};")


# ---- scans


def _scan(e: Emitter, o: Op) -> None:
    """In the thread, then lane by lane with shuffles (Kogge and Stone), then from warp to warp through
    scratch, and from each repetition of the layout to the next."""
    p, axis, back = _Parts.of(e, o), o.attrs["axis"], o.attrs["reverse"]
    form = scan_form(p.layout, axis)
    if form is None:
        raise InternalError(f"codegen: a scan of {p.layout} needs a conversion first")
    sources = [e.regs(v) for v in o.operands]
    lanes = _Lanes.of(p, form.lane, form.lanes, back)
    found: dict[int, Names] = {}
    runs = [
        [run[::-1] if back else run for run in copies[:: -1 if back else 1]] for copies in form.runs
    ]
    ends: list[list[Names]] = []  # what each run of each copy comes to, in all lanes up to this one
    for copies in runs:
        ends.append([])
        for run in copies:
            for i, r in enumerate(run):
                found[r] = p.declared("scan", p.elements(sources, r))
                if i:
                    p.combined(found[run[i - 1]], found[r], found[r])
            upto = p.declared("upto", found[run[-1]])
            lanes.scan(upto)
            ends[-1].append(upto)
    fronts = _fronts(p, form.runs, form.warps, ends, lanes, back)
    for run, (test, front) in zip(itertools.chain(*runs), fronts, strict=True):
        for r in run if test != "false" else ():
            p.combined(front, found[r], found[r], test)
    for i, v in enumerate(o.results):
        e.put(v, [found[r][i] for r in range(p.layout.registers)])


@dataclass(frozen=True)
class _Lanes:
    """The lanes that share an axis, `count` bits from bit `low` on; place: C for how many are in front."""

    p: _Parts
    low: int
    count: int
    place: str
    back: bool

    @classmethod
    def of(cls, p: _Parts, low: int, count: int, back: bool) -> _Lanes:
        if not count:
            return cls(p, low, count, "0", back)
        place, last = p.e.name("place"), (1 << count) - 1
        rank = f"({p.e.use('lane')} >> {low} & {last})"
        p.e.line(f"const int {place} = {f'{last} - {rank}' if back else rank};")
        return cls(p, low, count, place, back)

    @property
    def _moves(self) -> str:
        return "__shfl_down_sync" if self.back else "__shfl_up_sync"

    def scan(self, x: Names) -> None:
        """In each lane what those in front and it come to."""
        for bit in range(self.count):
            other = self.p.shuffled(self._moves, x, str(1 << self.low + bit))
            self.p.combined(other, x, x, f"{self.place} >= {1 << bit}")

    def in_front(self, x: Names) -> Names:
        """What the lane before this one has."""
        return self.p.shuffled(self._moves, x, str(1 << self.low))

    def last(self, x: Names) -> Names:
        """What the last of the lanes has."""
        if not self.count:
            return x
        lane, mask = self.p.e.use("lane"), ((1 << self.count) - 1) << self.low
        return self.p.shuffled(
            "__shfl_sync", x, f"{lane} & {31 ^ mask}" if self.back else f"{lane} | {mask}"
        )


Front = tuple[str, Names]  # under which condition there is one ("": always, "false": never), and it


def _filled(p: _Parts, test: str, front: Names) -> Front:
    """What is in front under a condition; always something where there is what changes nothing."""
    if p.neutral is None:
        return test, front
    return "", p.declared("ahead", tuple(f"{test} ? {x} : {p.neutral}" for x in front))


def _joined(p: _Parts, a: Front, b: Front) -> Front:
    """What is before what is in front."""
    if a[0] == "false" or b[0] == "false":
        return b if a[0] == "false" else a
    to = p.declared("front", b[1])
    p.combined(a[1], b[1], to, a[0], b[0])
    if not b[0]:
        return "", to
    for name, value in zip(to, a[1], strict=True):
        p.e.line(f"if (!({b[0]})) {name} = {value};")
    return (f"({a[0]}) || ({b[0]})" if a[0] else ""), to


def _fronts(
    p: _Parts,
    copies: Sequence[Sequence[Sequence[int]]],
    warps: Sequence[int],
    ends: Sequence[Sequence[Names]],
    lanes: _Lanes,
    back: bool,
) -> Iterator[Front]:
    """For each run what is before it: earlier lanes, warps and repetitions."""
    of_warps = _warps(p, copies, warps, ends, lanes, back) if warps else None
    for i, row in enumerate(ends):
        carry: Front = ("false", ())
        for c, upto in enumerate(row):
            own: Front = ("false", ())
            if lanes.count:
                own = _filled(p, f"{lanes.place} > 0", lanes.in_front(upto))
            before, total = of_warps(i, c) if of_warps else (("false", ()), lanes.last(upto))
            yield _joined(p, _joined(p, carry, before), own)
            if c + 1 < len(row):
                carry = _joined(p, carry, ("", total))


def _warps(
    p: _Parts,
    copies: Sequence[Sequence[Sequence[int]]],
    warps: Sequence[int],
    ends: Sequence[Sequence[Names]],
    lanes: _Lanes,
    back: bool,
) -> Callable[[int, int], tuple[Front, Names]]:
    """What the warps before this one come to, and what all of them do: by run and repetition."""
    e, axis = p.e, p.o.attrs["axis"]
    result = p.layout.drop(axis)
    elements, parts, repeats = math.prod(result.shape), 1 << len(warps), len(ends[0])
    flat, rank = crossing(p.layout, result, warps)
    rank = parts - 1 - rank if back else rank
    members = groups(p.layout, axis, result)
    of = [next(i for i, g in enumerate(members) if runs[0][0] in g) for runs in copies]
    scratch = _Scratch(p, result, parts * repeats * elements)
    mine = rank[:, None, None] * elements + flat
    last = f"{lanes.place} == {(1 << lanes.count) - 1}" if lanes.count else ""
    for i, row in enumerate(ends):
        for c, x in enumerate(row):
            scratch.put(x, mine, of[i], c * parts * elements, last)
    e.exchanged()
    my = e.thread_value(np.broadcast_to(rank[:, None], (p.layout.warps, 32)), "warp_place")
    # what takes an instruction isn't worth the shuffles
    spread = lanes.count >= len(warps) and p.neutral is None
    number = (np.arange(32) >> lanes.low) & (parts - 1)
    there = (number[None, :, None] if spread else 0) * elements + flat

    def in_front(i: int, c: int) -> tuple[Front, Names]:
        first, count = c * parts, 1 if spread else parts
        totals = [scratch.get(there, of[i], (first + w) * elements) for w in range(count)]
        return _spread(p, totals[0], lanes, len(warps), my) if spread else _serial(p, totals, my)

    return in_front


def _spread(p: _Parts, x: Names, lanes: _Lanes, bits: int, my: str) -> tuple[Front, Names]:
    """Lanes have one warp's each: they scan them."""
    low, lane = lanes.low, p.e.use("lane")
    mask = ((1 << bits) - 1) << low
    rank = f"({lane} >> {low} & {(1 << bits) - 1})"
    for bit in range(bits):
        other = p.shuffled("__shfl_up_sync", x, str(1 << low + bit))
        p.combined(other, x, x, f"{rank} >= {1 << bit}")
    rest = f"{lane} & {31 ^ mask}"
    front = p.shuffled(
        "__shfl_sync", x, f"({rest}) | ((({my} + {(1 << bits) - 1}) & {(1 << bits) - 1}) << {low})"
    )
    total = p.shuffled("__shfl_sync", x, f"({rest}) | {mask}")
    return _filled(p, f"{my} > 0", front), total


def _serial(p: _Parts, totals: Sequence[Names], my: str) -> tuple[Front, Names]:
    front, upto = p.declared("front", totals[0]), p.declared("upto", totals[0])
    for w, total in enumerate(totals[1:], 1):
        p.combined(upto, total, upto)
        if w + 1 < len(totals):
            for name, value in zip(front, upto, strict=True):
                p.e.line(f"if ({my} > {w}) {name} = {value};")
    return _filled(p, f"{my} > 0", front), upto


LOWER: dict[OpKind, Lowering] = {
    combine.reduce_by: _reduce_by,
    combine.scan_by: _scan,
    tile.scan: _scan,
}
