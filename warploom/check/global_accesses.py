"""Every access of a function at WARP or PLACED to global memory: address, conditions and stored value as
polynomials (index_values.py).  The region of each task is followed once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from warploom.check.index_values import Values
from warploom.check.terms import ONE, Atom, Terms
from warploom.errors import Loc
from warploom.ir import engines
from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import control, task, tile, tma, unaligned
from warploom.ir.poly import Poly
from warploom.ir.types import Pointer, View, shape_of

_LOAD_BOXES = frozenset({tile.load_box, unaligned.load_unaligned, unaligned.load_unaligned_ahead})
_BOXES = _LOAD_BOXES | engines.MOVES_BOXES | {tile.store_box}
_BY_POINTERS = frozenset({tile.load, tile.store, tile.atomic})


PATIENCE = 8  # with a launch that is asked about


@dataclass(frozen=True)
class Agent:
    """Who executes: a task of a phase, in so many replicas."""

    task: str
    phase: int
    replicas: int


@dataclass(frozen=True, eq=False)
class Access:
    """One access.  base: the pointer argument (None: not known); offset: the element's distance from it, in
    elements.  within: polynomials that are not negative where it is made, by masks, extents and guards;
    equal: those that are 0.  guards: i1 polynomials that hold.  value: what is stored.  ops: of boxes side by
    side, which are one access, all.  coordinates: of an element in the tile."""

    op: Op
    agent: Agent
    base: Value | None
    offset: Poly
    within: tuple[Poly, ...]
    equal: tuple[Poly, ...]
    guards: tuple[Poly, ...]
    value: Poly | None
    loops: tuple[Op, ...]
    ops: tuple[Op, ...]
    coordinates: tuple[Poly, ...]

    @property
    def writes(self) -> bool:
        return self.op.kind in engines.WRITES_GLOBAL

    @property
    def is_atomic(self) -> bool:
        """Does it combine with what is there, each element by itself?"""
        return self.op.kind is tile.atomic or self.op.attrs.get("reduce") is not None

    @property
    def is_async(self) -> bool:
        """Is it of the async proxy?  (cp.async is not: PTX ISA, "Async proxy".)"""
        return self.op.kind in engines.MOVES_BOXES

    @property
    def loc(self) -> Loc | None:
        return self.op.loc

    def __str__(self) -> str:
        """`the store at file:line`, for a report."""
        what = "atomic" if self.is_atomic else "store" if self.writes else "load"
        at = f" at {self.loc.file}:{self.loc.line}" if self.loc else f" {self.op.id}".rstrip()
        return f"the {'TMA ' if self.is_async else ''}{what}{at}"


@dataclass
class Collected:
    """What a function does to global memory, and the values that its addresses are made of."""

    func: Func
    terms: Terms
    values: Values
    accesses: list[Access] = field(default_factory=list)


def collect(
    func: Func, known: dict[Value, int] | None = None, grid: Sequence[int] | None = None
) -> Collected:
    """The accesses of a function in program order.  known: values of arguments of this launch; grid: its
    programs along each axis."""
    facts = dict(zip(func.params, func.facts, strict=True))
    fixed = {v: f.value for v, f in facts.items() if f.value is not None}
    terms = Terms(PATIENCE if grid is not None else 1)
    terms.divisors = {v: f.divisible for v, f in facts.items()}
    values = Values(func, terms, {**fixed, **(known or {})}, grid)
    collector = _Collector(Collected(func, terms, values))
    collector.run()
    return collector.found


class _Collector:
    def __init__(self, found: Collected) -> None:
        self.found, self.values, self.terms = found, found.values, found.terms
        self.agent = Agent("", -1, 1)
        self.guards: list[Poly] = []
        self.loops: list[Op] = []
        self.boxes: dict[tuple[Any, ...], list[_Box]] = {}

    def run(self) -> None:
        phase = 0
        for o in self.found.func.body.ops:
            if o.kind is not task.tasks:
                self._op(o)
                continue
            rows = zip(o.attrs["names"], o.attrs["replicas"], o.regions, strict=True)
            for name, replicas, region in rows:
                self.agent = Agent(name, phase, replicas)
                self.values.enter(replicas)
                self._region(region)
                self._end_boxes()
            phase += 1

    def _region(self, region: Region, *guards: Poly) -> None:
        if any(g.constant == 0 for g in guards):
            return  # it is never executed
        before = len(self.guards)
        self.guards += guards
        for o in region.ops:
            self._op(o)
        del self.guards[before:]

    def _op(self, o: Op) -> None:
        v = self.values
        if o.kind in _BOXES or (
            o.kind in engines.COPIES_PIECES and isinstance(o.operands[0].type, View)
        ):
            self._box(o)
        elif o.kind in _BY_POINTERS or o.kind in engines.COPIES_PIECES:
            self._pointers(o)
        elif o.kind is control.if_:
            c = v.scalar(o.operands[0])
            self._region(o.regions[0], c)
            self._region(o.regions[1], self._not(c))
        elif o.kind is control.assume:
            self.guards.append(v.scalar(o.operands[0]))
        elif o.kind is control.for_:
            index, end = v.scalar(o.regions[0].params[0]), v.scalar(o.operands[1])
            self.loops.append(o)
            self._region(o.regions[0], v.less(index, end))
            self.loops.pop()
        elif o.kind is control.while_:
            self.loops.append(o)
            self._region(o.regions[0])
            self._region(o.regions[1], v.scalar(o.regions[0].yielded[0]))
            self.loops.pop()
        else:
            for region in o.regions:
                self._region(region)

    def _not(self, c: Poly) -> Poly:
        return ONE - c

    # ---- accesses

    def _box(self, o: Op) -> None:
        v = self.values
        view = v.made.get(o.operands[0])
        if view is not None and view.kind is tma.tensor_map:
            view = v.made.get(view.operands[0])
        thick, kept, value, offsets = box_of(o)
        if view is None or view.kind is not tile.make_view:
            self._add(o, None, Poly(), [], None)
            return
        starts = [v.scalar(x) for x in offsets]
        constant = tuple(p.terms.get((), 0) for p in starts)
        rest = tuple(p - Poly.const(n) for p, n in zip(starts, constant, strict=True))
        policy = o.attrs.get("reduce")
        key = o.kind, view, rest, thick, policy, tuple(self.guards), tuple(self.loops)
        boxes = self.boxes.setdefault(key, [])
        for further in steps_of(o):
            place = tuple(n + m for n, m in zip(constant, further, strict=True))
            boxes.append(_Box(o, view, rest, place, thick, kept, value))

    def _end_boxes(self) -> None:
        """Boxes side by side are one access."""
        for (*_, guards, loops), boxes in self.boxes.items():
            self.guards, self.loops = list(guards), list(loops)
            whole = _joined(boxes)
            if whole is not None:
                self._add_box(whole, tuple(dict.fromkeys(b.op for b in boxes)))
            for box in boxes if whole is None else ():
                self._add_box(box, (box.op,))
        self.boxes, self.guards, self.loops = {}, [], []

    def _add_box(self, box: _Box, ops: tuple[Op, ...]) -> None:
        v, view = self.values, box.view
        coords = [self._coordinate(k, n) for k, n in enumerate(box.thick)]
        rank = len(view.operands) // 2
        address, within = v.scalar(view.operands[0]), []
        sizes = zip(view.operands[1 : 1 + rank], view.operands[1 + rank :], strict=True)
        starts = zip(box.rest, box.constant, strict=True)
        for (start, n), c, (extent, stride) in zip(starts, coords, sizes, strict=True):
            index, most = start + Poly.const(n) + c, v.scalar(extent)
            within.append(index)
            if (most.constant or 0) < tile.UNBOUNDED:
                within.append(most - ONE - index)
            address = address + v.scalar(stride) * index
        at = tuple(coords[a] for a in box.kept)
        stored = None if box.value is None else v.at(box.value, at)
        self._add(box.op, *self._split(address), within, stored, ops, tuple(coords))

    def _pointers(self, o: Op) -> None:
        v, p = self.values, o.operands[0]
        coords = tuple(self._coordinate(k, n) for k, n in enumerate(shape_of(p.type)))
        first = (
            1 if o.kind in (tile.load, tile.store) else 2
        )  # what follows the pointers, or the value
        first += o.kind is tile.store
        rest = () if o.attrs.get("fn") == "cas" else o.operands[first : first + 1]
        guards = [v.at(mask, coords) for mask in rest]
        value = v.at(o.operands[1], coords) if o.kind is tile.store else None
        self.guards += guards
        self._add(o, *self._split(v.at(p, coords)), [], value, (), coords)
        del self.guards[len(self.guards) - len(guards) :]

    def _add(
        self,
        o: Op,
        base: Value | None,
        offset: Poly,
        within: list[Poly],
        value: Poly | None,
        ops: tuple[Op, ...] = (),
        coordinates: tuple[Poly, ...] = (),
    ) -> None:
        equal: list[Poly] = []
        for c in self.guards:
            facts_of(c, within, equal)
        access = Access(
            o, self.agent, base, offset, tuple(dict.fromkeys(within)), tuple(dict.fromkeys(equal)),
            tuple(self.guards), value, tuple(self.loops), ops or (o,), coordinates,
        )  # fmt: skip
        self.found.accesses.append(access)

    def _split(self, address: Poly) -> tuple[Value | None, Poly]:
        """The pointer argument of an address, and the offset from it."""
        pointers = [a for a in dict.fromkeys(address.atoms()) if _is_pointer(a)]
        if len(pointers) != 1 or address.terms.get((pointers[0],)) != 1:
            return None, address
        base: Any = pointers[0].about  # type: ignore[attr-defined]
        return base, address - Poly.atom(pointers[0])

    def _coordinate(self, axis: int, n: int) -> Poly:
        if n == 1:
            return Poly()
        return self.terms.atom("coordinate", (Poly.const(n),), axis, name="ijklm"[axis % 5])


@dataclass(frozen=True, eq=False)
class _Box:
    """A box of a view at rest + constant; thick: its size along the view's axes; kept: those of its tile."""

    op: Op
    view: Op
    rest: tuple[Poly, ...]
    constant: tuple[int, ...]
    thick: tuple[int, ...]
    kept: tuple[int, ...]
    value: Value | None


