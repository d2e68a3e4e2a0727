"""Which numbers are not 0 where an op runs: what the comparisons that hold there say of their parts.

    for %t in range(%start, mul(%rows, %columns))      start >= 0: neither rows nor columns is 0 in the loop
        %group = idiv(%t, mul(%columns, 8))            so this divisor isn't 0
        %left = sub(%rows, mul(%group, 8))             > 0: 8 · group · columns <= t < rows · columns

A number isn't 0 where 0 would contradict an order of the block (`Scope.holding`): its operands are evaluated
again with 0 for the number.  A product isn't 0 where no factor is; of sums, differences, quotients and
minima it follows from their operands' signs.  As in analysis/facts.py, signed integers of 32 bits or more
don't overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from warploom.analysis import scalar_rules
from warploom.analysis.facts import Facts
from warploom.analysis.lattice import Interval, counts_places, exactly, limits_of
from warploom.analysis.scalar_rules import plus, times
from warploom.analysis.scope import Order
from warploom.ir.core import Op, Region, Value
from warploom.ir.ops import arith, tile, tma
from warploom.ir.poly import Poly, divided
from warploom.ir.types import Scalar, View, dtype_of, i32

_DEPTH = 24  # of expressions that are followed
_TERMS = 32  # of polynomials


@dataclass(eq=False)
class Signs:
    """Of a function's numbers where its ops run.  extents: numbers that are positive wherever it runs."""

    facts: Facts
    extents: frozenset[Value] = frozenset()
    _found: dict[tuple[Value, Region, bool], bool] = field(default_factory=dict)

    def never_zero(self, v: Value, o: Op) -> bool:
        """Is the integer v, or each element of a tile, other than 0 where op o runs?"""
        return self.facts.never_zero(v) or self._holds(v, o, False, _DEPTH)

    def positive(self, v: Value, o: Op, depth: int = _DEPTH) -> bool:
        """Is the integer v, or each element of a tile, more than 0 where op o runs?"""
        return self._at(v, o).low > 0 or self._holds(v, o, True, depth)

    def _at(self, v: Value, o: Op) -> Interval:
        known = self.facts.at(v, o)
        return known.refined(low=1) if v in self.extents else known

    def _holds(self, v: Value, o: Op, is_positive: bool, depth: int) -> bool:
        """Is v more than 0, or is it not 0?"""
        scope = self.facts.scope
        if depth == 0 or scope is None or o not in scope.block:
            return False
        key = v, scope.block[o], is_positive
        if key not in self._found:
            self._found[key] = self._follows(v, o, is_positive, depth)
        return self._found[key]

    def _follows(self, v: Value, o: Op, is_positive: bool, depth: int) -> bool:
        known = self._at(v, o)
        if known.low > 0 or (known.is_nonzero and not is_positive):
            return True
        if known.high <= 0 and is_positive:
            return False
        if self._from_operands(v, o, is_positive, depth - 1):
            return True
        is_number = isinstance(v.type, Scalar) and (known.low >= 0 or not is_positive)
        return is_number and self._contradicts(v, o)

    def _from_operands(self, v: Value, o: Op, is_positive: bool, depth: int) -> bool:
        """Does it follow from what is known of the operands of the op that makes v?"""
        made = self.facts.maker(v)
        if made is None or len(made.results) > 1:
            return False

        def holds(v: Value, is_positive: bool = is_positive) -> bool:
            return self._holds(v, o, is_positive, depth)

        if made.kind in (tile.splat, tile.broadcast, tile.expand_dims):
            return holds(made.operands[0])
        if made.kind is arith.cast and dtype_of(made.operands[0].type).is_int:
            limits = limits_of(dtype_of(v.type))
            return self._at(made.operands[0], o).within(limits) and holds(made.operands[0])
        match made.kind:
            case arith.minimum:
                return all(holds(x, True) for x in made.operands)
            case arith.maximum:
                return any(holds(x, True) for x in made.operands)
        if not counts_places(dtype_of(v.type)):
            return False
        match made.kind:
            case arith.mul:
                return all(map(holds, made.operands))
            case arith.idiv:
                x, y = made.operands
                return holds(y, True) and self._least(self._poly(x) - self._poly(y), o, depth) >= 0
            case arith.add | arith.sub:
                p = self._poly(v)
                return self._least(p, o, depth) > 0 or self._is_rest(p, o, depth)
        return False

    def _contradicts(self, v: Value, o: Op) -> bool:
        """Would v = 0 contradict an order that holds where op o runs, or two of them?"""
        under: dict[Value, Interval] = {v: exactly(0)}

        def number(x: Value, depth: int = _DEPTH) -> Interval:
            if x not in under:
                under[x] = self._at(x, o)
                made = self.facts.maker(x)
                if made is not None and depth and made.kind in arith.ELEMENTWISE:
                    args = [number(y, depth - 1) for y in made.operands]
                    found = scalar_rules.transfer(made, x, args)
                    under[x] = under[x].refined(found.low, found.high)
            return under[x]

        return any(
            _bounds(self._poly(high) - self._poly(low), number).high < distance
            or number(high).high - number(low).low < distance
            for low, high, distance in self._orders(o)
        ) or any(_bounds(self._poly(x), number).high < 1 for x in self.extents)

    def _orders(self, o: Op) -> Iterator[Order]:
        """Of numbers, where op o runs; and what follows of two that share one."""
        holding = self.facts.scope.holding(o) if self.facts.scope is not None else {}
        for order in dict.fromkeys(x for orders in holding.values() for x in orders):
            if counts_places(dtype_of(order.low.type)):
                yield order
                for other in holding[order.low]:
                    if other.high is order.low and other.low is not order.high:
                        yield Order(other.low, order.high, order.distance + other.distance)

    def _least(self, p: Poly, o: Op, depth: int) -> int:
        """A lower bound of p where op o runs."""

        def number(v: Value) -> Interval:
            known = self._at(v, o)
            return known.refined(low=1) if self._holds(v, o, True, depth) else known

        return _bounds(p, number).low

    def _is_rest(self, p: Poly, o: Op, depth: int) -> bool:
        """Is p = a - b·(x // d) more than 0, as x < n and n·b = a·d?"""
        for quotient in dict.fromkeys(p.atoms()):
            assert isinstance(quotient, Value)
            made = self.facts.maker(quotient)
            if made is None or made.kind is not arith.idiv:
                continue
            x, divisor = made.operands
            with_quotient, a = p.split(lambda m, q=quotient: q in m)  # type: ignore[misc]
            parts = {divided(m, (quotient,)) or (): -c for m, c in with_quotient.terms.items()}
            b, d = Poly(parts), self._poly(divisor)
            if (
                self._at(x, o).low >= 0
                and any(
                    order.low is x and order.distance > 0 and self._poly(order.high) * b == a * d
                    for order in self._orders(o)
                )
                and self.positive(divisor, o, depth)
                and self._least(b, o, depth) > 0
            ):
                return True
        return False

    def _poly(self, v: Value, depth: int = _DEPTH) -> Poly:
        """A number by the numbers that it is a sum, difference or product of."""
        made = self.facts.maker(v)
        if made is None or depth == 0 or not isinstance(v.type, Scalar):
            return Poly.atom(v)
        if made.kind is arith.const:
            return Poly.const(int(made.attrs["value"]))
        if not counts_places(v.type.dtype):
            return Poly.atom(v)
        if made.kind is arith.cast and counts_places(dtype_of(made.operands[0].type)):
            whole = self.facts.interval(made.operands[0]).within(limits_of(v.type.dtype))
            return self._poly(made.operands[0], depth - 1) if whole else Poly.atom(v)
        if made.kind not in (arith.add, arith.sub, arith.mul):
            return Poly.atom(v)
        x, y = (self._poly(w, depth - 1) for w in made.operands)
        if made.kind is arith.mul:
            found = x * y if len(x.terms) * len(y.terms) <= _TERMS else Poly.atom(v)
        else:
            found = x + y if made.kind is arith.add else x - y
        return found if len(found.terms) <= _TERMS else Poly.atom(v)


def extents(ops: Iterable[Op], facts: Facts) -> frozenset[Value]:
    """The extents of what tensor maps among these ops describe: the driver encodes none where one is 0."""
    found = set()
    for view in (facts.maker(o.operands[0]) for o in ops if o.kind is tma.tensor_map):
        assert view is not None and isinstance(view.result.type, View)
        for v in view.operands[1 : 1 + view.result.type.rank]:
            made = facts.maker(v)
            is_widened = made is not None and made.kind is arith.cast
            narrow = made.operands[0] if made is not None and is_widened else v
            found.add(narrow if narrow.type == Scalar(i32) else v)
    return frozenset(found)


def _bounds(p: Poly, number: Callable[[Value], Interval]) -> Interval:
    """The range of p."""
    found = exactly(0)
    for m, c in p.terms.items():
        term = exactly(c)
        for a in m:
            assert isinstance(a, Value)
            term = times(term, number(a))
        found = plus(found, term)
    return found
