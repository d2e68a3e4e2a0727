"""The layouts of one task while they are decided: what assign_layouts and the rules of layout_rules share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from math import prod
from typing import Any

from warploom.analysis.facts import Facts
from warploom.ir.analysis import closure, defined
from warploom.ir.core import Family, Op, Region, Value, walk
from warploom.ir.ops import combine, smem, tile
from warploom.ir.ops.control import LOOPS, carried
from warploom.ir.ops.mma import is_issued
from warploom.ir.types import InFlight, Tile
from warploom.layout import (
    Layout,
    along_axis,
    coalesced,
    mma_acc,
    warp_grid,
)
from warploom.layout.choose import scan_cost
from warploom.layout.reductions import MEETING
from warploom.passes.placed.memory_tiles import Memory, itemsize, shape_of_tile, tile_of

Flow = Callable[[Layout], Layout | None]

_ACCESS = 2  # instructions that an access to global memory is worth: narrow ones queue up
WORD = 4  # bytes; and what threads spend for as many that they load or exchange, in instructions

# How strong an anchor is: the layouts that decide first go farthest.
FIXED, OPERAND, LOADED, STORED, SCATTERED = range(5)


def tiles(o: Op) -> list[Value]:
    """The operands and results of an op that lie in registers as tiles."""
    return [v for v in (*o.operands, *o.results) if isinstance(v.type, (Tile, InFlight))]


def _own(layout: Layout) -> float:
    """Elements of a thread, if no two threads held the same ones."""
    return prod(layout.shape) / layout.threads


def _is_accumulator(layout: Layout) -> bool:
    """Is it one of a dot in registers?"""
    if len(layout.shape) != 2:
        return False
    rows, columns = (1 << sum(v[axis] > 0 for v in layout.warp) for axis in (0, 1))
    try:
        return layout == mma_acc(layout.shape, (rows, columns), layout.warps)
    except ValueError:
        return False


@dataclass
class TaskLayouts:
    """One task's region on its way to layouts."""

    region: Region
    warps: int
    facts: Facts
    by_lines: bool = True  # does one warp exchange what touches many lines of memory?
    partial_sectors: bool = False  # may scalar accesses fill sectors in part?
    found_partial_sectors: bool = False  # would some do so?
    cheap: set[Value] = field(default_factory=set)
    flows: dict[Value, list[tuple[Value, Flow]]] = field(default_factory=dict)
    loaded: dict[Value, Memory] = field(default_factory=dict)  # from where it comes
    written: dict[Value, Memory] = field(default_factory=dict)  # to where it goes
    anchors: list[tuple[int, int, int, Value, Layout]] = field(default_factory=list)
    layout: dict[Value, Layout] = field(default_factory=dict)
    stored: dict[Value, int] = field(default_factory=dict)  # into slots: their inner axis
    chained: bool = False  # does a dot in registers multiply what is computed there?
    multiplied: set[tuple[int, ...]] = field(default_factory=set)  # shapes of their left operands
    given: dict[tuple[int, ...], Layout] = field(default_factory=dict)  # accumulators, by a line
    fused: dict[tuple[int, ...], Layout] = field(default_factory=dict)  # accumulators of fma
    loops: dict[Value, int] = field(default_factory=dict)  # around where it is made
    scanned: dict[Value, int] = field(default_factory=dict)  # along which axis
    reduced: list[tuple[Value, int]] = field(default_factory=list)  # along which axis
    filled: set[Value] = field(default_factory=set)  # what a loop carries and fills with reductions
    _kept: set[Value] = field(default_factory=set)  # those of them that dots' layouts don't reach

    def __post_init__(self) -> None:
        self._count_loops(self.region, 0)
        for o in walk(self.region):
            if o.kind is tile.dot:
                made = map(self.facts.maker, o.operands[:2])
                self.chained |= any(x is None or x.kind is not smem.shared_load for x in made)
                left = self.facts.maker(o.operands[0])
                loads = left is not None and (left.loads or left.kind is smem.shared_load)
                if not (loads or any(self.loops.values())):  # in loops it was never timed
                    self.multiplied.add(shape_of_tile(o.operands[0]))
            if o.kind is tile.convert_layout and _is_accumulator(o.attrs["layout"]):
                self.given[o.attrs["layout"].shape] = o.attrs["layout"]
            if o.kind in (tile.scan, combine.scan_by):
                self.scanned |= dict.fromkeys(o.operands, o.attrs["axis"])
            if o.kind in (tile.reduce, combine.reduce_by):
                self.reduced += [(v, o.attrs["axis"]) for v in o.operands]
            if o.kind in LOOPS:
                self._note_filled(o)
            if o.kind is smem.shared_store:
                self.stored[o.operands[1]] = o.operands[0].type.inner  # type: ignore[attr-defined]

    def _note_filled(self, loop: Op) -> None:
        """Tiles into which a loop without dots puts what it reduces of others.

        They lie as the reductions leave it, spread over the threads that hold the same: a dot's accumulator,
        which they are before or after the loop, would have it change hands in each iteration."""
        body = loop.regions[-1]
        if any(o.kind is tile.dot or is_issued(o) for o in walk(body)):
            return
        made = {v: o for o in body.ops if not o.regions for v in o.results}
        for c in carried(loop):
            behind = closure([c.yielded[-1]], lambda v: made[v].operands if v in made else ())
            own = {c.params[-1]}  # with what follows from it
            for o in body.ops:
                if not own.isdisjoint(o.operands):
                    own.update(o.results)
            for v in behind:
                wide = made.get(v)
                if wide is None or wide.kind is not tile.broadcast:
                    continue
                line = made.get(wide.operands[0])
                sums = made.get(line.operands[0]) if line else None
                if sums is None or sums.kind is not tile.reduce or sums.result in own:
                    continue
                self.filled.update(c.all)
                self.flow(wide.operands[0], v, partial(Layout.spread, shape=shape_of_tile(v)))

    def _count_loops(self, region: Region, n: int) -> None:
        for o in region.ops:
            self.loops.update(dict.fromkeys(o.results, n))
            for r in o.regions:
                self._count_loops(r, n + (o.kind in LOOPS))

    def sums(self, shape: tuple[int, ...]) -> Layout:
        """The accumulator of a dot in registers: as a line gives one of this shape, or by as many warps along
        both axes as read the least."""
        if shape in self.given:
            return self.given[shape]
        grid = warp_grid(shape, self.warps, self.chained, shape in self.multiplied)
        return mma_acc(shape, grid, self.warps)

    # ---- what rules note

    def flow(self, a: Value, b: Value, how: Flow) -> None:
        """From a layout of a follows one of b."""
        self.flows.setdefault(a, []).append((b, how))

    def equal(self, *values: Value) -> None:
        """Every pair flows to each other: one in the middle may turn out cheap, which stops a flow."""
        for v, w in permutations(values, 2):
            self.flow(v, w, lambda x: x)

    def needs(self, v: Value, layout: Layout, strength: int = FIXED) -> None:
        """An op takes v, or gives it, in one layout only."""
        self.anchors.append((strength, 0, 0, v, layout))

    def prefers(self, v: Value, memory: Memory, strength: int) -> None:
        """v comes from memory, or goes there."""
        t = tile_of(v.type)
        if t is None:
            return
        weight = SCATTERED if memory.scattered else strength
        often = -self.loops.get(v, 0)
        self.anchors.append((weight, -t.size, often, v, memory.layout(t.shape, self.warps)))
        if strength == LOADED:
            self.loaded[v] = memory

    # ---- what has been decided

    def decide(self) -> None:
        """Every anchor in order of strength flows as far as nothing has been decided; what none reaches lies
        as the first tile of its shape."""
        for strength, *_, v, layout in sorted(self.anchors, key=lambda a: a[:3]):
            self._kept = self.filled if strength <= OPERAND else set()
            if strength == OPERAND and self._is_cheaper_exchanged(v, layout):
                continue
            self._flood(v, self._for_uses(v, layout) if strength == LOADED else layout)
        for v in defined(self.region) if self.filled else ():
            near = [self.layout[w] for w, _ in self.flows.get(v, ()) if w in self.layout]
            if v in self.filled and near:
                self._flood(v, near[0])
        rest = [v for v in defined(self.region) if tile_of(v.type) and v not in self.cheap]
        alike = {x.shape: x for x in reversed(self.layout.values()) if not x.is_replicated}
        for v in sorted(rest, key=lambda v: -tile_of(v.type).size):  # type: ignore[union-attr]
            self._flood(v, alike.get(shape_of_tile(v), self.default(v)))

    def _flood(self, v: Value, layout: Layout) -> None:
        self.layout |= self._reached(v, layout)

    def _reached(self, v: Value, layout: Layout) -> dict[Value, Layout]:
        """The layouts that follow from one of v, where none is decided."""
        if v in self.cheap or v in self.layout:
            return {}
        found = {v: layout}
        pending = [v]
        for v in pending:
            for w, how in self.flows.get(v, ()):
                if w in self.cheap or w in self.layout or w in found or w in self._kept:
                    continue
                there = how(found[v])
                memory = self.loaded.get(w)
                if there is not None and (memory is None or self.accepts(memory, there)):
                    found[w] = there
                    pending.append(w)
        return found

    def accepts(self, memory: Memory, layout: Layout) -> bool:
        """Does a layout from elsewhere serve an access?"""
        self.found_partial_sectors |= memory.leaves_partial_sectors(layout)
        return memory.accepts(layout)

    def _is_cheaper_exchanged(self, v: Value, layout: Layout) -> bool:
        """Is a dot's operand, of which several warps hold the same elements, cheaper computed by one of them
        each, and exchanged?"""
        if layout.registers <= _own(layout):
            return False
        reached = self._reached(v, layout)
        from_slots = self._exchanged_from_slots(reached)
        if self.loaded.keys().isdisjoint(reached) and not from_slots:
            return False
        words = itemsize(v.type) / 4
        spent = 0.0
        for w, x in reached.items():
            made = self.facts.maker(w)
            each = float(made is not None and made.kind.family is Family.POINTWISE)
            if w in self.loaded:
                each = WORD * itemsize(w.type) / 4
            spent += each * max(0.0, x.registers - _own(x))
        if from_slots:
            # One exchange of what warps hold alike, stored word by word, becomes two of what each has alone,
            # stored by 16 bytes, read by ldmatrix; an access and its address are two instructions.
            less = spent + words * (1.5 * layout.registers - _own(layout))
            return spent > 0 and less > MEETING
        return spent > WORD * words * (_own(layout) + layout.registers) + MEETING

    def _exchanged_from_slots(self, reached: Mapping[Value, Layout]) -> bool:
        """Do these follow from a slot, and are they the operand of another dot, which takes other layouts?"""
        makers = (self.facts.maker(w) for w in reached)
        return any(o is not None and o.kind is smem.shared_load for o in makers) and any(
            s == OPERAND and w in reached and reached[w] != x for s, *_, w, x in self.anchors
        )

    def _for_uses(self, v: Value, layout: Layout) -> Layout:
        """A layout for what is loaded: one for what it is scanned along, or that of a store of wider elements
        that would write half sectors, where the load moves whole ones either way, and not more often than
        the store, and lanes have no more to exchange for it than that is worth."""
        shape, reached = shape_of_tile(v), self._reached(v, layout)
        alike = [w for w in reached if shape_of_tile(w) == shape]  # axes of others are other axes
        stores = [(w, self.written[w]) for w in alike if w in self.written]
        if axes := {self.scanned[w] for w in alike if w in self.scanned}:
            memories = [self.loaded[v], *(memory for _, memory in stores)]
            return self._for_scans(layout, axes, memories)
        for w, memory in stores:
            if memory.itemsize <= self.loaded[v].itemsize:
                continue
            if self.loops.get(w, 0) < self.loops.get(v, 0):
                continue
            if memory.ratio(layout) <= 1:
                continue
            other = memory.layout(shape, self.warps)
            if not self.loaded[v].ratio(other) <= 1 == memory.ratio(other):
                continue
            halves = layout.registers * memory.itemsize / WORD * (memory.ratio(layout) - 1)
            more = self._exchanged(self._reached(v, other)) - self._exchanged(reached)
            if more <= halves:
                return other
        return layout

    def _exchanged(self, layouts: Mapping[Value, Layout]) -> int:
        """Values that a thread exchanges with other lanes for the reductions of these."""
        found = [(layouts[v], axis) for v, axis in self.reduced if v in layouts]
        return sum(x.drop(axis).registers * sum(v[axis] != 0 for v in x.lane) for x, axis in found)

    def _for_scans(self, layout: Layout, axes: set[int], memories: Sequence[Memory]) -> Layout:
        """Of the layouts that move whole sectors the one that takes the fewest instructions to scan and to
        move: elements that lie in more runs take so many times the steps."""
        shape, inner = layout.shape, memories[0].inner
        found = [layout]
        for axis in axes - {inner}:
            widest = layout.contiguous(inner)
            vectors = [1 << n for n in range(widest.bit_length())]
            made = (along_axis(shape, axis, inner, vector, self.warps) for vector in vectors)
            found += [x for x in made if x is not None and memories[0].ratio(x) <= 1]

        def cost(x: Layout) -> float:
            moved = sum(
                x.registers * m.ratio(x) / min(m.vector, x.contiguous(inner)) for m in memories
            )
            return _ACCESS * moved + sum(scan_cost(x, axis) for axis in axes)

        return min(found, key=cost)

    def of(self, v: Value) -> Layout:
        """The layout of a value, or one for a cheap value that has none."""
        return self.layout.get(v) or self.default(v)

    def of_all(self, values: tuple[Value, ...]) -> tuple[Layout | None, ...]:
        """The layouts of values; None for what is no tile."""
        return tuple(self.of(v) if tile_of(v.type) else None for v in values)

    def default(self, v: Value) -> Layout:
        shape = shape_of_tile(v)
        return coalesced(shape, len(shape) - 1, itemsize(v.type), self.warps)


