"""Longer loops: where the state recurs, what was proved for the trip counts that were run holds beyond them.

In a confluent program each agent's steps are the same in every order, and which of them follow from which
is settled by the barriers and phases that they name.  So iterations of a loop are compared step by step: the
op, the slot or barrier that it takes, how many of the agent's groups of wgmmas, TMA stores and cp.asyncs are
under way (their age), and the phase.  All that an iteration does follows from these: where iterations i and
i + p agree in all of it, and each barrier has moved on by one even number of phases (so that parities are the
same), for all i but the first, which has nothing to release, the first after a condition flipped for good,
and the last ones, which have nothing to fetch ahead, the state of cursors and barriers at i + p is that at i:
a longer loop repeats these iterations, and who waits for whom in them.

Where conditions change along the way, or loops inside run unequally often, not all iterations do the same.
Their kinds are told apart by what they do.  Of each kind that came (but on the way between two others,
passing.py) some in a row do the same, the loops inside as often, for longer than the deepest ring takes to
come back twice, and recur by themselves; or they alternate with others, and a run so long that has some
recurs in whole.  Where loops inside run more often in each iteration than in the one before, or less often,
iterations are compared without those of the loops inside that only repeat: after as many as these take to
recur the state is the same.  Where it is known how all conditions go, a kind that does less than another one,
such as one without a loop inside, need not.  Other orders of kinds, and other numbers of iterations of the
loops inside, are run, not seen to recur.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from operator import attrgetter

from warploom.check.course import Course
from warploom.check.passing import Passing
from warploom.check.runs import Case
from warploom.ir.core import Op
from warploom.sim.report import SimReport, SyncStep

Iteration = list[SyncStep]
Kind = tuple[Op, ...]
_OP = attrgetter("op")


def loop_name(o: Op) -> str:
    """A loop in words: its variable and its line."""
    hint = o.regions[-1].params[0].hint if o.regions[-1].params else ""
    return f"loop over {hint or 'i'}" + (f" at {o.loc.file}:{o.loc.line}" if o.loc else "")


class Recurrences:
    """Collects runs; `depth` is that of the deepest ring.  trips: the most iterations of each loop so far.
    courses: how the conditions in each loop go along its iterations, where they change.  passings: which
    iterations of each loop are few, however long it is.  bends: from which iteration of the loops around on a
    loop's trip count goes on as before."""

    def __init__(
        self,
        depth: int,
        courses: Mapping[Op, Course] | None = None,
        passings: Mapping[Op, Passing] | None = None,
        bends: Mapping[Op, int] | None = None,
    ) -> None:
        self.depth, self.courses, self.passings = depth, courses or {}, passings or {}
        self.bends = bends or {}
        self.trips: dict[Op, int] = {}
        self.once: set[Op] = set()  # loops that ran for one iteration somewhere
        self._added: dict[int, SimReport] = {}  # by their id
        # Of each run of a loop, without its ends, the iterations and their kinds.
        self._runs: dict[Op, list[tuple[list[Iteration], set[Kind]]]] = {}
        # Of each kind of iterations those in a row that do the same, and contain some of this kind.
        self._same: dict[Op, dict[Kind, list[list[Iteration]]]] = {}
        # The kinds that came between two others, and at the ends of runs that have more than these.
        self._between: dict[Op, set[Kind]] = {}
        self._ends: dict[Op, set[Kind]] = {}
        # Of each kind the input with the shortest runs that have some, and their steps.
        self._shortest: dict[Op, dict[Kind, tuple[int, Case]]] = {}
        self._found: dict[Op, int | None] = {}
        self._busy: set[Op] = set()  # loops in which something shared is touched
        self._periods: dict[tuple[Op, Kind], int] = {}

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
            if 1 in counts:
                self.once.add(loop)
        for loop, inside, iterations in _by_iteration(result.steps):
            self._busy.add(loop)
            if len(result.trips[loop]) == 1:  # at the end there may be some that do nothing
                iterations += [[] for _ in range(len(iterations), *result.trips[loop])]
            course = self.courses.get(loop, Course())
            shortest = self._shortest.setdefault(loop, {})
            length = len(result.steps) * math.prod(case.grid)
            kinds = [_kind(iteration) for iteration in iterations]
            for kind in set(kinds):
                if kind not in shortest or length < shortest[kind][0]:
                    shortest[kind] = length, case
            middle = slice(course.head + 1, len(iterations) - max(self.depth, course.tail))
            if len(iterations[middle]) > 1:
                ends = {*kinds[: course.head + 1], *kinds[len(iterations) - course.tail :]}
                self._ends.setdefault(loop, set()).update(ends)
                self._add(loop, inside, iterations[middle], kinds[middle], course.period)

    def _add(
        self, loop: Op, inside: int, run: list[Iteration], kinds: list[Kind], unit: int
    ) -> None:
        """A run of a loop, without its ends."""
        self._runs.setdefault(loop, []).append((run, set(kinds)))
        same, between = self._same.setdefault(loop, {}), self._between.setdefault(loop, set())
        for stretch in _stretches(run, inside, unit):
            of_stretch = set(kinds[stretch])
            for kind in of_stretch:
                same.setdefault(kind, []).append(run[stretch])
            if stretch.start > 0 and stretch.stop < len(run):
                between |= of_stretch
        self._found.pop(loop, None)

    def period(self, loop: Op) -> int | None:
        """After how many iterations the state recurs, those of each kind; None: that was not seen."""
        if loop not in self._busy:
            return 1
        if loop not in self._found:
            kinds = {k for k in self._same.get(loop, {}) if not self._is_spared(loop, k)}
            periods = [self._period_of(loop, kind) or self._of_whole(loop, kind) for kind in kinds]
            known = [period for period in periods if period is not None]
            is_whole = kinds and len(known) == len(periods)
            self._found[loop] = math.lcm(*known) if is_whole else None
        return self._found[loop]

    def _of_whole(self, loop: Op, kind: Kind) -> int | None:
        """After how many iterations a long run with some of a kind does all the same, at least twice."""
        runs = [
            run for run, kinds in self._runs[loop] if kind in kinds and len(run) > 2 * self.depth
        ]
        found = next((p for run in runs if (p := _period_of_run(run)) is not None), None)
        return found or (self._of_unequal(loop, kind, max(runs, key=len)) if runs else None)

    def _of_unequal(self, loop: Op, kind: Kind, run: list[Iteration]) -> int | None:
        """After how many iterations those of a run recur, at least twice, but for what only repeats in the
        loops inside; without the first or the last quarter, in which these may be short."""
        around = next(s.loops for iteration in run for s in iteration)
        inside = next(i for i, (o, _) in enumerate(around, 1) if o is loop)
        quarter, short = len(run) // 4, [self._shortened(one, inside) for one in run]
        loops = {o for iteration in run for s in iteration for o, _ in s.loops[inside:]}
        if max((self.bends.get(o, 0) for o in loops), default=0) > quarter:
            return None
        for part in (short[quarter:], short[: len(short) - quarter]):
            if len(part) > 2 * self.depth and kind in map(_kind, part):
                found = _period_of_run(part, is_even=False)
                if found is not None:
                    return found
        return None

    def _shortened(self, iteration: Iteration, inside: int) -> Iteration:
        """What an iteration does, each loop inside without iterations that repeat others.  inside: how many
        loops are around it."""
        out: Iteration = []
        for loop, steps in itertools.groupby(
            iteration, lambda s: s.loops[inside][0] if s.loops[inside:] else None
        ):
            if loop is None:
                out += steps
                continue
            inner = [
                self._shortened(list(one), inside + 1)
                for _, one in itertools.groupby(steps, lambda s: s.loops[inside][1])
            ]
            period, course = self.period(loop), self.courses.get(loop, Course())
            first = course.head + 1 + self.depth
            more = len(inner) - first - max(self.depth, course.tail)
            if period is not None and more > 0:
                del inner[first : first + more // period * period]
            out += itertools.chain(*inner)
        return out

    def _period_of(self, loop: Op, kind: Kind) -> int | None:
        """After how many iterations those of one kind recur, in a long stretch of them."""
        runs = self._same[loop][kind]
        longest = max(map(len, runs))
        if longest <= 2 * self.depth:
            return None
        unit = self.courses.get(loop, Course()).period
        # Runs are only added: shorter periods stay refuted.
        start = self._periods.get((loop, kind), unit)
        alike = (p for p in range(start, longest, unit) if all(_recurs(r, p) for r in runs))
        found = next(alike, None)
        if found is not None:
            self._periods[loop, kind] = found
        return found

    def brief(self, loop: Op) -> dict[Kind, Case]:
        """The kinds of iterations that were not seen to recur by themselves, each with its smallest
        input.  Of those that came in short runs alone a longer one may have more."""
        return {
            kind: case
            for kind, (_, case) in self._shortest.get(loop, {}).items()
            if (self.is_unsettled(loop, kind) or self._is_short(loop, kind))
            and not self._is_spared(loop, kind)
        }

    def is_unsettled(self, loop: Op, kind: Kind) -> bool:
        """Did iterations of a kind come neither in the middle of a loop, nor at the ends of a long one?"""
        return kind not in self._same.get(loop, {}) and kind not in self._ends.get(loop, ())

    def _is_short(self, loop: Op, kind: Kind) -> bool:
        return kind in self._same.get(loop, {}) and self._period_of(loop, kind) is None

    def _is_spared(self, loop: Op, kind: Kind) -> bool:
        """Need iterations of a kind not recur: are they few; or, where it is known how all conditions go, so
        that only the loops inside tell kinds apart, do others do all that they do?"""
        if kind in self._few(loop):
            return True
        others = self._same.get(loop, {}) if self.courses.get(loop, Course()).is_known else ()
        return any(set(kind) < set(other) for other in others)

    def _few(self, loop: Op) -> set[Kind]:
        """The kinds of iterations between two others that are few, however long the loop is."""
        if loop not in self.passings or loop not in self._same:
            return set()
        known = {o for kind in self._same[loop] for o in kind}
        return {k for k in self._between[loop] if self.passings[loop].holds(set(k), known)}


def _period_of_run(iterations: list[Iteration], is_even: bool = True) -> int | None:
    """After how many iterations a run does all the same, at least twice."""
    periods = range(1, (len(iterations) - 1) // 2 + 1)
    return next((p for p in periods if _recurs(iterations, p, is_even)), None)


def _kind(iteration: Iteration) -> Kind:
    """What an iteration does, however often the loops inside it do so."""
    return tuple(dict.fromkeys(map(_OP, iteration)))


def _stretches(iterations: list[Iteration], inside: int, unit: int) -> list[slice]:
    """Iterations that follow each other, each of which does the same as the one `unit` before, the loops
    inside as often.  inside: how many loops are around them, their own with these."""
    does = [(_kind(iteration), {s.loops[inside:] for s in iteration}) for iteration in iterations]
    ends = [i for i in range(unit, len(iterations)) if does[i] != does[i - unit]]
    begins = [0, *(max(0, i - unit + 1) for i in ends)]
    return list(map(slice, begins, [*ends, len(iterations)]))


def _by_iteration(steps: Sequence[SyncStep]) -> list[tuple[Op, int, list[Iteration]]]:
    """For each run of each loop (of an agent, in its outer iterations) the steps of its iterations, and how
    many loops are around these."""
    out: dict[tuple[str, Op, tuple[tuple[Op, int], ...]], list[Iteration]] = {}
    places: dict[tuple[str, int], list[Iteration]] = {}  # of an agent in some iterations
    for s in steps:
        key = s.agent, id(s.loops)
        if key not in places:
            places[key] = []
            for i, (loop, iteration) in enumerate(s.loops):
                iterations = out.setdefault((s.agent, loop, s.loops[:i]), [])
                iterations += [[] for _ in range(len(iterations), iteration + 1)]
                places[key].append(iterations[iteration])
        for place in places[key]:
            place.append(s)
    return [(loop, len(outer) + 1, iterations) for (_, loop, outer), iterations in out.items()]


def _recurs(iterations: list[Iteration], period: int, is_even: bool = True) -> bool:
    """Whether all iterations are those `period` before, with every barrier moved on by one even number, or
    by even numbers, where it is not moved on evenly."""
    moved: dict[str, int] = {}
    for earlier, later in zip(iterations, iterations[period:], strict=False):
        if len(earlier) != len(later):
            return False
        for a, b in zip(earlier, later, strict=True):
            by = b.phase - a.phase
            if a.op is not b.op or by % 2 or a.thing != b.thing or a.age != b.age:
                return False
            if is_even and moved.setdefault(a.thing, by) != by:
                return False
    return True
