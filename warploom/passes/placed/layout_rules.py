"""What each op means to layouts: the table kind → rule of assign_layouts.

A rule says which layouts an op needs and how they flow through it (`relate`), with which it is written when
all are decided (`settle`), and what shared memory it then takes beside its operands (`scratch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from warploom.errors import CompileError, InternalError, Note
from warploom.ir import engines
from warploom.ir.core import Family, Level, Op, Value
from warploom.ir.ops import combine, control, mma, smem, tile
from warploom.ir.rules import Rules
from warploom.ir.types import InFlight, Shared, Tile
from warploom.layout import (
    Layout,
    fma_acc,
    mma_operand,
    mma_scales,
    transposing,
    wgmma_a,
    wgmma_acc,
)
from warploom.layout.choose import (
    conversion,
    flipped,
    scan_form,
    scan_layout,
    scan_scratch,
    scratch_geometry,
)
from warploom.layout.reductions import reduce_scratch, reduces_by_lanes, reduces_by_threads
from warploom.passes.placed.memory_tiles import (
    Memory,
    itemsize,
    of_pointers,
    of_view,
    shape_of_tile,
    tile_of,
)
from warploom.passes.placed.regrouped_layouts import CONCAT, RESHAPE, SLICE
from warploom.passes.placed.task_layouts import (
    FIXED,
    LOADED,
    OPERAND,
    STORED,
    LayoutRule,
    Settled,
    TaskLayouts,
    decided,
    following,
    tiles,
)

# ---- each element by itself


def _fills(t: TaskLayouts, o: Op) -> None:
    t.cheap.update(o.results)


def _filled(o: Op, layout: Layout) -> Settled:
    return Settled((None,) * len(o.operands), (layout,), {"layout": layout})


def _is_cheap(t: TaskLayouts, o: Op) -> bool:
    """Notes a function of cheap values as one."""
    cheap = all(v in t.cheap for v in o.operands if tile_of(v.type))
    if cheap and not isinstance(o.result.type, InFlight):
        t.cheap.update(o.results)
        return True
    return False


def _agreed(t: TaskLayouts, o: Op) -> Settled:
    """In the layout of what is agreed on: a conversion between would read what only some threads have."""
    layout = t.of(o.operands[0])
    return Settled((layout,), (layout,))


def _held(o: Op) -> int:
    """Where threads hold the same elements: the first of them writes each, and all read."""
    return _whole_operand(o) if any(o.operands[0].typed(Tile).layout.copies) else 0


def _pointwise(t: TaskLayouts, o: Op) -> None:
    if not _is_cheap(t, o):
        t.equal(*tiles(o))


def _alike(o: Op, layout: Layout) -> Settled:
    return Settled(tuple(layout if tile_of(v.type) else None for v in o.operands), (layout,))


# ---- axes


def _axes(
    there: Callable[[Op, Layout], Layout | None] | None, back: Callable[[Op, Layout], Layout | None]
) -> LayoutRule:
    """Of an op on one tile: its result's layout from the operand's, and the other way."""

    def relate(t: TaskLayouts, o: Op) -> None:
        if not _is_cheap(t, o):
            (x,), y = o.operands, o.result
            if there is not None:
                t.flow(x, y, lambda layout: there(o, layout))
            t.flow(y, x, lambda layout: back(o, layout))

    def under(o: Op, layout: Layout) -> Settled:
        return Settled((back(o, layout),), (layout,), {"layout": layout})

    return following(relate, under)


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(perm.index(i) for i in range(len(perm)))


_EXPAND = _axes(
    lambda o, x: x.insert(o.attrs["axis"]),
    lambda o, y: y.drop(o.attrs["axis"]),
)


def _twice(o: Op, x: Layout) -> Layout | None:
    """Forwards a layout would fill registers with copies, but for pairs: of what is unpacked, say."""
    shape = shape_of_tile(o.result)
    wider = [axis for axis, n in enumerate(shape) if n != x.shape[axis]]
    if len(wider) != 1 or shape[wider[0]] != 2:
        return None
    second = tuple(int(axis == wider[0]) for axis in range(len(shape)))
    return replace(x, shape=shape, reg=(second, *x.reg))


_BROADCAST = _axes(_twice, lambda o, y: y.unbroadcast(shape_of_tile(o.operands[0])))
_TRANSPOSE = _axes(
    lambda o, x: x.permute(o.attrs["perm"]),
    lambda o, y: y.permute(_inverse(o.attrs["perm"])),
)


# ---- conversions, reductions and scans


def _converts(t: TaskLayouts, o: Op) -> None:
    t.needs(o.result, o.attrs["layout"])
    before = tile_of(o.operands[0].type)
    if before is not None and before.layout is None:
        t.flow(o.result, o.operands[0], lambda x: x)


def _converted(t: TaskLayouts, o: Op) -> Settled:
    x, layout = o.operands[0], o.attrs["layout"]
    return Settled((layout if x in t.cheap else t.of(x),), (layout,))


def _converts_through(o: Op) -> int:
    x, to = o.operands[0].typed(Tile), o.attrs["layout"]
    if conversion(x.layout, to).kind != "shared":
        return 0
    return scratch_geometry(x.layout, to, itemsize(x)).bytes


def _reduces(t: TaskLayouts, o: Op) -> None:
    axis = o.attrs["axis"]
    if tile_of(o.result.type):
        x = o.operands[0]
        t.flow(x, o.result, lambda layout: layout.drop(axis))
        t.flow(o.result, x, lambda layout: _lifted(t, layout, x, axis))


def _lifted(t: TaskLayouts, rest: Layout, x: Value, axis: int) -> Layout | None:
    """A layout for the operand of a reduction that leaves `rest`: the matrix unit's, where it does."""
    shape = shape_of_tile(x)
    if t.warps != 4 or len(shape) != 2 or shape[0] % 64 or shape[1] % 8:
        return None
    fragment = wgmma_acc(shape)
    return fragment if fragment.drop(axis) == rest else None


