"""Specializes gathers by what their index is known to be: slices of shared memory, exchanges of partners.

Order: after the program's loops are final, before assign_layouts.
Changes: 6 families: decays inside a chunk of linear attention, and their gradients (each step takes a row of
queries, keys and gates); triangular solves (each step takes a row by a sum); sorts, whose steps exchange
partners; tiles the other way around.

A gather goes through memory: all threads store the tile, meet, and load what they want, meet again.

One row or column of a tile, in a loop that doesn't change the tile: it is stored before the loop, once for
all gathers of it; an index that is one number for the program names a part of it.

    before:  for %j in 0 … 16: %row = gather(%x, %index) {axis=0} : tile<1x64xf32>      %index is full of %j
    after:   shared_store(%place, %x)
             group_sync() {scope="replica"}
             for %j in 0 … 16: %part = shared_slice(%place, %j, 0) {shape=(1, 64)}
                               %row = shared_load(%part) : tile<1x64xf32>

Only indices that are known to lie inside: a gather takes nothing else.  Only where what all tiles take leaves
room for as many CTAs as eight warps each.  Scripts place their tiles themselves.

A reduction of what a mask leaves at one place of the axis is such a gather, combined with what stands
elsewhere (-0.0 + 0.0 is 0.0): no lanes exchange what all but one of them don't have.

    before:  %row = reduce(%one_row) {axis=0, fn="add"} : tile<64xf32>      %one_row: of %x row %j, else %zero
    after:   %part = shared_slice(%place, %j, 0) {shape=(1, 64)}
             %row = add(reshape(shared_load(%part)), splat(%zero)) : tile<64xf32>

Each place with some of its bits flipped: the gather says so, and has one layout for operand and result.  Bits
that are a lane's or a register's take no shared memory and no barrier.

    before:  %other = xor(%places, %two)                 after:  %other = xor(%places, %two)
             %y = gather(%x, %other) {axis=0}                    %y = gather(%x, %other) {axis=0, flips=2}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from warploom.analysis.facts import Facts, facts_of
from warploom.ir import build
from warploom.ir.analysis import definitions, moved
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, control, smem, task, tile
from warploom.ir.rewrite import annotate, rewrite, with_regions
from warploom.ir.types import Scalar, Shared, Tile, dtype_of, i32, shape_of
from warploom.schedule.model import Schedule
from warploom.target import Target

_WARPS = 8  # of a CTA beside whose like there is to be room


def specialize_gathers(func: Func, schedule: Schedule | None, target: Target) -> Func:
    """See the module's docstring."""
    if schedule is not None and len(task.phases(func)) == 1:
        func = _sliced(func, target)
    facts = facts_of(func)

    def flipped(o: Op) -> dict[str, object]:
        is_one = o.kind is tile.gather and shape_of(o.result.type) == shape_of(o.operands[0].type)
        flips = _flips(facts, o.operands[1], o.attrs["axis"]) if is_one else 0
        return {"flips": flips} if flips else {}

    return annotate(func, flipped)


def takes_slices(func: Func) -> bool:
    """Are there gathers, or reductions of masked tiles that may be some?"""
    kinds = func.body.by_kind
    return tile.gather in kinds or (tile.reduce in kinds and arith.select in kinds)


# ---- partners


def _flips(facts: Facts, index: Value, axis: int) -> int:
    """The bits of a place along the axis that the index has flipped; 0 where it is no such."""
    o = facts.maker(index)
    if o is None:
        return 0
    if o.kind is tile.broadcast and shape_of(o.operands[0].type)[axis] > 1:
        return _flips(facts, o.operands[0], axis)
    if o.kind is tile.expand_dims and o.attrs["axis"] != axis:
        return _flips(facts, o.operands[0], axis - (o.attrs["axis"] < axis))
    if o.kind not in (arith.xor, arith.sub) or len(shape_of(index.type)) != 1:
        return 0
    (n,) = shape_of(index.type)
    left, right = o.operands
    c, places = facts.constant(left), right
    if c is None and o.kind is arith.xor:
        c, places = facts.constant(right), left
    if c is None or not _are_places(facts, places, 0, n) or (o.kind is arith.sub and c != n - 1):
        return 0
    return c if 0 < c < n and n % (1 << c.bit_length()) == 0 else 0


def _are_places(facts: Facts, v: Value, axis: int, n: int) -> bool:
    """Is v 0, 1 … n - 1 along an axis of n?"""
    known = facts.interval(v)
    return facts.axis(v, axis).slope == 1 and (known.low, known.high) == (0, n - 1)


# ---- slices


def _sliced(func: Func, target: Target) -> Func:
    (phase,) = task.phases(func)
    if phase.attrs["replicas"] != (1,) or len(phase.regions) != 1:
        return func
    names = {str(o.attrs["name"]) for o in func.body.ops if "name" in o.attrs}
    slicer = _Slicer(facts_of(func), names)
    most = target.shared.per_sm * _WARPS * target.warp_size // target.grid.threads_per_sm
    sliced = with_regions(phase, slicer.region)
    if not slicer.top.ops or _bytes((*func.body.ops, *slicer.top.ops)) > most:
        return func
    at = func.body.ops.index(phase)
    ops = (*func.body.ops[:at], *slicer.top.ops, sliced, *func.body.ops[at + 1 :])
    return func.with_(body=Region(func.body.params, ops))


def _bytes(ops: Sequence[Op]) -> int:
    """That allocations among ops take."""
    places = [o.result.typed(Shared) for o in ops if o.kind is smem.shared_alloc]
    return sum(math.prod(t.lead) * t.slot_bytes for t in places)


