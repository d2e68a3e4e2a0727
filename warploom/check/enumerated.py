"""Every execution of an access in one launch, with numbers: the words that each touches, and whether two
executors touch one.

An access is a table, a row for each program, CTA, group, trip and coordinate that its address or its
conditions depend on; the coordinate in which words lie side by side stays open, so that a row is an interval.
What is not known without data (a loaded index, a number drawn from a counter) ends it, as do too many rows.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from warploom.check.global_accesses import Access
from warploom.check.index_values import Values
from warploom.check.samples import COMPARED, LOGIC
from warploom.check.terms import Atom, atoms_of
from warploom.ir.core import Op, Value
from warploom.ir.ops import control
from warploom.ir.poly import Poly

MOST_ROWS = 2_000_000
_FUNCTIONS = frozenset({"quotient", "remainder", "min", "max", "select", *COMPARED, *LOGIC})
_CARRIED = frozenset({"free", "one_of"})
_OPENED = frozenset({"program", "cta", "replica", "coordinate", "trip"})

Column: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Unknown(Exception):
    """The launch's numbers do not tell it, or there are too many rows."""


@dataclass(frozen=True)
class Words:
    """Intervals of words: from `start` up to `stop`, touched by the executor `who`; the words of each are
    sorted and do not overlap."""

    start: Column
    stop: Column
    who: Column


@dataclass(frozen=True)
class Common:
    """A word that two executors touch: which, in words.  is_certain: all conditions are known."""

    word: int
    one: str
    other: str
    is_certain: bool


def common_word(
    values: Values,
    a: Access,
    b: Access,
    executors: Sequence[Poly],
    programs: Sequence[Poly],
    reached: set[Op],
) -> Common | None:
    """A word that executions of a and b by different executors touch, None where there is none.  executors:
    the numbers that tell them apart; none: those of one program (`programs`) are meant.  reached: gets the
    ops that are executed.  Raises Unknown."""
    numbers = [_atom(p) for p in executors or programs]
    one = _Table(values, a, numbers)
    other = one if a is b else _Table(values, b, numbers)
    first, second = one.words(), other.words()
    reached |= {x.op for x, words in ((a, first), (b, second)) if len(words.start)}
    found = _shared(first) if a is b else _crossing(first, second, bool(executors))
    if found is None:
        return None
    word, x, y = found
    is_certain = one.is_exact and other.is_exact
    return Common(word, _digits(numbers, x), _digits(numbers, y), is_certain)


