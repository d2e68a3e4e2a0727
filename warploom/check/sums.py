"""Scalars as sums of terms, and what these say of how often a loop runs at most."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

from warploom.analysis.facts import facts_of
from warploom.check.dependence import COMPARISONS, Dependence
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import arith, cluster, control, task
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.types import DType, Scalar, i1, i32, i64
from warploom.sim.evaluate import PURE

# Terms with their factors; 1 stands for the constant, a loop for the number of its iteration, from 0.
Sum = dict[Any, int]
Bound = tuple[Sum, ...]  # the largest of several sums (the smallest, where it bounds from below)

MOST_BOUNDS = 12  # of one value, and sums in one of them


class Sums:
    """Those of one function."""

    def __init__(self, dependence: Dependence) -> None:
        self.dependence = dependence
        self.replicas = {
            o.result: int(tasks.attrs["replicas"][i])
            for tasks in dependence.func.body.all_ops
            if tasks.kind is task.tasks
            for i, r in enumerate(tasks.regions)
            for o in r.all_ops
            if o.kind is task.replica_id
        }
        # The numbers of replicas and of CTAs, with how many there are.
        self.ranks = dict(self.replicas)
        sizes = cluster_of(dependence.func)
        for o in dependence.func.body.all_ops:
            if o.kind is cluster.cta_rank:
                self.ranks[o.result] = math.prod(sizes)
            elif o.kind is cluster.cta_id:
                self.ranks[o.result] = sizes[o.attrs["axis"]]
        self._linear: dict[Value, Sum] = {}

    def linear(self, v: Value) -> Sum:
        """A value as a sum.  What is no sum is a term, equal to another that is computed from the same."""
        if v not in self._linear:
            self._linear[v] = self._as_sum(v)
        return self._linear[v]

    def _as_sum(self, v: Value) -> Sum:
        o = self.dependence.made.get(v)
        if o is None or o.kind not in PURE or len(o.results) != 1:
            return {v: 1}
        parts = [self.linear(x) for x in o.operands]
        if _is_on_integers(o):
            if o.kind is arith.const:
                return {1: o.attrs["value"]} if o.attrs["value"] else {}
            if o.kind is arith.cast:
                return parts[0]
            if o.kind in (arith.add, arith.sub):
                return added(parts[0], parts[1], -1 if o.kind is arith.sub else 1)
            if o.kind is arith.mul:
                for one, other in (parts, reversed(parts)):
                    if not set(one) - {1}:
                        return {t: n * one.get(1, 0) for t, n in other.items() if one}
            if o.kind in (arith.idiv, arith.fast_div):
                for loop in self.dependence.loops.get(o, ()):
                    if self._is_steps_of(loop, *parts):
                        return {loop: 1}
        attrs = tuple(sorted((name, repr(x)) for name, x in o.attrs.items()))
        return {((o.kind, attrs), *(frozenset(p.items()) for p in parts)): 1}

    def _is_steps_of(self, loop: Op, way: Sum, step: Sum) -> bool:
        """Is it the way from a loop's first number to its variable, and the loop's step?"""
        if loop.kind is not control.for_:
            return False
        first, by = map(self.linear, (loop.operands[0], loop.operands[2]))
        return step == by and way == added({loop.regions[0].params[0]: 1}, first, -1)

    def is_iteration(self, v: Value, loop: Op) -> bool:
        """Is a value the number of a loop's iteration, from 0?"""
        found = self.linear(v)
        return found == {loop: 1} or self._is_steps_of(loop, found, {1: 1})

    def constant(self, v: Value) -> int | None:
        """The number that a value is, whatever the input."""
        found = self.linear(v)
        return None if set(found) - {1} else found.get(1, 0)

    def outcome(self, v: Value) -> bool | None:
        """What an i1 comes to whatever the input: by what its numbers may be, and by what holds where they
        are compared, as the bounds of loops and the conditions around say.  None: that is not known."""
        o, known = self.dependence.made.get(v), facts_of(self.dependence.func).constant(v)
        if known is not None or o is None or o.kind not in COMPARISONS:
            return None if known is None else bool(known)
        if any(x.type not in (Scalar(i32), Scalar(i64)) for x in o.operands):
            return None
        x, y = o.operands
        over, under = self._most_difference(x, y, o), self._most_difference(y, x, o)
        if o.kind in (arith.gt, arith.ge):
            over, under = under, over
        if o.kind in (arith.lt, arith.gt):
            holds, fails = over < 0, under <= 0
        elif o.kind in (arith.le, arith.ge):
            holds, fails = over <= 0, under < 0
        else:
            holds, fails = max(over, under) <= 0, min(over, under) < 0
            if o.kind is arith.ne:
                holds, fails = fails, holds
        return holds if holds or fails else None

    def _most_difference(self, x: Value, y: Value, at: Op) -> float:
        """How much larger x is than y at most, by one of the orders that hold at an op."""
        gap, scope = added(self.linear(x), self.linear(y), -1), facts_of(self.dependence.func).scope
        ranks = gap.keys() & self.ranks.keys()
        most: float = sum(max(0, gap[r] * (self.ranks[r] - 1)) for r in ranks) + gap.get(1, 0)
        if gap.keys() - ranks - {1}:
            most = math.inf
        orders = scope.orders[scope.block[at]] if scope is not None else {}
        for low, high, distance in {order for found in orders.values() for order in found}:
            way = added(self.linear(low), self.linear(high), -1)  # -distance at most
            factor = next((gap.get(t, 0) // n for t, n in way.items() if t != 1), 0)
            rest = added(gap, way, -factor)
            if factor > 0 and not set(rest) - {1}:
                most = min(most, rest.get(1, 0) - factor * distance)
        return most

    def most_trips(self, loop: Op) -> int | None:
        """How often a loop runs at most, whatever the input; None where that is not known."""
        lo, hi, step = loop.operands[:3]
        stride = self.constant(step)
        if stride is None or stride <= 0:
            return None
        above = self._bounds(hi, False)
        spans = (self._most_span(above, below) for below in self._bounds(lo, True))
        known = [span for span in spans if span is not None]
        return max(0, -(-min(known) // stride)) if known else None

    def _most_span(self, above: Iterable[Bound], below: Bound) -> int | None:
        """How much there is at most between the smallest of some sums, and what several bounds each end."""
        most: list[int] = []
        for low in below:
            spans = (self._span(bound, low) for bound in above)
            known = [span for span in spans if span is not None]
            if not known:
                return None
            most.append(min(known))
        return max(most)

    def _span(self, above: Bound, low: Sum) -> int | None:
        """How much there is at most between a sum and the largest of others."""
        most: list[int] = []
        for high in above:
            span = added(high, low, -1)
            for term in set(span) & set(self.replicas):
                factor = span.pop(term)
                span[1] = span.get(1, 0) + max(0, factor * (self.replicas[term] - 1))
            if set(span) - {1}:
                return None
            most.append(span.get(1, 0))
        return max(most)

    def _bounds(self, v: Value, is_below: bool) -> list[Bound]:
        """Bounds that a value never exceeds, or never falls short of."""
        o = self.dependence.made.get(v)
        own: list[Bound] = [(self.linear(v),)]
        if o is None or not _is_on_integers(o):
            return own
        either: OpKind = arith.maximum if is_below else arith.minimum
        neither: OpKind = arith.minimum if is_below else arith.maximum
        if o.kind is either:  # each of its operands bounds it
            own += [b for x in o.operands for b in self._bounds(x, is_below)]
        elif o.kind is neither:  # one of its operands does
            own += itertools.starmap(_both, itertools.product(*self._all(o.operands, is_below)))
        elif o.kind is arith.cast:
            own += self._bounds(o.operands[0], is_below)
        elif o.kind in (arith.add, arith.sub):
            x, y = o.operands
            sign = -1 if o.kind is arith.sub else 1
            own += _moved(self._bounds(x, is_below), self.linear(y), sign)
            if o.kind is arith.add:
                own += _moved(self._bounds(y, is_below), self.linear(x), 1)
        elif o.kind is arith.rem:
            own += self._remainder(o, is_below)
        elif o.kind is arith.mul:
            own += self._rounded(o, is_below)
        few = (b for b in own if len(b) <= MOST_BOUNDS)
        different = {frozenset(frozenset(x.items()) for x in b): b for b in few}
        return sorted(different.values(), key=_opaque)[:MOST_BOUNDS]

    def _remainder(self, o: Op, is_below: bool) -> list[Bound]:
        """x % n has the sign of x, and is closer to 0 than n."""
        divisor = self.constant(o.operands[1])
        if not divisor:
            return []
        most = abs(divisor) - 1
        return [({1: -most} if is_below else {1: most},)]

    def _rounded(self, o: Op, is_below: bool) -> list[Bound]:
        """x // n * n, which is rounded towards 0: at least x - (n - 1), at most the larger of x and 0."""
        for x, y in (o.operands, reversed(o.operands)):
            quotient, by = self.dependence.made.get(x), self.constant(y)
            if quotient is None or quotient.kind is not arith.idiv or by is None or by <= 0:
                continue
            if self.constant(quotient.operands[1]) == by:
                bounds = self._bounds(quotient.operands[0], is_below)
                if is_below:
                    return _moved(bounds, {1: by - 1}, -1)
                return [_both(b, ({},)) for b in bounds]
        return []

    def _all(self, values: Iterable[Value], is_below: bool) -> list[list[Bound]]:
        return [self._bounds(x, is_below) for x in values]


def keeps_number(source: DType, target: DType) -> bool:
    """Is a number the same after a cast, as long as 32 bits hold it?"""
    if not source.is_int or not target.is_int or target == i1:
        return False
    return target.bits >= min(32, source.bits)


def _is_on_integers(o: Op) -> bool:
    """Does an op compute a whole number from whole numbers, as sums do?"""
    dtypes = [v.type.dtype for v in (*o.operands, *o.results) if isinstance(v.type, Scalar)]
    if len(dtypes) < len(o.operands) + len(o.results):
        return False
    if o.kind is arith.cast:
        return keeps_number(*dtypes)
    return all(t.is_int and t != i1 for t in dtypes)


def added(a: Sum, b: Sum, factor: int) -> Sum:
    """a + factor · b."""
    out = dict(a)
    for t, n in b.items():
        out[t] = out.get(t, 0) + factor * n
    return {t: n for t, n in out.items() if n}


def _opaque(b: Bound) -> tuple[int, int]:
    """How little a bound says: its terms that are no sums, and its sums."""
    return sum(isinstance(term, tuple) for x in b for term in x), len(b)


def _both(one: Bound, other: Bound) -> Bound:
    return (*one, *other)


def _moved(bounds: Iterable[Bound], by: Sum, factor: int) -> list[Bound]:
    return [tuple(added(s, by, factor) for s in b) for b in bounds]
