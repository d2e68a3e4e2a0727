"""Splits the programs of the last wave where that does not fill the chip (Stream-K, of one wave).

Order: at TILE, after recover_boxes and before the schedule is chosen, like split_reduction.
Changes: 5 families: products of some waves and long K (`split_k="last_wave"`).

The grid of P programs becomes one of CTAs (`func.attrs["grid"]`); the sizes of the programs' grid, and memory
where parts meet, are parameters after those of the caller (`attrs["programs"]`, `attrs["workspaces"]`):

    whole = P - P mod multiprocessors;  parts = multiprocessors / (P - whole), at most MOST_PARTS
    CTA c < whole     the program c
    CTA c >= whole    program whole + (c - whole) / parts, of whose iterations part (c - whole) mod parts

before:  %sum = for(0, %steps, 1, %zeros) do (%i, %acc) { … dot(%a, %b, %acc) … }
         store_box(%c, %sum, …)
after:   %part = for(%start, %end, 1, %zeros) do (%i, %acc) { … dot(%a, %b, %acc) … }
         %drawn = if(%is_split) do { store_box(%parts, %part, …);  yield(atomic(%ticket, 1) {fn="add"}) }
                            else do { yield(0) }
         if(eq(%drawn, %last)) do {
             %sum = for(0, %others, 1, %first) do (%i, %total) { add(%total, load_box(%parts, …)) }
             store_box(%c, %sum, …)
             if(%is_split) do { store(%ticket, 0) }
         }

Nobody waits: who draws a tile's last ticket adds up its parts, in their order, so that a result is always the
same, and does all that follows the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from warploom.analysis.access import Accesses
from warploom.analysis.shared_loops import reduction_of
from warploom.analysis.structure import structure_of
from warploom.ir import build
from warploom.ir.core import Builder, Fact, Func, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import substitute
from warploom.ir.types import Pointer, Scalar, dtype_of, i32, i64, shape_of
from warploom.passes.tile.split_reduction import part_of_loop
from warploom.schedule.split_k import MOST_PARTS
from warploom.target import Target

ALIGNED = 16  # bytes that divide the address of a workspace


def split_last_wave(func: Func, target: Target) -> Func:
    """See the module's docstring.  That it is legal was found when it was chosen."""
    share, func = _on_its_grid(func, target.multiprocessors)
    structure = structure_of(func)
    found = reduction_of(Accesses(func, target))
    sums = [v for i in found.sums if structure.users.get(v := found.loop.results[i])]
    memory = [Value(Pointer(dtype_of(v.type)), f"parts_of_{v.hint or 'sum'}") for v in sums]
    tickets = Value(Pointer(i32), "tickets")
    at = func.body.ops.index(found.loop)
    b = Builder(loc=found.loop.loc)
    b.ops.extend(func.body.ops[:at])
    one, zero = build.const(b, 1), build.const(b, 0)
    first = arith.eq(b, share.part, zero, hint="first")
    env = part_of_loop(b, found, structure, share.part, share.parts, first)
    mine = [env[v] for v in sums]
    views = [_view(b, m, v, target.multiprocessors) for m, v in zip(memory, sums, strict=True)]
    ticket = arith.addptr(b, tickets, share.tile, hint="ticket")
    drawn = share.left(b, views, mine, ticket)

    def reset(b: Builder) -> None:
        tile.store(b, ticket, zero)

    def end(b: Builder) -> None:
        totals = dict(zip(sums, share.totals(b, views, mine), strict=True))
        b.ops.extend(substitute(Region((), func.body.ops[at + 1 : -1]), {**env, **totals}).ops)
        build.if_(b, share.is_split, reset)

    last = arith.sub(b, share.parts, one, hint="last")
    build.if_(b, arith.eq(b, drawn, last, hint="is_last"), end)
    control.yield_(b)
    slots = target.multiprocessors
    sizes = ((("const", slots * prod(shape_of(v.type))), False) for v in sums)
    facts = (*func.facts, *(Fact(ALIGNED) for _ in (*memory, tickets)))
    attrs = {**func.attrs, "facts": facts, "workspaces": (*sizes, (("const", slots), True))}
    return func.with_(body=Region((*func.params, *memory, tickets), tuple(b.ops)), attrs=attrs)


