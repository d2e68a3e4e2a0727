"""Whether two executions of global accesses can touch one word: equations, solved as far as it takes.

Two executions touch one word where their offsets are equal: an equation between the atoms of one and those of
the other (terms.py).  It is taken apart:

  split    c·Q + R = 0 with |R| < c: Q = 0 and R = 0.  (The digits of a number in a mixed radix; rows and
  columns) unify    a = b: the other execution's atom is this one's, wherever it stands
  cases    a selection is one of its two, a carried number one of what it is carried from

until it says that both are by one program (the executors' numbers are equal), or that there is no solution.
x = d·(x // d) + x % d joins what a quotient and a remainder say.  Where c is a number that the launch
knows (a stride) and nothing tells that R is smaller, it becomes a *condition* of the proof.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from warploom.check.equations import (
    contradicts,
    crowded,
    depth,
    is_below,
    is_count,
    is_negative,
    is_stride,
    positive,
    splits,
)
from warploom.check.global_accesses import Access, facts_of
from warploom.check.inequalities import Facts
from warploom.check.terms import LAUNCH, ONE, Atom, Terms, atoms_of, of_launch, show
from warploom.ir.poly import Poly

ROUNDS = 60
_CHOICES = frozenset({"one_of", "select", "remainder"})
_BOUNDS = frozenset({"min", "max"})
CASES = 64  # of selections and carried numbers, a pair


@dataclass(frozen=True)
class Condition:
    """What a proof takes for granted of the launch: `big` ≥ `least` (None: big steps keep what is smaller
    apart)."""

    big: Poly
    least: Poly | None
    of: str

    def __str__(self) -> str:
        if self.least is None:
            return f"steps of {show(self.big)} in {self.of} are larger than what lies between two of them"
        return f"{show(self.big)} ≥ {show(self.least)}" + (f" ({self.of})" if self.of else "")


@dataclass
class Meeting:
    """What became of two executions.  apart: they touch no common word.  same: they are of one executor.
    left: the equations that could not be taken apart further, where neither is known."""

    apart: bool = False
    same: bool = False
    left: list[Poly] = field(default_factory=list)
    agrees: bool = False  # they store the same value
    is_cut: bool = False  # there are too many cases
    conditions: list[Condition] = field(default_factory=list)
    assumed: list[Poly] = field(default_factory=list)  # divisors that are taken to be positive

    @property
    def is_fine(self) -> bool:
        return self.apart or self.same or self.agrees

    @property
    def takes_one_program(self) -> bool:
        """Is that so only where the grid has one program along an axis, for which there is no reason but that
        others leave no room?"""
        return any(c.big == ONE for c in self.conditions)


def meet(
    terms: Terms,
    a: Access,
    b: Access,
    executors: Sequence[tuple[Poly, Poly]],
    programs: Sequence[Poly],
    alike: Sequence[Poly] = (),
) -> Meeting:
    """Can executions of a and b by different executors touch one word?  executors: for each number that tells
    them apart, a's and b's (of the other side); () asks for `apart` alone.  programs: the numbers of a
    program, which whoever draws a number from a counter has alone.  alike: differences that are 0."""
    solver = _Solver(terms, a, b, programs)
    return solver.solve(list(executors), alike)


@dataclass
class _State:
    equations: list[Poly]
    given: list[Poly]
    targets: list[Poly]
    values: list[Poly]  # a's value - b's value, if both are known
    drawn: list[Poly]  # differences of the programs' numbers
    clashes: list[Poly]  # 0 where a condition of one is the opposite of one of the other
    merged: tuple[tuple[Poly, Poly], ...] = ()  # atoms that are replaced, in order

    def replaced(self, terms: Terms, old: Atom, new: Poly) -> _State:
        def rule(a: Atom) -> Poly | None:
            return new if a is old else None

        def each(polys: list[Poly]) -> list[Poly]:
            return [terms.replace(p, rule) for p in polys]

        pairs = [(each([x])[0], each([y])[0]) for x, y in self.merged]
        return _State(
            each(self.equations), each(self.given), each(self.targets), each(self.values),
            each(self.drawn), each(self.clashes), (*pairs, (Poly.atom(old), new)),
        )  # fmt: skip

    def now(self, terms: Terms, p: Poly) -> Poly:
        """An expression with all that is replaced so far."""
        for x, new in self.merged:
            for old in x.atoms() if len(x.terms) == 1 else ():
                p = terms.replace(p, lambda a, old=old, new=new: new if a is old else None)  # type: ignore[misc]
        return p

    def with_(self, equations: list[Poly], given: list[Poly] | None = None) -> _State:
        """The same with other equations, and perhaps other facts."""
        return replace(self, equations=equations, given=self.given if given is None else given)


class _Solver:
    def __init__(self, terms: Terms, a: Access, b: Access, programs: Sequence[Poly]) -> None:
        self.terms, self.a, self.b = terms, a, b
        self.programs = [p - terms.other(p) for p in programs]
        self.cases_left = CASES

    def solve(self, executors: list[tuple[Poly, Poly]], alike: Sequence[Poly]) -> Meeting:
        a, b, other = self.a, self.b, self.terms.other
        equations = [*alike, a.offset - other(b.offset)]
        equations += [x - other(y) for x, y in zip(a.equal, b.equal, strict=False)]
        given = [*a.within, *map(other, b.within)]
        for x in (*a.equal, *map(other, b.equal)):
            given += [x, -x]
        values = [] if a.value is None or b.value is None else [a.value - other(b.value)]
        targets = [x - y for x, y in executors]
        state = _State(equations, given, targets, values, self.programs, self._clashes())
        return self._run(state, bool(executors))

    def _clashes(self) -> list[Poly]:
        """Of conditions of the same kind, one of them negated."""
        found = []
        for g, h in itertools.product(self.a.guards, map(self.terms.other, self.b.guards)):
            both = g + h - ONE
            x, y = (next(iter(p.atoms()), None) for p in (g, h))
            if not both or (len(both.terms) == 2 and both.constant is None):
                same = isinstance(x, Atom) and isinstance(y, Atom) and x.kind == y.kind
                found += [both] if same and () not in both.terms else []
        return found

    # ---- one case

    def _run(self, s: _State, has_targets: bool) -> Meeting:
        conditions: list[Condition] = []
        assumptions: list[Poly] = []
        tried: set[Poly] = set()
        facts = Facts(self.terms, s.given)
        for _ in range(ROUNDS):
            if self.terms.replaced > self.terms.most_replaced:
                return Meeting(left=s.equations, is_cut=True)
            s.equations = list(dict.fromkeys(positive(q) for q in s.equations if q))
            if facts.given != s.given:
                assumptions += facts.assumed
                facts = Facts(self.terms, s.given, like=facts)
            is_impossible = any(facts.is_plain(-g - ONE) for g in s.given)
            if (
                is_impossible
                or not all(s.clashes)
                or any(contradicts(q, facts) for q in s.equations)
            ):
                return Meeting(apart=True, conditions=conditions, assumed=assumptions)
            if has_targets and not any(s.targets):
                return Meeting(
                    same=True, conditions=conditions, assumed=[*assumptions, *facts.assumed]
                )
            step = self._unify(s, facts) or self._vanish(s, facts) or self._split(s, facts, tried)
            if step is not None:
                s = step
                continue
            if any(is_negative(q, facts) or is_negative(-q, facts) for q in s.equations):
                return Meeting(
                    apart=True, conditions=conditions, assumed=[*assumptions, *facts.assumed]
                )
            found = self._by_cases(s, has_targets, _CHOICES)
            if found is None and (assumed := self._assume(s, facts)) is not None:
                s, condition = assumed
                tried = set()
                conditions.append(condition)
                continue
            found = found or self._by_cases(s, has_targets, _BOUNDS)
            if found is None and (alone := self._alone(s, facts)) is not None:
                s, condition = alone
                tried = set()
                conditions.append(condition)
                continue
            if found is None:
                break
            found.conditions = conditions + found.conditions
            found.assumed = [*assumptions, *facts.assumed, *found.assumed]
            return found
        agrees = bool(s.values) and not any(s.values)
        assumptions += facts.assumed
        return Meeting(left=s.equations, agrees=agrees, conditions=conditions, assumed=assumptions)

    def _unify(self, s: _State, facts: Facts) -> _State | None:
        """a = b for an atom of each side."""
        for q in s.equations:
            if len(q.terms) != 2 or sorted(q.terms.values()) != [-1, 1]:
                continue
            x, y = q.terms
            if len(x) != 1 or len(y) != 1:
                continue
            keep, drop = x[0], y[0]
            assert isinstance(keep, Atom) and isinstance(drop, Atom)
            if depth(keep) > depth(drop) or (
                keep.is_other and not drop.is_other and depth(keep) == depth(drop)
            ):
                keep, drop = drop, keep
            if drop.kind in LAUNCH or (drop in atoms_of([Poly.atom(keep)]) and drop is not keep):
                continue
            more = self._follows(keep, drop, s)
            if not more and any(self._has_company(a, s) for a in (keep, drop)):
                continue  # it would no longer say which iteration the others are of
            given = [*s.given, *facts.of_atom(drop)]
            more = [s.now(self.terms, p) for p in more]
            state = s.with_([*s.equations, *more], given)
            return state.replaced(self.terms, drop, Poly.atom(keep))
        return None

    def _vanish(self, s: _State, facts: Facts) -> _State | None:
        """A program's number that a mask keeps below 1 is 0.  Two remainders that are 0, as their divisors
        are 1 at most, are equal."""
        asked = {a for q in s.equations for a in q.atoms() if a.kind == "program"}  # type: ignore[attr-defined]
        for f in s.given:
            for m, k in f.terms.items():
                is_small = len(m) == 1 and m[0] in asked and 0 <= f.terms.get((), 0) < -k
                if is_small and facts.at_least_0(Poly({(): -k - 1, m: k})):
                    return s.replaced(self.terms, m[0], Poly())  # type: ignore[arg-type]
        for q in s.equations:
            here = [m[0] for m in q.terms if len(m) == 1 and m[0].kind == "remainder"]  # type: ignore[attr-defined]
            for a, b in itertools.combinations(here, 2):
                x, y = Poly.atom(a), Poly.atom(b)
                natural = facts.is_natural(a) and facts.is_natural(b)  # type: ignore[arg-type]
                opposed = q.terms[(a,)] == -q.terms[(b,)] and len(q.terms) > 2 and natural
                if opposed and facts.at_least_0(-x) and facts.at_least_0(-y):
                    return s.with_([x - y, *s.equations])
        return None

    def _follows(self, a: Atom, b: Atom, s: _State) -> list[Poly]:
        """What else is equal where two atoms are: of remainders x = d·(x // d) + x % d; a number drawn from a
        counter is drawn by one program."""
        is_across = a.is_other != b.is_other
        if is_across and a.kind == b.kind == "drawn" and a.args == b.args:
            return s.drawn
        if is_across and a.kind == b.kind == "one_of" and self._is_own(a, b):
            return s.drawn
        if a.kind == b.kind == "remainder":
            x, y = (z - d * self.terms.div(z, d) for z, d in (a.args, b.args))
            return [x - y]
        return []

    def _is_own(self, a: Atom, b: Atom) -> bool:
        """Is a number of two executions, one of several, only equal where they are of one program?"""
        every = (
            _State([x - y], [], list(self.programs), [], list(self.programs), [])
            for x in a.args
            for y in b.args
        )
        return bool(self.programs) and all(self._run(s, True).is_fine for s in every)

    def _split(self, s: _State, facts: Facts, tried: set[Poly]) -> _State | None:
        known = atoms_of(s.given)
        for q in s.equations:
            if q in tried:
                continue
            for c, whole, rest in splits(q):
                if rest and any(a.kind == "argument" and a not in known for a in atoms_of([c])):
                    continue  # nothing is known of this stride
                if rest and not is_below(rest, c, facts):
                    continue
                if not rest and not self._is_positive(c, facts):
                    continue
                equations = [whole, rest, *(x for x in s.equations if x is not q)]
                return s.with_(equations)
            tried.add(q)
        return None

    def _is_positive(self, c: Poly, facts: Facts) -> bool:
        """Is the factor of a whole equation more than 0?  One that something is divided by is."""
        if facts.positive(c):
            return True
        divisors = [
            a.args[1] for a in atoms_of([c, *facts.given]) if a.kind in ("quotient", "remainder")
        ]
        return c in divisors

    def _by_cases(self, s: _State, has_targets: bool, kinds: frozenset[str]) -> Meeting | None:
        """One case after the other, of a number that is one of several."""
        for a in atoms_of([*s.equations]):
            options = self._options(a, s) if a.kind in kinds else []
            if not options or self.cases_left < len(options):
                continue
            self.cases_left -= len(options)
            every: list[Meeting] = []
            for values, given in options:
                if every and not every[-1].is_fine:
                    break
                state = s.with_(s.equations, [*s.given, *given])
                for x, value in values.items():
                    state = state.replaced(self.terms, x, value)
                every.append(self._run(state, has_targets))
            wrong = [m for m in every if not m.is_fine]
            conditions = [c for m in every for c in m.conditions]
            assumed = [d for m in every for d in m.assumed]
            if wrong:
                return Meeting(
                    left=wrong[0].left, conditions=conditions, assumed=assumed,
                    is_cut=any(m.is_cut for m in wrong),
                )  # fmt: skip
            return Meeting(
                apart=all(m.apart for m in every), same=all(m.same or m.apart for m in every),
                agrees=any(m.agrees for m in every), conditions=conditions, assumed=assumed,
            )  # fmt: skip
        return None

    def _options(self, a: Atom, s: _State) -> list[tuple[dict[Atom, Poly], list[Poly]]]:
        """(values, facts that come with them) for each thing that an atom may be; with it all that are chosen
        by the same iteration or condition."""
        if a.kind == "one_of":
            like = self._alike(a, s)
            return [({x: x.args[i] for x in like}, []) for i in range(len(a.args))]
        if a.kind == "select":
            like, c = self._alike(a, s), a.args[0]
            options = []
            for i, holds in ((1, c), (2, ONE - c)):
                within: list[Poly] = []
                equal: list[Poly] = []
                facts_of(holds, within, equal)
                given = [*within, *equal, *(-e for e in equal)]
                options.append(({x: x.args[i] for x in like}, given))
            return options
        if a.kind in ("min", "max"):
            x, y = a.args
            sign = ONE if a.kind == "min" else -ONE
            return [({a: x}, [sign * (y - x)]), ({a: y}, [sign * (x - y)])]
        nonlinear = any(len(m) > 1 and a in m for q in s.equations for m in q.terms)
        if nonlinear and a.kind == "remainder" and a.args[1].constant == 2:
            return [({a: Poly()}, []), ({a: ONE}, [])]
        return []

    def _alike(self, a: Atom, s: _State) -> list[Atom]:
        """What is chosen with an atom, itself first."""
        found = (x for x in atoms_of([*s.equations, *s.given]) if x.kind == a.kind and x is not a)
        return [a, *(x for x in found if self._choice(x) == self._choice(a))]

    def _has_company(self, a: Atom, s: _State) -> bool:
        """Is something else in the equations chosen by the same iteration or condition?"""
        if a.kind not in ("one_of", "select"):
            return False
        others = (x for x in atoms_of(s.equations) if x.kind == a.kind and x is not a)
        return any(self._choice(x) == self._choice(a) for x in others)

    def _choice(self, a: Atom) -> object:
        """Equal for what one condition selects, and what a loop carries into one iteration: all have their
        first values, or none."""
        if a.kind == "select":
            return a.args[0]
        loop = self.terms.carriers.get(a.about) if len(a.args) == 2 else None
        return a if loop is None else (loop, a.side)

    # ---- conditions

    def _assume(self, s: _State, facts: Facts) -> tuple[_State, Condition] | None:
        """The split that a stride of the launch makes, taken for granted; or a bound on the grid."""
        name = self.a.base.hint if self.a.base is not None else "memory"
        for q in s.equations:
            found = [t for t in splits(q) if is_stride(t[0])]
            found.sort(key=lambda t: -len(next(iter(t[0].terms))))
            for c, whole, rest in found:
                least = self._bound(rest, facts) if rest else ONE
                if least is not None and is_negative(c - least, facts):
                    continue  # no launch keeps it
                equations = [whole, rest, *(x for x in s.equations if x is not q)]
                return s.with_(equations), Condition(c, least, name)
            for c, whole, rest in splits(q):
                least = self._bound(rest, facts) if c.constant is not None and rest else None
                if least is None or not is_count(least):
                    continue
                equations = [whole, rest, *(x for x in s.equations if x is not q)]
                return s.with_(equations), Condition(c, least, "")
        return None

    def _alone(self, s: _State, facts: Facts) -> tuple[_State, Condition] | None:
        """The same for one program alone along an axis, where there is room for no more."""
        p = next((p for q in s.equations for p in crowded(q, facts)), None)
        if p is None:
            return None
        for a in (p, *self.terms.other(Poly.atom(p)).atoms()):
            s = s.replaced(self.terms, a, Poly())  # type: ignore[arg-type]
        return s, Condition(ONE, p.args[0], "")

    def _bound(self, rest: Poly, facts: Facts) -> Poly | None:
        """A number of the launch that |rest| stays below."""
        for bound in dict.fromkeys(self._bounds(rest, facts)):
            if is_below(rest, bound, facts):
                return bound
        return None

    def _bounds(self, rest: Poly, facts: Facts) -> Iterator[Poly]:
        """Numbers of the launch that something in `rest` stays below."""
        wanted = atoms_of([rest])
        for f in [*facts.given, *(g for a in wanted for g in facts.of_atom(a))]:
            launch, own = f.split(lambda m: of_launch(Poly({m: 1})))
            if launch and any(a in wanted for a in own.atoms()):
                yield launch + ONE
        total = ONE
        for a in wanted:
            if a.kind in ("coordinate", "program", "replica", "cta") and not a.is_other:
                reach = Poly.const(abs(rest.terms.get((a,), 0))) * (a.args[0] - ONE)
                total = total + reach
                yield reach + ONE
        yield total
