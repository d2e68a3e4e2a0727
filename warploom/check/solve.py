"""Inputs that turn a condition: found by going back through what it is computed from.

A comparison x < y changes its outcome where x and y are equal.  One of them is taken to be what it is at some
input, and the other is made equal to it: through sums, products, quotients and remainders by what is known,
down to an argument, a program's number, a word of memory or a loop's variable, which asks for a loop that
runs so long.  What is found are candidates: a run says whether they do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.check.cases import Case, Steering
from warploom.check.dependence import CONNECTING, Condition, Dependence, Source
from warploom.ir.analysis import closure, defined
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import arith, cluster, control, hopper, task, tile
from warploom.ir.types import Pointer, Scalar
from warploom.sim.evaluate import PURE, prepared

DEEPEST = 24  # ops that are followed back from a condition
SWEEP = 1024  # iterations for which a condition on constants is told without a run

FEW, MOST_OF_AN_ATOM = 4, 16  # ways that are tried to bring about a part of a condition
LARGEST, SMALLEST = 1 << 14, 64  # constants for which samples say something
SAMPLES = 4096  # inputs at which a loop's trips are told

_ZERO = np.int32(0)
_NUMBERS = np.r_[np.arange(SWEEP), SWEEP * np.unique(np.geomspace(1, 4096, 64).astype(np.int64))]


@dataclass(frozen=True)
class Wish:
    """What an input must have: numbers of variables (see Steering), and a program's number along an axis."""

    numbers: Mapping[int, int]
    ids: Mapping[int, int]

    def and_(self, other: Wish) -> Wish:
        return Wish({**self.numbers, **other.numbers}, {**self.ids, **other.ids})


@dataclass(frozen=True)
class Course:
    """How a condition goes along a loop's iterations.  head: it may differ in so many of the first; tail: of
    the last; period: of the others.  is_known: this holds for every input."""

    head: int = 0
    tail: int = 0
    period: int = 1
    is_known: bool = True


