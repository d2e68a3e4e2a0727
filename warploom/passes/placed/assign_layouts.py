"""Gives every tile of a task a layout, and makes conversions explicit.

Order: after everything that makes or moves ops at WARP, before allocate_shared, which finishes PLACED (the
level stays WARP here, as offsets are missing).

Some layouts are given: wgmma's accumulators and register operands, and what makes access to global memory
coalesced.  From these *anchors*, strongest first, layouts flow through the ops that keep or derive them
(elementwise, loops, reductions, axes); what has a layout keeps it.  Where two flows meet, a convert_layout
stands after the value's definition.  Cheap values (pure functions of scalars and constants: index
arithmetic, splats, masks) have no layout of their own: they are computed once for each layout in which
they are needed.

    before:  %x = wgmma_wait(%acc) {pending=0} : tile<64x64xf32>
             %z = splat(%c) {shape=(64, 64)} : tile<64x64xf32>
             %y = add(%x, %z) : tile<64x64xf32>
    after, with L for #layout<wgmma_acc(64x64)>:
             %x = wgmma_wait(%acc) {pending=0} : tile<64x64xf32, L>
             %z = splat(%c) {shape=(64, 64), layout=L} : tile<64x64xf32, L>
             %y = add(%x, %z) : tile<64x64xf32, L>

A convert_layout that the program has already (a script's annotate_layout) is among the strongest anchors: its
layout flows on to what uses the value, and back to what computes it where memory accepts it.  wgmma, which
takes one layout only, refuses another that is annotated.

Refuses (InternalError): wgmma in tasks that are not one warp group a replica, and a tile outside tasks;
(CompileError) a reshape of a large tile between shapes that divide in no common way (`reshape-layout`), and
a tile of which a thread would hold far more than its registers (`tile-size`): ptxas would spill for minutes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from warploom.analysis.access import inner_axis
from warploom.analysis.contiguity import with_runs
from warploom.analysis.facts import Facts, facts_of
from warploom.errors import CompileError, InternalError, Note
from warploom.ir.analysis import defined
from warploom.ir.core import Func, Op, Region, Type, Value, walk
from warploom.ir.ops import arith, control, mma, smem, task, tile
from warploom.ir.types import InFlight, Pointer, Shared, Tile
from warploom.layout import (
    Layout,
    blocked,
    coalesced,
    is_wgmma_acc,
    turning,
    wgmma_a,
    wgmma_acc,
    whole,
)
from warploom.layout.choose import scan_form, scan_layout, sector_ratio
from warploom.layout.linear import LANE_BITS
from warploom.schedule.model import Schedule
from warploom.target import Target

Flow = Callable[[Layout], Layout | None]

# A layout from elsewhere serves a load or store unless it touches more than so many times the sectors that
# its bytes fill: a transposed tile (4 and more) converts.  An accumulator stays as it is (2 of 16 bits, 4 of
# 8 bits), as shared memory for a conversion is what rings are made of; but not with every lane on its own.
WORST_SECTOR_RATIO = 2.0
WORST_OF_ACCUMULATORS = 4.0

LARGEST_WHOLE = 256  # elements that a thread may have to hold alone: its registers

# Elements of a tile that a thread may hold: at 8 bits each, all of its registers and one more.
MAX_ELEMENTS_PER_THREAD = 1024

# A reshape is not among them: not every layout of its result has one of its operand.
_CHEAP_SHAPE = frozenset({tile.expand_dims, tile.broadcast, tile.transpose})
_MEMORY = frozenset({tile.load, tile.store, tile.atomic})
_LOADS = frozenset({tile.load, tile.load_box, tile.atomic})


def assign_layouts(func: Func, schedule: Schedule | None, target: Target) -> Func:
    """See the module's docstring."""
    func = with_runs(func)
    facts = facts_of(func)
    ops = []
    for o in func.body.ops:
        if o.kind is task.tasks:
            regions = tuple(
                _Task(r, w * target.warp_size >> LANE_BITS, facts).placed()
                for r, w in zip(o.regions, o.attrs["warps"], strict=True)
            )
            for r in regions:
                _check_sizes(r, target)
            o = o.with_(regions=regions)
        elif any(_tile(v.type) for v in (*o.operands, *o.results)):
            raise InternalError(f"assign_layouts: {o.kind.name} on tiles outside tasks")
        ops.append(o)
    return func.with_(body=Region(func.body.params, tuple(ops)))


