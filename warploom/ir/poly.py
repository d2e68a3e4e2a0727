"""Polynomials with integer coefficients over scalar values: the arithmetic of index analysis.

A monomial is a sorted tuple of atoms; an atom is an SSA value (or anything hashable that the caller can
turn back into one).  Exact integer arithmetic: the 32-bit wrapping of the program's own index
arithmetic is taken not to happen, as everywhere where pointers are computed (Triton's rule as well).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

Monomial = tuple[Hashable, ...]


def divided(m: Monomial, part: Monomial) -> Monomial | None:
    """m / part, None where it does not divide."""
    left = list(m)
    for a in part:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


def _rank(atom: Hashable) -> int:
    """The order of atoms in a monomial: by their own `rank`, which is the same in each process, or by id."""
    return int(getattr(atom, "rank", 0)) or id(atom)


@dataclass(frozen=True)
class Poly:
    """Σ coefficient · monomial.  Zero coefficients are never stored; () is the constant monomial."""

    terms: Mapping[Monomial, int] = field(default_factory=dict)

    @staticmethod
    def const(n: int) -> Poly:
        return Poly({(): n} if n else {})

    @staticmethod
    def atom(a: Hashable) -> Poly:
        return Poly({(a,): 1})

    def __add__(self, other: Poly) -> Poly:
        out = dict(self.terms)
        for m, c in other.terms.items():
            out[m] = out.get(m, 0) + c
        return Poly({m: c for m, c in out.items() if c})

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        out: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                product = tuple(sorted((*m, *n), key=_rank)) if m and n else m or n
                out[product] = out.get(product, 0) + c * d
        return Poly({m: c for m, c in out.items() if c})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __bool__(self) -> bool:
        return bool(self.terms)

    @property
    def constant(self) -> int | None:
        """The value where the polynomial is a number, else None."""
        if not self.terms:
            return 0
        return self.terms[()] if set(self.terms) == {()} else None

    def atoms(self) -> Iterator[Hashable]:
        for m in self.terms:
            yield from m

    def split(self, keep: Callable[[Monomial], bool]) -> tuple[Poly, Poly]:
        """(the terms whose monomial satisfies `keep`, the others)."""
        yes = {m: c for m, c in self.terms.items() if keep(m)}
        no = {m: c for m, c in self.terms.items() if m not in yes}
        return Poly(yes), Poly(no)

    def divide(self, divisor: Poly) -> tuple[Poly, Poly]:
        """(q, r) with self = q·divisor + r, where r holds the terms that a one-term divisor does not
        divide.  A divisor of several terms divides only its own constant multiples."""
        if len(divisor.terms) != 1:
            if divisor.terms:
                m, c = next(iter(divisor.terms.items()))
                factor, left = divmod(self.terms.get(m, 0), c)
                if factor and not left:
                    return Poly.const(factor), self - divisor * Poly.const(factor)
            return Poly(), self
        ((by, scale),) = divisor.terms.items()
        quotient: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            left_atoms = list(m)
            try:
                for a in by:
                    left_atoms.remove(a)
            except ValueError:
                rest[m] = c
                continue
            if c % scale:
                rest[m] = c
            else:
                quotient[tuple(left_atoms)] = c // scale
        return Poly(quotient), Poly(rest)
