"""Software-pipelines loads of boxes whose rows begin anywhere inside aligned units of 16 bytes.

Order: last, since layouts say which boxes these are and tasks say how many registers there are.  PLACED →
PLACED.
Changes: products whose rows begin anywhere, 7 families: by pointers or boxes, batched, by mma.sync.

A thread reads the two units around each of its 16 bytes and shifts (`load_unaligned`).  In a loop the L2 is
asked for what the next iteration reads.  A producer with enough registers reads the units themselves an
iteration early, as if its ring had a slot more, where nothing in its loop orders memory.

    before:  for(%lo, %hi, %one) do (%k) {
               %a = load_box(%v, %m, %k) {shape=(64, 1)}
    after:   %none = no_units() {shape=(64, 1), dtype=bf16}
             for(%lo, %hi, %one, %none) do (%k, %units) {
               prefetch_box(%v, %true, %m, %k) {shape=(64, 1), axis=1, by=2}
               %a, %next = load_unaligned_ahead(%v, %units, %m, %k) {axis=1, by=1}

It refuses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warploom.analysis.box_access import BoxAccess
from warploom.analysis.facts import Facts, facts_of
from warploom.ir import build, engines
from warploom.ir.analysis import defined, definitions
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, mma, smem, tile, unaligned
from warploom.ir.rewrite import rewrite_regions
from warploom.ir.types import Tile, Units, dtype_of, i1
from warploom.target import Target

IN_FLIGHT = 8  # pairs of units on their way at a time, which take 8 registers each
REGISTERS_AHEAD = 152  # with which as many stay on their way from one iteration to the next

_KEEPS_ORDER = engines.BRINGS | {tile.load_box}  # what a producer's loop does beside arithmetic


def has_unaligned_loads(func: Func) -> bool:
    """Is there anything for the pass to do?"""
    rewriter = _Rewriter(facts_of(func), definitions(func.body))
    return any(rewriter.is_unaligned(o) for o in walk(func.body))


def pipeline_unaligned_loads(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    rewriter = _Rewriter(facts_of(func), definitions(func.body))
    at_entry = target.entry_registers(func.attrs["threads"])
    return rewrite_regions(func, lambda r, n: rewriter.task(r, n or at_entry), "registers")


@dataclass
class _Loop:
    """A counted loop that is being rewritten, and the units that it comes to carry: (before the loop, in an
    iteration, after it)."""

    op: Op
    inside: frozenset[Value] = frozenset()  # what is defined in it
    carried: list[tuple[Value, Value, Value]] = field(default_factory=list)
    branches: int = 0  # around what is being rewritten, in the loop

    @property
    def body(self) -> Region:
        return self.op.regions[0]

    @property
    def takes_parts(self) -> bool:
        """Does each iteration take another part of the same slot?"""
        index = self.body.params[0]
        return any(o.kind is smem.shared_slice and index in o.operands for o in self.body.ops)


@dataclass
class _Rewriter:
    """loops: the counted loops around, those that go through a slot's parts left out.  is_ahead: has the task
    the registers for units of the next iteration?"""

    facts: Facts
    made: dict[Value, Op]
    loops: list[_Loop] = field(default_factory=list)
    is_ahead: bool = False

    def box(self, o: Op) -> BoxAccess | None:
        """What a load_box reads, where its view is known."""
        view = self.made.get(o.operands[0])
        if view is None or view.kind is not tile.make_view:
            return None
        dtype = o.operands[0].type.dtype  # type: ignore[attr-defined]
        return BoxAccess(self.facts, view, o.operands[1:], dtype, o.result.typed(Tile).shape)

    def is_unaligned(self, o: Op) -> bool:
        if o.kind is not tile.load_box:
            return False
        box = self.box(o)
        return box is not None and box.is_unaligned(o.result.type.layout)  # type: ignore[attr-defined]

    def task(self, region: Region, registers: int) -> Region:
        multiplies = any(o.kind in mma.PRODUCTS for o in walk(region))
        self.is_ahead = registers >= REGISTERS_AHEAD and not multiplies
        return self.region(region)

    def region(self, region: Region) -> Region:
        b = Builder()
        for o in region.ops:
            if self.is_unaligned(o):
                self.load(b, o, region)
            elif o.kind is control.for_:
                self.loop(b, o)
            else:
                b.append(self.nested(o) if o.regions else o)
        return Region(region.params, tuple(b.ops))

    def nested(self, o: Op) -> Op:
        """An op with its regions rewritten, which their loop may not execute in each iteration."""
        around = self.loops[-1:] if o.kind in (control.if_, control.while_) else []
        for loop in around:
            loop.branches += 1
        out = o.with_(regions=tuple(map(self.region, o.regions)))
        for loop in around:
            loop.branches -= 1
        return out

    def loop(self, b: Builder, o: Op) -> None:
        loop = _Loop(o)
        if loop.takes_parts:
            b.append(self.nested(o))
            return
        loop.inside = frozenset(defined(loop.body))
        self.loops.append(loop)
        body = self.region(loop.body)
        self.loops.pop()
        if not loop.carried:
            b.append(o.with_(regions=(body,)))
            return
        before, params, after = (tuple(vs) for vs in zip(*loop.carried, strict=True))
        for v in before:
            t = v.type.tile
            attrs = {"shape": t.shape, "dtype": t.elem, "layout": t.layout}
            b.append(Op(unaligned.no_units, (), attrs, (v,), loc=o.loc, tasks=o.tasks))
        *ops, end = body.ops
        end = end.with_(operands=(*end.operands, *after))
        body = Region((*body.params, *params), (*ops, end))
        results = (*o.results, *(Value(v.type, v.hint) for v in params))
        b.append(o.with_(operands=(*o.operands, *before), results=results, regions=(body,)))

    def load(self, b: Builder, o: Op, region: Region) -> None:
        """An unaligned load_box, by ops of its own."""
        box, t = self.box(o), o.result.typed(Tile)
        assert box is not None
        layout, item = t.layout, box.elem.bytes
        view, *offsets = o.operands
        loop = self.loops[-1] if self.loops else None
        moving = self.moving(box, loop) if loop is not None else None
        overhangs = any(c.max() >= n for c, n in zip(layout.table, t.shape, strict=True))
        attrs: dict[str, object] = {"shape": t.shape, "in_flight": IN_FLIGHT, "layout": layout}
        plain = o.with_(kind=unaligned.load_unaligned, attrs=attrs)
        if loop is None or moving is None or overhangs:
            b.append(plain)
            return
        axis, by = moving
        if box.endless(axis) and loop.branches:  # nobody knows what a later iteration reads
            b.append(plain)
            return
        pieces = layout.registers * item // unaligned.UNIT_BYTES
        ahead = pieces <= IN_FLIGHT and self.may_be_ahead(box, loop, region, axis, by)
        n = 2 if ahead else 1
        with b.at(o):
            on = self.goes_on(b, loop, n) if box.endless(axis) else build.const(b, True, i1)
            unaligned.prefetch_box(
                b, view, on, *offsets, shape=t.shape, axis=axis, by=n * by, layout=layout
            )
        if not ahead:
            b.append(plain)
            return
        before, param, after = (Value(Units(t), "units") for _ in range(3))
        loop.carried.append((before, param, after))
        b.append(
            o.with_(
                kind=unaligned.load_unaligned_ahead,
                operands=(view, param, *offsets),
                attrs={"axis": axis, "by": by},
                results=(o.result, after),
            )
        )

    def may_be_ahead(self, box: BoxAccess, loop: _Loop, region: Region, axis: int, by: int) -> bool:
        """May the next box's units be read in this iteration?  By a task with registers for them, in whose
        loop nothing orders memory, of an array whose end is known, where both boxes begin alike in their
        units."""
        if not self.is_ahead or region is not loop.body or box.endless(axis):
            return False
        if any(o.kind.effect and o.kind not in _KEEPS_ORDER for o in walk(loop.body)):
            return False
        stride = 1 if axis == box.inner else box.divisible(1 + axis)
        return by * stride * box.elem.bytes % unaligned.UNIT_BYTES == 0

    def goes_on(self, b: Builder, loop: _Loop, n: int) -> Value:
        """Is there an iteration n after this one?  By a difference: the index plus n steps may wrap."""
        _, hi, step, *_ = loop.op.operands
        index = loop.body.params[0]
        steps = build.const(b, n * (self.facts.constant(step) or 0), dtype_of(index.type))
        left = arith.sub(b, hi, index, hint="left")
        return arith.gt(b, left, steps, hint="goes_on")

    # ---- how a box moves

    def moving(self, box: BoxAccess, loop: _Loop) -> tuple[int, int] | None:
        """(axis, elements) by which each iteration moves the box on, where it is along one axis."""
        if any(self.step(v, loop) != 0 for v in box.view.operands):
            return None
        steps = [self.step(v, loop) for v in box.offsets]
        found = [(axis, by) for axis, by in enumerate(steps) if by is not None and by > 0]
        return found[0] if len(found) == 1 and steps.count(0) == len(steps) - 1 else None

    def step(self, v: Value, loop: _Loop) -> int | None:
        """What each iteration of a loop adds to v; None where that isn't known."""
        if v is loop.body.params[0]:
            return self.facts.constant(loop.op.operands[2])
        if v not in loop.inside:
            return 0
        o = self.made.get(v)
        if o is None:  # an index of a loop inside goes through the same numbers each time
            return 0 if self.is_index_inside(v, loop) else None
        if o.kind.effect or o.regions:
            return None
        steps = [self.step(x, loop) for x in o.operands]
        if o.kind is arith.add:
            return None if None in steps else sum(filter(None, steps))
        if o.kind is arith.mul and 0 in steps:
            fixed = steps.index(0)
            factor, step = self.facts.constant(o.operands[fixed]), steps[fixed ^ 1]
            return 0 if step == 0 else None if factor is None or step is None else factor * step
        return 0 if not any(steps) and None not in steps else None

    def is_index_inside(self, v: Value, loop: _Loop) -> bool:
        """Is v the index of a loop inside that runs between the same bounds each time?"""
        inner = (o for o in walk(loop.body) if o.kind is control.for_)
        found = next((o for o in inner if o.regions[0].params[0] is v), None)
        return found is not None and all(self.step(x, loop) == 0 for x in found.operands[:3])
