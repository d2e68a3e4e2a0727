"""Is a polynomial over a program's numbers never negative, where ranges alone don't say?

A proof replaces one atom after the other by what bounds it, until ranges tell (analysis/facts.py):

    a number of two values      the polynomial is linear in it, so both values do
    minimum, maximum            is one of its two operands
    x // d at most U            where x is at most d·(U + 1) - 1
    x % d                       is x - d·(x // d), and at most d - 1
    a loop's index              is at most its bound - 1

So `tile // (G·n)` and the like of grouped tiles stay in their rows.  Divisors are taken to be positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from warploom.analysis.facts import Facts
from warploom.analysis.lattice import Interval
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import arith
from warploom.ir.poly import Poly, divided

_ONE = Poly.const(1)
_DEPTH = 6  # replacements one after the other
_TRIALS = 200  # in all


@dataclass(eq=False)
class Bounds:
    """facts: of the function.  bounds: the range of a polynomial.  poly: a value as a polynomial."""

    facts: Facts
    bounds: Callable[[Poly], Interval]
    poly: Callable[[Value], Poly]
    _trials: int = _TRIALS

    def nonnegative(self, p: Poly) -> bool:
        """Is p never negative?  What is not proved is not known."""
        self._trials = _TRIALS
        return self._holds(p, _DEPTH)

    def _holds(self, p: Poly, depth: int) -> bool:
        if self.bounds(p).low >= 0:
            return True
        self._trials -= 1
        if depth == 0 or self._trials <= 0:
            return False
        return any(
            all(self._holds(q, depth - 1) for q in cases)
            for a in dict.fromkeys(p.atoms())
            if isinstance(a, Value) and all(m.count(a) <= 1 for m in p.terms)
            for cases in self._cases(p, a)
        )

    def _cases(self, p: Poly, a: Value) -> Iterator[tuple[Poly, ...]]:
        """Polynomials: if all of a tuple are never negative, p isn't."""
        with_a, rest = p.split(lambda m: a in m)
        by = Poly({divided(m, (a,)) or (): c for m, c in with_a.terms.items()})  # p is by·a + rest
        known, o = self.facts.interval(a), self.facts.maker(a)
        if (known.low, known.high) == (0, 1):
            yield rest, by + rest
        falls = by.constant is not None and by.constant < 0
        scope = self.facts.scope
        if scope is not None and falls and a in scope.indices:
            yield (by * (self.poly(scope.indices[a].operands[1]) - _ONE) + rest,)
        if o is None or o.kind not in (arith.minimum, arith.maximum, arith.idiv, arith.rem):
            return
        x, y = (self.poly(v) for v in o.operands)
        if o.kind in (arith.minimum, arith.maximum):
            yield by * x + rest, by * y + rest
        elif self.bounds(x).low < 0:
            return
        elif o.kind is arith.idiv and falls:
            most = _quotient(rest, -(by.constant or 0))
            if most is not None:
                yield (y * (most + _ONE) - _ONE - x,)
        elif o.kind is arith.rem:
            if falls:
                yield (by * (y - _ONE) + rest,)
            if (quotient := self._like(o, arith.idiv)) is not None:
                yield (by * (x - y * Poly.atom(quotient)) + rest,)

    def _like(self, o: Op, kind: OpKind) -> Value | None:
        """The result of an op of another kind on the same operands."""
        scope = self.facts.scope
        ops = scope.block if scope is not None else ()
        return next((x.result for x in ops if x.kind is kind and x.operands == o.operands), None)


def _quotient(p: Poly, n: int) -> Poly | None:
    """A polynomial that n times is at most p."""
    if any(c % n for m, c in p.terms.items() if m):
        return None
    return Poly({m: q for m, c in p.terms.items() if (q := c // n)})
