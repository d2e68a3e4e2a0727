"""Dots with few rows, transposed so that their columns are the rows of the instruction.

wgmma multiplies 64 rows at a time by 8, 16 … 256 columns (PTX ISA, "Asynchronous warpgroup level matrix
shape"), so C = A·B of 16 rows and 128 columns is Cᵀ = Bᵀ·Aᵀ of 128 rows and 16 columns.  Which axis of an
operand is adjacent in memory matters to it as before: K stays K.

before:  %c = dot(%a, %b, %acc)                  16x64 · 64x128
after:   %t = dot(transpose(%b), transpose(%a), transpose(%acc))
         %c = transpose(%t)

Not where it multiplies from the left what threads hold of a dot that wgmma does in neither way, in a program
without loops, which has nothing else to do while it is exchanged: then all stay with that one.

A dot whose 16-bit result a dot in registers takes as its right operand (the state of linear attention) is
transposed, too: a thread's part of an accumulator has neighbours along its columns, that of a right operand
along its rows.

A loop that carries such a sum carries it transposed (`carry_transposed`): a dot that accumulates in the tile
of the one before it needs no wait for that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from warploom.analysis.facts import Facts, facts_of
from warploom.analysis.matrix_units import preferred, units_for
from warploom.analysis.structure import Structure, structure_of
from warploom.analysis.trip_counts import most_trips
from warploom.ir.analysis import backward_slice, sources, uses
from warploom.ir.core import Builder, Family, Func, Level, Op, Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.rewrite import rewrite, substitute
from warploom.ir.types import dtype_of, shape_of
from warploom.target import MatrixUnit, Target

SWAPS = ((1, 0), (0, 2, 1))  # of a matrix, and of a batch of them


def transpose_dots(func: Func, target: Target, warps: int | None) -> Func:
    """At TILE, the dots that can be done only so, or whose results are read so, are transposed.  warps: that
    share a dot (None: as many as the preferred unit takes)."""
    if func.level is not Level.TILE:
        return func
    found = [o for o in func.body.all_ops if o.kind is tile.dot]
    lies = _Readers(structure_of(func), target, warps) if len(found) > 1 else None
    last = {o: units_for(o, target)[-1] for o in found}
    few = [o for o in found if needs_transpose(o, preferred(o, target, warps), last[o])]
    if len(few) < len(found) and _multiply_fragments(func, few, target, warps):
        few = [o for o in few if not _is_whole(o, last[o])]
    chosen = {o.result for o in found if o in few or (lies and lies.transposed(o))}
    return rewrite(func, partial(_transpose, chosen)) if chosen else func


def _is_whole(dot: Op, last: MatrixUnit) -> bool:
    """Do threads multiply a dot's rows by whole instructions?"""
    return not last.is_async and tile.dot_sizes(dot)[1] % last.m == 0


def _multiply_fragments(func: Func, few: Sequence[Op], target: Target, warps: int | None) -> bool:
    """Is the left operand of one of the `few` made of another dot's result, which threads hold since an
    asynchronous unit does that one in neither way?  It would read it from shared memory, behind two barriers;
    from registers it is multiplied as it is, and so are then the others, whose results it may meet."""
    facts = facts_of(func)
    if any(o.kind in control.LOOPS and not _runs_once(facts, o) for o in func.body.all_ops):
        return False
    source = sources(func.body)
    made = {o.result: o for o in func.body.all_ops if o.kind is tile.dot}

    def held(v: Value) -> bool:
        o = made.get(v)
        if o is None or o in few:
            return False
        unit = preferred(o, target, warps)
        return unit.is_async and not unit.fills(*tile.dot_sizes(o)[1:3])

    return any(
        any(map(held, backward_slice(o.operands[:1], source, made.__contains__)))
        for o in few
        if _is_whole(o, units_for(o, target)[-1])
    )


def _runs_once(facts: Facts, loop: Op) -> bool:
    trips = most_trips(facts, loop) if loop.kind is control.for_ else None
    return trips is not None and trips <= 1


def needs_transpose(dot: Op, unit: MatrixUnit, last: MatrixUnit) -> bool:
    """Whether a unit does a dot only as its transpose; or, where it does neither, whether that takes fewer
    instructions of the last one, which fills some in part."""
    _, rows, columns, _ = tile.dot_sizes(dot)
    if rows % unit.m == 0:
        return False
    if unit.fills(columns, rows):
        return True
    return not last.is_async and last.instructions(columns, rows) < last.instructions(rows, columns)


def carry_transposed(func: Func) -> Func:
    """At TILE, loops carry transposes of the tiles that their bodies make and take so."""
    return rewrite(func, _carry) if func.level is Level.TILE else func