def _reduced(t: TaskLayouts, o: Op) -> Settled:
    x, axis, size = t.of(o.operands[0]), o.attrs["axis"], itemsize(o.operands[0].type)
    attrs: dict[str, Any] = {"by_lanes": True} if reduces_by_lanes(x, axis, size) else {}
    if by_threads := reduces_by_threads(x, axis, size):
        attrs["by_threads"] = by_threads
    rest = x.drop(axis) if tile_of(o.result.type) else None
    return Settled((x,), (rest,), {**attrs, "layout": rest} if rest else attrs)


def _equal(t: TaskLayouts, o: Op) -> None:
    t.equal(*tiles(o))


def _along(scratch: Callable[[Layout, int, int], int]) -> Callable[[Op], int]:
    def needed(o: Op) -> int:
        x = o.operands[0].typed(Tile)
        return scratch(x.layout, o.attrs["axis"], itemsize(x))

    return needed


def _reduces_by(t: TaskLayouts, o: Op) -> None:
    t.equal(*o.operands)
    axis = o.attrs["axis"]
    for x, y in zip(o.operands, o.results, strict=True):
        if tile_of(y.type):
            t.flow(x, y, lambda layout: layout.drop(axis))


def _reduced_by(t: TaskLayouts, o: Op) -> Settled:
    """All in the layout of the first, where its lanes and warps have the axis to themselves."""
    x, axis, n = t.of(o.operands[0]), o.attrs["axis"], len(o.operands)
    if any(v[axis] and any(v[:axis] + v[axis + 1 :]) for v in (*x.lane, *x.warp)):
        x = scan_layout(shape_of_tile(o.operands[0]), axis, t.warps)
    if not tile_of(o.results[0].type):
        return Settled((x,) * n, (None,) * n)
    rest = x.drop(axis)
    return Settled((x,) * n, (rest,) * n, {"layout": rest})


def _scanned(t: TaskLayouts, o: Op) -> Settled:
    """All in a layout that one of them has, where it has a form."""
    axis, n, had = o.attrs["axis"], len(o.operands), map(t.layout.get, o.operands)
    x = next((x for x in had if x and scan_form(x, axis)), None)
    x = x or scan_layout(shape_of_tile(o.operands[0]), axis, t.warps)
    return Settled((x,) * n, (x,) * n)