def _joined(boxes: list[_Box]) -> _Box | None:
    """The box that these make up, None where they leave holes or overlap."""
    first, axes = boxes[0], []
    for axis, n in enumerate(first.thick):
        places = sorted({b.constant[axis] for b in boxes})
        if places != list(range(places[0], places[0] + n * len(places), n)):
            return None
        axes.append(places)
    if len(boxes) == 1 or math.prod(map(len, axes)) != len(boxes):
        return None
    if len({b.constant for b in boxes}) != len(boxes):
        return None
    thick = tuple(n * len(places) for n, places in zip(first.thick, axes, strict=True))
    start = tuple(places[0] for places in axes)
    return _Box(first.op, first.view, first.rest, start, thick, first.kept, None)


def _is_pointer(a: object) -> bool:
    return (
        isinstance(a, Atom)
        and a.kind == "argument"
        and isinstance(a.about, Value)
        and isinstance(a.about.type, Pointer)
    )


def box_of(o: Op) -> tuple[tuple[int, ...], tuple[int, ...], Value | None, Sequence[Value]]:
    """Of a box: its size along the view's axes, which of them its tile has, the stored tile, the offsets."""
    kind: Any = o.operands[0].type
    if o.kind in engines.MOVES_BOXES:
        offsets = o.operands[4 if o.kind in engines.COPIES_BOXES else 2 :]
        return kind.thick, kind.axes, None, offsets[: kind.rank]
    value = o.operands[1] if o.kind is tile.store_box else None
    if o.kind in _LOAD_BOXES:
        shape, offsets = shape_of(o.results[0].type), o.operands[-kind.rank :]
    else:
        of: Any = o.operands[1].type
        shape, offsets = of.shape, o.operands[2:]
    thin = kind.rank - len(shape)
    return (*(1,) * thin, *shape), tuple(range(thin, kind.rank)), value, offsets


