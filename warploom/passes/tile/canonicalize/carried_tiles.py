"""Tiles that loops and ifs pass on and that differ by a number only: that number is passed on instead.

A kernel that begins a new tile of its result inside one loop over all steps keeps the tile's rows between the
steps: `rows = pid_m * BLOCK + arange` under an `if`, the old ones otherwise.  With the number alone the rest
is known wherever it is read, so that a box stays a box.

before:  %next = if(%c) do { %s = splat(%n)  %t = add(%s, %arange)  yield(%t) } do { yield(%rows) }
after:   %m = if(%c) do { yield(%n) } do { yield(%number) }
         %s = splat(%m)  %next = add(%s, %arange)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from warploom.ir.analysis import definitions, passed_on
from warploom.ir.build import const
from warploom.ir.core import Builder, Func, Level, Op, Region, Value, walk
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import substitute_operands
from warploom.ir.types import DType, Scalar, Tile, dtype_of, elem_of, shape_of


def carry_numbers(func: Func) -> Func:
    """At TILE, loops and ifs pass on numbers for tiles that are these numbers plus a tile from outside."""
    if func.level is not Level.TILE:
        return func
    makers = definitions(func.body)
    rests = _rests(func.body, makers)
    if not rests:
        return func
    return func.with_(body=_Carrier(rests, makers).region(func.body))


def _rests(body: Region, makers: dict[Value, Op]) -> dict[Value, Value]:
    """For each tile that can be passed on as a number, what that number is added to."""
    sources = {
        v: found for o in walk(body) for v, found in passed_on(o).items() if _is_integer_tile(v)
    }
    one = {v: v for v in sources}  # a member of the same class, nearer to its representative

    def root(v: Value) -> Value:
        while one[v] is not v:
            v = one[v]
        return v

    for v, found in sources.items():
        for s in found:
            if s in one:
                one[root(s)] = root(v)
    leaves: dict[Value, set[Value]] = {}
    for v, found in sources.items():
        leaves.setdefault(root(v), set()).update(s for s in found if s not in one)
    shared: dict[Value, Value] = {}
    for v, ends in leaves.items():
        parts = [_parts(makers, s) for s in ends]
        # what every way into the class adds to is made outside of it
        if len({rest for rest, _ in parts}) == 1 and any(n is not None for _, n in parts):
            shared[v] = parts[0][0]
    return {v: shared[root(v)] for v in sources if root(v) in shared}


def _is_integer_tile(v: Value) -> bool:
    if not isinstance(v.type, Tile):
        return False
    e = elem_of(v.type)
    return isinstance(e, DType) and e.kind in ("int", "uint")


def _parts(makers: dict[Value, Op], v: Value) -> tuple[Value, Value | None]:
    """v as a tile plus a number; None for 0."""
    o = makers.get(v)
    if o is not None and o.kind is arith.add:
        for x, y in (o.operands, o.operands[::-1]):
            s = makers.get(x)
            if s is not None and s.kind is tile.splat:
                return y, s.operands[0]
    return v, None


@dataclass(eq=False)
class _Carrier:
    """Rewrites regions: `rests` are the tiles that become numbers, with what is added to these."""

    rests: dict[Value, Value]
    makers: dict[Value, Op]
    numbers: dict[Value, Value] = field(default_factory=dict)
    env: dict[Value, Value] = field(default_factory=dict)  # these tiles -> as they are made again

    def region(
        self, region: Region, params: Sequence[Value] | None = None, ends: Sequence[bool] = ()
    ) -> Region:
        """params: what stands for the region's; ends: which of what it yields become numbers."""
        b = Builder()
        for old, new in zip(region.params, params or region.params, strict=True):
            if new is not old:
                self.again(old, new, b)
        for o in region.ops[:-1]:
            self.op(o, b)
        last = region.ops[-1]
        with b.at(last):
            values = tuple(
                self.number(v, b) if end else self.env.get(v, v)
                for v, end in zip(last.operands, ends or (False,) * len(last.operands), strict=True)
            )
        b.append(last.with_(operands=values))
        return b.region(tuple(params or region.params))

    def op(self, o: Op, b: Builder) -> None:
        new = substitute_operands(o, self.env)
        if not o.regions:
            b.append(new)
            return
        passed = [v in self.rests for v in o.results]
        operands = list(new.operands)
        with b.at(o):
            for i, c in enumerate(control.carried(o), control.LEAD[o.kind]):
                if c.init and c.result in self.rests:
                    operands[i] = self.number(c.init[0], b)
        results = tuple(map(self.stand_in, o.results))
        regions = []
        for r in o.regions:
            more = len(r.ops[-1].operands) - len(passed)  # what a while's condition says first
            params = tuple(map(self.stand_in, r.params))
            regions.append(self.region(r, params, (*(False,) * more, *passed)))
        b.append(new.with_(operands=tuple(operands), results=results, regions=tuple(regions)))
        with b.at(o):
            for old, value in zip(o.results, results, strict=True):
                if value is not old:
                    self.again(old, value, b)

    def stand_in(self, v: Value) -> Value:
        """v itself, or the number that is passed on for it."""
        if v not in self.rests:
            return v
        self.numbers[v] = Value(Scalar(dtype_of(v.type)), v.hint)
        return self.numbers[v]

    def number(self, v: Value, b: Builder) -> Value:
        """The number of a tile that goes into a loop or out of an arm."""
        if v in self.numbers:
            return self.numbers[v]
        _, n = _parts(self.makers, v)
        return const(b, 0, dtype_of(v.type)) if n is None else self.env.get(n, n)

    def again(self, old: Value, number: Value, b: Builder) -> None:
        """Makes the tile again from its number."""
        spread = tile.splat(b, number, shape=shape_of(old.type), hint=old.hint)
        self.env[old] = arith.add(b, spread, self.rests[old], hint=old.hint)