@dataclass
class _Readers:
    """How dots read a dot's result, through arithmetic and loops."""

    structure: Structure
    target: Target
    warps: int | None

    def transposed(self, dot: Op) -> bool:
        """Do they all read the transpose as it would lie, and is that a legal product?"""
        _, m, n, _ = tile.dot_sizes(dot)
        unit = preferred(dot, self.target, self.warps)
        legal = not unit.is_async and m % unit.n_step == n % unit.m == 0 and len(dot.operands) == 3
        return legal and self.read(dot, dot.result, False, set()) == {True}

    def read(self, dot: Op, v: Value, transposed: bool, seen: set[tuple[Value, bool]]) -> set[bool]:
        """Of each dot that v reaches, whether it would take the transpose of this one's result as it lies.
        transposed: is v a transpose of that result?"""
        found: set[bool] = set()
        if (v, transposed) in seen:
            return found
        seen.add((v, transposed))
        if (carried := self.structure.carried(v)) is not None:
            for other in carried.all:
                found |= self.read(dot, other, transposed, seen)
        for o in self.structure.users.get(v, ()):
            if o.kind is tile.dot:
                found |= self.taken(dot, o, v, transposed)
            elif o.kind is control.yield_:
                outer = self.structure.parent[o]
                if outer is not None and outer.kind in control.LEAD:
                    for c in control.carried(outer):
                        if v in c.all:
                            found |= self.read(dot, c.result, transposed, seen)
            elif o.kind is tile.transpose and o.attrs["perm"] in SWAPS:
                found |= self.read(dot, o.result, not transposed, seen)
            elif o.kind.family is Family.POINTWISE and shape_of(o.result.type) == shape_of(v.type):
                found |= self.read(dot, o.result, transposed, seen)
        return found

    def taken(self, dot: Op, o: Op, v: Value, transposed: bool) -> set[bool]:
        if v in o.operands[2:]:
            return set() if o is dot else {False}
        in_registers = (
            not preferred(o, self.target, self.warps).is_async and dtype_of(v.type).bits == 16
        )
        return {(i == 1) != transposed and in_registers for i in (0, 1) if o.operands[i] is v}


def _transpose(chosen: set[Value], o: Op, b: Builder) -> Sequence[Value] | None:
    if o.kind is not tile.dot or o.result not in chosen:
        return None
    perm = _swapped(o.result)
    x, y, acc = (tile.transpose(b, v, perm=perm, hint=v.hint) for v in o.operands[:3])
    scales = reversed(o.operands[3:])
    transposed = tile.dot(
        b, y, x, acc, *scales, hint=o.result.hint, **{**o.attrs, "transposed": True}
    )
    return (tile.transpose(b, transposed, perm=perm, hint=o.result.hint),)


def _carry(o: Op, b: Builder) -> Sequence[Value] | None:
    if o.kind is not control.for_:
        return None
    (body,) = o.regions
    made = {v: i for i in body.ops for v in i.results}
    used = uses(body)
    carried = list(enumerate(zip(body.params[1:], body.yielded, strict=True)))
    which = [
        i
        for i, (param, value) in carried
        if _is_transpose(made.get(value))
        and (param not in used or any(map(_is_transpose, used[param])))
    ]
    if not which:
        return None
    begin = Builder(loc=o.loc, tasks=o.tasks)
    params, init, results = list(body.params), list(o.operands), list(o.results)
    env: dict[Value, Value] = {}
    for i in which:
        perm = _swapped(results[i])
        init[3 + i] = tile.transpose(b, init[3 + i], perm=perm, hint=results[i].hint)
        params[1 + i] = Value(init[3 + i].type, params[1 + i].hint)
        param = params[1 + i]
        env[body.params[1 + i]] = tile.transpose(begin, param, perm=perm, hint=param.hint)
        results[i] = Value(init[3 + i].type, results[i].hint)
    inner = substitute(body, env)
    end = Builder(loc=o.loc, tasks=o.tasks)
    values = list(inner.yielded)
    for i in which:
        values[i] = tile.transpose(end, values[i], perm=_swapped(values[i]), hint=values[i].hint)
    ops = (*begin.ops, *inner.ops[:-1], *end.ops, inner.ops[-1].with_(operands=tuple(values)))
    b.append(
        o.with_(operands=tuple(init), results=tuple(results), regions=(Region(tuple(params), ops),))
    )
    for i in which:
        results[i] = tile.transpose(b, results[i], perm=_swapped(results[i]), hint=results[i].hint)
    return results


def _is_transpose(o: Op | None) -> bool:
    return o is not None and o.kind is tile.transpose and o.attrs["perm"] in SWAPS


def _swapped(v: Value) -> tuple[int, ...]:
    return SWAPS[len(shape_of(v.type)) - 2]