def steps_of(o: Op) -> tuple[tuple[int, ...], ...]:
    """How far, along each axis of its view, the boxes that an op touches lie from its offsets."""
    rank = len(box_of(o)[0])
    here = (0,) * rank
    if o.kind is not unaligned.load_unaligned_ahead:
        return (here,)
    return here, tuple(o.attrs["by"] * (a == o.attrs["axis"]) for a in range(rank))


def facts_of(c: Poly, within: list[Poly], equal: list[Poly]) -> None:
    """What follows from an i1 polynomial that is 1: polynomials that are not negative, or 0."""
    if len(c.terms) == 2 and c.terms.get(()) == 1:  # 1 - atom: the atom is 0
        (a,) = (m[0] for m in c.terms if m)
        holds = False
    elif len(c.terms) == 1 and () not in c.terms:
        (a,) = (m[0] for m in c.terms)
        holds = True
    else:
        return
    assert isinstance(a, Atom)
    if a.kind == "not":
        facts_of(ONE - a.args[0] if holds else a.args[0], within, equal)
    elif (a.kind == "and" and holds) or (a.kind == "or" and not holds):
        for x in a.args:
            facts_of(x if holds else ONE - x, within, equal)
    elif a.kind in ("lt", "le", "gt", "ge"):
        x, y = a.args
        if a.kind in ("gt", "ge"):
            x, y = y, x
        strict = a.kind in ("lt", "gt")
        if holds:
            within.append(y - x - ONE if strict else y - x)
        else:
            within.append(x - y if strict else x - y - ONE)
    elif (a.kind == "eq" and holds) or (a.kind == "ne" and not holds):
        equal.append(a.args[0] - a.args[1])
