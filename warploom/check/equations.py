"""Equations between index expressions, q = 0: what can be told of them at sight, and how they split."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from warploom.check.inequalities import Facts
from warploom.check.terms import ONE, Atom, atoms_of, of_launch
from warploom.ir.poly import Poly

_PLAIN = frozenset({"coordinate", "replica", "cta"})


def contradicts(q: Poly, facts: Facts) -> bool:
    """Has q = 0 no solution, by its coefficients alone or by the sizes of plain numbers?"""
    if q.constant is not None:
        return q.constant != 0
    if q.terms.get((), 0) % math.gcd(*(c for m, c in q.terms.items() if m)):
        return True
    plain = all(len(m) < 2 for m in q.terms) and all(a.kind in _PLAIN for a in atoms_of([q]))
    return plain and (is_negative(q, facts) or is_negative(-q, facts))


def crowded(q: Poly, facts: Facts) -> Iterator[Atom]:
    """The numbers of programs along axes of a grid that isn't known for which the text has room for one: the
    step of a further program along another axis is as large, or as large as all numbers of an execution that
    count in the same steps.  (The parts of a sum, of which there is one; the blocks of what is no larger.)"""
    of = {m[0]: k for m, k in q.terms.items() if len(m) == 1}
    mine = [x for x in of if isinstance(x, Atom) and not x.is_other]
    ids = [x for x in mine if x.kind == "program" and is_count(x.args[0])]
    for p, further in itertools.permutations(ids, 2):
        n, rest = divmod(abs(of[further]), abs(of[p]))
        beside = [x for x in mine if x is not p and abs(of[x]) == abs(of[p])]
        if not rest and any(x is further or _fills(x, n, facts) for x in beside):
            yield p


def _fills(x: Atom, n: int, facts: Facts) -> bool:
    """Is a number below n, and nothing says that it is less than that?"""
    room = Poly.const(n - 1) - Poly.atom(x)
    return n > 1 and facts.at_least_0(room) and not facts.at_least_0(room - ONE)


def is_negative(q: Poly, facts: Facts) -> bool:
    return facts.at_least_0(-q - ONE)


def is_below(rest: Poly, c: Poly, facts: Facts) -> bool:
    """|rest| < c: each side's part lies in one window of that length, or their difference does."""
    most = c - ONE
    if not facts.may_hold(most - rest) or not facts.may_hold(most + rest):
        return False
    here, there = rest.split(lambda m: not any(a.is_other for a in _within(m)))
    there = -there
    lows = [Poly()]
    for f in facts.given:
        launch, own = f.split(lambda m: of_launch(Poly({m: 1})))
        lows += [launch] if own == here else []
    for low in dict.fromkeys(lows):
        parts = here + low, there + low
        if all(facts.at_least_0(x) and facts.at_least_0(most - x) for x in parts):
            return True
    return facts.at_least_0(most - rest) and facts.at_least_0(most + rest)


def depth(a: Atom) -> int:
    return 1 + max((depth(x) for p in a.args for x in p.atoms()), default=0)  # type: ignore[arg-type]


def positive(q: Poly) -> Poly:
    """The same equation with a fixed sign, without a common number."""
    n = math.gcd(*q.terms.values())
    first = next(iter(q.terms.values()))
    sign = -1 if first < 0 else 1
    return Poly({m: sign * c // n for m, c in q.terms.items()})


def is_stride(c: Poly) -> bool:
    """Is it a product of arguments?"""
    ((m, k),) = c.terms.items()
    return bool(m) and k == 1 and all(isinstance(a, Atom) and a.kind == "argument" for a in m)


def is_count(p: Poly) -> bool:
    """Is it the grid's size along an axis?"""
    return len(p.terms) == 1 and all(len(m) == 1 and m[0].kind == "programs" for m in p.terms)  # type: ignore[attr-defined]


def splits(q: Poly) -> Iterator[tuple[Poly, Poly, Poly]]:
    """(c, Q, R) with q = c·Q + R, c one term: those with symbols first, large numbers before small ones."""
    parts: dict[Poly, None] = {}
    for m in sorted(q.terms, key=len, reverse=True):
        for n in range(len(m), 0, -1):
            for part in itertools.combinations(m, n):
                divisible = [abs(k) for t, k in q.terms.items() if _contains(t, part)]
                if len(divisible) < 2:
                    continue
                for k in sorted(set(divisible), reverse=True):
                    parts[Poly({part: k})] = None
                parts[Poly({part: 1})] = None
    for k in sorted({abs(k) for k in q.terms.values()}, reverse=True):
        if k > 1:
            parts[Poly.const(k)] = None
    for c in parts:
        whole, rest = q.divide(c)
        if whole and whole != q:
            yield c, whole, rest


def _within(m: Iterable[object]) -> Iterator[Atom]:
    """The atoms of a monomial, those inside others included."""
    yield from atoms_of([Poly({tuple(m): 1})])


def _contains(t: Iterable[object], part: Iterable[object]) -> bool:
    left = list(t)
    for a in part:
        if a not in left:
            return False
        left.remove(a)
    return True
