"""What holds at many inputs, drawn at random and told without a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from warploom.check.cases import Case
from warploom.check.dependence import COMPARISONS, Condition
from warploom.check.sums import Sums
from warploom.check.values import Values, Wish
from warploom.ir.analysis import closure, defined, loops
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import Scalar

SAMPLES = 4096
LARGEST, SMALLEST = 1 << 14, 64  # constants for which samples say something


class Drawn:
    """Inputs of one function."""

    def __init__(self, values: Values, sums: Sums) -> None:
        self.values, self.sums = values, sums
        self.dependence, self.steering, self.func = values.dependence, values.steering, values.func
        self._ranks: dict[Value, int] = {}

    @cached_property
    def _carried(self) -> set[Value]:
        """What loops carry from one iteration to the next."""
        every = (o for o in self.func.body.all_ops if o.kind in (control.for_, control.while_))
        return {p for o in every for r in o.regions for p in r.params} - set(self.values.loop_of)

    @cached_property
    def _around(self) -> dict[Op, tuple[Op, ...]]:
        return loops(self.func.body)

    def longest(self, loop: Op, trips: int, case: Case) -> tuple[Wish, int]:
        """Of many inputs at random one at which a loop runs for longest, and how often."""
        found, numbers, ids = self._trips(loop, case)
        if found is None:
            return Wish({}, {}), -1
        most = min(trips, int(found.max()))
        size = sum((np.log2(x + 1.0) for x in (*numbers.values(), *ids.values())), np.zeros(1))
        best = int(np.where(found >= most, np.broadcast_to(size, found.shape), np.inf).argmin())
        chosen = ({i: int(x[best]) for i, x in part.items()} for part in (numbers, ids))
        return Wish(*chosen), most

    def most_found(self, loop: Op, case: Case) -> int | None:
        """The most iterations of a loop at many inputs, told without a run; None where they can't be told or
        where they are counted by several words of one array, which all are the same number here."""
        if self._counts_by_words(loop):
            return None
        found, _, _ = self._trips(loop, case)
        return None if found is None else int(found.max())

    def _counts_by_words(self, loop: Op) -> bool:
        """Is a loop counted by several words of one array?"""
        behind = closure(loop.operands[:3], self.dependence.flow_of)
        made = (self.dependence.made.get(v) for v in behind)
        loads = [o for o in made if o is not None and o.kind is tile.load]
        arrays = [array for o in loads for array in self.dependence.arrays(o.operands[0])]
        return len(set(arrays)) < len(arrays)

    def most_found_with(
        self, condition: Condition, outcome: bool, loop: Op, case: Case
    ) -> int | None:
        """The same where a condition comes to an outcome; None also where that is so at few inputs."""
        if loop.kind is not control.for_ or self._counts_by_words(loop):
            return None
        bounds = loop.operands[:3]
        given, _, _ = self._draw([condition.value, *bounds], case)
        found = self.values(condition.value, case, given)
        trips = self._counted(loop, case, given)
        if found is None or trips is None:
            return None
        those = trips[np.broadcast_to(found, (SAMPLES,)) == outcome]
        return int(those.max()) if those.size >= SAMPLES // 64 else None

    def constant(self, condition: Condition, case: Case) -> bool | None:
        """What a comparison comes to at all of many inputs, told without a run; None where it turns, and
        where that says little: for equality, remainders by constants, large constants."""
        if condition.op.kind in (arith.eq, arith.ne) or condition.op.kind not in COMPARISONS:
            return None
        behind = closure([condition.value], self.dependence.flow_of)
        if any(self.dependence.own(x) for x in behind & self._carried):
            return None  # only what it comes to in the first iteration is told
        for x in behind:
            o = self.dependence.made.get(x)
            if o is not None and o.kind is arith.const and abs(o.attrs["value"]) > LARGEST:
                return None
            if o is not None and o.kind in (arith.rem, arith.xor, arith.and_):
                if isinstance(x.type, Scalar) and x.type.dtype.kind == "bool":
                    continue
                by = self.sums.linear(o.operands[1])
                if not set(by) - {1} and by.get(1, 0) > SMALLEST:
                    return None
        begins = [
            o.regions[0].yielded[0]
            for o in self._around.get(condition.op, ())
            if o.kind is control.while_
        ]
        given, _, _ = self._draw([condition.value, *begins], case)
        valid = np.ones(SAMPLES, np.bool_)
        for turn in sorted(behind & set(self.values.loop_of), key=self._order):
            lo, hi, by = (
                self.values(v, case, given) for v in self.values.loop_of[turn].operands[:3]
            )
            if lo is None or hi is None or by is None:
                return None
            rng = np.random.default_rng(self._order(turn))
            given[turn] = lo + by * (np.exp2(rng.uniform(0, 17, SAMPLES)).astype(np.int64) - 1)
            valid &= given[turn] < hi
        for v in begins:  # in no other input is it asked at all
            goes_on = self.values(v, case, given)
            valid &= goes_on if goes_on is not None else True
        found = self.values(condition.value, case, given)
        if found is None or valid.sum() < SAMPLES // 64:
            return None
        seen = np.broadcast_to(found, (SAMPLES,))[valid]
        return bool(seen[0]) if (seen == seen[0]).all() else None

    def _draw(
        self, values: Sequence[Value], case: Case
    ) -> tuple[dict[Value, Any], dict[int, Any], dict[int, Any]]:
        """Many inputs: what values hang on, the numbers of variables, and of programs."""
        rng, given = np.random.default_rng(0), dict[Value, Any]()
        numbers, ids = dict[int, Any](), dict[int, Any]()

        def some(most: int) -> Any:
            return np.exp2(rng.uniform(0, most, SAMPLES)).astype(np.int64) - 1

        for v in sorted(closure(values, self.dependence.flow_of), key=self._order):
            o = self.dependence.made.get(v)
            if v in self.values.index and self.values.index[v] in self.steering.free:
                i = self.values.index[v]
                given[v] = numbers[i] = some(17) * self.steering.divisor(i)
            elif o is not None and o.kind is tile.program_id:
                axis = o.attrs["axis"]
                given[v] = ids[axis] = ids.get(axis, some(8))
            elif o is not None and o.kind is tile.num_programs:
                if o.attrs["axis"] == 0 and not self.steering.has_own_grid:
                    grid = self.steering.grid
                    given[v] = numbers[grid] = numbers.get(grid, some(8) + 1)
            elif o is not None and o.kind is tile.load:
                for array in self.dependence.arrays(o.operands[0]):
                    if array.hint in self.steering.arrays:
                        i = self.steering.array(array.hint)
                        given[v] = numbers[i] = numbers.get(i, some(10))
        if self.steering.grid in numbers and 0 in ids:
            ids[0] %= numbers[self.steering.grid]
        return given, numbers, ids

    def _trips(self, loop: Op, case: Case) -> tuple[Any, dict[int, Any], dict[int, Any]]:
        """How often a loop runs at many inputs."""
        counts, numbers, ids = self.trips_at_many([loop], case)
        return counts.get(loop), numbers, ids

    def trips_at_many(
        self, loops: Sequence[Op], case: Case
    ) -> tuple[dict[Op, Any], dict[int, Any], dict[int, Any]]:
        """How often loops run at the same many inputs, where that can be told, and these inputs: the numbers
        of variables, and of programs."""
        bounds = [v for o in loops for v in o.operands[:3]]
        given, numbers, ids = self._draw(bounds, case)
        counts = {o: n for o in loops if (n := self._counted(o, case, given)) is not None}
        return counts, numbers, ids

    def _counted(self, loop: Op, case: Case, given: dict[Value, Any]) -> Any:
        lo, hi, by = (self.values(v, case, given) for v in loop.operands[:3])
        if lo is None or hi is None or by is None:
            return None
        n = -(-(np.int64(hi) - lo) // np.maximum(by, 1))
        return np.broadcast_to(n, (SAMPLES,)).clip(0)

    def _order(self, v: Value) -> int:
        """A fixed order of values, so that the same is drawn each time."""
        if not self._ranks:
            self._ranks.update((x, i) for i, x in enumerate(defined(self.func.body)))
        return self._ranks[v]
