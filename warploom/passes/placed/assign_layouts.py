"""Gives every tile of a task a layout, and makes conversions explicit.

Order: after everything that makes or moves ops at WARP, before allocate_shared, which finishes PLACED (the
level stays WARP here, as offsets are missing).
Changes: every kernel.

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

A tile whose scalar accesses would leave sectors of global memory partially filled is exchanged through shared
memory, if there is room (`Memory.leaves_partial_sectors`).

Refuses (InternalError): wgmma in tasks that are not one warp group a replica, and a tile outside tasks;
(CompileError) a reshape of a large tile between shapes that divide in no common way (`reshape-layout`), and
a tile of which a thread would hold far more than its registers (`tile-size`): ptxas would spill for minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from warploom.analysis.contiguity import with_runs
from warploom.analysis.facts import Facts, facts_of
from warploom.errors import CompileError, InternalError
from warploom.ir.core import Func, Op, Region, Type, Value, walk
from warploom.ir.ops import control, task, tile
from warploom.ir.rewrite import rewrite_regions
from warploom.ir.types import InFlight, Tile
from warploom.layout import Layout
from warploom.layout.linear import LANE_BITS
from warploom.passes.placed.allocate_shared import bytes_needed
from warploom.passes.placed.layout_rules import RULES
from warploom.passes.placed.memory_tiles import tile_of
from warploom.passes.placed.task_layouts import Settled, TaskLayouts, tiles
from warploom.schedule.model import Schedule
from warploom.schedule.resources import Headroom
from warploom.target import Target

# Elements of a tile that a thread may hold: at 8 bits each, all of its registers and one more.
MAX_ELEMENTS_PER_THREAD = 1024


def assign_layouts(
    func: Func,
    target: Target,
    schedule: Schedule | None = None,
    given: Schedule | None = None,
    headroom: Headroom | None = None,
) -> Func:
    """See the module's docstring."""
    func = with_runs(func)
    facts = facts_of(func)
    # What is exchanged takes registers: where they are few, few programs ask for lines (118.5 us for 128.3,
    # chunk_gdn2_fwd_kernel_inter_solve_fused).
    by_lines = schedule is None or not schedule.few_registers
    for o in func.body.ops:
        if o.kind is not task.tasks and tiles(o):
            raise InternalError(f"assign_layouts: {o.kind.name} on tiles outside tasks")

    def placed(partial_sectors: bool) -> tuple[Func, bool]:
        """The function with layouts; whether scalar accesses would leave sectors partially filled."""
        found = False

        def region(r: Region, warps: int) -> Region:
            nonlocal found
            threads = warps * target.warp_size
            made, met = with_layouts(r, threads, facts, by_lines, partial_sectors)
            found |= met
            _check_sizes(made, target)
            return made

        return rewrite_regions(func, region, "warps"), found

    if headroom is not None and headroom.partial_sectors:
        return placed(partial_sectors=True)[0]
    exchanged, found = placed(partial_sectors=False)
    # Exchanges take scratch in shared memory.  They are worth half of the occupancy (64 or 128 pixels by 128
    # or 64 channels of a convolution, four slots: 19.7 us for 21, 22.9 for 23.7), but must fit.  Where the
    # chooser dealt the memory out, `Request.lower` has it choose again.
    is_chosen = schedule is not None and given is None
    if not found or is_chosen or bytes_needed(exchanged, target) <= target.shared_bytes:
        return exchanged
    return placed(partial_sectors=True)[0]


def _check_sizes(region: Region, target: Target) -> None:
    """Refuses tiles of which no thread can hold its part."""
    for o in walk(region):
        for t in filter(None, (tile_of(v.type) for v in o.results)):
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


def _with_layout(t: Type, layout: Layout) -> Type:
    match t:
        case Tile():
            return Tile(t.shape, t.elem, layout)
        case InFlight(tile=inner):
            return InFlight(Tile(inner.shape, inner.elem, layout))
    return t


