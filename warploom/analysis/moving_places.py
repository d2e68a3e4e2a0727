"""Whether the iterations of a loop store to places of their own.

That a place depends on what changes is not enough: `i // 2` is the same for two iterations, and boxes of 64
rows that begin at `i` overlap.  A loop's numbers are followed to the place.  Sums, products and conversions
keep them apart, a quotient and a remainder do together, and nothing else does (`i & 1`, `minimum(i, 2)`, what
a table holds).  They have to move on as far as an iteration stores:

    for t in range(n): out.store([t * step, 0], …)     where step is a box or more

Where that is so for some values of the function's parameters only, these are what the place *needs*, and a
launch with others takes another variant.  Strides are taken to be large enough for what a mask leaves of a
tile.  What bounds a loop tells nothing apart: two runs of `range(0, t)` store to the same places.

More is taken for granted of a loop that shares its iterations with other programs, as these have no order
anyway (it counts from the program's number, goes on by that of programs, or draws tickets), and of the arms
of a selection in two iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf, prod
from typing import NamedTuple

from warploom.analysis.facts import Facts
from warploom.analysis.structure import Structure
from warploom.ir.analysis import backward_slice, moved, passed_on
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Scalar, shape_of

Need = tuple[tuple[int, ...], int]  # parameters whose product, or its negative, has to be so large
Needs = frozenset[Need]

_QUOTIENTS = (arith.idiv, arith.shr)
_REMAINDERS = (arith.rem, arith.and_)
_SUMS = (arith.add, arith.sub, arith.addptr)
_LINEAR = (*_SUMS, arith.mul, arith.cast, arith.neg)
_CHOOSES = (*arith.COMPARE, arith.select)


class Step(NamedTuple):
    """How far apart two values are, at least: `size` times parameters, by their numbers."""

    size: float
    parameters: tuple[int, ...] = ()


ANY = Step(inf)  # iterations that are in no order with each other


@dataclass(eq=False)
class MovingPlace:
    """What the iterations of a loop do to a place that its numbers lead to."""

    loop: Op
    facts: Facts
    structure: Structure
    sources: dict[Value, tuple[Value, ...]]
    is_masked: bool = True
    extents: Mapping[Value, int] = field(default_factory=dict)
    told: dict[tuple[Value, Step], Needs | None] = field(default_factory=dict)
    open: set[Value] = field(default_factory=set)  # asked about, so that no way leads back

    @cached_property
    def is_shared(self) -> bool:
        """Do other programs have iterations of the loop, and so in no order?"""
        first = [x for c in control.carried(self.loop) for x in c.init]
        if self.loop.kind is control.for_:
            first.append(self.loop.operands[0])
        return ANY in self._steps.values() or any(map(self._counts_programs, first))

    def _counts_programs(self, v: Value) -> bool:
        """Is v the program's number, or that and a constant?"""
        o = self.structure.maker(v)
        if o is None or o.kind not in (arith.add, arith.sub):
            return o is not None and o.kind is tile.program_id
        x, y = o.operands
        return self._counts_programs(x) and self.facts.constant(y) is not None

    @cached_property
    def _is_pair(self) -> bool:
        """Are there two iterations at most?"""
        if self.loop.kind is not control.for_:
            return False
        lo, hi, step = map(self.facts.interval, self.loop.operands[:3])
        return lo.low + 2 * step.low >= hi.high

    def needs(self, extents: Mapping[Value, int]) -> Needs | None:
        """What has to hold for each iteration of the loop to have a place of its own; None where that is not
        known to be so.  extents: of each value that says where the place is, how much of that an iteration
        stores; 0 where any other value is another place."""
        self.extents = extents
        steps = self._steps
        if self.is_shared:
            steps = {**dict.fromkeys(self.loop.regions[-1].params, ANY), **steps}
        return _fewest(self._tells(v, step) for v, step in steps.items())

    @cached_property
    def after(self) -> dict[Value, list[Value]]:
        """What of the place's computation follows from each value directly."""
        found: dict[Value, list[Value]] = {}
        for v in backward_slice(self.extents, self.sources):
            for x in dict.fromkeys(self._sources(v)):
                found.setdefault(x, []).append(v)
        return found

    def _sources(self, v: Value) -> tuple[Value, ...]:
        """What v is computed from, without what decides how often or whether that happens."""
        made = self.structure.made.get(v)
        if made is None or made.op is None or made.op.kind not in control.LEAD:
            return self.sources.get(v, ())
        return passed_on(made.op).get(v, ())

    @cached_property
    def _steps(self) -> dict[Value, Step]:
        """What changes from iteration to iteration, and by how much."""
        yielded = {c.params[-1]: c.yielded[-1] for c in control.carried(self.loop)}
        found = {}
        for p, v in yielded.items():
            same = {p}
            while v in yielded and v not in same:  # what another one was before
                same.add(v)
                v = yielded[v]
            o = self.structure.maker(v)
            if o is not None and o.kind in _SUMS and o.operands[0] in same:
                found[p] = self.size(o.operands[1])
            elif o is not None and o.kind is arith.add and o.operands[1] in same:
                found[p] = self.size(o.operands[0])
            elif o is not None and o.kind is tile.atomic:
                found[p] = ANY
        if self.loop.kind is control.for_:
            found[self.loop.regions[0].params[0]] = self.size(self.loop.operands[2])
        return found

    def size(self, v: Value) -> Step:
        """How large v is, or its negative."""
        made, n = self.structure.made[v], self._least(v)
        if isinstance(v.type, Scalar) and made.op is None and self.facts.constant(v) is None:
            return Step(1, (made.number,))
        o = self.structure.maker(v)
        if o is not None and o.kind is tile.num_programs:
            return ANY
        if o is not None and o.kind is arith.mul:
            x, y = map(self.size, o.operands)
            return Step(max(n, x.size * y.size), x.parameters + y.parameters)
        inner = moved(o) if o is not None else None
        if o is not None and o.kind is arith.cast:
            inner = o.operands[0]
        return self.size(inner) if inner is not None else Step(n)

    def _least(self, v: Value) -> int:
        known = self.facts.interval(v)
        return max(known.low, -known.high, 0)

    def _tells(self, v: Value, step: Step) -> Needs | None:
        """What has to hold for the place to be another one for each value of v, if those are so far apart;
        None where it may be the same."""
        if (v, step) in self.told or v in self.open:
            return self.told.get((v, step))
        self.open.add(v)
        own = self._clears(v, step) if v in self.extents else None
        self.told[v, step] = _fewest((own, self._leads(v, step)))
        self.open.remove(v)
        return self.told[v, step]

    def _leads(self, v: Value, step: Step) -> Needs | None:
        """The same of what follows from v."""
        found: list[Needs | None] = []
        parts: dict[bool, Needs | None] = {}
        for x in self.after.get(v, ()):
            o = self.structure.maker(x)
            if o is None or o.kind in control.LOOPS:  # handed on
                found.append(self._tells(x, step))
            elif o.kind in (*_QUOTIENTS, *_REMAINDERS) and o.operands[0] is v:
                told = self._tells(x, Step(1))
                parts[o.kind in _QUOTIENTS] = _fewest((parts.get(o.kind in _QUOTIENTS), told))
            elif o.kind in _LINEAR or moved(o) is not None:
                found.append(self._tells(x, self._scaled(o, v, step)))
            elif self.is_shared or (self._is_pair and o.kind in _CHOOSES):
                found.append(self._tells(x, ANY))
        quotient, remainder = parts.get(True), parts.get(False)
        if quotient is not None and remainder is not None:
            found.append(quotient | remainder)
        return _fewest(found)

    def _scaled(self, o: Op, v: Value, step: Step) -> Step:
        for x in o.operands if o.kind is arith.mul else ():
            if x is not v:
                size, parameters = self.size(x)
                step = Step(step.size * size, step.parameters + parameters)
        return step

    def _clears(self, v: Value, step: Step) -> Needs | None:
        """The same of a value that says itself where the place is: it moves on by what is stored."""
        size, parameters = step
        n = self.extents[v]
        if shape := shape_of(v.type):
            axes = [(self.facts.axis(v, a).slope or inf, n) for a, n in enumerate(shape)]
            if not parameters or not size:
                is_clear = all(size % s or size >= n * abs(s) for s, n in axes)
                return frozenset() if not size or is_clear else None
            span = 1 + sum(abs(s) * (n - 1) for s, n in axes)
            return frozenset() if self.is_masked or span == inf else self.at_least(step, int(span))
        return self.at_least(step, n)

    def at_least(self, step: Step, n: int) -> Needs | None:
        """What has to hold for a step to be n or more; None where that is not known to be so."""
        size, parameters = step
        known = prod((self._least(self.structure.root.params[i]) for i in parameters), start=size)
        if known >= n:
            return frozenset()
        return frozenset({(parameters, ceil(n / size))}) if parameters and size else None


def _fewest(found: Iterable[Needs | None]) -> Needs | None:
    """Of several ways to tell places apart the one that needs least."""
    return min((x for x in found if x is not None), key=len, default=None)
