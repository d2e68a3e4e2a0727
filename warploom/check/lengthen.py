"""Longer loops: each is run for as long as its state takes to recur, where an input makes it, or as often as
it ever is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from warploom.check.dependence import Source
from warploom.check.recurrence import Kind, loop_name
from warploom.check.runs import Case
from warploom.check.search import Search
from warploom.check.values import Wish
from warploom.ir.core import Op
from warploom.ir.ops import control
from warploom.sim.chosen import RISING, Fill
from warploom.sim.report import NeedsData, SimError, StepLimit, TripLimit

LONGER = (1, 2, 4, 8)  # times the iterations that show most recurrences: how long a loop is to run
LARGEST, MOST_IDLE = 1 << 30, 3  # of numbers that lengthen a loop, and of doublings without effect
MOST_BEYOND = 2  # times the iterations that are asked for, which a run of them may take
MOST_ONCE = 8  # inputs that are tried for a loop to run once
LARGE_GRID = 64  # programs, so that one is far from the first
LARGEST_RISE = 256  # of offsets in memory, from each to the next, an iteration that is asked for
IDLE_FROM = 8  # times the iterations that are asked for: a smaller number may be less than one tile


class Lengthening:
    """Of the loops that decide events."""

    def __init__(self, search: Search) -> None:
        self.search, self.checker, self.report = search, search.checker, search.report
        self.dependence, self.space, self.solver = (
            search.dependence,
            search.space,
            search.solver,
        )
        self.runs = search.runs
        # Of each `while` what makes it longer: how often it runs then, and whether at the largest number.
        self._grown: dict[Op, dict[int, tuple[int, bool]]] = {}
        self._drawn: dict[Op, int | None] = {}  # the most iterations of each `for` at many inputs

    @cached_property
    def loops(self) -> dict[Op, Op]:
        """The loops that decide events, each with one of them."""
        found = self.dependence.deciding.items()
        return {o: event for o, event in found if o.kind is not control.if_}

    def lengthen(self) -> None:
        """Runs each loop for as long as its state takes to recur, where an input makes it."""
        rich, least = (
            self.checker.rich or self.search.cases[0],
            self.space.least(self.search.cases[0]),
        )
        for loop in self.loops:
            # First from where a kind of iteration came, which has not come for long enough.
            self._lengthen_kinds(loop)
            self.search.begin()
            for base in dict.fromkeys((self._alone(rich), rich, least, self.search.longest)):
                self._lengthen_from(loop, base)
            if any(Source.MEMORY in self.dependence.sources(v) for v in control.deciding(loop)):
                self._rise(loop)
        if self._run_once():
            for loop in self.loops:
                self._lengthen_kinds(loop)

    def _run_once(self) -> bool:
        """Runs loops that always ran more often for one iteration, in long loops around; was there any?"""
        self.search.begin()
        once, before = self.checker.recurrences.once, len(self.checker.recurrences.once)
        for loop in self.loops:
            around = self.dependence.loops.get(loop, ())
            if loop.kind is not control.for_ or not around:
                continue
            if not self.checker.recurrences.trips.get(loop):
                continue
            base = self.checker.longest(around[-1])
            for wish in itertools.islice(self.solver.trips(loop, 1, base), MOST_ONCE):
                if loop in once or self.report.failures:
                    break
                self.search.run(base, wish)
        return len(once) > before

    def _lengthen_kinds(self, loop: Op) -> None:
        """Runs a loop longer where a kind of iterations came, each until that came for long."""
        self.search.begin()
        for kind, case in self.checker.recurrences.brief(loop).items():
            self._lengthen_from(loop, self._alone(case), kind)

    def _lengthen_from(self, loop: Op, base: Case, kind: Kind | None = None) -> None:
        """Runs a loop longer and longer from an input; until iterations of one kind come for long."""
        for i in () if self._is_done(loop, kind) else self._lengthening(loop, base):
            for trips in self._lengths(loop):
                for wish in () if self._is_done(loop, kind) else self._longer(loop, trips, base, i):
                    self.search.run(base, wish)
                    if self._is_done(loop, kind):
                        break
                if kind is not None and self.checker.recurrences.is_unsettled(loop, kind):
                    break  # only short loops have some

    def _lengthening(self, loop: Op, base: Case) -> Sequence[int | None]:
        """The numbers that may make a `while` longer, first those that lengthen the loops inside least."""
        if loop.kind is control.for_:
            return (None,)
        most = MOST_BEYOND * self.checker.recurrences.enough(loop)

        def length(i: int) -> float:
            case = self.space.changed(base, {i: 2 * max(1, base.values[i])})
            try:
                return sum(self.runs.most_trips(case, 0, most).values())
            except (SimError, NeedsData, StepLimit):
                return math.inf

        arrays = {i for i in self.space.variables if i > self.space.grid}
        return sorted(self.space.free | arrays, key=lambda i: (length(i), i))

    def _is_done(self, loop: Op, kind: Kind | None) -> bool:
        """Is there nothing to be found by longer runs of a loop (of one kind of iterations), or no time?"""
        recurrences = self.checker.recurrences
        if self.report.failures or self.search.is_over():
            return True
        if kind is not None and kind not in recurrences.brief(loop):
            return True
        return self.is_long(loop)

    def _alone(self, case: Case) -> Case:
        """The same work for one program, where the launch says how many there are."""
        if self.space.has_own_grid or math.prod(case.grid) == 1:
            return case
        return self.space.changed(case, {self.space.grid: 1})

    def _lengths(self, loop: Op) -> Sequence[int]:
        """For how many iterations a loop is to run: what is found may fall short of it, and what recurs
        take longer."""
        enough, most = self.checker.recurrences.enough(loop), None
        if loop.kind is control.for_:
            proved = self.solver.sums.most_trips(loop)
            most = self._most_found(loop) if proved is None else proved
        if most is not None and most <= enough:
            return (most,)
        return tuple(factor * enough for factor in LONGER)

    def _most_found(self, loop: Op) -> int | None:
        """The most iterations of a loop at many inputs, where these tell it."""
        if loop.kind is control.for_:
            if loop not in self._drawn:
                self._drawn[loop] = self.solver.drawn.most_found(loop, self.search.cases[0])
            return self._drawn[loop]
        goes_on = loop.regions[0].yielded[0]
        is_told = not self.dependence.sources(goes_on) & ~(Source.ARGUMENT | Source.ITERATION)
        grown = list(self._grown.get(loop, {}).values())
        return grown[0][0] if is_told and len(grown) == 1 and grown[0][1] else None

    def _rise(self, loop: Op) -> None:
        """Runs a loop whose bounds are differences of words: offsets, each larger than the one before; in a
        program far from the first, too, where its number counts."""
        most = MOST_BEYOND * self.checker.recurrences.enough(loop)
        far = self.space.with_grid(self.search.longest, [LARGE_GRID])
        for base in (self.search.longest, far):
            by = 1 if base is not None else LARGEST
            while by < LARGEST and not self.is_long(loop) and not self.report.failures:
                assert base is not None
                by = 2 * by + 1
                memory = tuple(
                    (name, fill if self.space.is_written(name) else Fill(0, by, RISING))
                    for name, fill in base.memory
                )
                case, last = Case(base.args, base.grid, memory), base.grid[0] - 1
                found = self._trips(loop, case, last, most)
                if found is None or found > most or by > most * LARGEST_RISE:
                    break
                self.checker.run(case, (0, last) if last else ())

    def _longer(self, loop: Op, trips: int, base: Case, i: int | None) -> Iterator[Wish]:
        """What may make a loop run so often."""
        if i is None:
            return self.solver.trips(loop, trips, base)
        return self._doubled(loop, trips, base, i)

    def _doubled(self, loop: Op, trips: int, base: Case, i: int) -> Iterator[Wish]:
        """One number twice as large each time, as long as that makes a loop longer; where that makes it much
        longer than asked for, one in between."""

        def made(n: int) -> int:
            return self.space.allowed(i, n)[-1]

        def found(n: int) -> int | None:
            return self._trips(loop, self.space.changed(base, {i: made(n)}), 0, MOST_BEYOND * trips)

        n, best, idle = max(1, base.values[i]), None, 0
        least = most = found(n) or 0
        now: int | None = most
        while n < LARGEST and idle < MOST_IDLE and most < trips:
            n *= 2
            now = found(n)
            if now is None:
                yield Wish({i: made(n)}, {})  # something is wrong with it
                return
            best, idle = (n, 0) if now > most else (best, idle + (n > IDLE_FROM * trips))
            most = max(now, most)
        if most > least:
            self._grown.setdefault(loop, {})[i] = most, most < trips and n >= LARGEST
        low, high = n // 2, n
        while most > MOST_BEYOND * trips and high - low > 1 and now is not None:
            n = (low + high) // 2
            now = found(n)
            if now is not None and now >= trips:
                high = best = n
                most = now
            else:
                low = n
        if best is not None:
            yield Wish({i: made(best)}, {})

    def _trips(self, loop: Op, case: Case, program: int, most: int) -> int | None:
        """How often a program runs a loop, one more than `most` where its run takes more of some
        loop; None where it can't be run."""
        try:
            return self.runs.most_trips(case, program, most).get(loop, 0)
        except TripLimit:
            return most + 1
        except (SimError, NeedsData, StepLimit):
            return None

    def is_long(self, loop: Op) -> bool:
        """Was it run for as long as it takes, or as often as it ever is?"""
        recurrences = self.checker.recurrences
        trips = recurrences.trips.get(loop, 0)
        if trips >= recurrences.enough(loop) and recurrences.period(loop) is not None:
            return True
        if loop.kind is control.for_:
            if not any(self.dependence.sources(v) for v in loop.operands[:3]):
                return True
            proved = self.solver.sums.most_trips(loop)
            if proved is not None and trips >= proved:
                self.checker.whole.add(loop)
                return True
        most = self._most_found(loop)
        if most is None or trips < max(most, 1):
            return False
        self.report.runs_at_most.setdefault(loop_name(loop), most)
        self.checker.whole.add(loop)
        return True