def _check_sizes(region: Region, target: Target) -> None:
    """Refuses tiles of which no thread can hold its part."""
    for o in walk(region):
        for t in filter(None, (_tile(v.type) for v in o.results)):
            part = t.size // t.layout.threads if t.layout is not None else 0
            if part > MAX_ELEMENTS_PER_THREAD:
                size = "x".join(map(str, t.shape))
                raise CompileError(
                    "tile-size",
                    f"a tile of {size} is {part} elements for each of {t.layout.threads} threads, at most "
                    f"{MAX_ELEMENTS_PER_THREAD} are compiled; a thread has "
                    f"{target.registers.per_thread} registers",
                    o.loc,
                    help="take smaller blocks, or more warps (num_warps, num_consumer_groups)",
                )


def _tile(t: Type) -> Tile | None:
    """The tile that a value of the type keeps in registers."""
    return t.tile if isinstance(t, InFlight) else t if isinstance(t, Tile) else None


def _shape(v: Value) -> tuple[int, ...]:
    t = _tile(v.type)
    assert t is not None
    return t.shape


def _with_layout(t: Type, layout: Layout) -> Type:
    match t:
        case Tile():
            return Tile(t.shape, t.elem, layout)
        case InFlight(tile=inner):
            return InFlight(Tile(inner.shape, inner.elem, layout))
    return t


def _itemsize(t: Type) -> int:
    inner = _tile(t)
    assert inner is not None
    return 8 if isinstance(inner.elem, Pointer) else inner.elem.bytes


