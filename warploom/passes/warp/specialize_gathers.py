"""Specializes gathers by what their index is known to be: slices of shared memory, exchanges of partners.

Order: after the program's loops are final, before assign_layouts.
Changes: 5 families: decays inside a chunk of linear attention, and their gradients (each step takes a row of
queries, keys and gates); sorts, whose steps exchange partners; tiles the other way around.

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

Each place with some of its bits flipped: the gather says so, and has one layout for operand and result.  Bits
that are a lane's or a register's take no shared memory and no barrier.

    before:  %other = xor(%places, %two)                 after:  %other = xor(%places, %two)
             %y = gather(%x, %other) {axis=0}                    %y = gather(%x, %other) {axis=0, flips=2}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from warploom.analysis.facts import Facts, facts_of
from warploom.ir import build
from warploom.ir.analysis import definitions, moved
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, control, smem, task, tile
from warploom.ir.rewrite import annotate, rewrite, with_regions
from warploom.ir.types import Scalar, Shared, Tile, i32, shape_of
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
    if c is None or not _are_places(facts, places, n) or (o.kind is arith.sub and c != n - 1):
        return 0
    return c if 0 < c < n and n % (1 << c.bit_length()) == 0 else 0


def _are_places(facts: Facts, v: Value, n: int) -> bool:
    """Is v 0, 1 … n - 1?"""
    known = facts.interval(v)
    return facts.axis(v, 0).slope == 1 and (known.low, known.high) == (0, n - 1)


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
        """The places of what a loop gathers from, and before the loop what stores it there."""
        inside = definitions(loop.regions[0])
        changed = {*inside, *(v for x in loop.all_ops for r in x.regions for v in r.params)}
        gathers = [o for o in loop.all_ops if o.kind is tile.gather]
        tiles = dict.fromkeys(
            o.operands[0] for o in gathers if o.operands[0] not in changed and self._index(o)
        )
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
            if o.kind is not tile.gather or o.operands[0] not in places:
                return None
            index = self._index(o)
            if index is None:
                return None
            axis, shape = o.attrs["axis"], shape_of(o.operands[0].type)
            one = tuple(1 if a == axis else n for a, n in enumerate(shape))
            at = index if index.type == Scalar(i32) else arith.cast(b, index, dtype=i32)
            starts = (at if a == axis else build.const(b, 0) for a in range(len(shape)))
            part = smem.shared_slice(b, places[o.operands[0]], *starts, shape=one)
            row = smem.shared_load(b, part, hint=o.result.hint)
            if row.type != o.result.type:
                row = tile.broadcast(b, row, shape=shape_of(o.result.type), hint=o.result.hint)
            return (row,)

        return rewrite(region, rule)

    def _index(self, o: Op) -> Value | None:
        """The number that a gather goes by, where it is one and lies inside of the axis."""
        v = o.operands[1]
        while (made := self.facts.maker(v)) is not None and (x := moved(made)) is not None:
            v = x
        if isinstance(v.type, Tile):
            return None
        known = self.facts.interval(v)
        n = shape_of(o.operands[0].type)[o.attrs["axis"]]
        return v if known.low >= 0 and known.high < n else None
