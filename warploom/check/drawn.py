"""What holds at many inputs, drawn at random and told without a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warploom.check.counting import Counting, counting
from warploom.check.dependence import COMPARISONS, Condition, Source
from warploom.check.runs import Case
from warploom.check.sums import Sums
from warploom.check.values import Values, Wish
from warploom.ir.analysis import closure, defined
from warploom.ir.core import Op, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Scalar

SAMPLES = 4096
LARGEST, SMALLEST = 1 << 14, 64  # constants for which samples say something
FINEST = 256  # parts, by remainders and bits, in each of which there are several samples
NEGATIVE = 0.25  # of numbers that may be
FEWEST = SAMPLES // 64  # of them that must be valid to say something

_ON_BITS = (arith.rem, arith.and_, arith.or_, arith.xor)


@dataclass
class Inputs:
    """Many inputs.  given: what the values of a function that hang on them are; numbers: of the variables;
    ids: of the programs, along an axis; valid: where the iterations that were drawn are reached; reached:
    where the op that is asked about is, as far as that is told."""

    given: dict[Value, Any]
    numbers: dict[int, Any]
    ids: dict[int, Any]
    valid: Any
    reached: Any

    @property
    def sizes(self) -> Any:
        """How large the numbers are, all together."""
        every = (*self.numbers.values(), *self.ids.values())
        return sum((np.log2(np.abs(x) + 1.0) for x in every), np.zeros(SAMPLES))

    def wish(self, n: int) -> Wish:
        """One of them."""
        return Wish(*({i: int(x[n]) for i, x in part.items()} for part in (self.numbers, self.ids)))


def signs(rng: np.random.Generator) -> Any:
    """Of numbers that may be negative: a quarter is."""
    return np.where(rng.random(SAMPLES) < NEGATIVE, -1, 1)


class Drawn:
    """Inputs of one function."""

    def __init__(self, values: Values, sums: Sums) -> None:
        self.values, self.sums = values, sums
        self.dependence, self.space, self.func = values.dependence, values.space, values.func
        self._countings: dict[Op, Counting | None] = {}

    @cached_property
    def _carried(self) -> dict[Value, Op]:
        """What loops carry from one iteration to the next, with the loop."""
        every = (o for o in self.func.body.all_ops if o.kind in (control.for_, control.while_))
        found = {v: o for o in every for v in (*o.regions[0].params, *o.results)}
        return {v: o for v, o in found.items() if len(self.dependence.flow.get(v, ())) == 2}

    def longest(self, loop: Op, trips: int, case: Case) -> tuple[Wish, int]:
        """Of many inputs at random one at which a loop runs for longest, and how often."""
        inputs, _ = self._draw_in_loops(loop.operands[:3], loop, case)
        found = self._count(loop, inputs, case)
        if found is None:
            return Wish({}, {}), -1
        found = np.where(inputs.valid & inputs.reached, found, 0)
        most = min(trips, int(found.max()))
        return inputs.wish(int(np.where(found >= most, inputs.sizes, np.inf).argmin())), most

    def most_found(
        self,
        loop: Op,
        case: Case,
        where: tuple[Condition, bool] | None = None,
        of_any: bool = False,
    ) -> int | None:
        """The most iterations of a loop at many inputs, told without a run; None where they can't be told,
        where that is so at few inputs, and where they are counted by several words of one array, which all
        are the same number here.  where: at inputs at which a condition comes to an outcome; of_any: in any
        replica or CTA, the one that runs the loop or another."""
        if loop.kind is not control.for_ or self._counts_by_words(loop):
            return None
        asked = [] if where is None else [where[0].value]
        inputs, is_told = self._draw_in_loops([*asked, *loop.operands[:3]], loop, case)
        found = self._count(loop, inputs, case)
        if found is None or not is_told:
            return None
        those = inputs.valid
        if where is not None:
            others = {
                v: inputs.given[v][::-1] for v in inputs.given if of_any and v in self.sums.ranks
            }
            outcomes = self.values(where[0].value, case, {**inputs.given, **others})
            if outcomes is None:
                return None
            those = those & (np.broadcast_to(outcomes, (SAMPLES,)) == where[1])
        here = those & inputs.reached
        if where is not None and those.sum() >= FEWEST and not here.any():
            return 0  # with this outcome nothing comes to the loop
        return int(found[here].max()) if here.sum() >= FEWEST else None

    def _counts_by_words(self, loop: Op) -> bool:
        """Is a loop counted by several words of one array?"""
        made = map(self.dependence.made.get, closure(loop.operands[:3], self._flow_of))
        loads = [o for o in made if o is not None and o.kind is tile.load]
        arrays = [array for o in loads for array in self.dependence.arrays(o.operands[0])]
        return len(set(arrays)) < len(arrays)

    def constant(self, condition: Condition, case: Case) -> bool | None:
        """What a comparison comes to at all of many inputs, told without a run; None where it flips, and
        where that says little: for equality, remainders by constants, large constants, numbers that may
        be negative, and in kernels that tell each task by itself what it does."""
        if condition.op.kind in (arith.eq, arith.ne) or condition.op.kind not in COMPARISONS:
            return None
        if self.space.has_own_grid or Source.MEMORY in condition.sources:
            return None
        for x in closure([condition.value], self.dependence.flow_of):
            o = self.dependence.made.get(x)
            if self.values.index.get(x) in self.space.free - self.space.sizes:
                return None
            if o is not None and o.kind is arith.const and abs(o.attrs["value"]) > LARGEST:
                return None
            if o is not None and o.kind in (arith.rem, arith.xor, arith.and_):
                if isinstance(x.type, Scalar) and x.type.dtype.kind == "bool":
                    continue
                by = self.sums.linear(o.operands[1])
                if not set(by) - {1} and by.get(1, 0) > SMALLEST:
                    return None
        inputs, is_told = self._draw_in_loops([condition.value], condition.op, case)
        if not is_told:
            return None
        inputs.valid &= inputs.reached
        found = self.values(condition.value, case, inputs.given)
        if found is None or inputs.valid.sum() < FEWEST:
            return None
        seen = np.broadcast_to(found, (SAMPLES,))[inputs.valid]
        return bool(seen[0]) if (seen == seen[0]).all() else None

    def says_little(self, loop: Op, other: Op) -> bool:
        """Do many inputs say little of whether a loop runs as often as another one?  So it is where it alone
        is made of remainders and bits, by constants that are many together, or of large constants."""
        parts, kinds = 1, self.dependence.alike_in_loops
        shared = {kinds.get(x) for x in closure(control.deciding(other), self._flow_of)} - {None}
        for x in closure(control.deciding(loop), self._flow_of):
            o = self.dependence.made.get(x)
            if (
                o is None
                or kinds.get(x) in shared
                or not isinstance(x.type, Scalar)
                or not x.type.dtype.is_int
            ):
                continue
            if o.kind is arith.const and abs(o.attrs["value"]) > LARGEST:
                return True
            if o.kind in _ON_BITS and x.type.dtype.kind != "bool":
                by = (self.sums.constant(y) for y in o.operands)
                parts *= max([1, *(abs(n) for n in by if n is not None)])
        return parts > FINEST

    def trips_at_many(
        self, loops: Sequence[Op], case: Case, is_last: bool = False
    ) -> tuple[dict[Op, Any], Inputs]:
        """How often loops run at the same many inputs in the same iterations of the loops around them, where
        that can be told, and these inputs; in the first replica and CTA, or in the last."""
        guards = [
            v for o in loops for around, _ in self._around[o] for v in control.deciding(around)
        ]
        every = [*guards, *(v for o in loops for v in control.deciding(o))]
        inputs, behind = self._draw(every, case), self._behind(*every)
        self._part_words(behind, inputs)
        self._part_carried(behind, inputs)
        inputs.given |= {v: np.int32(n - 1) for v, n in self.sums.ranks.items() if is_last}
        iterated = {self.values.loop_of[v] for v in behind & self.values.loop_of.keys()}
        iterated |= {
            self._carried[v]
            for v in behind & self._carried.keys()
            if self._counting(self._carried[v])
        }
        for loop in sorted(
            iterated, key=lambda o: (self._depth(o), self._order(o.regions[0].params[0]))
        ):
            self._draw_iteration(loop, None, inputs, case)
        found: dict[Op, Any] = {}
        for o in loops:
            if (count := self._count(o, inputs, case)) is not None:
                reached = (self._reaches(*part, inputs, case) for part in self._around[o])
                found[o] = math.prod(reached, start=count)
        return found, inputs

    def is_ranked(self, loop: Op, case: Case) -> bool:
        """Do replicas, or CTAs of a cluster, run a loop unequally often, by what a loop around it carries?"""
        values = control.deciding(loop)
        if self._behind(*values).isdisjoint(self._varying) or not any(
            map(self.dependence.is_one_of_many, values)
        ):
            return False
        first, last = (self.trips_at_many([loop], case, x)[0].get(loop) for x in (False, True))
        return first is None or last is None or len(np.unique(first - last)) > 1

    @cached_property
    def _varying(self) -> set[Value]:
        """What loops carry and change, but for what a `while` counts by."""
        return {
            v
            for v, loop in self._carried.items()
            if self.dependence.own(v) & Source.ITERATION
            and ((counts := self._counting(loop)) is None or v not in counts.steps)
        }

    def _count(self, loop: Op, inputs: Inputs, case: Case) -> Any:
        """How often a `for` runs at many inputs, or a `while` that counts; None where that can't be told."""
        if loop.kind is control.while_:
            counts = self._counting(loop)
            if counts is None:
                return None
            given = self._without_own(loop, inputs)
            lo, hi = (self.values(v, case, given) for v in (counts.low, counts.high))
            by, more = np.int64(counts.by), counts.more
        else:
            lo, hi, by = (self.values(v, case, inputs.given) for v in loop.operands[:3])
            more = 0
        if lo is None or hi is None or by is None:
            return None
        n = -(-(np.int64(hi) + more - lo) // np.maximum(by, 1))
        return np.broadcast_to(n, (SAMPLES,)).clip(0)

    def _flow_of(self, v: Value) -> tuple[Value, ...]:
        """What a value is computed from; of a loop's variable its bounds, too."""
        loop = self.values.loop_of.get(v)
        bounds = () if loop is None else loop.operands[:3]
        return (*self.dependence.behind(v), *bounds)

    def _behind(self, *values: Value) -> set[Value]:
        return closure(values, self._flow_of)

    def _draw(self, values: Sequence[Value], case: Case) -> Inputs:
        """Many inputs: the numbers of variables, and of programs, that values hang on."""
        rng, out = np.random.default_rng(0), Inputs({}, {}, {}, *np.ones((2, SAMPLES), np.bool_))
        given, numbers, ids = out.given, out.numbers, out.ids

        def some(most: int) -> Any:
            return np.exp2(rng.uniform(0, most, SAMPLES)).astype(np.int64) - 1

        for v in sorted(self._behind(*values), key=self._order):
            o = self.dependence.made.get(v)
            if v in self.values.index and self.values.index[v] in self.space.free:
                i = self.values.index[v]
                sign = 1 if i in self.space.sizes else signs(rng)
                given[v] = numbers[i] = sign * some(17) * self.space.divisor(i)
            elif o is not None and o.kind is tile.program_id:
                axis = o.attrs["axis"]
                given[v] = ids[axis] = ids.get(axis, some(16))
            elif o is not None and o.kind is tile.num_programs:
                if o.attrs["axis"] == 0 and not self.space.has_own_grid:
                    grid = self.space.grid
                    given[v] = numbers[grid] = numbers.get(grid, some(16) + 1)
            elif o is not None and o.kind is tile.load:
                for array in self.dependence.arrays(o.operands[0]):
                    if array.hint in self.space.arrays:
                        i = self.space.array(array.hint)
                        given[v] = numbers[i] = numbers.get(i, signs(rng) * some(17))
            elif o is not None and o.kind is tile.atomic:
                given[v] = some(17)
        if self.space.grid in numbers and 0 in ids:
            ids[0] %= numbers[self.space.grid]
        return out

    def _draw_in_loops(self, values: Sequence[Value], at: Op, case: Case) -> tuple[Inputs, bool]:
        """Many inputs, with replicas and CTAs of a cluster and iterations of the loops that values at an op
        hang on, valid where they reach it as far as that is told; whether that is all these hang on."""
        around = self._around[at]
        guards = [control.deciding(o) for o, _ in around]
        every = [*values, *itertools.chain(*guards)]
        inputs = self._draw(every, case)
        untold: set[object] = set()
        behind = self._behind(*every)
        for v in sorted(behind & self.sums.ranks.keys(), key=self._order):
            rng = np.random.default_rng(self._order(v))
            inputs.given[v] = rng.integers(self.sums.ranks[v], size=SAMPLES, dtype=np.int32)
        for v in sorted(
            behind & (self._carried.keys() | self.values.loop_of.keys()), key=self._order
        ):
            is_told = True
            if v in self.values.loop_of:
                is_told = self._draw_iteration(self.values.loop_of[v], at, inputs, case)
            elif self.dependence.own(v) or self.dependence.sources(v) & Source.ITERATION:
                is_told = False  # only its first value can be told
            elif self.dependence.sources(v) & Source.SHARED_WORD:
                is_told = self._draw_carried(v, at, inputs, case)
            untold |= set() if is_told else {v}
        for (o, region), guard in zip(around, guards, strict=True):
            if untold.isdisjoint(self._behind(*guard)):
                inputs.reached &= self._reaches(o, region, inputs, case)
        return inputs, untold.isdisjoint(self._behind(*values))

    def _reaches(self, o: Op, region: int, inputs: Inputs, case: Case) -> Any:
        """At which inputs a loop or an `if` comes to one of its regions; all, where that can't be told."""
        if o.kind is control.for_ or (region and self._counting(o)):
            count = self._count(o, inputs, case)
            return count is None or count > 0
        holds = self.values(control.deciding(o)[0], case, inputs.given)
        if holds is None or (o.kind is control.while_ and region == 0):
            return True
        return np.equal(holds, o.kind is control.while_ or region == 0)

    @cached_property
    def _around(self) -> dict[Op, tuple[tuple[Op, int], ...]]:
        """The loops and `if`s around each op, the outermost first, each with the region that it is in."""
        found: dict[Op, tuple[tuple[Op, int], ...]] = {}

        def visit(region: Region, around: tuple[tuple[Op, int], ...]) -> None:
            for o in region.ops:
                found[o] = around
                for i, inner in enumerate(o.regions):
                    visit(inner, (*around, (o, i)) if o.kind in control.LEAD else around)

        visit(self.func.body, ())
        return found

    def _part_words(self, behind: set[Value], inputs: Inputs) -> None:
        """Words of one array at addresses that are not the same become different numbers."""
        first: dict[int, int] = {}  # of each array the class of the first word
        for v in sorted(behind & inputs.given.keys(), key=self._order):
            o, kind = self.dependence.made.get(v), self.dependence.alike.get(v)
            if o is None or o.kind is not tile.load or kind is None:
                continue
            if first.setdefault(id(inputs.given[v]), kind) != kind:
                rng = np.random.default_rng((2, kind))
                some = np.exp2(rng.uniform(0, 17, SAMPLES)).astype(np.int64) - 1
                inputs.given[v] = signs(rng) * some

    def _part_carried(self, behind: set[Value], inputs: Inputs) -> None:
        """What loops carry and change becomes a number of its own for each class of equal values."""
        for v in sorted(behind & self._varying, key=self._order):
            kind = self.dependence.alike_in_loops.get(v)
            rng = np.random.default_rng((3, self._order(v)) if kind is None else (4, kind))
            inputs.given[v] = np.exp2(rng.uniform(0, 17, SAMPLES)).astype(np.int64) - 1

    def _without_own(self, loop: Op, inputs: Inputs) -> dict[Value, Any]:
        """What is given where a `while` begins."""
        own = loop.regions[0].params
        return {v: x for v, x in inputs.given.items() if v not in own}

    def _counting(self, loop: Op) -> Counting | None:
        """How a `while` counts; None of others."""
        if loop not in self._countings:
            is_while = loop.kind is control.while_
            found = counting(self.dependence, self.sums, loop) if is_while else None
            self._countings[loop] = found
        return self._countings[loop]

    def _depth(self, loop: Op) -> int:
        return len(self.dependence.loops[loop])

    def _draw_iteration(self, loop: Op, at: Op | None, inputs: Inputs, case: Case) -> bool:
        """A loop's variable, or what a `while` counts by: near its begin and near its end, in each at all
        distances.  Loops as deep that run equally often are in the same iteration."""
        trips, counts = self._count(loop, inputs, case), self._counting(loop)
        if trips is None:
            return False
        rng = np.random.default_rng((1, self._depth(loop)))  # apart from the numbers
        near = np.exp2(rng.uniform(0, np.log2(np.maximum(trips, 1)))).astype(np.int64) - 1
        iteration = np.where(rng.random(SAMPLES) < 0.5, near, trips - 1 - near)
        if counts is None:
            lo, by = (self.values(loop.operands[i], case, inputs.given) for i in (0, 2))
            inputs.given[loop.regions[0].params[0]] = lo + by * iteration
        else:
            before = self._without_own(loop, inputs)
            for v, step in counts.steps.items():
                if (first := self.values(v, case, before)) is not None:
                    inputs.given[v] = first + step * iteration
        if at is None or loop in self.dependence.loops[at]:
            inputs.valid &= trips > 0
        return True

    def _draw_carried(self, v: Value, at: Op, inputs: Inputs, case: Case) -> bool:
        """What a loop carries of words that other programs change: its first value, or one made of others
        than those that this iteration reads, as all that the loop carries is."""
        loop = self._carried[v]
        iteration = loop.regions[0].params[0]
        rng = np.random.default_rng(self._order(iteration))
        is_first = rng.random(SAMPLES) < 0.5
        if loop.kind is control.for_:
            if not self._draw_iteration(loop, at, inputs, case):
                return False
            lo, hi = (self.values(x, case, inputs.given) for x in loop.operands[:2])
            is_first = lo >= hi if v in loop.results else inputs.given[iteration] == lo
        words = [o for o in self.func.body.all_ops if o.kind is tile.atomic]
        drawn = {o.result: np.exp2(rng.uniform(0, 17, SAMPLES)).astype(np.int64) for o in words}
        first, then = self.dependence.flow[v]
        one = self.values(first, case, inputs.given)
        other = self.values(then, case, {**inputs.given, **drawn})
        if one is None or other is None:
            return False
        inputs.given[v] = np.where(is_first, one, other)
        return True

    def _order(self, v: Value) -> int:
        """A fixed order of values, so that the same is drawn each time."""
        return self._orders[v]

    @cached_property
    def _orders(self) -> dict[Value, int]:
        return {v: i for i, v in enumerate(defined(self.func.body))}