class _Table:
    """The executions of one access: a column of numbers for each atom of theirs.

    along: the coordinate that stays open.  is_exact: all conditions could be kept."""

    def __init__(self, values: Values, access: Access, executors: Sequence[Atom]) -> None:
        self.values, self.access, self.executors = values, access, executors
        self.columns: dict[Atom, Column] = {}
        self.rows, self.is_exact = 1, True
        guards = [g for g in access.guards if not _is_spelled(g, True)]
        self.conditions = [
            *((p, np.greater_equal) for p in access.within),
            *((p, np.equal) for p in access.equal),
            *((p, np.not_equal) for p in guards),
        ]
        self.along = self._side_by_side()

    def _side_by_side(self) -> Atom | None:
        """A coordinate that the address has once, and the conditions at most as one end of an interval."""
        for m, c in self.access.offset.terms.items():
            (x,) = m if len(m) == 1 else (None,)
            if isinstance(x, Atom) and x.kind == "coordinate" and c == 1:
                rest = self.access.offset - Poly.atom(x)
                if x not in atoms_of([rest]) and all(self._ends(x, *k) for k in self.conditions):
                    return x
        return None

    def _ends(self, x: Atom, p: Poly, how: np.ufunc) -> bool:
        c = p.terms.get((x,), 0)
        free = x not in atoms_of([p - Poly({(x,): c})] if c else [p])
        return free and (not c or (abs(c) == 1 and how is np.greater_equal))

    def words(self) -> Words:
        """The words of all executions."""
        for x in self.executors:
            self._open(x)
        ends = []
        for p, how in sorted(self.conditions, key=lambda k: len(atoms_of([k[0]]))):
            if self.along in atoms_of([p]):
                ends.append(p)
            else:
                self._keep(p, how)
        offset = self.access.offset
        if self.along is None:
            low = self.of(offset)
            return _merged(low, low + 1, self._who())
        line = Poly.atom(self.along)
        known = [p for p in ends if self._tells(_without(p, self.along))]
        self.is_exact &= len(known) == len(ends)
        self._open_all([offset - line])
        first = self.of(offset - line)
        low, high = first, first + _constant(self.along.args[0])
        for p in known:
            rest = self.of(_without(p, self.along))
            if p.terms[(self.along,)] > 0:
                low = np.maximum(low, first - rest)
            else:
                high = np.minimum(high, first + rest + 1)
        return _merged(low, high, self._who())

    def _who(self) -> Column:
        who = np.zeros(self.rows, np.int64)
        for x in self.executors:
            who = who * _constant(x.args[0]) + self.columns[x]
        return who

    def _tells(self, p: Poly) -> bool:
        """Is it known, now that its atoms have their columns?"""
        try:
            self._open_all([p])
        except Unknown:
            return False
        return True

    def _keep(self, p: Poly, how: np.ufunc) -> None:
        """The rows for which it holds; all, where it is not known."""
        try:
            kept = how(self.of(p), 0)
        except Unknown:
            self.is_exact = False
            return
        self.columns = {x: c[kept] for x, c in self.columns.items()}
        self.rows = int(kept.sum())

    def _open_all(self, polys: Iterable[Poly]) -> None:
        for x in _needed(polys):
            if x.kind in _OPENED:
                self._open(x)
            elif x.kind in _CARRIED and x not in self.columns:
                self._carry(x)
            elif x.kind not in _FUNCTIONS and x not in self.columns:
                raise Unknown(str(x))

    def _open(self, x: Atom) -> None:
        """Rows for each value of a number."""
        if x in self.columns or x is self.along:
            return
        if x.kind == "trip":
            self._open_all(x.args)
            low, end, step = map(self.of, x.args)
            if (step <= 0).any():
                raise Unknown(str(x))
            counts = np.maximum(-((low - end) // step), 0)
        else:
            counts = np.full(self.rows, _constant(x.args[0]), np.int64)
        rows = int(counts.sum())
        if rows > MOST_ROWS:
            raise Unknown("too many words")
        self.columns = {y: np.repeat(c, counts) for y, c in self.columns.items()}
        starts = np.repeat(np.cumsum(counts) - counts, counts)
        self.columns[x] = np.arange(rows) - starts
        self.rows = rows

    def _carry(self, x: Atom) -> None:
        """What a loop carries from iteration to iteration, with all that it follows from."""
        loop, firsts, nexts = self._carried(x)
        trip = _atom(self.values.trip(loop))
        self._open(trip)
        own = {trip, *firsts}
        others = [y for y in _needed(nexts.values(), own) if y.kind not in _FUNCTIONS]
        self._open_all([*firsts.values(), *map(Poly.atom, others)])
        now = {y: self.of(p) for y, p in firsts.items()}
        mine = self.columns[trip]
        iterations = int(mine.max(initial=0))
        if iterations * self.rows > MOST_ROWS:
            raise Unknown("too many iterations")
        for iteration in range(iterations):
            memo = {**self.columns, **now, trip: np.full(self.rows, iteration, np.int64)}
            after = {y: self._evaluated(p, dict(memo)) for y, p in nexts.items()}
            now = {y: np.where(iteration < mine, after[y], now[y]) for y in now}
        self.columns |= now

    def _carried(self, x: Atom) -> tuple[Op, dict[Atom, Poly], dict[Atom, Poly]]:
        """The loop that carries x; by atom what it, and those that it follows from, begin with; and what
        they become."""
        values, pending = self.values, [x]
        firsts: dict[Atom, Poly] = {}
        nexts: dict[Atom, Poly] = {}
        loop = None
        while pending:
            y = pending.pop()
            if y in firsts:
                continue
            owner = values.owner.get(y.about) if isinstance(y.about, Value) else None
            if owner is None or owner[0].kind is not control.for_ or (y.args and y.kind == "free"):
                raise Unknown(str(y))
            loop, _, i = owner
            firsts[y] = values.scalar(loop.operands[2 + i])
            after = values.after_an_iteration(loop)
            nexts[y] = after[loop.regions[0].params[i]]
            mine = set(loop.regions[0].params)
            pending += [z for z in _needed([nexts[y]]) if z.kind in _CARRIED and z.about in mine]
        assert loop is not None
        return loop, firsts, nexts

    def of(self, p: Poly) -> Column:
        """The column of an expression."""
        self._open_all([p])
        return self._evaluated(p, dict(self.columns))

    def _evaluated(self, p: Poly, memo: dict[Atom, Column]) -> Column:

        def whole(q: Poly) -> Column:
            total = np.zeros(self.rows, np.int64)
            for m, c in q.terms.items():
                product: Any = c
                for x in m:
                    assert isinstance(x, Atom)
                    if x not in memo:
                        memo[x] = _function(x.kind, [whole(y) for y in x.args])
                    product = product * memo[x]
                total += product
            return total

        return whole(p)


def _needed(polys: Iterable[Poly], known: Container[Atom] = ()) -> dict[Atom, None]:
    """The atoms that a value is computed from: not what a carried number may be."""
    found: dict[Atom, None] = {}
    pending = [x for p in polys for x in p.atoms()]
    while pending:
        x = pending.pop()
        assert isinstance(x, Atom)
        if x not in found and x not in known:
            found[x] = None
            if x.kind in _FUNCTIONS:
                pending += [y for p in x.args for y in p.atoms()]
    return found


def _function(kind: str, args: list[Any]) -> Column:
    found: Any
    if kind in ("quotient", "remainder"):
        x, d = args
        divisor = np.where(d == 0, 1, d)  # a branch that is not taken
        found = np.abs(x) // np.abs(divisor) * np.where((x < 0) == (d < 0), 1, -1)
        if kind == "remainder":
            found = x - divisor * found
    elif kind in ("min", "max"):
        found = (np.minimum if kind == "min" else np.maximum)(*args)
    elif kind == "select":
        found = np.where(args[0] != 0, args[1], args[2])
    else:
        found = (COMPARED[kind] if kind in COMPARED else LOGIC[kind])(*args)
    return np.asarray(found, np.int64)


def _merged(start: Column, stop: Column, who: Column) -> Words:
    """Each executor's words as intervals that do not overlap, by executor and start."""
    kept = stop > start
    start, stop, who = start[kept], stop[kept], who[kept]
    if not len(start):
        return Words(start, stop, who)
    order = np.lexsort((start, who))
    start, stop, who = start[order], stop[order], who[order]
    shift = who * (stop.max() - start.min() + 1)
    reach = np.maximum.accumulate(stop + shift)
    begins = np.concatenate([[True], (start + shift)[1:] >= reach[:-1]])
    ends = np.concatenate([np.flatnonzero(begins)[1:] - 1, [len(start) - 1]])
    return Words(start[begins], reach[ends] - shift[ends], who[begins])


def _shared(words: Words) -> tuple[int, int, int] | None:
    """(word, one, other): a word of two executors."""
    order = np.argsort(words.start, kind="stable")
    start, stop, who = words.start[order], words.stop[order], words.who[order]
    if not len(start):
        return None
    reach = np.maximum.accumulate(stop)
    meeting = np.flatnonzero(start[1:] < reach[:-1])
    if not len(meeting):
        return None
    i = int(meeting[0]) + 1
    j = int(np.argmax(stop[:i]))
    return int(start[i]), int(who[j]), int(who[i])


def _crossing(a: Words, b: Words, are_others: bool) -> tuple[int, int, int] | None:
    """The same of one executor's words in `a` and another's (are_others), or its own, in `b`."""
    if not len(a.start) or not len(b.start):
        return None
    if not are_others:
        span = max(a.stop.max(), b.stop.max()) - min(a.start.min(), b.start.min()) + 1
        moved = [Words(w.start + w.who * span, w.stop + w.who * span, w.who) for w in (a, b)]
        found = _meeting(moved[0], moved[1])
        hits = np.flatnonzero(found[1] > found[0])
        if not len(hits):
            return None
        i = hits[0]
        word = max(int(moved[0].start[found[0][i]]), int(moved[1].start[i])) - int(b.who[i] * span)
        return word, int(b.who[i]), int(b.who[i])
    if _shared(a) is not None:
        raise Unknown("words that several executors write")
    order = np.argsort(a.start, kind="stable")
    a = Words(a.start[order], a.stop[order], a.who[order])
    first, last = _meeting(a, b)
    runs = np.concatenate([[0], np.cumsum(a.who[1:] != a.who[:-1])])
    for_other = np.zeros(len(b.start), bool)
    hits = np.flatnonzero(last > first)
    for_other[hits] = (a.who[first[hits]] != b.who[hits]) | (
        runs[first[hits]] != runs[last[hits] - 1]
    )
    wrong = np.flatnonzero(for_other)
    if not len(wrong):
        return None
    i = int(wrong[0])
    j = next(j for j in range(int(first[i]), int(last[i])) if a.who[j] != b.who[i])
    return max(int(a.start[j]), int(b.start[i])), int(a.who[j]), int(b.who[i])


def _meeting(a: Words, b: Words) -> tuple[Column, Column]:
    """Of each interval of b the range of those of a, which are sorted and apart, that it overlaps."""
    first = np.searchsorted(a.stop, b.start, side="right")
    return first, np.searchsorted(a.start, b.stop, side="left")


def _is_spelled(c: Poly, holds: bool) -> bool:
    """Does `facts_of` say all of a condition?"""
    if len(c.terms) == 2 and c.terms.get(()) == 1:
        (m,) = (m for m in c.terms if m)
        holds = not holds
    elif len(c.terms) == 1 and () not in c.terms:
        (m,) = c.terms
    else:
        return False
    if len(m) != 1 or abs(c.terms[m]) != 1:
        return False
    (a,) = m
    assert isinstance(a, Atom)
    if a.kind == "not":
        return _is_spelled(a.args[0], not holds)
    if a.kind in ("and", "or"):
        return (a.kind == "and") == holds and all(_is_spelled(x, holds) for x in a.args)
    return a.kind in ("lt", "le", "gt", "ge") or (
        a.kind in ("eq", "ne") and (a.kind == "eq") == holds
    )


def _without(p: Poly, x: Atom) -> Poly:
    return p - Poly({(x,): p.terms[(x,)]})


def _atom(p: Poly) -> Atom:
    (x,) = p.atoms()
    assert isinstance(x, Atom)
    return x


def _constant(p: Poly) -> int:
    if p.constant is None:
        raise Unknown("the grid")
    return p.constant


def _digits(executors: Sequence[Atom], who: int) -> str:
    """The executors' numbers, of one for all."""
    out = []
    for x in reversed(executors):
        who, digit = divmod(who, _constant(x.args[0]))
        out.append(f"{x} = {digit}")
    return ", ".join(reversed(out))