# ---- rules

Some = tuple[Layout | None, ...]


@dataclass(frozen=True)
class Settled:
    """The layouts with which an op is written: of operands, results and what each region yields (none where
    there is no tile), and attributes that say them."""

    operands: Some
    results: Some
    attrs: Mapping[str, Any] = field(default_factory=dict)
    yields: tuple[Some, ...] = ()


def decided(t: TaskLayouts, o: Op) -> Some:
    return tuple(t.layout.get(v) for v in o.results)


def as_they_are(t: TaskLayouts, o: Op) -> Settled:
    """Any layout will do."""
    return Settled(t.of_all(o.operands), decided(t, o))


def _nothing(t: TaskLayouts, o: Op) -> None:
    """Layouts don't flow through it."""


@dataclass(frozen=True)
class LayoutRule:
    """See the module's docstring.

    under: of an op whose layouts follow from its result's; such a one is written again for each layout that
    is needed, where it is cheap.  searches: what its result can have is known only when all is decided."""

    relate: Callable[[TaskLayouts, Op], None] = _nothing
    settle: Callable[[TaskLayouts, Op], Settled] = as_they_are
    under: Callable[[Op, Layout], Settled] | None = None
    searches: bool = False
    scratch: Callable[[Op], int] = lambda o: 0


def following(
    relate: Callable[[TaskLayouts, Op], None], under: Callable[[Op, Layout], Settled]
) -> LayoutRule:
    return LayoutRule(relate, lambda t, o: under(o, t.layout[o.result]), under)
