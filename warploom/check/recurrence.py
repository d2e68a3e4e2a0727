"""Longer loops: where the state recurs, what was proved for the trip counts that were run holds beyond them.

In a confluent program each agent's steps are the same in every order, and which of them follow from which
is settled by the barriers and phases that they name.  So iterations of a loop are compared step by step: the
op, the slot or barrier that it takes, how many of the agent's groups of wgmmas, TMA stores and cp.asyncs are
under way (their age), and the phase.  All that an iteration does follows from these: where iterations i and
i + p agree in all of it, and each barrier has moved on by one even number of phases (so that parities are the
same), for all i but the first, which has nothing to release, the first after a condition has turned for good,
and the last ones, which have nothing to fetch ahead, the state of cursors and barriers at i + p is that at i:
a longer loop repeats these iterations, and who waits for whom in them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from warploom.check.cases import Case
from warploom.check.course import Course
from warploom.check.passing import Passing
from warploom.ir.core import Op
from warploom.sim.report import SimReport, SyncStep

Turn = list[SyncStep]
Kind = tuple[Op, ...]


def loop_name(o: Op) -> str:
    """A loop in words: its variable and its line."""
    hint = o.regions[-1].params[0].hint if o.regions[-1].params else ""
    return f"loop over {hint or 'i'}" + (f" at {o.loc.file}:{o.loc.line}" if o.loc else "")


class Recurrences:
    """Collects runs; `depth` is that of the deepest ring.  trips: the most iterations of each loop so far.
    courses: how the conditions in each loop go along its iterations, where they change.  passings: which
    iterations of each loop are few, however long it is."""

    def __init__(
        self,
        depth: int,
        courses: Mapping[Op, Course] | None = None,
        passings: Mapping[Op, Passing] | None = None,
    ) -> None:
        self.depth, self.courses, self.passings = depth, courses or {}, passings or {}
        self.trips: dict[Op, int] = {}
        self._added: dict[int, SimReport] = {}  # by their id
        self._turns: dict[Op, list[list[Turn]]] = {}  # of each run of a loop, without its ends
        self._mixed: dict[Op, list[list[Turn]]] = {}  # those in which inner loops vary
        # Where conditions change along the way: of each run, iterations in a row that do the same.
        self._stretches: dict[Op, list[list[list[Turn]]]] = {}
        # Of each kind of iterations the input with the shortest runs that have some, and their steps; where
        # the course of all conditions is known, of what each run of the loop does in all.
        self._shortest: dict[Op, dict[Kind, tuple[int, Case]]] = {}
        self._found: dict[Op, int | None] = {}
        self._busy: set[Op] = set()  # loops in which something shared is touched
        self._periods: dict[Op, int] = {}

    def enough(self, loop: Op) -> int:
        """So many iterations show whether a loop's state recurs."""
        course = self.courses.get(loop, Course())
        ends = course.head + 1 + max(self.depth, course.tail)
        return ends + max(2 * self.depth + 1, 2 * course.period + 1)

    def add(self, result: SimReport, case: Case) -> None:
        """A tracked run of an input, which may be that of several programs."""
        if id(result) in self._added:
            return
        self._added[id(result)] = result
        for loop, counts in result.trips.items():
            self.trips[loop] = max(self.trips.get(loop, 0), *counts)
        for loop, turns in _by_iteration(result.steps):
            self._busy.add(loop)
            if len(result.trips[loop]) == 1:  # at the end there may be some that do nothing
                turns += [[] for _ in range(len(turns), *result.trips[loop])]
            course = self.courses.get(loop, Course())
            shortest = self._shortest.setdefault(loop, {})
            length = len(result.steps) * math.prod(case.grid)
            every = _kind([s for turn in turns for s in turn])
            for kind in {every} if course.is_known else set(map(_kind, turns)):
                if kind not in shortest or length < shortest[kind][0]:
                    shortest[kind] = length, case
            middle = turns[course.head + 1 : len(turns) - max(self.depth, course.tail)]
            if len(middle) > 1:
                kept = self._turns if _is_uniform(loop, middle) else self._mixed
                kept.setdefault(loop, []).append(middle)
                self._found.pop(loop, None)
                if not course.is_known:
                    self._stretches.setdefault(loop, []).append(_stretches(middle, loop))

    def period(self, loop: Op) -> int | None:
        """After how many iterations the state recurs; None: that was not seen, in a long run in which the
        loop does all that it does in any.  Where conditions change along the way, each stretch of iterations
        that do the same is looked at by itself, and one of each kind is long."""
        if loop not in self._busy:
            return 1
        if loop not in self._found:
            self._found[loop] = self._period(loop, self.courses.get(loop, Course()))
        return self._found[loop]

    def _period(self, loop: Op, course: Course) -> int | None:
        runs, mixed = self._turns.get(loop, []), self._mixed.get(loop, [])
        if not course.is_known:
            stretches = self._stretches.get(loop, [])
            few, whole = self._few(loop, stretches), runs + mixed
            runs = [same for of_run in stretches for same in of_run]
            kinds = self._kinds(loop)
            longest = min((n for kind, n in kinds.items() if kind not in few), default=0)
            if longest <= 2 * self.depth:
                # Some take turns: a run in which all of these do shows it.
                short = {k for k, n in kinds.items() if n <= 2 * self.depth} - few
                these = (r for r in whole if short <= set(map(_kind, r)))
                return next((p for r in these if (p := _period_of_longest([r])) is not None), None)
        elif runs:
            everything = _done(runs)
            full = [len(run) for run in runs if _done([run]) == everything]
            longest = max(full, default=0)
        else:
            return _period_of_longest(mixed)
        if longest <= 2 * self.depth:
            return None
        # Runs are only added: shorter periods stay refuted.
        start = self._periods.get(loop, course.period)
        found = (
            p for p in range(start, longest, course.period) if all(_recurs(r, p) for r in runs)
        )
        period = next(found, None)
        if period is not None:
            self._periods[loop] = period
        return period

    def _kinds(self, loop: Op) -> dict[Kind, int]:
        """The kinds of its iterations, each with the most that followed each other."""
        found: dict[Kind, int] = {}
        for same in itertools.chain(*self._stretches.get(loop, [])):
            found[_kind(same[0])] = max(len(same), found.get(_kind(same[0]), 0))
        return found

    def brief(self, loop: Op) -> list[Case]:
        """The smallest inputs with iterations that have to come for longer, for a recurrence to be seen: of a
        kind that never does; where all that matters is how long the loop is, with all that it does."""
        if self.courses.get(loop, Course()).is_known:
            whole = _done(self._turns.get(loop, []))
            kinds = [k for k in self._shortest.get(loop, {}) if whole.issubset(k)]
        else:
            long = {kind for kind, n in self._kinds(loop).items() if n > 2 * self.depth}
            kinds = [k for k in self._shortest.get(loop, {}) if k not in long]
        found = (self._shortest[loop][k] for k in kinds)
        return list({case.key: case for _, case in found}.values())

    def _few(self, loop: Op, stretches: Sequence[list[list[Turn]]]) -> set[Kind]:
        """The kinds of iterations between two others that are few, however long the loop is."""
        if loop not in self.passings:
            return set()
        known = {s.op for run in stretches for same in run for turn in same for s in turn}
        between = {_kind(same[0]) for run in stretches for same in run[1:-1]}
        return {kind for kind in between if self.passings[loop].holds(set(kind), known)}


