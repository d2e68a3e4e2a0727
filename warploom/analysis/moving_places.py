"""Whether the iterations of a loop store to places of their own.

That a place depends on what changes is not enough: `i // 2` is the same for two iterations, and boxes of 64
rows that begin at `i` overlap.  A loop's numbers are followed to the place.  Sums with and products by what
the loop leaves alone keep them apart, as do conversions that lose nothing; a quotient and a remainder do
together, where no remainder comes twice with one quotient; and nothing else does (`i & 1`, `i * i`,
`i + i % 2`, `minimum(i, 2)`, what a table holds).  They have to move on as far as an iteration stores:

    for t in range(n): out.store([t * step, 0], …)     where step is a box or more

Where that is so for some values of the function's parameters only, these are what the place *needs*, and a
launch with others takes another variant: distances that are products of parameters are held there against
what lies between them, be that a mask's or a view's end, or what other loops add.  What bounds a loop tells
nothing apart: two runs of `range(0, t)` store to the same places.

More is taken for granted of a loop that shares its iterations with other programs, as these have no order
anyway (it counts from the program's number, goes on by that of programs, or draws tickets), and of the arms
of a selection in two iterations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import gcd, inf, prod
from typing import NamedTuple

from warploom.analysis.facts import Facts
from warploom.analysis.launch_numbers import UNBOUNDED, LaunchNumbers
from warploom.analysis.structure import Structure
from warploom.ir.analysis import backward_slice, closure, converted, passed_on
from warploom.ir.core import Op, Value
from warploom.ir.host_expressions import Number, plus, times
from warploom.ir.nested_axes import first_meeting
from warploom.ir.ops import arith, control, tile


class Axis(NamedTuple):
    """Places at so many multiples of a stride, 0 among them; or as many at most."""

    stride: Number
    size: Number

    def times(self, n: Number) -> Axis:
        """The places n times as far apart."""
        return Axis(times(self.stride, n), self.size)

    @property
    def is_known(self) -> bool:
        return isinstance(self.stride, int) and isinstance(self.size, int)


Need = tuple[Axis, ...]  # of which each stride has to be more than all that smaller ones come to
Needs = frozenset[Need]

_QUOTIENTS = (arith.idiv, arith.shr)
_REMAINDERS = (arith.rem, arith.and_)
_MOST = 1 << 16  # places that are looked at one by one
SUMS = (arith.add, arith.sub, arith.addptr)
_LINEAR = (*SUMS, arith.mul, arith.neg)
_CHOOSES = (*arith.COMPARE, arith.select)


class Step(NamedTuple):
    """How far apart two values are, at least: `size` times numbers of the launch.  is_least: not by a
    multiple of that."""

    size: float
    factors: tuple[Value, ...] = ()
    is_least: bool = False


class Extent(NamedTuple):
    """What an iteration stores around a value.  is_trusted: steps by a launch's numbers are taken to be more
    than that.  unit: how far one of the value moves."""

    axes: tuple[Axis, ...]
    is_trusted: bool = False
    unit: int = 1

    @property
    def span(self) -> Number:
        """From the first place to after the last one."""
        total: Number = 1
        for stride, n in self.axes:
            size = abs(stride) if isinstance(stride, int) else ("abs", "i64", stride)
            total = plus(total, times(size, plus(n, -1)))
        return total

    def meets(self, step: int) -> bool:
        """Are two of its elements, at known strides, a multiple of a step apart?"""
        known = [(abs(s), n) for s, n in self.axes if isinstance(s, int) and isinstance(n, int)]
        span = 1 + sum(stride * (n - 1) for stride, n in known)
        if step >= span:
            return False
        *outer, (stride, n) = sorted(known, key=lambda axis: axis[1]) or [(0, 1)]
        if prod(m for _, m in outer) > _MOST:
            return True
        common = gcd(stride, step)
        left = step // common
        for turns in product(*(range(1 - m, m) for _, m in outer)):
            start = sum(i * by for i, (by, _) in zip(turns, outer, strict=True))
            if start % common:
                continue
            first = -start // common * pow(stride // common, -1, left) % left
            fits = range(first - (first + n - 1) // left * left, n, left)
            if any(start + i * stride for i in fits):
                return True
        return False


ANY = Step(inf)  # iterations that are in no order with each other


@dataclass(eq=False)
class MovingPlace:
    """What the iterations of a loop do to a place that its numbers lead to."""

    loop: Op
    facts: Facts
    structure: Structure
    sources: dict[Value, tuple[Value, ...]]
    numbers: LaunchNumbers
    extents: Mapping[Value, Extent] = field(default_factory=dict)
    told: dict[tuple[Value, Step], Needs | None] = field(default_factory=dict)
    open: set[Value] = field(default_factory=set)  # asked about, so that no way leads back

    @cached_property
    def is_shared(self) -> bool:
        """Do other programs have iterations of the loop, and so in no order?"""
        first = [x for c in control.carried(self.loop) for x in c.init]
        if self.loop.kind is control.for_:
            first = [self.loop.operands[0]]
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

    def needs(self, extents: Mapping[Value, Extent]) -> Needs | None:
        """What has to hold for each iteration of the loop to have a place of its own; None where that is not
        known to be so.  extents: of each value that says where the place is."""
        self.extents = extents
        steps = self._steps
        if self.is_shared:
            steps = {**dict.fromkeys(self.loop.regions[-1].params, ANY), **steps}
        return fewest(self._tells(v, step) for v, step in steps.items())

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
            step = None
            if o is not None and o.kind in SUMS and o.operands[0] in same:
                step = self.size(o.operands[1])
            elif o is not None and o.kind is arith.add and o.operands[1] in same:
                step = self.size(o.operands[0])
            elif o is not None and o.kind is tile.atomic:
                step = ANY
            # of another one its first value is not known to be a step away from this one's
            if step is not None and (len(same) == 1 or step == ANY):
                found[p] = step
        if self.loop.kind is control.for_:
            found[self.loop.regions[0].params[0]] = self.size(self.loop.operands[2])
        return found

    def size(self, v: Value) -> Step:
        """How large v is, or its negative."""
        o, n = self.structure.maker(v), self._least(v)
        if o is not None and o.kind is tile.num_programs:
            return ANY
        if o is not None and o.kind is arith.mul:
            x, y = map(self.size, o.operands)
            if inf in (x.size, y.size):
                return ANY
            factors = x.factors + y.factors
            size = x.size * y.size if factors else max(n, x.size * y.size)
            return Step(size, factors, x.is_least or y.is_least)
        if (inner := converted(o)) is not None:
            return self.size(inner)
        if self.facts.constant(v) is not None:
            return Step(n)
        return Step(n, is_least=True) if self.numbers.of(v) is None else Step(1, (v,))

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
        self.told[v, step] = fewest((own, self._leads(v, step)))
        self.open.remove(v)
        return self.told[v, step]

    def _leads(self, v: Value, step: Step) -> Needs | None:
        """The same of what follows from v."""
        found: list[Needs | None] = []
        parts: list[tuple[Op, Needs]] = []
        for x in self.after.get(v, ()):
            o = self.structure.maker(x)
            if o is None or o.kind in control.LOOPS:
                found.append(self._tells(x, step) if self._hands_on(x) else None)
            elif o.kind in (*_QUOTIENTS, *_REMAINDERS) and o.operands[0] is v:
                told = self._tells(x, Step(1))
                parts += [] if told is None else [(o, told)]
            elif self._keeps_apart(o, v):
                found.append(self._tells(x, self._scaled(o, v, step)))
            elif self.is_shared or (self._is_pair and o.kind in _CHOOSES):
                found.append(self._tells(x, ANY))
        found += [p | q for (x, p), (y, q) in product(parts, parts) if self._are_parts(x, y)]
        return fewest(found)

    def _keeps_apart(self, o: Op, v: Value) -> bool:
        """Does an op's result differ wherever v does, by as much as it is multiplied by?"""
        others = [x for x in o.operands if x is not v]
        is_alone = len(others) == len(o.operands) - 1
        if o.kind in _LINEAR:
            return is_alone and (self.is_shared or not any(map(self._moves, others)))
        return converted(o) is not None

    def _hands_on(self, v: Value) -> bool:
        """Does a loop hand on what it begins with as v, but for what any other iteration adds?"""
        if self.is_shared:
            return True
        c = self.structure.carried(v)
        if c is None or self.structure.made[v].op is self.loop:
            return False
        o = self.structure.maker(c.yielded[-1])
        if o is None or o.kind not in SUMS:
            return c.yielded[-1] in c.params
        return o.operands[0] in c.params and not self._moves(o.operands[1])

    def _moves(self, v: Value) -> bool:
        """Does v follow from the loop's numbers?  Of what is but bounded by them the spread counts."""
        behind = closure([v], self._sources)
        return not behind.isdisjoint(self._own)

    @cached_property
    def _own(self) -> set[Value]:
        return {p for r in self.loop.regions for p in r.params}

    def _are_parts(self, quotient: Op, remainder: Op) -> bool:
        """Are a quotient and a remainder of one number the same for no other one?"""
        if quotient.kind not in _QUOTIENTS or remainder.kind not in _REMAINDERS:
            return False
        of, by = quotient.operands
        _, rest = remainder.operands
        are_bits = quotient.kind is arith.shr, remainder.kind is arith.and_
        if self.is_shared or (by is rest and not any(are_bits)):
            return True
        n, m = self.facts.constant(by), self.facts.constant(rest)
        if n is None or m is None:
            return False
        n = 1 << n if quotient.kind is arith.shr else n
        if remainder.kind is arith.and_:
            m = m + 1 if m >= 0 and m & (m + 1) == 0 else 0
        is_alike = are_bits[0] == are_bits[1] or self.facts.interval(of).low >= 0
        return is_alike and 0 < n <= m

    def _scaled(self, o: Op, v: Value, step: Step) -> Step:
        for x in o.operands if o.kind is arith.mul and step.size != inf else ():
            if x is not v:
                size, factors, is_least = self.size(x)
                step = Step(step.size * size, step.factors + factors, step.is_least or is_least)
        return step

    def _clears(self, v: Value, step: Step) -> Needs | None:
        """The same of a value that says itself where the place is: it moves on by what is stored."""
        extent = self.extents[v]
        step = step._replace(size=step.size * extent.unit)
        size, factors, is_least = step
        if size == inf or not size:
            return frozenset() if size else None
        is_known = all(axis.is_known for axis in extent.axes)
        if extent.is_trusted and (factors or not is_known):
            return frozenset()
        if is_known:
            assert isinstance(extent.span, int)
            if prod(map(self._least, factors), start=size) >= extent.span:
                return frozenset()
            if not factors and not is_least and not extent.meets(int(size)):
                return frozenset()
        stride: Number = int(size)
        for x in factors:
            stride = times(stride, self.numbers.known(x))
        if is_least:  # in no multiples of that
            return nested((Axis(stride, UNBOUNDED), Axis(1, extent.span)))
        return nested((Axis(stride, self.numbers.iterations(self.loop)), *extent.axes))


def nested(axes: Iterable[Axis]) -> Needs | None:
    """What has to hold for no place to be reached twice along axes; None where that is not known to be so."""
    need = tuple(sorted((axis for axis in axes if axis.size != 1), key=repr))
    if sum(axis.size == UNBOUNDED for axis in need) > 1:
        return None
    most = [(s, n if isinstance(n, int) else UNBOUNDED) for s, n in need if isinstance(s, int)]
    if len(most) == len(need) and first_meeting(most) is None:
        return frozenset()
    known = [(s, n) for s, n in need if isinstance(s, int) and isinstance(n, int)]
    return frozenset({need}) if first_meeting(known) is None else None


def fewest(found: Iterable[Needs | None]) -> Needs | None:
    """Of several ways to tell places apart the one that needs least."""
    return min((x for x in found if x is not None), key=len, default=None)
