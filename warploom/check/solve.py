"""Inputs that flip a condition: found by going back through what it is computed from.

A comparison x < y changes its outcome where x and y are equal.  One of them is taken to be what it is at some
input, and the other is made equal to it: through sums, products, quotients and remainders by what is known,
down to an argument, a program's number, a word of memory or a loop's variable, which asks for a loop that
runs so long.  What is found are candidates: a run says whether they do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from warploom.check.dependence import (
    CHOOSING,
    COMPARISONS,
    CONNECTING,
    Condition,
    Dependence,
    Source,
)
from warploom.check.drawn import Drawn
from warploom.check.input_space import InputSpace
from warploom.check.runs import Case
from warploom.check.sums import Sums, added
from warploom.check.values import Values, Wish
from warploom.ir.analysis import closure
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import arith, control, smem, tile

DEEPEST = 24  # ops that are followed back from a condition
SWEPT = 1024  # numbers of an input at which scalars are told one by one
FEW, MOST_OF_AN_ATOM = 4, 16  # ways that are tried to bring about a part of a condition

_NUMBERS = np.r_[np.arange(SWEPT), SWEPT * np.unique(np.geomspace(1, 4096, 64).astype(np.int64))]


class Solver:
    """For the conditions of one function."""

    def __init__(self, dependence: Dependence, space: InputSpace) -> None:
        self.dependence, self.space = dependence, space
        self.func = dependence.func
        self.values, self.sums = Values(dependence, space), Sums(dependence)
        self.drawn = Drawn(self.values, self.sums)

    # ---- inputs at which it is another one

    def flipping(self, condition: Condition, case: Case) -> Iterator[Wish]:
        """What an input must have, beside what `case` has, for the condition to flip there perhaps."""
        o = condition.op
        if o.kind in CONNECTING:
            both = (self._making(condition.value, x, case, Wish({}, {})) for x in (True, False))
            for pair in itertools.zip_longest(*both):
                yield from (wish for wish in pair if wish is not None)
            return
        if len(o.operands) != 2 or o.kind not in COMPARISONS | CHOOSING:
            for n in (0, 1):
                yield from self.reach(condition.value, n, case)
            return
        x, y = o.operands
        for one, other in ((x, y), (y, x)):
            at = self.values(other, case)
            if at is None:
                continue
            for by in (0, -1, 1):
                yield from itertools.islice(self.reach(one, int(at) + by, case), 12)
        now = self.values.outcome(condition.value, case)
        is_choosing = o.kind in CHOOSING
        asked = o.operands if is_choosing else (condition.value,)
        for wishes, swept in self._sweeps(asked, case) if now is not None else ():
            unlike = np.flatnonzero((np.less(*swept) if is_choosing else swept[0]) != now)
            yield from (wishes(int(i)) for i in unlike[:1])

    def _making(self, v: Value, wanted: bool, case: Case, wish: Wish) -> Iterator[Wish]:
        """What an input must have, beside what is wished for already, for an i1 to come to this: comparison
        by comparison, all of a conjunction, one of a disjunction."""
        o = self.dependence.made.get(v)
        if o is None:
            return
        sources = self.dependence.sources(v)
        if Source.ITERATION not in sources and self._comes_to(v, wanted, case, wish):
            yield wish
            return
        if o.kind is arith.not_:
            yield from self._making(o.operands[0], not wanted, case, wish)
        elif o.kind in (arith.and_, arith.or_):
            x, y = o.operands
            if (o.kind is arith.and_) == wanted:
                is_told = Source.ITERATION not in sources
                for first, then in ((x, y), (y, x)):  # what makes one may undo the other
                    for one in itertools.islice(self._making(first, wanted, case, wish), FEW):
                        for both in itertools.islice(self._making(then, wanted, case, one), FEW):
                            if not is_told or self._comes_to(v, wanted, case, both):
                                yield both
            else:
                yield from self._making(x, wanted, case, wish)
                yield from self._making(y, wanted, case, wish)
        elif o.kind in CONNECTING:  # an xor or a select: each outcome of each part
            for x, outcome in itertools.product(o.operands, (True, False)):
                yield from itertools.islice(self._making(x, outcome, case, wish), FEW)
        else:
            atom = Condition(v, o, sources, o)
            base = self.space.changed(case, wish.numbers)
            for more in itertools.islice(self.flipping(atom, base), MOST_OF_AN_ATOM):
                both = wish.and_(more)
                if Source.ITERATION in sources or self._comes_to(v, wanted, case, both):
                    yield both

    def making_each(
        self, wanted: Sequence[tuple[Condition, bool]], case: Case, wish: Wish
    ) -> Iterator[Wish]:
        """What an input must have for several conditions to come each to an outcome, perhaps."""
        if not wanted:
            yield wish
            return
        (condition, outcome), *others = wanted
        for one in itertools.islice(self._making(condition.value, outcome, case, wish), FEW):
            yield from self.making_each(others, case, one)

    def _comes_to(self, v: Value, wanted: bool, case: Case, wish: Wish) -> bool:
        """Whether an i1 is so at an input with what is wished for; yes where that can't be told."""
        found = self.values(v, self.space.changed(case, wish.numbers), self._ids(wish))
        return found is None or bool(found) is wanted

    def outcome(self, condition: Condition, case: Case, wish: Wish) -> bool | None:
        """A condition at an input, in the program that is wished for; None where that can't be told."""
        found = self.values.outcome(condition.value, case, self._ids(wish))
        return None if found is None else bool(found)

    def pinned(self, condition: Condition, case: Case, wish: Wish) -> Wish:
        """A wish that keeps the other arguments that a condition hangs on as they are."""
        behind = closure([condition.value], self.dependence.behind)
        kept = (i for i, p in enumerate(self.func.params) if p in behind and i in self.space.free)
        return Wish({i: case.args[i] for i in kept}, {}).and_(wish)

    def _ids(self, wish: Wish) -> dict[Value, Any]:
        """The program that is wished for, as its numbers."""
        return {
            o.result: np.int32(wish.ids[o.attrs["axis"]])
            for o in self.func.body.all_ops
            if o.kind is tile.program_id and o.attrs["axis"] in wish.ids
        }

    def promised(self, base: Case) -> Case:
        """The input with numbers for which the promises of `assume` hold, where some are found."""
        for _ in range(4):
            broken = [
                Condition(o.operands[0], made, self.dependence.sources(o.operands[0]), o)
                for o in self.func.body.all_ops
                if o.kind is control.assume
                and (made := self.dependence.made.get(o.operands[0])) is not None
                and self.values(o.operands[0], base) == False  # noqa: E712
            ]
            for condition in broken:
                for wish in self.flipping(condition, base):
                    case = self.space.changed(base, wish.numbers)
                    if self.values(condition.value, case):
                        base = case
                        break
        return base

    def reach(self, v: Value, n: int, case: Case, depth: int = 0) -> Iterator[Wish]:
        """What makes a value n, or nearly so."""
        if depth > DEEPEST:
            return
        if v in self.values.index:
            i = self.values.index[v]
            if i in self.space.free:
                yield from (Wish({i: m}, {}) for m in self.space.allowed(i, n))
            return
        if v in self.values.loop_of:
            yield from self._iteration(self.values.loop_of[v], n, case, depth)
            return
        o = self.dependence.made.get(v)
        if o is not None and o.kind is control.if_:
            yield from self._chosen(o, o.results.index(v), n, case, depth)
            return
        if v in self._carried:
            yield from self._counted(v, n, case, depth)
        if o is None or o.kind in (control.for_, control.while_, smem.shared_get):
            behind = self.dependence.flow.get(v, ())
            for x in behind[1:] if o is not None and o.kind is smem.shared_get else behind:
                yield from self.reach(x, n, case, depth + 4)
            return
        match o.kind:
            case tile.program_id:
                if 0 <= n < 1 << 20:
                    yield Wish({}, {o.attrs["axis"]: n})
            case tile.num_programs:
                if 0 < n < 1 << 20 and o.attrs["axis"] == 0:
                    yield Wish({self.space.grid: n}, {})
            case tile.load:
                for array in self.dependence.arrays(o.operands[0]):
                    if array.hint in self.space.arrays:
                        yield Wish({self.space.array(array.hint): n}, {})
            case _:
                yield from self._backwards(o, n, case, depth + 1)

    @cached_property
    def _carried(self) -> dict[Value, Op]:
        """What loops carry, with the loop."""
        every = (o for o in self.func.body.all_ops if o.kind in control.LOOPS)
        return {
            p: o for o in every for r in o.regions for p in r.params if p not in self.values.loop_of
        }

    def _counted(self, v: Value, n: int, case: Case, depth: int) -> Iterator[Wish]:
        """What makes a loop go on for so long that what it carries comes to n, where that grows by as much in
        each iteration (else by one), or is compared with what ends the loop."""
        loop = self._carried[v]
        if loop.kind is control.for_:
            first, then = self.dependence.flow[v]
            begin, way = self.values(first, case), added(self.sums.linear(then), {v: 1}, -1)
            by = way.get(1, 0) if not set(way) - {1} else 1
            if begin is not None and by > 0 and 0 <= (n - int(begin)) // by < 1 << 16:
                before = (n - int(begin)) // by
                yield from self.trips(loop, before + 2 + self.space.longest, case, depth + 1)
            return
        goes_on = self.dependence.made.get(loop.regions[0].yielded[0])
        if goes_on is not None and goes_on.kind in COMPARISONS:
            for x in goes_on.operands:
                if x not in self._carried:
                    yield from self.reach(x, n + self.space.longest, case, depth + 1)

    def _chosen(self, o: Op, result: int, n: int, case: Case, depth: int) -> Iterator[Wish]:
        """The arm of an `if` that gives n, or one made to, and the condition that chooses it."""
        for wanted, r in zip((True, False), o.regions, strict=True):
            given = r.yielded[result]
            if self.values(given, case) == n:
                yield from itertools.islice(
                    self._making(o.operands[0], wanted, case, Wish({}, {})), FEW
                )
            else:
                for wish in itertools.islice(self.reach(given, n, case, depth + 4), FEW):
                    yield wish
                    yield from itertools.islice(
                        self._making(o.operands[0], wanted, case, wish), FEW
                    )

    def _backwards(self, o: Op, n: int, case: Case, depth: int) -> Iterator[Wish]:
        """Through an op of arithmetic, by way of each operand, the others being what they are."""
        if o.kind in (arith.minimum, arith.maximum):  # both, where one alone leaves it to the other
            both = (itertools.islice(self.reach(x, n, case, depth), 2) for x in o.operands)
            yield from (one.and_(other) for one, other in itertools.product(*both))
        for i, x in enumerate(o.operands):
            if o.kind is arith.select and i == 0:
                continue
            if len(o.operands) == 2:
                other = self.values(o.operands[1 - i], case)
                wanted = None if other is None else _undone(o.kind, i, n, int(other))
            else:
                wanted = -n if o.kind is arith.neg else n
            if wanted is not None:
                yield from self.reach(x, wanted, case, depth)

    def _iteration(self, loop: Op, n: int, case: Case, depth: int) -> Iterator[Wish]:
        """A loop that comes to n: it runs some iterations beyond it, or ends just there."""
        lo, step = (self.values(v, case) for v in (loop.operands[0], loop.operands[2]))
        if lo is None or step is None or int(step) <= 0:
            return
        iteration = (n - int(lo)) // int(step)
        if 0 <= iteration < 1 << 16:
            for trips in (iteration + 2 + self.space.longest, iteration + 2, iteration + 1):
                yield from self.trips(loop, trips, case, depth)
        yield from self.reach(loop.operands[0], n, case, depth + 4)

    def trips(self, loop: Op, trips: int, case: Case, depth: int = 0) -> Iterator[Wish]:
        """What makes a loop run so often."""
        lo, step = (self.values(v, case) for v in (loop.operands[0], loop.operands[2]))
        if lo is not None and step is not None:
            end = int(lo) + int(step) * trips
            yield from itertools.islice(self.reach(loop.operands[1], end, case, depth + 1), 4)
        if depth == 0:
            yield from self._climb(loop, trips, case)

    def _climb(self, loop: Op, trips: int, case: Case) -> Iterator[Wish]:
        """Changes one number after the other so that a loop runs for longer, as long as that helps."""
        at, most = self.drawn.longest(loop, trips, case)
        for _ in range(4 if most < trips else 0):
            before = most
            for wishes, (first, last, by) in self._sweeps(loop.operands[:3], case, at):
                found = np.clip(-(-(last - first) // np.maximum(by, 1)), 0, trips)
                best = int(found.argmax())
                if found[best] > most:
                    at, most = at.and_(wishes(best)), int(found[best])
            if most in (trips, before):
                break
        if most > 0:
            yield at

    def _sweeps(
        self, values: Sequence[Value], case: Case, at: Wish | None = None
    ) -> Iterator[tuple[Callable[[int], Wish], tuple[Any, ...]]]:
        """What scalars are for many numbers of one of their inputs, the others being what they are with what
        is wished for already: the inputs by their index, and arrays."""
        behind = closure(values, self.dependence.flow_of)
        numbers, begun = _NUMBERS, at or Wish({}, {})
        case = self.space.changed(case, begun.numbers)
        ids = self._ids(begun)

        def values_at(given: dict[Value, Any]) -> tuple[Any, ...] | None:
            found = [self.values(v, case, {**ids, **given}) for v in values]
            if any(x is None for x in found):
                return None
            return tuple(np.broadcast_to(x, numbers.shape).astype(np.int64) for x in found)

        for i, p in enumerate(self.func.params):
            if p in behind and i in self.space.free:
                by = self.space.divisor(i)
                if (found := values_at({p: numbers * by})) is not None:
                    yield (lambda n, i=i, by=by: Wish({i: int(numbers[n]) * by}, {})), found  # type: ignore[misc]
        of_axis: dict[int, dict[Value, Any]] = {}
        of_array: dict[str, dict[Value, Any]] = {}
        for v in behind:
            o = self.dependence.made.get(v)
            if o is not None and o.kind is tile.program_id:
                of_axis.setdefault(o.attrs["axis"], {})[v] = numbers
            elif o is not None and o.kind is tile.load:
                for array in self.dependence.arrays(o.operands[0]):
                    of_array.setdefault(array.hint, {})[v] = numbers
        for axis, given in of_axis.items():
            if (found := values_at(given)) is not None:
                yield (lambda n, axis=axis: Wish({}, {axis: int(numbers[n])})), found  # type: ignore[misc]
        for name, given in of_array.items():
            if name in self.space.arrays and (found := values_at(given)) is not None:
                i = self.space.array(name)
                yield (lambda n, i=i: Wish({i: int(numbers[n])}, {})), found  # type: ignore[misc]


def _undone(kind: OpKind, i: int, n: int, other: int) -> int | None:
    """What operand i must be for the op to give n."""
    match kind:
        case arith.add:
            return n - other
        case arith.sub:
            return n + other if i == 0 else other - n
        case arith.mul:
            return -(-n // other) if other else None
        case arith.idiv | arith.fast_div:
            return n * other if i == 0 else None
        case arith.rem | arith.minimum | arith.maximum | arith.and_ | arith.or_:
            return n if i == 0 or kind not in (arith.rem,) else None
        case arith.xor:
            return n ^ other
        case arith.shl:
            return n >> other if i == 0 else None
        case arith.shr:
            return n << min(other, 30) if i == 0 else None
    return None