class Solver:
    """For the conditions of one function."""

    def __init__(self, dependence: Dependence, steering: Steering) -> None:
        self.dependence, self.steering = dependence, steering
        self.func = dependence.func
        self._ranks: dict[Value, int] = {}
        self._index = {p: i for i, p in enumerate(self.func.params)}
        self._loop_of: dict[Value, Op] = {
            o.regions[0].params[0]: o for o in self.func.body.all_ops if o.kind is control.for_
        }

    # ---- what a value is at an input

    def value(self, v: Value, case: Case, given: Mapping[Value, Any] | None = None) -> Any:
        """A scalar at an input, in the first iteration of all loops (or where `given` says) of program 0;
        None where that can't be told."""
        memo: dict[Value, Any] = dict(given or {})

        def find(v: Value, depth: int) -> Any:
            if v not in memo:
                memo[v] = None  # what is computed from itself is not told
                memo[v] = self._find(v, case, find, depth) if depth < 10 * DEEPEST else None
            return memo[v]

        with np.errstate(all="ignore"):
            return find(v, 0)

    def _find(self, v: Value, case: Case, find: Any, depth: int) -> Any:
        if v in self._index:
            return None if isinstance(v.type, Pointer) else case.args[self._index[v]]
        if v in self._loop_of:
            return find(self._loop_of[v].operands[0], depth + 1)
        o = self.dependence.made.get(v)
        if o is None or o.kind in (control.if_, control.for_, control.while_):
            if o is not None and o.kind is control.if_:
                chosen = find(o.operands[0], depth + 1)
                arms = [find(r.yielded[o.results.index(v)], depth + 1) for r in o.regions]
                if np.ndim(chosen) and not any(x is None for x in arms):
                    return np.where(chosen, *arms)
                return None if chosen is None or np.ndim(chosen) else arms[0 if chosen else 1]
            behind = self.dependence.flow.get(v, ())
            return find(behind[0], depth + 1) if behind else None
        match o.kind:
            case (
                tile.program_id | task.replica_id | cluster.cta_rank | cluster.cta_id | tile.atomic
            ):
                return _ZERO
            case tile.num_programs:
                args = [find(p, depth + 1) for p in self.func.params]
                return self.steering.programs(case, args)[o.attrs["axis"]]
            case tile.load:
                return self._loaded(o, case)
            case hopper.shared_get:
                behind = self.dependence.flow.get(v, ())[1:]
                return find(behind[0], depth + 1) if behind else None
        if o.kind not in PURE or not isinstance(v.type, Scalar):
            return None
        values = [find(x, depth + 1) for x in o.operands]
        if any(x is None for x in values):
            return None
        numbers = [
            x.astype(t.type.dtype.numpy)
            if isinstance(x, np.ndarray)
            else t.type.dtype.numpy.type(x)
            for x, t in zip(values, o.operands, strict=True)
            if isinstance(t.type, Scalar)
        ]
        out = prepared(o)(*numbers)
        return out[o.results.index(v)] if isinstance(out, tuple) else out

    def _loaded(self, o: Op, case: Case) -> Any:
        fills = dict(case.memory)
        for array in self.dependence.arrays(o.operands[0]):
            if array.hint in fills:
                return np.int64(fills[array.hint](0))
        return None

    # ---- inputs at which it is another one

    def turning(self, condition: Condition, case: Case) -> Iterator[Wish]:
        """What an input must have, beside what `case` has, for the condition to turn there perhaps."""
        o = condition.op
        if o.kind in CONNECTING:
            for wanted in (True, False):
                yield from self._making(condition.value, wanted, case, Wish({}, {}))
            return
        if len(o.operands) != 2 or o.kind not in _COMPARED:
            for n in (0, 1):
                yield from self.reach(condition.value, n, case)
            return
        x, y = o.operands
        for one, other in ((x, y), (y, x)):
            at = self.value(other, case)
            if at is None:
                continue
            for by in (0, -1, 1):
                yield from itertools.islice(self.reach(one, int(at) + by, case), 12)
        now = self.value(condition.value, case)
        for wishes, swept in self._sweeps((condition.value,), case) if now is not None else ():
            unlike = np.flatnonzero(swept[0] != now)
            yield from (wishes(int(i)) for i in unlike[:1])

    def _making(self, v: Value, wanted: bool, case: Case, wish: Wish) -> Iterator[Wish]:
        """What an input must have, beside what is wished for already, for an i1 to come to this: comparison
        by comparison, all of a conjunction, one of a disjunction."""
        o = self.dependence.made.get(v)
        if o is None:
            return
        sources = self.dependence.sources(v)
        if Source.TURN not in sources and self._comes_to(v, wanted, case, wish):
            yield wish
            return
        if o.kind is arith.not_:
            yield from self._making(o.operands[0], not wanted, case, wish)
        elif o.kind in (arith.and_, arith.or_):
            x, y = o.operands
            if (o.kind is arith.and_) == wanted:
                for one in itertools.islice(self._making(x, wanted, case, wish), FEW):
                    yield from itertools.islice(self._making(y, wanted, case, one), FEW)
            else:
                yield from self._making(x, wanted, case, wish)
                yield from self._making(y, wanted, case, wish)
        elif o.kind in CONNECTING:  # an xor or a select: each outcome of each part
            for x, outcome in itertools.product(o.operands, (True, False)):
                yield from itertools.islice(self._making(x, outcome, case, wish), FEW)
        else:
            atom = Condition(v, o, sources, o)
            base = self.steering.case(case.values, wish.numbers)
            for more in itertools.islice(self.turning(atom, base), MOST_OF_AN_ATOM):
                both = wish.and_(more)
                if Source.TURN in sources or self._comes_to(v, wanted, case, both):
                    yield both

    def _comes_to(self, v: Value, wanted: bool, case: Case, wish: Wish) -> bool:
        """Whether an i1 is so at an input with what is wished for; yes where that can't be told."""
        found = self.value(v, self.steering.case(case.values, wish.numbers), self._ids(wish))
        return found is None or bool(found) is wanted

    def outcome(self, condition: Condition, case: Case, wish: Wish) -> bool | None:
        """A condition at an input, in the program that is wished for; None where that can't be told."""
        found = self.value(condition.value, case, self._ids(wish))
        return None if found is None else bool(found)

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
                and self.value(o.operands[0], base) == False  # noqa: E712
            ]
            for condition in broken:
                for wish in self.turning(condition, base):
                    case = self.steering.case(base.values, wish.numbers)
                    if self.value(condition.value, case):
                        base = case
                        break
        return base

    def reach(self, v: Value, n: int, case: Case, depth: int = 0) -> Iterator[Wish]:
        """What makes a value n, or nearly so."""
        if depth > DEEPEST:
            return
        if v in self._index:
            i = self._index[v]
            if i in self.steering.free and n >= 0:
                yield from (Wish({i: m}, {}) for m in self.steering.allowed(i, n))
            return
        if v in self._loop_of:
            yield from self._iteration(self._loop_of[v], n, case, depth)
            return
        o = self.dependence.made.get(v)
        if o is not None and o.kind is control.if_:
            yield from self._chosen(o, o.results.index(v), n, case, depth)
            return
        if o is None or o.kind in (control.for_, control.while_, hopper.shared_get):
            behind = self.dependence.flow.get(v, ())
            for x in behind[1:] if o is not None and o.kind is hopper.shared_get else behind:
                yield from self.reach(x, n, case, depth + 4)
            return
        match o.kind:
            case tile.program_id:
                if 0 <= n < 1 << 20:
                    yield Wish({}, {o.attrs["axis"]: n})
            case tile.num_programs:
                if 0 < n < 1 << 20 and o.attrs["axis"] == 0:
                    yield Wish({self.steering.grid: n}, {})
            case tile.load:
                for array in self.dependence.arrays(o.operands[0]):
                    if array.hint in self.steering.arrays:
                        yield Wish({self.steering.array(array.hint): n}, {})
            case _:
                yield from self._backwards(o, n, case, depth + 1)

    def _chosen(self, o: Op, result: int, n: int, case: Case, depth: int) -> Iterator[Wish]:
        """The arm of an `if` that gives n, or one made to, and the condition that chooses it."""
        for wanted, r in zip((True, False), o.regions, strict=True):
            given = r.yielded[result]
            if self.value(given, case) == n:
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
                other = self.value(o.operands[1 - i], case)
                wanted = None if other is None else _undone(o.kind, i, n, int(other))
            else:
                wanted = -n if o.kind is arith.neg else n
            if wanted is not None:
                yield from self.reach(x, wanted, case, depth)

    def _iteration(self, loop: Op, n: int, case: Case, depth: int) -> Iterator[Wish]:
        """A loop that comes to n: it runs some iterations beyond it, or ends just there."""
        lo, step = (self.value(v, case) for v in (loop.operands[0], loop.operands[2]))
        if lo is None or step is None or int(step) <= 0:
            return
        turn = (n - int(lo)) // int(step)
        if 0 <= turn < 1 << 16:
            for trips in (turn + 2 + self.steering.longest, turn + 2, turn + 1):
                yield from self.trips(loop, trips, case, depth)
        yield from self.reach(loop.operands[0], n, case, depth + 4)

    def trips(self, loop: Op, trips: int, case: Case, depth: int = 0) -> Iterator[Wish]:
        """What makes a loop run so often."""
        lo, step = (self.value(v, case) for v in (loop.operands[0], loop.operands[2]))
        if lo is not None and step is not None:
            end = int(lo) + int(step) * trips
            yield from itertools.islice(self.reach(loop.operands[1], end, case, depth + 1), 4)
        if depth == 0:
            yield from self._climb(loop, trips, case)

    def _climb(self, loop: Op, trips: int, case: Case) -> Iterator[Wish]:
        """Changes one number after the other so that a loop runs for longer, as long as that helps."""
        at, most = self._drawn(loop, trips, case)
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

    def _drawn(self, loop: Op, trips: int, case: Case) -> tuple[Wish, int]:
        """Of many inputs at random one at which a loop runs for longest, and how often."""
        found, numbers, ids = self._drawn_trips(loop, case)
        if found is None:
            return Wish({}, {}), -1
        most = min(trips, int(found.max()))
        size = sum((np.log2(x + 1.0) for x in (*numbers.values(), *ids.values())), np.zeros(1))
        best = int(np.where(found >= most, np.broadcast_to(size, found.shape), np.inf).argmin())
        chosen = ({i: int(x[best]) for i, x in part.items()} for part in (numbers, ids))
        return Wish(*chosen), most

    def most_found(self, loop: Op, case: Case) -> int | None:
        """The most iterations of a loop at many inputs, told without a run; None where they can't be told."""
        found, _, _ = self._drawn_trips(loop, case)
        return None if found is None else int(found.max())

    def constant(self, condition: Condition, case: Case) -> bool | None:
        """What a comparison comes to at all of many inputs, told without a run; None where it turns, and
        where that says little: for equality, remainders by constants, large constants."""
        if condition.op.kind in (arith.eq, arith.ne) or condition.op.kind not in _COMPARED:
            return None
        behind = closure([condition.value], self.dependence.flow_of)
        for x in behind:
            o = self.dependence.made.get(x)
            if o is not None and o.kind is arith.const and abs(o.attrs["value"]) > LARGEST:
                return None
            if o is not None and o.kind in (arith.rem, arith.xor, arith.and_):
                if isinstance(x.type, Scalar) and x.type.dtype.kind == "bool":
                    continue
                by = self.linear(o.operands[1])
                if not set(by) - {1} and by.get(1, 0) > SMALLEST:
                    return None
        given, _, _ = self._draw([condition.value], case)
        valid = np.ones(SAMPLES, np.bool_)
        for turn in sorted(behind & set(self._loop_of), key=self._order):
            lo, hi, by = (self.value(v, case, given) for v in self._loop_of[turn].operands[:3])
            if lo is None or hi is None or by is None:
                return None
            rng = np.random.default_rng(self._order(turn))
            given[turn] = lo + by * (np.exp2(rng.uniform(0, 8, SAMPLES)).astype(np.int64) - 1)
            valid &= given[turn] < hi
        found = self.value(condition.value, case, given)
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
            if v in self._index and self._index[v] in self.steering.free:
                i = self._index[v]
                given[v] = numbers[i] = some(17) * self.steering.divisor(i)
            elif o is not None and o.kind is tile.program_id:
                axis = o.attrs["axis"]
                given[v] = ids[axis] = ids.get(axis, some(8))
            elif o is not None and o.kind is tile.load:
                for array in self.dependence.arrays(o.operands[0]):
                    if array.hint in self.steering.arrays:
                        i = self.steering.array(array.hint)
                        given[v] = numbers[i] = numbers.get(i, some(10))
        return given, numbers, ids

    def _drawn_trips(self, loop: Op, case: Case) -> tuple[Any, dict[int, Any], dict[int, Any]]:
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
        counts = dict[Op, Any]()
        for o in loops:
            lo, hi, by = (self.value(v, case, given) for v in o.operands[:3])
            if lo is not None and hi is not None and by is not None:
                n = -(-(np.int64(hi) - lo) // np.maximum(by, 1))
                counts[o] = np.broadcast_to(n, (SAMPLES,)).clip(0)
        return counts, numbers, ids

    def _order(self, v: Value) -> int:
        """A fixed order of values, so that the same is drawn each time."""
        if not self._ranks:
            self._ranks.update((x, i) for i, x in enumerate(defined(self.func.body)))
        return self._ranks[v]

    def _sweeps(
        self, values: Sequence[Value], case: Case, at: Wish | None = None
    ) -> Iterator[tuple[Callable[[int], Wish], tuple[Any, ...]]]:
        """What scalars are for many numbers of one of their inputs, the others being what they are with what
        is wished for already: the inputs by their index, and arrays."""
        behind = closure(values, self.dependence.flow_of)
        numbers, begun = _NUMBERS, at or Wish({}, {})
        case = self.steering.case(case.values, begun.numbers)
        ids = self._ids(begun)

        def told(given: dict[Value, Any]) -> tuple[Any, ...] | None:
            found = [self.value(v, case, {**ids, **given}) for v in values]
            if any(x is None for x in found):
                return None
            return tuple(np.broadcast_to(x, numbers.shape).astype(np.int64) for x in found)

        for i, p in enumerate(self.func.params):
            if p in behind and i in self.steering.free:
                by = self.steering.divisor(i)
                if (found := told({p: numbers * by})) is not None:
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
            if (found := told(given)) is not None:
                yield (lambda n, axis=axis: Wish({}, {axis: int(numbers[n])})), found  # type: ignore[misc]
        for name, given in of_array.items():
            if name in self.steering.arrays and (found := told(given)) is not None:
                i = self.steering.array(name)
                yield (lambda n, i=i: Wish({i: int(numbers[n])}, {})), found  # type: ignore[misc]

    def most_trips(self, loop: Op) -> int | None:
        """How often a loop runs at most, whatever the input; None where that is not known."""
        lo, hi, step = loop.operands[:3]
        stride = self.linear(step)
        if set(stride) - {1} or stride.get(1, 0) <= 0:
            return None
        spans = [_added(u, low, -1) for u in self._above(hi) for low in self._below(lo)]
        known = [span.get(1, 0) for span in spans if not set(span) - {1}]
        return max(0, -(-min(known) // stride[1])) if known else None

    def _above(self, v: Value) -> list[dict[Any, int]]:
        """Sums that a value never exceeds."""
        return self._bounds(v, arith.minimum, 0)

    def _below(self, v: Value) -> list[dict[Any, int]]:
        """Sums that never exceed a value."""
        return self._bounds(v, arith.maximum, 1)

    def _bounds(self, v: Value, either: OpKind, below: int) -> list[dict[Any, int]]:
        o, own = self.dependence.made.get(v), [self.linear(v)]
        if o is None:
            return own
        if o.kind is either:
            return own + [b for x in o.operands for b in self._bounds(x, either, below)]
        if o.kind is arith.cast:
            return self._bounds(o.operands[0], either, below)
        if o.kind is arith.add:
            x, y = o.operands
            for one, other in ((x, y), (y, x)):
                own += [_added(b, self.linear(other), 1) for b in self._bounds(one, either, below)]
        if o.kind is arith.rem and not below and set(self.linear(o.operands[1])) == {1}:
            own.append({1: self.linear(o.operands[1])[1] - 1})
        if o.kind is arith.mul:
            for x, y in (o.operands, reversed(o.operands)):
                quotient, by = self.dependence.made.get(x), self.linear(y)
                if quotient is None or quotient.kind is not arith.idiv or set(by) != {1}:
                    continue
                if self.linear(quotient.operands[1]) == by:  # x // n * n
                    inner = self._bounds(quotient.operands[0], either, below)
                    own += [_added(b, {1: by[1] - 1}, -below) for b in inner]
        return own

    # ---- along a loop

    def course(self, condition: Condition, loop: Op) -> Course:
        """How a condition goes along the iterations of a loop around it."""
        behind = closure([condition.value], self.dependence.flow_of)
        body = loop.regions[-1]
        carried = {p for r in loop.regions for p in r.params} - set(body.params[:1])
        if loop.kind is control.while_:
            carried |= set(body.params[:1])
        if any(self.dependence.own(p) for p in carried & behind):
            return Course(is_known=False)
        if loop.kind is control.while_ or body.params[0] not in behind:
            return Course()
        return self._table(condition, loop, behind) or self._relative(condition, loop)

    def _table(self, condition: Condition, loop: Op, behind: set[Value]) -> Course | None:
        """Where it hangs on constants and the loop's variable alone: told without a run."""
        turn, (lo, _, step) = loop.regions[0].params[0], loop.operands[:3]
        if any(self.dependence.own(x) for x in behind - {turn}):
            return None
        case = Case((0,) * len(self.func.params), (1,))
        if any(self.dependence.sources(v) for v in (lo, step)):
            return None
        first, stride = self.value(lo, case), self.value(step, case)
        if first is None or stride is None:
            return None
        turns = np.arange(SWEEP, dtype=np.int64) * int(stride) + int(first)
        found = self.value(condition.value, case, {turn: turns})
        if found is None:
            return None
        seen = np.broadcast_to(found, turns.shape)
        for period in range(1, SWEEP // 4):
            unlike = np.flatnonzero(seen[:-period] != seen[period:])
            head = int(unlike[-1]) + 1 if unlike.size else 0
            if head + 2 * period <= SWEEP // 2 and not self._turns_later(condition, loop):
                return Course(head=head, period=period)
        return Course(is_known=False)

    def _turns_later(self, condition: Condition, loop: Op) -> bool:
        """Whether a constant that the condition compares with is reached after the sweep."""
        known = self._relative(condition, loop)
        if known.is_known:
            return known.head >= SWEEP // 2
        behind = closure([condition.value], self.dependence.flow_of)
        made = (self.dependence.made.get(x) for x in behind)
        step = self.value(loop.operands[2], Case((0,) * len(self.func.params), (1,)))
        constants = [o.attrs["value"] for o in made if o is not None and o.kind is arith.const]
        return any(abs(int(n)) >= int(step) * SWEEP // 2 for n in constants)

    def _relative(self, condition: Condition, loop: Op) -> Course:
        """Where it compares the loop's variable with the loop's begin or end, constants apart."""
        unknown = Course(is_known=False)
        if condition.op.kind not in _COMPARED:
            return unknown
        x, y = condition.op.operands
        turn, (lo, hi, step) = loop.regions[0].params[0], loop.operands[:3]
        stride = self.linear(step)
        if set(stride) - {1} or stride.get(1, 0) <= 0:
            return unknown
        g = _added(self.linear(x), self.linear(y), -1)
        slope = g.pop(turn, 0)
        if not slope:
            return unknown
        for end in (lo, hi):
            rest = _added(g, self.linear(end), slope)
            if not set(rest) - {1}:
                switch = abs(rest.get(1, 0)) // (abs(slope) * stride[1]) + 2
                return Course(head=switch) if end is lo else Course(tail=switch)
        return unknown

    def linear(self, v: Value) -> dict[Any, int]:
        """A sum of terms with their factors; 1 stands for the constant.  What is not a sum is a term, equal
        to another one where the same is computed from the same."""
        o = self.dependence.made.get(v)
        if o is None or o.kind not in PURE or len(o.results) != 1:
            return {v: 1}
        if o.kind is arith.const:
            return {1: int(o.attrs["value"])} if o.attrs["value"] else {}
        if o.kind is arith.cast:
            return self.linear(o.operands[0])
        parts = [self.linear(x) for x in o.operands]
        if o.kind in (arith.add, arith.sub):
            return _added(parts[0], parts[1], -1 if o.kind is arith.sub else 1)
        if o.kind is arith.mul:
            for one, other in (parts, reversed(parts)):
                if not set(one) - {1}:
                    return {t: n * one.get(1, 0) for t, n in other.items() if one}
        term = (o.kind, *(tuple(sorted(p.items(), key=lambda t: hash(t[0]))) for p in parts))
        return {term: 1}


def _added(a: dict[Any, int], b: dict[Any, int], factor: int) -> dict[Any, int]:
    """a + factor · b."""
    out = dict(a)
    for t, n in b.items():
        out[t] = out.get(t, 0) + factor * n
    return {t: n for t, n in out.items() if n}


_COMPARED: frozenset[OpKind] = frozenset(
    (arith.lt, arith.le, arith.gt, arith.ge, arith.eq, arith.ne)
)


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