@dataclass(frozen=True)
class _Memory:
    """How a memory op's tile lies in memory: elements of `itemsize` bytes adjacent along axis `inner`, rows
    aligned to `align` bytes; `vector` elements at most move at once.  scattered: no two are known to be
    adjacent, so that one layout is as good as another.  in_pieces: always `vector` elements move at once,
    even where a tile then has fewer pieces than there are threads."""

    inner: int
    align: int
    itemsize: int
    scattered: bool = False
    in_pieces: bool = False

    @property
    def vector(self) -> int:
        return max(1, min(16, self.align) // self.itemsize)

    def layout(self, shape: tuple[int, ...], warps: int) -> Layout:
        if self.in_pieces:
            return blocked(shape, self.inner, self.vector, warps)
        return coalesced(shape, self.inner, self.itemsize, warps, self.align)

    def accepts(self, layout: Layout) -> bool:
        if self.scattered:
            return True
        if self.in_pieces and layout.contiguous(self.inner) % self.vector:
            return False
        ratio = sector_ratio(layout, self.inner, self.itemsize, self.vector)
        return ratio <= (WORST_OF_ACCUMULATORS if is_wgmma_acc(layout) else WORST_SECTOR_RATIO)


def _of_view(facts: Facts, view: Value, rank: int, itemsize: int) -> _Memory:
    """As a tile of `rank` axes, the view's last ones, sees it."""
    o = facts.maker(view)
    inner = inner_axis(facts, o, rank)
    if o is None or inner is None:
        return _Memory(rank - 1, itemsize, itemsize)
    base, *rows = o.attrs.get("divisible", ()) or (itemsize,) + (1,) * rank
    extra = len(rows) - rank
    align = min([base, *(d * itemsize for a, d in enumerate(rows, -extra) if a != inner)])
    return _Memory(inner, align, itemsize)


def _of_pointers(facts: Facts, p: Value, itemsize: int, run: tuple[int, ...]) -> _Memory:
    """Elements behind a tile of pointers move one at a time, but for proven runs."""
    if run:
        return _Memory(run[0], run[1] * itemsize, itemsize)
    axes = [facts.axis(p, a) for a in range(len(_shape(p)))]
    unit = [a for a, known in enumerate(axes) if known.slope == 1 or known.contiguity > 1]
    return _Memory(unit[-1] if unit else len(axes) - 1, itemsize, itemsize, not unit)


@dataclass
class _Task:
    """One task's region on its way to layouts."""

    region: Region
    warps: int
    facts: Facts
    cheap: set[Value] = field(default_factory=set)
    flows: dict[Value, list[tuple[Value, Flow]]] = field(default_factory=dict)
    accepts: dict[Value, Callable[[Layout], bool]] = field(default_factory=dict)
    anchors: list[tuple[int, int, Value, Layout]] = field(default_factory=list)
    layout: dict[Value, Layout] = field(default_factory=dict)
    wanted: dict[Value, dict[Layout, Value]] = field(default_factory=dict)
    stored: dict[Value, int] = field(default_factory=dict)  # into slots: their inner axis

    def placed(self) -> Region:
        for o in walk(self.region):
            if o.kind is smem.shared_store:
                self.stored[o.operands[1]] = o.operands[0].type.inner  # type: ignore[attr-defined]
        for o in walk(self.region):
            self._relate(o)
        self._spread()
        return self._rebuild(self.region, ())

    # ---- deciding: anchors and flows

    def _relate(self, o: Op) -> None:
        """Notes the op's anchors, and how layouts flow through it."""
        tiles = [v for v in (*o.operands, *o.results) if _tile(v.type)]
        if not tiles and not o.regions:
            return
        match o.kind:
            case tile.splat | tile.arange:
                self.cheap.update(o.results)
            case k if k in arith.ELEMENTWISE or k in _CHEAP_SHAPE:
                if all(v in self.cheap for v in o.operands if _tile(v.type)) and not isinstance(
                    o.result.type, InFlight
                ):
                    self.cheap.update(o.results)
                elif k in arith.ELEMENTWISE:
                    self._equal(*tiles)
                else:
                    self._axes(o)
            case tile.reduce:
                axis = o.attrs["axis"]
                if _tile(o.result.type):
                    x = o.operands[0]
                    self._flow(x, o.result, lambda t: t.drop(axis))
                    self._flow(o.result, x, lambda t: self._lifted(t, x, axis))
            case tile.scan:
                self._equal(*tiles)
            case tile.reshape:
                self._axes(o)
            case tile.convert_layout:
                self.anchors.append((0, 0, o.result, o.attrs["layout"]))
                before = _tile(o.operands[0].type)
                if before is not None and before.layout is None:
                    self._flow(o.result, o.operands[0], lambda t: t)
            case tile.slice_tile:
                offset, shape = o.attrs["offset"], o.attrs["shape"]
                whole = _shape(o.operands[0])
                self._flow(o.operands[0], o.result, lambda x: _part(x, offset, shape))
                self._flow(o.result, o.operands[0], lambda y: _continued(y, offset, whole))
            case tile.concat:
                equal = len({_shape(v) for v in o.operands}) == 1
                for v, offset in zip(o.operands, tile.concat_offsets(o), strict=True):
                    self._flow(o.result, v, _cutter(offset, _shape(v)))
                    if equal:
                        self._flow(v, o.result, _repeater(o.attrs["axis"], len(o.operands)))
            case k if k in control.LEAD:
                for c in control.carried(o):
                    if _tile(c.result.type):
                        self._equal(*c.all)
            case k if k in _MEMORY:
                self._equal(*tiles)
                memory = self._memory(o)
                anchored = o.result if k is not tile.store else o.operands[1]
                self._anchor(2 if k in _LOADS else 3, anchored, memory)
            case control.printf:
                self._equal(*tiles)
            case tile.load_box:
                self._anchor(2, o.result, self._memory(o))
            case tile.store_box:
                self._anchor(3, o.operands[1], self._memory(o))
            case smem.shared_load:
                inner, size = o.operands[0].type.inner, _itemsize(o.result.type)  # type: ignore[attr-defined]
                self._anchor(3, o.result, _Memory(inner, 16, size))
            case smem.shared_store:
                self._turned(o)
            case smem.cp_async:
                self._equal(*tiles)
                self._anchor(2, o.operands[0], _pieces(o))
            case mma.no_acc | mma.in_flight | mma.wgmma_wait:
                for same in zip(o.operands, o.results, strict=False):
                    self._equal(*same)
                for v in tiles:
                    needed = self._wgmma(wgmma_acc, _shape(v))
                    self._agrees(o, v, needed)
                    self.anchors.append((0, 0, v, needed))
            case mma.wgmma:
                a, _, acc, _ = o.operands
                for v in (acc, o.result):
                    self.anchors.append((0, 0, v, self._wgmma(wgmma_acc, _shape(v))))
                if isinstance(a.type, Tile):
                    self._agrees(o, a, self._a_fragment(a))
                    self.anchors.append((1, 0, a, self._a_fragment(a)))

    def _turned(self, o: Op) -> None:
        """A tile on its way between slots of different orders."""
        place, v = o.operands
        made = self.facts.maker(v)
        if made is None or made.kind is not smem.shared_load:
            return
        there, here = place.type, made.operands[0].type
        assert isinstance(there, Shared) and isinstance(here, Shared)
        if there.inner != here.inner:
            layout = turning(_shape(v), there.dtype.bytes, there.inner, self.warps)
            if layout is not None:
                self.anchors.append((1, 0, v, layout))

    def _agrees(self, o: Op, v: Value, needed: Layout) -> None:
        """Refuses an instruction that takes one layout only on a value that a line gives another."""
        made = self.facts.maker(v)
        if made is None or made.kind is not tile.convert_layout:
            return
        given = made.attrs["layout"]
        if given != needed:
            what = "the accumulator" if o.kind is not mma.wgmma else "A in registers"
            raise CompileError(
                "layout-conflict",
                f"wgmma takes {what} as {needed}, {v.hint or 'it'} is annotated as {given}",
                o.loc,
                (Note("annotated here", made.loc),),
                "leave out annotate_layout, or annotate a copy that wgmma does not take",
            )

    def _equal(self, *values: Value) -> None:
        """Every pair flows to each other: one in the middle may turn out cheap, which stops a flow."""
        for v, w in permutations(values, 2):
            self._flow(v, w, lambda x: x)

    def _axes(self, o: Op) -> None:
        """Layouts through an op on axes."""
        (x,), y = o.operands, o.result
        old, new = _shape(x), _shape(y)
        match o.kind:
            case tile.expand_dims:
                axis = o.attrs["axis"]
                self._flow(x, y, lambda t: t.insert(axis))
                self._flow(y, x, lambda t: t.drop(axis))
            case (
                tile.broadcast
            ):  # forwards a layout would fill registers with copies: only backwards
                self._flow(y, x, lambda t: t.unbroadcast(old))
            case tile.transpose:
                perm = o.attrs["perm"]
                self._flow(x, y, lambda t: t.permute(perm))
                self._flow(y, x, lambda t: t.permute(_inverse(perm)))
            case tile.reshape:
                self._flow(x, y, lambda t: t.reshape(new))
                self._flow(y, x, lambda t: t.reshape(old))

    def _lifted(self, rest: Layout, x: Value, axis: int) -> Layout | None:
        """A layout for the operand of a reduction that leaves `rest`: the matrix unit's, where it does."""
        shape = _shape(x)
        if self.warps != 4 or len(shape) != 2 or shape[0] % 64 or shape[1] % 8:
            return None
        fragment = wgmma_acc(shape)
        return fragment if fragment.drop(axis) == rest else None

    def _flow(self, a: Value, b: Value, how: Flow) -> None:
        self.flows.setdefault(a, []).append((b, how))

    def _anchor(self, priority: int, v: Value, memory: _Memory) -> None:
        t = _tile(v.type)
        if t is None:
            return
        weight = 4 if memory.scattered else priority
        self.anchors.append((weight, -t.size, v, memory.layout(t.shape, self.warps)))
        if priority == 2:
            self.accepts[v] = memory.accepts

    def _memory(self, o: Op) -> _Memory:
        """How the tile that a memory op moves lies in global memory."""
        stored = o.kind in (tile.store, tile.store_box)
        moved = o.operands[1] if stored else o.result
        size = _itemsize(moved.type)
        if o.kind in (tile.load_box, tile.store_box):
            memory = _of_view(self.facts, o.operands[0], len(_shape(moved)), size)
            if o.kind is tile.load_box and self.stored.get(moved) == memory.inner and size <= 4:
                return replace(
                    memory, align=16
                )  # units of 16 bytes, shifted where rows are not aligned
            return memory
        return _of_pointers(self.facts, o.operands[0], size, o.attrs.get("run", ()))

    def _wgmma(self, fragment: Callable[..., Layout], *arguments: Any) -> Layout:
        if self.warps != 4:
            raise InternalError(f"assign_layouts: wgmma in a task of {self.warps} warps a replica")
        return fragment(*arguments)

    def _a_fragment(self, a: Value) -> Layout:
        return self._wgmma(wgmma_a, _shape(a), 8 * _itemsize(a.type))

    def _spread(self) -> None:
        """Decides: every anchor in order of strength flows as far as nothing has been decided."""
        for _, _, v, layout in sorted(self.anchors, key=lambda a: a[:2]):
            self._flood(v, layout)
        rest = [v for v in defined(self.region) if _tile(v.type) and v not in self.cheap]
        for v in sorted(rest, key=lambda v: -_tile(v.type).size):  # type: ignore[union-attr]
            self._flood(v, self._default(v))
        for o in walk(self.region):  # cuts and reshapes may not be able to give what was hoped for
            if o.kind is tile.slice_tile:
                self.layout[o.result] = self._cut(o)[1]
            elif o.kind is tile.reshape:
                self.layout[o.result] = self._reshaped(o)[1]
            elif o.kind is tile.concat:
                self.layout[o.result] = self._joined(o)[0]

    def _flood(self, v: Value, layout: Layout) -> None:
        if v in self.cheap or v in self.layout:
            return
        self.layout[v] = layout
        pending = [v]
        for v in pending:
            for w, how in self.flows.get(v, ()):
                if w in self.cheap or w in self.layout:
                    continue
                there = how(self.layout[v])
                accepts = self.accepts.get(w)
                if there is not None and (accepts is None or accepts(there)):
                    self.layout[w] = there
                    pending.append(w)

    def _default(self, v: Value) -> Layout:
        shape = _shape(v)
        return coalesced(shape, len(shape) - 1, _itemsize(v.type), self.warps)

    # ---- applying: from the last op to the first, so that every need is known at a definition

    def _need(self, v: Value, layout: Layout) -> Value:
        """The value in a layout; made where `v` is defined."""
        forms = self.wanted.setdefault(v, {})
        if layout not in forms:
            forms[layout] = Value(_with_layout(v.type, layout), v.hint)
        return forms[layout]

    def _settled(self, v: Value, natural: Layout) -> tuple[Value, list[Op]]:
        """The value as defined (in its natural layout), and the conversions that stand after it."""
        made = self._need(v, natural)
        conversions = []
        for layout, form in self.wanted[v].items():
            if layout == natural:
                continue
            if isinstance(v.type, InFlight):
                raise InternalError(
                    f"assign_layouts: {v.type} in flight needs {natural} and {layout}"
                )
            conversions.append(Op(tile.convert_layout, (made,), {"layout": layout}, (form,)))
        return made, conversions

    def _rebuild(self, region: Region, yields: tuple[Layout | None, ...]) -> Region:
        """The region with layouts, its yield's operands in the given ones."""
        backwards: list[Op] = []
        for o in reversed(region.ops):
            if o.kind is control.yield_:
                backwards.append(o.with_(operands=self._operands(o, yields)))
            elif o.results and o.results[0] in self.cheap:
                backwards += reversed([self._copy(o, x) for x in self.wanted.get(o.result, {})])
            else:
                backwards += reversed(self._op(o))
        params: list[Value] = []
        conversions: list[Op] = []
        for v in region.params:
            if _tile(v.type):
                v, more = self._settled(v, self.layout[v])
                conversions += more
            params.append(v)
        return Region(tuple(params), (*conversions, *reversed(backwards)))

    def _operands(self, o: Op, layouts: tuple[Layout | None, ...]) -> tuple[Value, ...]:
        return tuple(
            v if x is None else self._need(v, x) for v, x in zip(o.operands, layouts, strict=True)
        )

    def _copy(self, o: Op, layout: Layout) -> Op:
        """A cheap op in one of the layouts that are needed."""
        operands, attrs = self._under(o, layout)
        return o.with_(
            operands=self._operands(o, operands),
            attrs={**o.attrs, **attrs},
            results=(self._need(o.result, layout),),
        )

    def _under(self, o: Op, layout: Layout) -> tuple[tuple[Layout | None, ...], dict[str, Any]]:
        """For an elementwise op or one on axes whose result has `layout`: its operands' layouts, and
        attributes."""
        if o.kind in arith.ELEMENTWISE:
            return tuple(layout if _tile(v.type) else None for v in o.operands), {}
        attrs = {"layout": layout}
        match o.kind:
            case tile.splat | tile.arange:
                return (None,) * len(o.operands), attrs
            case tile.expand_dims:
                return (layout.drop(o.attrs["axis"]),), attrs
            case tile.broadcast:
                return (layout.unbroadcast(_shape(o.operands[0])),), attrs
            case tile.transpose:
                return (layout.permute(_inverse(o.attrs["perm"])),), attrs
        raise InternalError(f"assign_layouts: no layout for {o.kind.name} to {layout}")

    def _op(self, o: Op) -> list[Op]:
        """The op with layouts, and the conversions of its results."""
        if not _touches(o):
            return [o]
        results: tuple[Layout | None, ...] = tuple(self.layout.get(v) for v in o.results)
        operands: tuple[Layout | None, ...] = (None,) * len(o.operands)
        attrs: dict[str, Any] = {}
        yields: list[tuple[Layout | None, ...]] = [()] * len(o.regions)
        match o.kind:
            case control.for_:
                carried = self._layouts(o.regions[0].params[1:])
                operands, results, yields = (None, None, None, *carried), carried, [carried]
            case control.while_:
                first, carried = (self._layouts(r.params) for r in o.regions)
                operands, results, yields = first, carried, [(None, *carried), first]
            case control.if_:
                yields = [results, results]
            case tile.reduce:
                (x,) = operands = (self._layout(o.operands[0]),)
                if results[0] is not None:
                    results = (x.drop(o.attrs["axis"]),)
                    attrs = {"layout": results[0]}
            case tile.scan:
                x = self._layout(o.operands[0])
                if scan_form(x, o.attrs["axis"]) is None:
                    x = scan_layout(_shape(o.result), o.attrs["axis"], self.warps)
                operands, results = (x,), (x,)
            case tile.slice_tile:
                x, part = self._cut(o)
                operands, results, attrs = (x,), (part,), {"layout": part}
            case tile.concat:
                x, operands = self._joined(o)
                results, attrs = (x,), {"layout": x}
            case tile.reshape:
                x, y = self._reshaped(o)
                operands, results, attrs = (x,), (y,), {"layout": y}
            case tile.convert_layout:
                operands, results = (self._layout(o.operands[0]),), (o.attrs["layout"],)
            case tile.load | tile.atomic:
                operands = tuple(results[0] if _tile(v.type) else None for v in o.operands)
            case smem.cp_async:  # a thread copies whole pieces
                pieces = _pieces(o).layout(_shape(o.operands[0]), self.warps)
                operands = tuple(pieces if _tile(v.type) else None for v in o.operands)
            case tile.store:
                at = self._stored(o)
                operands = tuple(at if _tile(v.type) else None for v in o.operands)
            case tile.store_box:
                operands = (None, self._stored(o), *operands[2:])
            case control.printf:
                tiles = [v for v in o.operands if _tile(v.type)]
                one = self._layout(tiles[0]) if tiles else None
                operands = tuple(one if v in tiles else None for v in o.operands)
            case tile.load_box | smem.shared_load | mma.no_acc:
                attrs = {"layout": results[0]}
            case mma.wgmma:
                a, acc = o.operands[0], wgmma_acc(_shape(o.result))
                operands = (self._a_fragment(a) if _tile(a.type) else None, None, acc, None)
                results = (acc,)
            case mma.in_flight | mma.wgmma_wait:
                operands = results = tuple(wgmma_acc(_shape(v)) for v in o.results) or operands
            case k if k in arith.ELEMENTWISE or k in _CHEAP_SHAPE:
                assert results[0] is not None
                operands, attrs = self._under(o, results[0])
            case _:  # stores into shared memory, prints, asserts: any layout will do
                operands = self._layouts(o.operands)
        made: list[Value] = []
        conversions: list[Op] = []
        for v, natural in zip(o.results, results, strict=True):
            if natural is not None:
                v, more = self._settled(v, natural)
                conversions += more
            made.append(v)
        regions = tuple(self._rebuild(r, y) for r, y in zip(o.regions, yields, strict=True))
        new = o.with_(
            operands=self._operands(o, operands),
            attrs={**o.attrs, **attrs},
            results=tuple(made),
            regions=regions,
        )
        place = {"loc": o.loc, "tasks": o.tasks}
        return [new, *(c.with_(**place) for c in conversions)]

    def _layouts(self, values: tuple[Value, ...]) -> tuple[Layout | None, ...]:
        return tuple(self._layout(v) if _tile(v.type) else None for v in values)

    def _layout(self, v: Value) -> Layout:
        """The layout of a value, or one for a cheap value that has none."""
        return self.layout.get(v) or self._default(v)

    def _stored(self, o: Op) -> Layout:
        """The value's layout, unless memory would suffer from it."""
        value, memory = o.operands[1], self._memory(o)
        layout = self.layout.get(value)
        if layout is not None and memory.accepts(layout):
            return layout
        return memory.layout(_shape(value), self.warps)

    def _cut(self, o: Op) -> tuple[Layout, Layout]:
        """Layouts of a slice's operand and result."""
        x, offset, shape = o.operands[0], o.attrs["offset"], o.attrs["shape"]
        size, inner = _shape(x), len(shape) - 1
        candidates = [self._layout(x)]
        if all(n % m == 0 for n, m in zip(size, shape, strict=True)):
            counts = [n // m for n, m in zip(size, shape, strict=True)]
            plain = blocked(shape, inner, 1, self.warps)
            parts = [y for y in (self.layout[o.result], plain) if not y.overhangs]
            candidates += [y.product(counts) for y in parts]
        candidates.append(self._divisible(size, [n != m for n, m in zip(size, shape, strict=True)]))
        for y in candidates:
            part = _part(y, offset, shape)
            if part is not None:
                return y, part
        raise InternalError(
            f"assign_layouts: no layout lets {shape} at {offset} be cut from {x.type}"
        )

    def _divisible(self, size: tuple[int, ...], cut: Sequence[bool]) -> Layout:
        """A layout that can be cut anywhere along some axes: threads share out the others, and each holds
        all of those."""
        kept = tuple(1 if c else n for n, c in zip(size, cut, strict=True))
        return blocked(kept, len(size) - 1, 1, self.warps).broadcast(size)

    def _joined(self, o: Op) -> tuple[Layout, tuple[Layout, ...]]:
        """Layouts of a concat's result and operands."""
        size = _shape(o.result)
        last = self._divisible(size, [a == o.attrs["axis"] for a in range(len(size))])
        for joined in (self._layout(o.result), last):
            cuts = zip(o.operands, tile.concat_offsets(o), strict=True)
            parts = [_part(joined, offset, _shape(v)) for v, offset in cuts]
            if None not in parts:
                return joined, tuple(p for p in parts if p is not None)
        raise InternalError(f"assign_layouts: no layout of {o.result.type} is made of its parts")

    def _reshaped(self, o: Op) -> tuple[Layout, Layout]:
        """Layouts of a reshape's operand and result."""
        old, new = _shape(o.operands[0]), _shape(o.result)
        back, there = self.layout[o.result].reshape(old), self._layout(o.operands[0]).reshape(new)
        if back is not None:
            return back, self.layout[o.result]
        if there is not None:
            return self._layout(o.operands[0]), there
        pairs: list[tuple[Layout | None, Layout | None]]
        pairs = [(y.reshape(old), y) for y in self._plain(new)]
        pairs += [(x, x.reshape(new)) for x in self._plain(old)]
        found = [(x, y) for x, y in pairs if x is not None and y is not None]
        if found:
            return min(found, key=lambda pair: pair[1].registers)
        if math.prod(old) <= LARGEST_WHOLE:
            return whole(old, self.warps), whole(new, self.warps)
        dims = ["x".join(map(str, s)) for s in (old, new)]
        raise CompileError(
            "reshape-layout",
            f"{dims[0]} can't be reshaped to {dims[1]}: no division of the elements among threads fits "
            f"both shapes, and one thread doesn't hold more than {LARGEST_WHOLE}",
            o.loc,
            help="use shapes whose sizes are powers of two",
        )

    def _plain(self, shape: tuple[int, ...]) -> Iterator[Layout]:
        """Simple layouts of a shape: spread over threads along all axes, or along one of them."""
        inner = len(shape) - 1
        yield blocked(shape, inner, 1, self.warps)
        for axis in range(len(shape)):
            one = tuple(n if a == axis else 1 for a, n in enumerate(shape))
            yield blocked(one, axis, 1, self.warps).broadcast(shape)


def _touches(o: Op) -> bool:
    """Does the op, or one inside it, deal with tiles?"""
    return any(_tile(v.type) for v in (*o.operands, *o.results)) or any(
        _touches(i) for r in o.regions for i in r.ops
    )


def _pieces(o: Op) -> _Memory:
    """What a cp_async by pointers reads."""
    dst = o.operands[1].type
    assert isinstance(dst, Shared)
    return _Memory(dst.inner, o.attrs["bytes"], dst.dtype.bytes, in_pieces=True)


def _cutter(offset: tuple[int, ...], shape: tuple[int, ...]) -> Flow:
    return lambda x: _part(x, offset, shape)


def _repeater(axis: int, count: int) -> Flow:
    """From a part's layout to that of `count` such parts along an axis."""

    def whole(x: Layout) -> Layout | None:
        counts = [count if a == axis else 1 for a in range(len(x.shape))]
        return None if x.overhangs else x.product(counts)

    return whole


def _part(x: Layout, offset: tuple[int, ...], shape: tuple[int, ...]) -> Layout | None:
    found = x.slice(offset, shape)
    return None if found is None else found[0]


def _continued(y: Layout, offset: tuple[int, ...], whole: tuple[int, ...]) -> Layout | None:
    """From the layout of the part at `offset` to one of the whole that goes on alike."""
    unit = tuple(math.gcd(*at) for at in zip(y.shape, offset, whole, strict=True))
    found = _part(y, (0,) * len(unit), unit)
    if found is None or found.overhangs:
        return None
    x = found.product([n // m for n, m in zip(whole, unit, strict=True)]).merged()
    return x if _part(x, offset, y.shape) == y else None


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(perm.index(i) for i in range(len(perm)))
