"""Index expressions as polynomials over atoms: what a kernel's addresses, masks and loop bounds are made of.

An *atom* is a number that the arithmetic doesn't look into: an argument, a program id, the trip of a loop,
a tile's coordinate, or a function (a quotient, a minimum, a loaded number) of other polynomials.  Equal
atoms are one object, so that a function of equal arguments is the same number.

Two executions of one access are told apart by their *side*: `Terms.other` renames what two programs, tasks or
iterations may disagree on.  What a loop carries is of the iteration before: `Terms.earlier` renames what it
may have been other than in.  As everywhere where pointers are computed, integers are taken not to wrap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from warploom.errors import Loc
from warploom.ir.fold import quotient
from warploom.ir.poly import Monomial, Poly

Range = tuple[float, float]  # with ends that may be infinite
LAUNCH = frozenset({"argument", "programs"})  # the same in all of a launch
OWN = frozenset({"program", "cta", "replica", "trip", "coordinate", "free", "drawn", "one_of"})


@dataclass(frozen=True, eq=False)
class Atom:
    """kind: of LAUNCH, of OWN (each execution has its own), or the name of a function of `args`.
    about: what it belongs to (an axis, an op, a parameter).  side: odd in the other of two executions; 2 for
    each time that it is of an earlier iteration."""

    kind: str
    args: tuple[Poly, ...]
    about: Hashable
    side: int
    loc: Loc | None
    name: str
    rank: int  # in which it was made, from 1: orders monomials (poly.py)

    @property
    def is_other(self) -> bool:
        """Is it of the other of two executions?"""
        return self.side % 2 == 1

    @cached_property
    def is_of_launch(self) -> bool:
        """Is it the same in all of a launch?"""
        return self.kind not in OWN and all(map(of_launch, self.args))

    def __str__(self) -> str:
        return self.name


def mul(*polys: Poly) -> Poly:
    """The product."""
    out = Poly.const(1)
    for p in polys:
        out = out * p
    return out


ONE = Poly.const(1)


MOST_STEPS = 2_500  # of the proofs of a kernel, for all launches
MOST_REPLACED = 18_000  # terms that are written anew (proofs that end take 17 900 at most)


class Terms:
    """The atoms of one analysis.  patience: how much longer than for all launches it may take."""

    def __init__(self, patience: int = 1) -> None:
        self.most_steps, self.most_replaced = patience * MOST_STEPS, patience * MOST_REPLACED
        self._atoms: dict[tuple[object, ...], Atom] = {}
        self._others: dict[Poly, Poly] = {}
        self._ranges: dict[Atom, Range] = {}
        self.divisors: dict[Hashable, int] = {}  # of arguments, as the variant knows them
        self.carriers: dict[
            Hashable, Hashable
        ] = {}  # of what begins with one value, then has another
        self.steps = 0  # that proofs have taken so far (inequalities.py)
        self.replaced = 0  # terms that were written anew

    def atom(
        self,
        kind: str,
        args: Iterable[Poly] = (),
        about: Hashable = None,
        side: int = 0,
        loc: Loc | None = None,
        name: str = "",
    ) -> Poly:
        """The one atom of this kind and these arguments, as a polynomial."""
        args = tuple(args)
        key = kind, args, about, side
        if key not in self._atoms:
            words = name or f"{kind}({', '.join(map(show, args))})"
            rank = len(self._atoms) + 1
            self._atoms[key] = Atom(kind, args, about, side, loc, words, rank)
        return Poly.atom(self._atoms[key])

    def div(self, x: Poly, d: Poly, loc: Loc | None = None) -> Poly:
        """x // d, rounded towards zero."""
        if (n := d.constant) is not None and n != 0:
            if n == 1:
                return x
            if (c := x.constant) is not None:
                return Poly.const(quotient(c, n))
        whole, rest = x.divide(d) if d else (x, d)
        if not rest or self._is_digit(whole, rest, d):
            return whole
        return self.atom("quotient", (x, d), loc=loc, name=_of("//", x, d))

    def rem(self, x: Poly, d: Poly, loc: Loc | None = None) -> Poly:
        """The remainder, with the sign of x."""
        if (n := d.constant) is not None and n != 0:
            if abs(n) == 1:
                return Poly()
            if (c := x.constant) is not None:
                return Poly.const(abs(c) % abs(n) * (1 if c >= 0 else -1))
            whole, rest = x.divide(d)
            if self._is_digit(whole, rest, d):
                return rest
        return self.atom("remainder", (x, d), loc=loc, name=_of("%", x, d))

    def least(self, kind: str, x: Poly, y: Poly) -> Poly:
        """min or max of two."""
        low, high = self.range_of(x - y)
        if low >= 0 or high <= 0:
            return x if (high <= 0) == (kind == "min") else y
        return self.atom(kind, (x, y))

    def select(self, c: Poly, x: Poly, y: Poly, loc: Loc | None = None) -> Poly:
        """x where c is 1, y where it is 0."""
        if c.constant is not None:
            return x if c.constant else y
        return x if x == y else self.atom("select", (c, x, y), loc=loc)

    # ---- ranges

    def range_of(self, p: Poly) -> Range:
        """The smallest and the largest number that p may be, as far as the kinds of its atoms tell."""
        low: float = 0
        high: float = 0
        for m, c in p.terms.items():
            factors = [self._range(a) for a in m]  # type: ignore[arg-type]
            ends = [_product(c, *corner) for corner in itertools.product(*factors)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _range(self, a: Atom) -> Range:
        if a not in self._ranges:
            low, high = self._range_by_kind(a)
            self._ranges[a] = low, high
        return self._ranges[a]

    def _range_by_kind(self, a: Atom) -> Range:
        args = [self.range_of(x) for x in a.args]
        match a.kind:
            case "program" | "replica" | "cta" | "coordinate":
                return 0, args[0][1] - 1
            case "argument" | "trip":
                return 0, math.inf
            case "programs":
                return 1, math.inf
            case "lt" | "le" | "gt" | "ge" | "eq" | "ne" | "not" | "and" | "or":
                return 0, 1
            case "min" | "max":
                which = min if a.kind == "min" else max
                return which(low for low, _ in args), which(high for _, high in args)
            case "select" | "one_of":
                args = args[1:] if a.kind == "select" else args
                return min(low for low, _ in args), max(high for _, high in args)
            case "quotient" | "remainder":
                (low, high), (least, most) = args
                if least < 1:
                    return -math.inf, math.inf
                if a.kind == "quotient":
                    return low / least if low < 0 else 0, high / least if high > 0 else 0
                return max(low, 1 - most) if low < 0 else 0, min(high, most - 1) if high > 0 else 0
        return -math.inf, math.inf

    def _is_digit(self, whole: Poly, rest: Poly, d: Poly) -> bool:
        """Are these the quotient and the remainder of d·whole + rest by a number d?"""
        n = d.constant
        if n is None or n < 1:
            return False
        low, high = self.range_of(rest)
        return low >= 0 and high < n and self.range_of(whole)[0] >= 0

    def rebuilt(self, a: Atom, args: tuple[Poly, ...]) -> Poly:
        """The same function of other arguments."""
        if a.kind == "quotient":
            return self.div(args[0], args[1], a.loc)
        if a.kind == "remainder":
            return self.rem(args[0], args[1], a.loc)
        if a.kind in ("min", "max"):
            return self.least(a.kind, args[0], args[1])
        if a.kind == "select":
            return self.select(args[0], args[1], args[2], a.loc)
        return self.atom(a.kind, args, a.about, a.side, a.loc, a.name if a.kind in OWN else "")

    def replace(self, p: Poly, rule: Callable[[Atom], Poly | None]) -> Poly:
        """`p` with each atom replaced by what the rule says of it; None: look into its arguments."""
        memo: dict[Atom, Poly | None] = {}  # None: it stays

        def of(a: Atom) -> Poly | None:
            if a not in memo:
                found = rule(a)
                if found is None:
                    args = tuple(whole(x) for x in a.args)
                    found = None if args == a.args else self.rebuilt(a, args)
                memo[a] = found
            return memo[a]

        def whole(q: Poly) -> Poly:
            new: dict[Any, Poly | None] = {a: of(a) for a in q.atoms()}  # type: ignore[arg-type]
            self.replaced += len(q.terms) if new else 0
            if all(x is None for x in new.values()):
                return q
            out: dict[Monomial, int] = {}
            for m, c in q.terms.items():
                part = {m: c}
                if any(new[a] is not None for a in m):
                    factors = (Poly.atom(a) if (x := new[a]) is None else x for a in m)
                    part = dict(mul(Poly.const(c), *factors).terms)
                for n, d in part.items():
                    out[n] = out.get(n, 0) + d
                    if not out[n]:
                        del out[n]
            return Poly(out)

        return whole(p)

    def other(self, p: Poly) -> Poly:
        """The same expression in the other of two executions."""
        if p not in self._others:
            self._others[p] = self.replace(p, self._other_atom)
        return self._others[p]

    def _other_atom(self, a: Atom) -> Poly | None:
        if a.kind in LAUNCH:
            return Poly.atom(a)
        if a.kind in OWN:
            args = tuple(self.other(x) for x in a.args)
            return self.atom(a.kind, args, a.about, a.side | 1, a.loc, a.name + "′")
        return None

    def earlier(self, p: Poly, varies: Callable[[Atom], bool]) -> Poly:
        """The same expression in an earlier iteration of a loop, where what `varies` was another."""

        def rule(a: Atom) -> Poly | None:
            if a.kind not in OWN:
                return None
            if not varies(a):
                return Poly.atom(a)
            args = tuple(self.replace(x, rule) for x in a.args)
            return self.atom(a.kind, args, a.about, a.side + 2, a.loc, a.name)

        return self.replace(p, rule)


def _product(*factors: float) -> float:
    """Of ends of ranges: nothing times something without end is nothing."""
    return 0 if 0 in factors else math.prod(factors)


def atoms_of(polys: Iterable[Poly]) -> dict[Atom, None]:
    """All atoms of some polynomials, those inside others included, in a fixed order."""
    found: dict[Atom, None] = {}
    pending = list(polys)
    while pending:
        for a in pending.pop().atoms():
            assert isinstance(a, Atom)
            if a not in found:
                found[a] = None
                pending.extend(a.args)
    return found


def of_launch(p: Poly) -> bool:
    """Is it the same in all of a launch?"""
    return all(a.is_of_launch for a in p.atoms())  # type: ignore[attr-defined]


def show(p: Poly) -> str:
    """A polynomial for a report: `128·pid + n`."""
    parts = []
    for m, c in sorted(p.terms.items(), key=lambda t: (-len(t[0]), str([str(a) for a in t[0]]))):
        names = "·".join(sorted(str(a) for a in m))
        size = (
            names if abs(c) == 1 and names else "·".join([str(abs(c)), *([names] if names else [])])
        )
        parts.append((" - " if c < 0 else " + ") + size)
    text = "".join(parts)
    return text[3:] if text.startswith(" + ") else text.strip().replace("- ", "-", 1) or "0"


def _of(sign: str, x: Poly, y: Poly) -> str:
    """`(m + 127) // 128`."""
    left, right = (show(p) if len(p.terms) < 2 else f"({show(p)})" for p in (x, y))
    return f"({left} {sign} {right})"