@dataclass(frozen=True)
class _Share:
    """What a CTA does.  program: whose iterations; part: which of its `parts`.  is_split: does the program
    have several CTAs?  Then `tile` is its number among those, and `slot` the CTA's: parts of a program have
    neighbouring ones."""

    program: Value
    part: Value
    parts: Value
    is_split: Value
    tile: Value
    slot: Value

    @staticmethod
    def of(b: Builder, programs: Value, multiprocessors: int) -> _Share:
        one, zero = build.const(b, 1), build.const(b, 0)
        full, most = build.const(b, multiprocessors), build.const(b, MOST_PARTS)
        tail = arith.rem(b, programs, full, hint="tail")
        whole = arith.mul(b, arith.idiv(b, programs, full), full, hint="whole")
        fit = arith.idiv(b, full, arith.maximum(b, tail, one))
        parts = arith.minimum(b, fit, most, hint="parts")
        cta = tile.program_id(b, axis=0, hint="cta")
        slot = arith.maximum(b, arith.sub(b, cta, whole), zero, hint="slot")
        number = arith.idiv(b, slot, parts, hint="tile")
        is_split = arith.ge(b, cta, whole, hint="is_split")
        return _Share(
            arith.add(b, arith.minimum(b, cta, whole), number, hint="program"),
            arith.rem(b, slot, parts, hint="part"),
            arith.select(b, is_split, parts, one, hint="parts"),
            is_split,
            number,
            slot,
        )

    def left(
        self, b: Builder, views: Sequence[Value], sums: Sequence[Value], ticket: Value
    ) -> Value:
        """Leaves the sums of a part in memory; gives the ticket that is drawn then, 0 of a whole program."""

        def leave(b: Builder) -> list[Value]:
            for view, v in zip(views, sums, strict=True):
                tile.store_box(b, view, v, *_place(b, self.slot, v))
            one = build.const(b, 1)
            return [tile.atomic(b, ticket, one, fn="add", sem="acq_rel", hint="drawn")]

        (drawn,) = build.if_(b, self.is_split, leave, lambda b: [build.const(b, 0)])
        return drawn

    def totals(
        self, b: Builder, views: Sequence[Value], sums: Sequence[Value]
    ) -> tuple[Value, ...]:
        """The sums of all parts, in their order; those of this CTA where it does the program alone."""
        zero, one = build.const(b, 0), build.const(b, 1)
        count = arith.select(b, self.is_split, self.parts, zero, hint="count")
        start = arith.mul(b, self.tile, self.parts, hint="start")

        def add(b: Builder, i: Value, totals: tuple[Value, ...]) -> list[Value]:
            slot, out = arith.add(b, start, i), []
            for view, total in zip(views, totals, strict=True):
                shape = shape_of(total.type)
                part = tile.load_box(b, view, *_place(b, slot, total), shape=shape)
                out.append(arith.add(b, total, part, hint=total.hint))
            return out

        init = []
        for v in sums:
            shape = shape_of(v.type)
            none = tile.splat(b, build.const(b, 0, dtype_of(v.type)), shape=shape)
            others = tile.splat(b, self.is_split, shape=shape)
            init.append(arith.select(b, others, none, v, hint=v.hint))
        return build.for_(b, (zero, count, one), init, add, iv="part")


def _place(b: Builder, slot: Value, v: Value) -> list[Value]:
    """Where the part of a sum in a slot begins."""
    return [slot, *(build.const(b, 0) for _ in shape_of(v.type))]


def _view(b: Builder, memory: Value, v: Value, slots: int) -> Value:
    """Slots for tiles like v."""
    shape = shape_of(v.type)
    sizes = [build.const(b, n, i64) for n in (slots, *shape)]
    strides = [build.const(b, prod(shape[i:]), i64) for i in range(len(shape) + 1)]
    return tile.make_view(b, memory, *sizes, *strides)


def _on_its_grid(func: Func, multiprocessors: int) -> tuple[_Share, Func]:
    """The kernel on the grid of CTAs, each of which does a whole program, for now."""
    sizes = [Value(Scalar(i32), f"programs_{axis}") for axis in "xyz"]
    x, y, z = sizes
    b = Builder(loc=func.loc)
    for v in sizes:
        control.assume(b, arith.ge(b, v, build.const(b, 1)))
    plane = arith.mul(b, x, y)
    share = _Share.of(b, arith.mul(b, plane, z, hint="programs"), multiprocessors)
    ids = (
        arith.rem(b, share.program, x, hint="program_x"),
        arith.rem(b, arith.idiv(b, share.program, x), y, hint="program_y"),
        arith.idiv(b, share.program, plane, hint="program_z"),
    )
    env = {
        o.result: (ids if o.kind is tile.program_id else sizes)[o.attrs["axis"]]
        for o in func.body.all_ops
        if o.kind in (tile.program_id, tile.num_programs)
    }
    b.ops.extend(substitute(func.body, env).ops)
    body = Region((*func.params, *sizes), tuple(b.ops))
    grid = (_ctas(len(func.params), multiprocessors),)
    attrs = {
        **func.attrs,
        "facts": (*func.facts, *(Fact() for _ in sizes)),
        "grid": grid,
        "programs": True,
    }
    return share, func.with_(body=body, attrs=attrs)


def _ctas(first: int, multiprocessors: int) -> Any:
    """The host's expression (codegen/host.py) of the CTAs, as `_Share.of` counts them.  first: the parameter
    that is the programs' number along axis 0."""

    def op(kind: str, x: Any, y: Any) -> Any:
        return (kind, "i64", *(("const", v) if isinstance(v, int) else v for v in (x, y)))

    x, y, z = (("arg", first + i) for i in range(3))
    programs = op("mul", op("mul", x, y), z)
    tail = op("rem", programs, multiprocessors)
    fit = op("idiv", multiprocessors, op("maximum", tail, 1))
    more = op("sub", op("minimum", fit, MOST_PARTS), 1)
    return op("add", programs, op("mul", tail, more))