def _period_of_longest(runs: Sequence[list[Turn]]) -> int | None:
    """After how many iterations the longest of some runs does all the same, at least twice."""
    longest = max(runs, key=len, default=[])
    periods = range(1, (len(longest) - 1) // 2 + 1)
    return next((p for p in periods if _recurs(longest, p)), None)


def _kind(turn: Turn) -> Kind:
    """What an iteration does, however often the loops inside it do so."""
    return tuple(dict.fromkeys(s.op for s in turn))


def _done(runs: Sequence[list[Turn]]) -> set[Op]:
    """All that is done in some runs."""
    return {s.op for run in runs for turn in run for s in turn}


def _inner(turn: Turn, loop: Op) -> set[tuple[tuple[Op, int], ...]]:
    """The iterations of the loops inside that an iteration of a loop comes by."""
    return {s.loops[[o for o, _ in s.loops].index(loop) + 1 :] for s in turn}


def _stretches(turns: list[Turn], loop: Op) -> list[list[Turn]]:
    """Iterations that follow each other and do the same, the loops inside as often."""

    def key(turn: Turn) -> tuple[Kind, set[tuple[tuple[Op, int], ...]]]:
        return _kind(turn), _inner(turn, loop)

    return [list(same) for _, same in itertools.groupby(turns, key)]


def _is_uniform(loop: Op, turns: list[Turn]) -> bool:
    """Whether the loops inside run alike in all iterations: otherwise the run shows itself, and no more."""
    first, *others = [_inner(turn, loop) for turn in turns if turn] or [set()]
    return all(other == first for other in others)


def _by_iteration(steps: Sequence[SyncStep]) -> list[tuple[Op, list[Turn]]]:
    """For each run of each loop (of an agent, in its outer iterations) the steps of its iterations."""
    out: dict[tuple[str, Op, tuple[tuple[Op, int], ...]], list[Turn]] = {}
    for s in steps:
        for i, (loop, turn) in enumerate(s.loops):
            turns = out.setdefault((s.agent, loop, s.loops[:i]), [])
            while len(turns) <= turn:
                turns.append([])
            turns[turn].append(s)
    return [(loop, turns) for (_, loop, _), turns in out.items()]


def _recurs(turns: list[Turn], period: int) -> bool:
    """Whether all iterations are those `period` before, with every barrier moved on by one even number."""
    moved: dict[str, int] = {}
    for earlier, later in zip(turns, turns[period:], strict=False):
        if len(earlier) != len(later):
            return False
        for a, b in zip(earlier, later, strict=True):
            by = b.phase - a.phase
            if (a.op, a.thing, a.age) != (b.op, b.thing, b.age) or by % 2:
                return False
            if moved.setdefault(a.thing, by) != by:
                return False
    return True
