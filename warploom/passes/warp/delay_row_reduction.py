"""Delays the reduction across lanes of row sums that a loop only accumulates until after the loop.

Order: before expand_pipeline.  Which sums is the schedule's decision (`Schedule.delayed_reductions`, ids
of reduces).
Changes: attention, serving and decoding attention, cross entropy in a product, products with row sums.

A row of a wgmma result lies in four lanes, two adjacent columns of each eight in one lane (PTX ISA, wgmma,
"Register fragments").  Reducing across lanes costs two shuffles a row; a sum that is only carried on, scaled
by row and added to can be kept in eight columns, which need none, until the loop is over:

before (in a loop):                        after:
  %r = reduce(%p) {axis=1, fn="add"}         %a = mul(%l, broadcast(expand_dims(%alpha))) : tile<64x8xf32>
  %a = mul(%l, %alpha)                       %p0 = slice_tile(%p) {offset=(0, 0), shape=(64, 8)}
  %n = add(%a, %r)                           %a0 = add(%a, %p0)
  yield(%n)                                  %p1 = slice_tile(%p) {offset=(0, 8), shape=(64, 8)}
                                             %a1 = add(%a0, %p1);  …;  %n = add(…)
                                             yield(%n);  after the loop: reduce(%sum) {axis=1, fn="add"}

One after the other, so that sums keep pace with what they add up: of a tree the assembler computes the leaves
first, and nothing stays after the wait that is to stand amid them (mma_wait).
"""

from __future__ import annotations

from collections.abc import Mapping

from warploom.analysis.carried_sums import SUM_COLUMNS, chain
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import definitions, uses
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import dtype_of, shape_of
from warploom.schedule.model import Schedule


def delay_row_reduction(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    wanted = frozenset(schedule.delayed_reductions)
    made = definitions(func.body)

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if o.kind is control.for_ and any(x.id in wanted for x in o.regions[0].ops):
            return _Loop(o, wanted, made).write(b)
        return None

    return rewrite(func, rule)


class _Loop:
    def __init__(self, o: Op, wanted: frozenset[str], made: Mapping[Value, Op]) -> None:
        self.loop = o
        (self.body,) = o.regions
        self.made = made
        users = uses(self.body)
        self.chains: dict[Value, tuple[Op, ...]] = {}  # carried value -> what it goes through
        for i, p in enumerate(self.body.params[1:]):
            found = chain(p, self.body.yielded[i], users, definitions(self.body))
            if found and any(x.id in wanted for x in found):
                self.chains[p] = found

    def write(self, b: Builder) -> tuple[Value, ...]:
        """Appends the loop and the sums of its columns; gives its results."""
        o, params = self.loop, list(self.body.params)
        wide: dict[Value, Value] = {}  # values of the chains -> their columns
        operands, results = list(o.operands), list(o.results)
        for i, p in enumerate(self.body.params[1:]):
            if p in self.chains:
                operands[3 + i] = self.start(b, o.operands[3 + i])
                wide[p] = params[1 + i] = Value(operands[3 + i].type, p.hint)
                results[i] = Value(operands[3 + i].type, p.hint)
        inner = b.nested()
        changed = {x for c in self.chains.values() for x in c}
        self.sums = {x.result: x.operands[0] for x in changed if x.kind is tile.reduce}
        for x in self.body.ops[:-1]:
            with inner.at(x):
                if x in changed:
                    self.op(inner, x, wide)
                else:
                    inner.append(x)
        control.yield_(inner, *(wide.get(v, v) for v in self.body.yielded))
        body = inner.region(params)
        b.append(o.with_(operands=tuple(operands), results=tuple(results), regions=(body,)))
        return tuple(
            old if new is old else tile.reduce(b, new, axis=1, fn="add", hint=old.hint)
            for new, old in zip(results, o.results, strict=True)
        )

    def start(self, b: Builder, v: Value) -> Value:
        """The columns of an initial sum: it is the first, the others are zero."""
        shape = (*shape_of(v.type), SUM_COLUMNS)
        zero = build.const(b, 0.0, dtype_of(v.type))
        zeros: Value = tile.splat(b, zero, shape=shape, hint=v.hint)
        if build.is_zero(v, self.made.get):
            return zeros
        first = arith.eq(
            b,
            tile.arange(b, start=0, end=SUM_COLUMNS),
            tile.splat(b, build.const(b, 0), shape=(SUM_COLUMNS,)),
        )
        first = tile.broadcast(b, tile.expand_dims(b, first, axis=0), shape=shape)
        return arith.select(b, first, _columns(b, v), zeros, hint=v.hint)

    def op(self, b: Builder, o: Op, wide: dict[Value, Value]) -> None:
        """An op of a chain, on columns."""
        if o.kind is tile.reduce:
            return  # the addition takes it apart
        if o.kind is arith.add and any(v in self.sums for v in o.operands):
            (total,) = (wide[v] for v in o.operands if v not in self.sums)
            (x,) = (self.sums[v] for v in o.operands if v in self.sums)
            rows, n = shape_of(x.type)
            for at in range(0, n, SUM_COLUMNS):
                shape = (rows, SUM_COLUMNS)
                part = tile.slice_tile(b, x, offset=(0, at), shape=shape, hint=x.hint)
                total = arith.add(b, total, part, hint=o.result.hint)
            wide[o.result] = total
            return
        operands = [wide.get(v) or _columns(b, v) for v in o.operands]
        result = o.kind(b, *operands, hint=o.result.hint, **o.attrs)
        if not isinstance(result, Value):
            raise InternalError(f"{o.kind.name} in a chain of sums")
        wide[o.result] = result


def _columns(b: Builder, v: Value) -> Value:
    """A value of each row, in all columns."""
    shape = (*shape_of(v.type), SUM_COLUMNS)
    return tile.broadcast(b, tile.expand_dims(b, v, axis=1), shape=shape)