@dataclass(eq=False)
class _Slicer:
    """Writes a task's region.  top: what declares the places, by tile."""

    facts: Facts
    names: set[str]
    top: Builder = field(default_factory=Builder)

    @cached_property
    def wrapping(self) -> Facts:
        return self.facts.wrapping()

    def region(self, region: Region, depth: int = 0) -> Region:
        b = Builder()
        for o in region.ops:
            if o.kind is control.for_:
                places = self._stored(o, b, depth)
                o = with_regions(o, lambda r, p=places: self._sliced(r, p))  # type: ignore[misc]
            inner = depth + (o.kind in control.LOOPS)
            b.append(with_regions(o, lambda r, n=inner: self.region(r, n)))  # type: ignore[misc]
        return Region(region.params, tuple(b.ops))

    def _stored(self, loop: Op, b: Builder, depth: int) -> dict[Value, Value]:
        """The places of what a loop takes slices of, and before the loop what stores it there."""
        inside = definitions(loop.regions[0])
        changed = {*inside, *(v for x in loop.all_ops for r in x.regions for v in r.params)}
        slices = filter(None, map(self._slice, loop.all_ops))
        tiles = dict.fromkeys(x.tile for x in slices if x.tile not in changed)
        if not tiles:
            return {}
        with b.at(loop):
            if depth:
                smem.group_sync(b, scope="replica")  # an iteration before may still read there
            places = {x: self._place(x) for x in tiles}
            for x, place in places.items():
                smem.shared_store(b, place, x)
            smem.group_sync(b, scope="replica")
        return places

    def _place(self, x: Value) -> Value:
        name = build.unique(x.hint or "gathered", self.names)
        return build.slots(self.top, x.typed(Tile), (), name, f"{x.hint}_smem")

    def _sliced(self, region: Region, places: dict[Value, Value]) -> Region:
        def rule(o: Op, b: Builder) -> Sequence[Value] | None:
            x = self._slice(o)
            if x is None or x.tile not in places:
                return None
            shape = shape_of(x.tile.type)
            one = tuple(1 if a == x.axis else n for a, n in enumerate(shape))
            at = x.index if x.index.type == Scalar(i32) else arith.cast(b, x.index, dtype=i32)
            starts = (at if a == x.axis else build.const(b, 0) for a in range(len(shape)))
            part = smem.shared_slice(b, places[x.tile], *starts, shape=one)
            row = smem.shared_load(b, part, hint=o.result.hint)
            to = shape_of(o.result.type)
            if x.beside is not None:
                row = tile.reshape(b, row, shape=to)
                rest = tile.splat(b, x.beside, shape=to)
                row = tile.COMBINES[o.attrs["fn"]](b, row, rest, hint=o.result.hint)
            elif row.type != o.result.type:
                row = tile.broadcast(b, row, shape=to, hint=o.result.hint)
            return (row,)

        return rewrite(region, rule)

    def _slice(self, o: Op) -> _Slice | None:
        """The one place of an axis of a tile that o takes, inside of it; None where it takes others."""
        if o.kind is tile.gather:
            x, index = o.operands
            return self._inside(x, o.attrs["axis"], _number(self.facts, index))
        if o.kind is not tile.reduce or (masked := self.facts.maker(o.operands[0])) is None:
            return None
        axis, fn = o.attrs["axis"], o.attrs["fn"]
        if masked.kind is not arith.select or not isinstance(o.result.type, Tile):
            return None
        mask, x, rest = masked.operands
        beside = _number(self.facts, rest)
        made = self.facts.maker(beside) if beside is not None else None
        if made is None or made.kind is not arith.const or dtype_of(x.type).bits < 8:
            return None
        if made.attrs["value"] != tile.neutral(fn, dtype_of(x.type)):
            return None
        return self._inside(x, axis, _place(self.facts, mask, axis), beside)

    def _inside(
        self, x: Value, axis: int, index: Value | None, beside: Value | None = None
    ) -> _Slice | None:
        """The slice, where the index is one and lies inside of the axis."""
        if index is None:
            return None
        # A mask holds nowhere where a wrapped number is no place; a gather by such a number is an error.
        facts = self.facts if beside is None else self.wrapping
        known = facts.interval(index)
        inside = known.low >= 0 and known.high < shape_of(x.type)[axis]
        return _Slice(x, axis, index, beside) if inside else None


@dataclass(frozen=True)
class _Slice:
    """Of a tile what is at the index along the axis.  beside: what else a reduction has combined it with."""

    tile: Value
    axis: int
    index: Value
    beside: Value | None


def _number(facts: Facts, v: Value) -> Value | None:
    """The number that all elements of v are; None where they aren't one."""
    while (made := facts.maker(v)) is not None and (x := moved(made)) is not None:
        v = x
    return None if isinstance(v.type, Tile) else v


def _place(facts: Facts, mask: Value, axis: int) -> Value | None:
    """The number of the place along the axis where alone the mask holds; None where it is no such mask."""
    made = facts.maker(mask)
    if made is None:
        return None
    if made.kind is tile.broadcast and shape_of(made.operands[0].type)[axis] > 1:
        return _place(facts, made.operands[0], axis)
    if made.kind is tile.expand_dims and made.attrs["axis"] != axis:
        return _place(facts, made.operands[0], axis - (made.attrs["axis"] < axis))
    if made.kind is not arith.eq or not dtype_of(made.operands[0].type).is_int:
        return None
    n = shape_of(mask.type)[axis]
    for places, others in (made.operands, made.operands[::-1]):
        number = _number(facts, others)
        if number is not None and _are_places(facts, places, axis, n):
            return number
    return None