def _each(scratch: Callable[[Layout, int, int], int]) -> Callable[[Op], int]:
    """Of several tiles, one after the other, in units of 16 bytes."""

    def needed(o: Op) -> int:
        x = o.operands[0].typed(Tile)
        one = scratch(x.layout, o.attrs["axis"], 1)
        return sum(-(-one * itemsize(v.type) // 16) * 16 for v in o.operands)

    return needed


def _gathers(t: TaskLayouts, o: Op) -> None:
    t.equal(*(tiles(o) if o.attrs.get("flips") else (o.operands[1], o.result)))


def _gathered(t: TaskLayouts, o: Op) -> Settled:
    at = t.of(o.result)
    return Settled((at if o.attrs.get("flips") else t.of(o.operands[0]), at), (at,))


def _gather_scratch(o: Op) -> int:
    """None where the elements come from the same warp."""
    layout, flips = o.operands[0].typed(Tile).layout, o.attrs.get("flips")
    inside = flips and flipped(layout, o.attrs["axis"], flips).kind != "shared"
    return 0 if inside else _whole_operand(o)


def _whole_operand(o: Op) -> int:
    """All threads write the tile, and each reads what it wants of it."""
    x = o.operands[0].typed(Tile)
    return x.size * itemsize(x)


# ---- memory


def _memory(t: TaskLayouts, o: Op) -> Memory:
    """How the tile that an access moves lies in global memory."""
    moved = o.operands[1] if o.stores else o.result
    size = itemsize(moved.type)
    if o.kind in (tile.load_box, tile.store_box):
        view, offsets = o.operands[0], o.operands[2 if o.stores else 1 :]
        dtype = view.type.dtype  # type: ignore[attr-defined]
        memory = of_view(t.facts, view, offsets, shape_of_tile(moved), dtype)
        if o.loads and t.stored.get(moved) == memory.inner and size <= 4:
            memory = replace(
                memory, align=16
            )  # units of 16 bytes, shifted where rows are not aligned
    else:
        memory = of_pointers(t.facts, o.operands[0], size, o.attrs.get("run", ()))
    return replace(memory, by_lines=t.by_lines, partial_sectors=t.partial_sectors)


def _loads(t: TaskLayouts, o: Op) -> None:
    t.prefers(o.result, _memory(t, o), LOADED)


def _loads_by_pointers(t: TaskLayouts, o: Op) -> None:
    t.equal(*tiles(o))
    _loads(t, o)


def _stores(t: TaskLayouts, o: Op) -> None:
    if o.kind is tile.store:
        t.equal(*tiles(o))
    memory = _memory(t, o)
    t.prefers(o.operands[1], memory, STORED)
    t.written.setdefault(o.operands[1], memory)


def _stored(t: TaskLayouts, o: Op) -> Settled:
    """The value's layout, unless memory would suffer from it."""
    value, memory = o.operands[1], _memory(t, o)
    layout = t.layout.get(value)
    if layout is None or not t.accepts(memory, layout):
        layout = memory.layout(shape_of_tile(value), t.warps)
    return Settled(tuple(layout if tile_of(v.type) else None for v in o.operands), ())


def _takes(t: TaskLayouts, o: Op) -> None:
    inner = o.operands[0].type.inner  # type: ignore[attr-defined]
    t.prefers(o.result, Memory(inner, 16, itemsize(o.result.type)), STORED)


def _put(t: TaskLayouts, o: Op) -> None:
    """A tile on its way between slots of different orders."""
    place, v = o.operands
    made = t.facts.maker(v)
    if made is None or made.kind is not smem.shared_load:
        return
    there, here = place.typed(Shared), made.operands[0].typed(Shared)
    if there.inner != here.inner:
        layout = transposing(shape_of_tile(v), there.dtype.bytes, there.inner, t.warps)
        if layout is not None:
            t.needs(v, layout, OPERAND)


def _scattered(t: TaskLayouts, o: Op) -> Settled:
    """Elements and their indices alike."""
    layout = t.of(o.operands[1])
    return Settled((None, layout, layout), ())


def _pieces(o: Op) -> Memory:
    """What a cp_async by pointers reads."""
    dst = o.operands[1].typed(Shared)
    return Memory(dst.inner, o.attrs["bytes"], dst.dtype.bytes, in_pieces=True)


def _copies(t: TaskLayouts, o: Op) -> None:
    t.equal(*tiles(o))
    t.prefers(o.operands[0], _pieces(o), LOADED)


def _copied(t: TaskLayouts, o: Op) -> Settled:
    """A thread copies whole pieces."""
    pieces = _pieces(o).layout(shape_of_tile(o.operands[0]), t.warps)
    return Settled(tuple(pieces if tile_of(v.type) else None for v in o.operands), ())


# ---- matrix units


def _accumulator(t: TaskLayouts, v: Value) -> Layout:
    return _fragment(t, wgmma_acc, shape_of_tile(v))


def _fragment(t: TaskLayouts, fragment: Callable[..., Layout], *arguments: Any) -> Layout:
    if t.warps != 4:
        raise InternalError(f"assign_layouts: a fragment of {t.warps} warps, not of a warp group")
    return fragment(*arguments)


def _a_fragment(t: TaskLayouts, a: Value) -> Layout:
    return _fragment(t, wgmma_a, shape_of_tile(a), 8 * itemsize(a.type))


def _accumulates(t: TaskLayouts, o: Op) -> None:
    for same in zip(o.operands, o.results, strict=False):
        t.equal(*same)
    for v in tiles(o):
        needed = _accumulator(t, v)
        _agrees(t, o, v, needed)
        t.needs(v, needed)


def _accumulated(t: TaskLayouts, o: Op) -> Settled:
    results = tuple(_accumulator(t, v) for v in o.results)
    return Settled(results, results)


def _multiplies(t: TaskLayouts, o: Op) -> None:
    a, _, acc, _ = o.operands
    for v in (acc, o.result):
        t.needs(v, _accumulator(t, v))
    if isinstance(a.type, Tile):
        _agrees(t, o, a, _a_fragment(t, a))
        t.needs(a, _a_fragment(t, a), OPERAND)


def _multiplied(t: TaskLayouts, o: Op) -> Settled:
    a, acc = o.operands[0], _accumulator(t, o.result)
    return Settled((_a_fragment(t, a) if tile_of(a.type) else None, None, acc, None), (acc,))


def _sums(t: TaskLayouts, o: Op) -> Layout:
    """The accumulator of a dot in registers."""
    return t.sums(shape_of_tile(o.result))


def _fragments(t: TaskLayouts, o: Op) -> tuple[Layout, ...]:
    """What a dot in registers takes: of both operands, the accumulator, and scales."""
    a, b, _, *scales = o.operands
    acc, k, bits = _sums(t, o), shape_of_tile(a)[-1], 8 * itemsize(a.type)
    plain, paired = (
        [mma_operand(acc, axis, k, bits, pairs) for axis in (0, 1)] for pairs in (False, True)
    )
    operands = paired if bits == 32 and _are_paired(t, (a, b), paired) else plain
    return *operands, acc, *(mma_scales(acc, i, shape_of_tile(v)[1]) for i, v in enumerate(scales))


def _are_paired(t: TaskLayouts, operands: Sequence[Value], paired: Sequence[Layout]) -> bool:
    """Do lanes hold pairs of words along K?  Unless `ldmatrix` brings both operands as the instruction has
    them, or a line says how one lies."""
    made = [t.facts.maker(v) for v in operands]
    for o, layout in zip(made, paired, strict=True):
        if o is not None and o.kind is tile.convert_layout:
            return bool(o.attrs["layout"] == layout)
    return any(o is None or o.kind is not smem.shared_load for o in made)


def _dots(t: TaskLayouts, o: Op) -> None:
    for i, (v, layout) in enumerate(zip(o.operands, _fragments(t, o), strict=True)):
        t.needs(v, layout, FIXED if i == 2 else OPERAND)
    t.needs(o.result, _sums(t, o))


def _dotted(t: TaskLayouts, o: Op) -> Settled:
    return Settled(_fragments(t, o), (_sums(t, o),))


def _fuses(t: TaskLayouts, o: Op) -> None:
    """Threads read operands in vectors: of elements of the accumulator where they are adjacent so."""
    a, b = (v.typed(Shared) for v in o.operands[:2])
    shape = shape_of_tile(o.result)
    adjacent = a.inner == len(shape) - 2, b.inner == len(shape) - 1
    layout = t.fused.setdefault(shape, fma_acc(shape, adjacent, t.warps))
    t.needs(o.operands[2], layout)
    t.needs(o.result, layout)


def _fused(t: TaskLayouts, o: Op) -> Settled:
    layout = t.fused[shape_of_tile(o.result)]
    return Settled((None, None, layout), (layout,))


def _agrees(t: TaskLayouts, o: Op, v: Value, needed: Layout) -> None:
    """Refuses an instruction that takes one layout only on a value that a line gives another."""
    made = t.facts.maker(v)
    if made is None or made.kind is not tile.convert_layout:
        return
    given = made.attrs["layout"]
    if given != needed:
        what = "A in registers" if mma.is_issued(o) else "the accumulator"
        raise CompileError(
            "layout-conflict",
            f"wgmma takes {what} as {needed}, {v.hint or 'it'} is annotated as {given}",
            o.loc,
            (Note("annotated here", made.loc),),
            "leave out annotate_layout, or annotate a copy that wgmma does not take",
        )


# ---- control flow, and what prints


def _passes_on(t: TaskLayouts, o: Op) -> None:
    for c in control.carried(o):
        if tile_of(c.result.type):
            t.equal(*c.all)


def _chosen(t: TaskLayouts, o: Op) -> Settled:
    results = decided(t, o)
    return Settled((None,), results, yields=(results, results))


def _looped(t: TaskLayouts, o: Op) -> Settled:
    """What enters a region has its parameters' layouts: the next one's, after the last the first one's."""
    n = len(o.results)
    params = [t.of_all(r.params[len(r.params) - n :]) for r in o.regions]
    following = (*params[1:], params[0])
    yields = tuple(
        ((None,) * (len(r.yielded) - n) + after)
        for r, after in zip(o.regions, following, strict=True)
    )
    return Settled(((None,) * control.LEAD[o.kind]) + params[0], params[-1], yields=yields)


def _printed(t: TaskLayouts, o: Op) -> Settled:
    """All tiles in one layout, as each element is printed by a thread that holds it."""
    one = next((t.of(v) for v in tiles(o)), None)
    return Settled(tuple(one if tile_of(v.type) else None for v in o.operands), ())


_ANY = LayoutRule()
_ACCUMULATOR = LayoutRule(_accumulates, _accumulated)
_LOOP = LayoutRule(_passes_on, _looped)
_STORE = LayoutRule(_stores, _stored)

RULES: Rules[LayoutRule] = Rules(
    "which layouts does it take and give",
    {
        **dict.fromkeys((Family.PROMISE, Family.OUTPUT, Family.REGISTERS), _ANY),
        **dict.fromkeys((Family.CONTROL, Family.WAIT), _ANY),
        Family.POINTWISE: following(_pointwise, _alike),
        Family.FILL: following(_fills, _filled),
        tile.expand_dims: _EXPAND,
        tile.broadcast: _BROADCAST,
        tile.transpose: _TRANSPOSE,
        tile.reshape: RESHAPE,
        tile.slice_tile: SLICE,
        tile.concat: CONCAT,
        tile.convert_layout: LayoutRule(_converts, _converted, scratch=_converts_through),
        tile.agree: LayoutRule(_equal, _agreed, scratch=_held),
        tile.reduce: LayoutRule(_reduces, _reduced, scratch=_along(reduce_scratch)),
        tile.scan: LayoutRule(_equal, _scanned, scratch=_each(scan_scratch)),
        combine.reduce_by: LayoutRule(_reduces_by, _reduced_by, scratch=_each(reduce_scratch)),
        combine.scan_by: LayoutRule(_equal, _scanned, scratch=_each(scan_scratch)),
        tile.dot: LayoutRule(_dots, _dotted),
        tile.gather: LayoutRule(_gathers, _gathered, scratch=_gather_scratch),
        tile.load: following(_loads_by_pointers, _alike),
        tile.atomic: following(_loads_by_pointers, _alike),
        tile.load_box: following(_loads, _filled),
        tile.store: _STORE,
        tile.store_box: _STORE,
        smem.shared_load: following(_takes, _filled),
        smem.shared_store: LayoutRule(_put),
        **dict.fromkeys((smem.shared_get, smem.shared_put), _ANY),
        smem.shared_atomic: following(_equal, _alike),
        smem.shared_scatter: LayoutRule(_equal, _scattered),
        smem.cp_async: LayoutRule(_copies, _copied),
        **dict.fromkeys(engines.MOVES_BOXES, _ANY),
        **dict.fromkeys((mma.in_flight, mma.wgmma_wait), _ACCUMULATOR),
        mma.no_acc: following(_accumulates, _filled),
        mma.wgmma: LayoutRule(_multiplies, _multiplied),
        mma.fma: LayoutRule(_fuses, _fused),
        **dict.fromkeys(control.LOOPS, _LOOP),
        control.if_: LayoutRule(_passes_on, _chosen),
        control.printf: LayoutRule(_equal, _printed),
    },
    frozenset({Level.WARP}),  # what later passes of PLACED make has layouts
)
