"""Tiles of floats that loops carry and whose elements are equal along an axis: one of them is carried.

A Welford sum over the blocks of a row counts what it has seen, in a tile like the others; where no block is
cut off all elements count alike.  Then a thread counts once, and divides by one number.

before:  for … carrying %count from splat(0.0)      after:  for … carrying %n from splat(0.0)
           %more = add(%count, splat(1.0))                    %m = add(%n, splat(1.0))
           %mean = div(%x, %more)                             %mean = div(%x, broadcast(%m))
           yield(%more)                                       yield(%m)
         %all = reduce_by(…, %count)                        %all = reduce_by(…, broadcast(%n))

Tiles of integers stay, as places follow from them, and their analysis follows numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warploom.analysis.contiguity import decided
from warploom.analysis.facts import Facts, facts_of
from warploom.ir.analysis import definitions
from warploom.ir.build import const
from warploom.ir.core import Builder, Func, Level, Op, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import rewrite, substitute, substitute_operands, with_regions
from warploom.ir.types import DType, dtype_of, elem_of, shape_of


def carry_one_of_equal(func: Func) -> Func:
    """At TILE, `for` loops carry tiles of one element along axes where all are equal."""
    if func.level is not Level.TILE:
        return func
    made = definitions(func.body)
    order = {v: n for n, v in enumerate(made)}

    def rule(o: Op, b: Builder) -> Sequence[Value] | None:
        made.update(dict.fromkeys(o.results, o))  # it may read what another loop passes on now
        if o.kind is not control.for_:
            return None
        for axis in range(max((len(shape_of(v.type)) for v in o.results), default=0)):
            narrower = _Narrower(o, axis, made, order, facts_of(func))
            if narrower.carried:
                return narrower.loop(b)
        return None

    return rewrite(func, rule)


@dataclass(eq=False)
class _Narrower:
    """One loop's tiles along one axis.  carried: numbers of those whose elements are equal; narrow: tiles of
    one element along the axis for wide ones."""

    old: Op
    axis: int
    made: dict[Value, Op]
    order: dict[Value, int]  # in which values are made
    facts: Facts
    carried: dict[int, control.Carried] = field(init=False)
    narrow: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = {i: c for i, c in enumerate(control.carried(self.old)) if self._may(c.result)}
        self.carried = {}
        while found != self.carried:
            self.carried = found
            equal = self._equal([v for c in found.values() for v in (*c.init, *c.yielded)])
            found = {i: c for i, c in found.items() if equal.issuperset((*c.init, *c.yielded))}

    def _may(self, v: Value) -> bool:
        elem = elem_of(v.type)
        return isinstance(elem, DType) and elem.is_float and self.is_wide(v)

    def is_wide(self, v: Value) -> bool:
        shape = shape_of(v.type)
        return len(shape) > self.axis and shape[self.axis] > 1

    def _equal(self, ends: Sequence[Value]) -> set[Value]:
        """Of these values and what they follow from those whose elements are equal along the axis, by how
        they are computed."""
        params = {p for c in self.carried.values() for p in c.params}
        found, pending = set[Value](), [*ends]
        for v in pending:
            if v not in found:
                found.add(v)
                if self.is_wide(v) and v not in params and v in self.made:
                    pending += self._same_place(self.made[v]) or ()
        equal = {v for v in found if v in params or not self.is_wide(v)}
        for v in sorted(found - equal, key=lambda v: self.order.get(v, -1)):
            operands = self._same_place(self.made[v]) if v in self.made else None
            if operands is not None and equal.issuperset(operands):
                equal.add(v)
        return equal

    def _same_place(self, o: Op) -> Sequence[Value] | None:
        """What each element follows from in its own place; None where from others, or memory."""
        if o.kind is tile.splat or decided(self.facts, o) is not None:
            return ()
        by_element = o.kind in arith.ELEMENTWISE and o.kind not in arith.NOT_FOLDED
        return o.operands if by_element or o.kind is tile.broadcast else None

    # ---- writing

    def loop(self, b: Builder) -> list[Value]:
        """Appends the loop that carries less; returns what stands for its results."""
        lead = len(self.old.operands) - len(self.old.results)
        operands = list(self.old.operands)
        results = list(self.old.results)
        (body,) = self.old.regions
        params, inside = list(body.params), Builder()
        inside.loc, inside.tasks = b.loc, b.tasks
        env: dict[Value, Value] = {}
        for i, c in self.carried.items():
            operands[lead + i] = self.one(b, c.init[0])
            results[i] = Value(operands[lead + i].type, c.result.hint)
            (p,) = c.params
            params[1 + i] = self.narrow[p] = Value(operands[lead + i].type, p.hint)
            env[p] = self.wide(inside, params[1 + i], p)
        ends = {v for c in self.carried.values() for v in c.yielded}
        needed = self._needed(ends)
        for o in body.ops[:-1]:
            with inside.at(o):
                if not needed.isdisjoint(o.results):
                    env[o.result] = self.wide(inside, self.one(inside, o.result), o.result)
                else:
                    new = substitute_operands(o, env)
                    inside.append(with_regions(new, lambda r: substitute(r, env)))
        last = body.ops[-1]
        with inside.at(last):
            yielded = [
                self.one(inside, v) if i in self.carried else env.get(v, v)
                for i, v in enumerate(last.operands)
            ]
        inside.append(last.with_(operands=tuple(yielded)))
        region = Region(tuple(params), tuple(inside.ops))
        b.append(
            self.old.with_(operands=tuple(operands), results=tuple(results), regions=(region,))
        )
        return [
            self.wide(b, v, old) if i in self.carried else v
            for i, (v, old) in enumerate(zip(results, self.old.results, strict=True))
        ]

    def _needed(self, ends: set[Value]) -> set[Value]:
        """What the carried tiles follow from, of equal elements each."""
        found, pending = set[Value](), [*ends]
        for v in pending:
            if v in found or not self.is_wide(v) or v in self.narrow:
                continue
            found.add(v)
            pending += self._same_place(self.made[v]) or ()
        return found

    def wide(self, b: Builder, v: Value, old: Value) -> Value:
        spread: Value = tile.broadcast(b, v, shape=shape_of(old.type), hint=old.hint)
        return spread

    def one(self, b: Builder, v: Value) -> Value:
        """One of a tile's equal elements along the axis; of what has one already that."""
        if not self.is_wide(v):
            return v
        if v in self.narrow:
            return self.narrow[v]
        o = self.made[v]
        shape = tuple(1 if d == self.axis else n for d, n in enumerate(shape_of(v.type)))
        known = decided(self.facts, o)
        if known is not None:
            new: Value = tile.splat(b, const(b, known, dtype_of(v.type)), shape=shape, hint=v.hint)
        elif o.kind is tile.splat:
            new = tile.splat(b, o.operands[0], shape=shape, hint=v.hint)
        elif o.kind is tile.broadcast:
            new = tile.broadcast(b, self.one(b, o.operands[0]), shape=shape, hint=v.hint)
        else:
            new = o.kind(b, *(self.one(b, x) for x in o.operands), hint=v.hint, **o.attrs)
        self.narrow[v] = new
        return new
