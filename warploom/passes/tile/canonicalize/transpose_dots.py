"""Dots with few rows, transposed so that their columns are the rows of the instruction.

wgmma multiplies 64 rows at a time by 8, 16 … 256 columns (PTX ISA, "Asynchronous warpgroup level matrix
shape"), so C = A·B of 16 rows and 128 columns is Cᵀ = Bᵀ·Aᵀ of 128 rows and 16 columns.  Which axis of an
operand is adjacent in memory matters to it as before: K stays K.

before:  %c = dot(%a, %b, %acc)                  16x64 · 64x128
after:   %t = dot(transpose(%b), transpose(%a), transpose(%acc))
         %c = transpose(%t)

A loop that carries such a sum carries it transposed (`carry_transposed`): a dot that accumulates in the tile
of the one before it needs no wait for that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from warploom.analysis.matrix_units import preferred
from warploom.ir.analysis import uses
from warploom.ir.core import Builder, Func, Level, Op, Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.rewrite import rewrite, substitute
from warploom.ir.types import shape_of
from warploom.target import Target

TURNS = ((1, 0), (0, 2, 1))  # of a matrix, and of a batch of them


def transpose_dots(func: Func, target: Target) -> Func:
    """At TILE, the dots that can be done only so are transposed."""
    return rewrite(func, partial(_transpose, target)) if func.level is Level.TILE else func


def needs_transpose(dot: Op, target: Target) -> bool:
    """Whether a dot can be done only as its transpose."""
    (_, rows, columns, _), unit = tile.dot_sizes(dot), preferred(dot, target)
    return rows % unit.m != 0 and unit.takes_columns(rows) and columns % unit.m == 0


def carry_transposed(func: Func) -> Func:
    """At TILE, loops carry transposes of the tiles of which their bodies use nothing else."""
    return rewrite(func, _carry) if func.level is Level.TILE else func


def _transpose(target: Target, o: Op, b: Builder) -> Sequence[Value] | None:
    if o.kind is not tile.dot or not needs_transpose(o, target):
        return None
    turn = _turn(o.result)
    x, y, acc = (tile.transpose(b, v, perm=turn, hint=v.hint) for v in o.operands[:3])
    scales = reversed(o.operands[3:])
    transposed = tile.dot(b, y, x, acc, *scales, hint=o.result.hint, **{**o.attrs, "turned": True})
    return (tile.transpose(b, transposed, perm=turn, hint=o.result.hint),)


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
        if _is_transpose(made.get(value)) and all(map(_is_transpose, used.get(param, ())))
    ]
    if not which:
        return None
    begin = Builder(loc=o.loc, tasks=o.tasks)
    params, init, results = list(body.params), list(o.operands), list(o.results)
    env: dict[Value, Value] = {}
    for i in which:
        turn = _turn(results[i])
        init[3 + i] = tile.transpose(b, init[3 + i], perm=turn, hint=results[i].hint)
        params[1 + i] = Value(init[3 + i].type, params[1 + i].hint)
        param = params[1 + i]
        env[body.params[1 + i]] = tile.transpose(begin, param, perm=turn, hint=param.hint)
        results[i] = Value(init[3 + i].type, results[i].hint)
    inner = substitute(body, env)
    end = Builder(loc=o.loc, tasks=o.tasks)
    values = list(inner.yielded)
    for i in which:
        values[i] = tile.transpose(end, values[i], perm=_turn(values[i]), hint=values[i].hint)
    ops = (*begin.ops, *inner.ops[:-1], *end.ops, inner.ops[-1].with_(operands=tuple(values)))
    b.append(
        o.with_(operands=tuple(init), results=tuple(results), regions=(Region(tuple(params), ops),))
    )
    for i in which:
        results[i] = tile.transpose(b, results[i], perm=_turn(results[i]), hint=results[i].hint)
    return results


def _is_transpose(o: Op | None) -> bool:
    return o is not None and o.kind is tile.transpose and o.attrs["perm"] in TURNS


def _turn(v: Value) -> tuple[int, ...]:
    return TURNS[len(shape_of(v.type)) - 2]