def with_layouts(
    region: Region, threads: int, facts: Facts, by_lines: bool, partial_sectors: bool = False
) -> tuple[Region, bool]:
    """A task's region with layouts, for so many threads a replica; whether scalar accesses would leave
    sectors partially filled."""
    t = TaskLayouts(region, threads >> LANE_BITS, facts, by_lines, partial_sectors)
    ops = [o for o in walk(region) if tiles(o) or (o.regions and _touches(o))]
    for o in ops:
        RULES[o.kind].relate(t, o)
    t.decide()
    for o in ops:  # cuts and reshapes may not be able to give what was hoped for
        if RULES[o.kind].searches and o.result not in t.cheap:
            (t.layout[o.result],) = RULES[o.kind].settle(t, o).results  # type: ignore[assignment]
    return _Writer(t).region(region, ()), t.found_partial_sectors


@dataclass
class _Writer:
    """Writes the ops with layouts, from the last to the first: every need is known at a definition."""

    layouts: TaskLayouts
    wanted: dict[Value, dict[Layout, Value]] = field(default_factory=dict)

    def need(self, v: Value, layout: Layout) -> Value:
        """The value in a layout; made where `v` is defined."""
        forms = self.wanted.setdefault(v, {})
        if layout not in forms:
            forms[layout] = Value(_with_layout(v.type, layout), v.hint)
        return forms[layout]

    def settled(self, v: Value, natural: Layout) -> tuple[Value, list[Op]]:
        """The value as defined (in its natural layout), and the conversions that stand after it."""
        made = self.need(v, natural)
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

    def region(self, region: Region, yields: tuple[Layout | None, ...]) -> Region:
        """The region with layouts, its yield's operands in the given ones."""
        backwards: list[Op] = []
        for o in reversed(region.ops):
            if o.kind is control.yield_:
                backwards.append(o.with_(operands=self.operands(o, yields)))
            elif o.results and o.results[0] in self.layouts.cheap:
                copies = [self.copy(o, x) for x in self.wanted.get(o.result, {})]
                backwards += reversed(copies)
            else:
                backwards += reversed(self.op(o))
        params: list[Value] = []
        conversions: list[Op] = []
        for v in region.params:
            if tile_of(v.type):
                v, more = self.settled(v, self.layouts.layout[v])
                conversions += more
            params.append(v)
        return Region(tuple(params), (*conversions, *reversed(backwards)))

    def operands(self, o: Op, layouts: tuple[Layout | None, ...]) -> tuple[Value, ...]:
        return tuple(
            v if x is None else self.need(v, x) for v, x in zip(o.operands, layouts, strict=True)
        )

    def copy(self, o: Op, layout: Layout) -> Op:
        """A cheap op in one of the layouts that are needed."""
        under = RULES[o.kind].under
        assert under is not None
        return self.written(o, under(o, layout), [self.need(o.result, layout)])

    def written(self, o: Op, how: Settled, results: list[Value], **changes: Any) -> Op:
        return o.with_(
            operands=self.operands(o, how.operands),
            attrs={**o.attrs, **how.attrs},
            results=tuple(results),
            **changes,
        )

    def op(self, o: Op) -> list[Op]:
        """The op with layouts, and the conversions of its results."""
        if not _touches(o):
            return [o]
        how = RULES[o.kind].settle(self.layouts, o)
        made: list[Value] = []
        conversions: list[Op] = []
        for v, natural in zip(o.results, how.results, strict=True):
            if natural is not None:
                v, more = self.settled(v, natural)
                conversions += more
            made.append(v)
        yields = how.yields or ((),) * len(o.regions)
        regions = tuple(self.region(r, y) for r, y in zip(o.regions, yields, strict=True))
        new = self.written(o, how, made, regions=regions)
        place = {"loc": o.loc, "tasks": o.tasks}
        return [new, *(c.with_(**place) for c in conversions)]


def _touches(o: Op) -> bool:
    """Does the op, or one inside it, deal with tiles?"""
    return bool(tiles(o)) or any(_touches(i) for r in o.regions for i in r.ops)
