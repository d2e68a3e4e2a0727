"""Proofs that an index expression is never negative, from what atoms say of themselves and from masks.

A proof writes Q as a sum of facts (polynomials that are never negative) times terms that are not negative:
the first term of Q that may be negative is cancelled by a fact that has it, and so on, to a small depth.
Beside that there are rules for quotients (k·(x // d) ≤ U where d = k·t and x < t·(U + 1)), for minima and
maxima (one of their two arguments), and for numbers that are 0 or 1.  What isn't proved here is simply not
known.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator

from warploom.check.samples import Sample, samples
from warploom.check.terms import ONE, Atom, Terms, atoms_of
from warploom.ir.poly import Poly, divided

DEPTHS = ((1, 10), (2, 30), (4, 60), (6, 100))  # of proofs, and polynomials that are looked at
_NEVER_NEGATIVE = frozenset(
    ("program", "programs", "argument", "cta", "replica", "trip", "coordinate", "drawn",
     "lt", "le", "gt", "ge", "eq", "ne", "not")
)  # fmt: skip

Monomial = tuple[Hashable, ...]


class Facts:
    """What is known of the atoms of some polynomials.

    assumed: divisors that are taken to be positive, as the program divides by them (is_strict: none is).
    like: facts of nearly the same, whose samples perhaps do."""

    def __init__(
        self,
        terms: Terms,
        given: Iterable[Poly] = (),
        is_strict: bool = False,
        like: Facts | None = None,
    ) -> None:
        self.is_strict = is_strict
        self.terms = terms
        self.given = list(given)
        self.assumed: dict[Poly, None] = {}
        self._of_atom: dict[Atom, tuple[Poly, ...]] = {}
        self._sign: dict[Atom, bool] = {}
        self._natural_terms: dict[Monomial, bool] = {}
        self._proved: dict[Poly, bool] = {}
        self._proved_alone: dict[Poly, bool] = {}
        self._budget = 0
        self._samples: list[Sample] = samples(self.given, like._samples if like else ())

    # ---- signs and facts of atoms

    def is_natural(self, a: Atom) -> bool:
        """Is it never negative, by its kind and its arguments?  Arguments of the launch are taken to be
        so."""
        if a not in self._sign:
            self._sign[a] = False  # while it is looked for
            self._sign[a] = self._natural(a)
        return self._sign[a]

    def _natural(self, a: Atom) -> bool:
        if a.kind in _NEVER_NEGATIVE:
            return True
        if a.kind == "quotient":
            return self.by_itself(a.args[0]) and self._divides(a.args[1])
        if a.kind == "remainder":
            return self.by_itself(a.args[0])
        if a.kind in ("min", "one_of"):
            return all(self.by_itself(x) for x in a.args)
        if a.kind == "max":
            return any(self.by_itself(x) for x in a.args)
        if a.kind == "select":
            return all(self.by_itself(x) for x in a.args[1:])
        return False

    def of_atom(self, a: Atom) -> tuple[Poly, ...]:
        """Polynomials that are never negative because of what the atom is."""
        if a not in self._of_atom:
            self._of_atom[a] = ()
            self._of_atom[a] = tuple(self._facts(a))
        return self._of_atom[a]

    def _facts(self, a: Atom) -> Iterable[Poly]:
        p = Poly.atom(a)
        match a.kind:
            case "program" | "replica" | "cta" | "coordinate":
                yield a.args[0] - ONE - p
            case "trip":
                lo, hi, step = a.args
                yield hi - ONE - lo - step * p
            case "min":
                yield from (x - p for x in a.args)
            case "max":
                yield from (p - x for x in a.args)
            case "lt" | "le" | "gt" | "ge" | "eq" | "ne" | "not":
                yield ONE - p
            case "quotient" | "remainder":
                x, d = a.args
                if not self.by_itself(x) or not self._divides(d):
                    return
                quotient, rest = self.terms.div(x, d), self.terms.rem(x, d)
                if a.kind == "remainder":
                    yield d - ONE - rest
                    yield x - rest
                    yield x - d * quotient - rest
                    yield d * quotient + rest - x
                else:
                    yield x - d * quotient
                    yield d * quotient + d - ONE - x

    def _divides(self, d: Poly) -> bool:
        """A divisor is not 0, or the program means nothing; is it positive?  What can't be told is assumed
        of one that is no constant, and said."""
        if d.constant is not None:
            return d.constant > 0
        if self.by_itself(d):
            return True
        self.assumed[d] = None
        return not self.is_strict

    # ---- proofs

    def at_least_0(self, q: Poly) -> bool:
        """Is q never negative?"""
        return self._found(q, self.given) if self.given else self.by_itself(q)

    def may_hold(self, q: Poly) -> bool:
        """Is q not negative in all the samples?"""
        return all(sample(q) >= 0 for sample in self._samples)

    def is_plain(self, q: Poly) -> bool:
        """Is q never negative at sight, by its terms or their ranges?"""
        return not self._bad(q) or self.terms.range_of(q)[0] >= 0

    def by_itself(self, q: Poly) -> bool:
        """The same without the given facts."""
        return self._found(q, ())

    def _found(self, q: Poly, given: Iterable[Poly]) -> bool:
        proved = self._proved if given else self._proved_alone
        if q not in proved:
            proved[q] = self.is_plain(q) or (
                self.may_hold(q) and self._deeper(q, self._collect(q, given))
            )
        return proved[q]

    def positive(self, q: Poly) -> bool:
        """Is q at least 1?  Divisors are."""
        return q in self.assumed or self.at_least_0(q - ONE)

    def _deeper(self, q: Poly, facts: list[Poly]) -> bool:
        """Short proofs first."""
        outer = self._budget
        if self.terms.steps > self.terms.most_steps:
            return False
        for depth, budget in DEPTHS:
            self._budget = budget
            if self._prove(q, depth, facts, {}):
                break
        else:
            depth = 0
        self._budget = outer
        return depth > 0

    def _collect(self, q: Poly, given: Iterable[Poly]) -> list[Poly]:
        facts = dict.fromkeys(given)  # each once
        for a in atoms_of([q, *given]):
            facts.update(dict.fromkeys(self.of_atom(a)))
        return sorted((f for f in facts if f), key=lambda f: len(f.terms))

    def _natural_term(self, m: Monomial) -> bool:
        if m not in self._natural_terms:
            self._natural_terms[m] = all(map(self.is_natural, m))  # type: ignore[arg-type]
        return self._natural_terms[m]

    def _bad(self, q: Poly) -> list[Monomial]:
        """The terms that may be negative."""
        return [m for m, c in q.terms.items() if c < 0 or not self._natural_term(m)]

    def _prove(self, q: Poly, depth: int, facts: list[Poly], seen: dict[Poly, int]) -> bool:
        self._budget -= 1
        self.terms.steps += 1
        bad = self._bad(q)
        if not bad:
            return True
        if depth == 0 or self._budget <= 0 or seen.get(q, -1) >= depth or not self.may_hold(q):
            return False  # (a proof of it would hold for the samples)
        if q.constant is not None:
            return False
        seen[q] = depth
        following: dict[Poly, int] = {}
        for left in self._cancelled(_reduced(q), max(bad, key=len), facts):
            following[left] = len(self._bad(left))
            if not following[left]:
                return True
        if self._by_cases(q, depth, facts, seen) or self._by_quotient(q, depth, facts, seen):
            return True
        nearest = sorted(following, key=lambda left: (following[left], len(left.terms)))
        return any(self._prove(left, depth - 1, facts, seen) for left in nearest)

    def _cancelled(self, q: Poly, m: Monomial, facts: list[Poly]) -> Iterator[Poly]:
        """What is left of q without its term m, by each fact that has it."""
        c = q.terms[m]
        for f in facts:
            for own, k in f.terms.items():
                if (k < 0) != (c < 0) or bool(own) != bool(m):
                    continue
                rest = divided(m, own)
                if rest is not None and self._natural_term(rest):
                    yield q * Poly.const(abs(k)) - Poly({rest: abs(c)}) * f

    def _by_quotient(self, q: Poly, depth: int, facts: list[Poly], seen: dict[Poly, int]) -> bool:
        """U - k·(x // d) ≥ 0 where d = k·t and x ≤ t·(U + 1) - 1."""
        for m, c in q.terms.items():
            if c >= 0:
                continue
            for a in m:
                assert isinstance(a, Atom)
                if a.kind != "quotient" or m.count(a) > 1:
                    continue
                x, d = a.args
                k = Poly({divided(m, (a,)) or (): -c})
                bound = q + k * Poly.atom(a)
                if any(a in n for n in bound.terms):
                    continue
                times, rest = d.divide(k)
                positive = not rest and times and self._natural_term(next(iter(k.terms)))
                if not positive or not self.by_itself(x) or not self._divides(d):
                    continue
                if self._prove(
                    times * (bound + ONE) - ONE - x, depth - 1, self._more(facts, x), seen
                ):
                    return True
        return False

    def _more(self, facts: list[Poly], x: Poly) -> list[Poly]:
        """The facts, and those of the atoms of x."""
        found = dict.fromkeys(facts)
        for a in atoms_of([x]):
            found.update(dict.fromkeys(self.of_atom(a)))
        return list(found)

    def _by_cases(self, q: Poly, depth: int, facts: list[Poly], seen: dict[Poly, int]) -> bool:
        """A minimum, a maximum or a selection is one of its arguments; what is linear in a number of two
        values is so at both."""
        for a in dict.fromkeys(q.atoms()):
            assert isinstance(a, Atom)
            if any(m.count(a) > 1 for m in q.terms):
                continue
            cases: tuple[Poly, ...] = ()
            if a.kind in ("min", "max"):
                cases = a.args
            elif a.kind == "select":
                cases = a.args[1:]
            elif a.kind in ("lt", "le", "gt", "ge", "eq", "ne", "not"):
                cases = (Poly(), ONE)
            elif a.kind == "remainder" and a.args[1].constant == 2:
                cases = (Poly(), ONE) if self.is_natural(a) else ()
            if not cases:
                continue
            if all(
                self._prove(_put(q, a, x), depth - 1, self._more(facts, x), seen) for x in cases
            ):
                return True
        return False


def _put(q: Poly, a: Atom, value: Poly) -> Poly:
    """q with an atom (at its top level) replaced."""
    out = Poly()
    for m, c in q.terms.items():
        rest = divided(m, (a,))
        out = out + (Poly({m: c}) if rest is None else Poly({rest: c}) * value)
    return out


def _reduced(q: Poly) -> Poly:
    """Without the common divisor of its coefficients."""
    n = math.gcd(*q.terms.values())
    return Poly({m: c // n for m, c in q.terms.items()}) if n > 1 else q
