"""The checker: one tracked run a trip count decides deadlocks and races for all interleavings, or all that
differ are explored.

The argument.  In a tracked run (sim/machine.py) every arrival is shown to know that all earlier phases of
its barrier are complete, every copy likewise, and every wait to be over before the phase after the one
that it waits for can complete.  So each is bound to one full phase in *every* order of events, the
program is confluent, and the happens-before relation of the one run is that of all runs at the same trip
counts: an access that it leaves unordered races in some order, a phase that does not complete in it
completes in none.  Trip counts: 0, 1, around the depth of the rings, beyond twice the depth, several
tiles a program.  Beyond them see recurrence.py.  Global memory changes nothing of it where no agent
accesses a word that another one of its program writes: then all steps that could change places commute, and
what an agent reads, and so what it does, is the same in every order.

Where an arrival or a wait is not bound, or agents share a word of global memory, explore.py runs every order
that makes a difference: all of them are right, or there is one that fails.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warploom.analysis.facts import facts_of
from warploom.check.aliases import merged
from warploom.check.cases import find_cases
from warploom.check.course import Courses
from warploom.check.coverage import Coverage
from warploom.check.dependence import Dependence
from warploom.check.explore import (
    MAX_STATES,
    Failing,
    Guided,
    attempt,
    explore,
    simulation,
)
from warploom.check.input_space import InputSpace
from warploom.check.interleaving import Interleaving, shortened
from warploom.check.launch_run import run_launch
from warploom.check.launches import add_global_memory
from warploom.check.passing import passings
from warploom.check.recurrence import Recurrences, loop_name
from warploom.check.report import CheckReport, Explored, Failure, Run, Unproved
from warploom.check.runs import NOT_CONFLUENT, UNFIT, Case, Runs, is_reading, ring_depth
from warploom.check.solve import Solver
from warploom.errors import whole_number
from warploom.ir.collector import paused_collector
from warploom.ir.core import Func, Op, walk
from warploom.ir.ops import control
from warploom.sim.memory import grid_of
from warploom.sim.report import NeedsData, SimError, SimReport, StepLimit

JOINT_STATES = 8_000  # in all explorations of several programs together
JOINT_STEPS = (
    30_000  # that they may take: where programs spin, interleavings are many and share most states
)
JOINT_PROGRAMS = 3  # so many at most
JOINT_SEARCHED = (
    4  # inputs that are searched for get so small a part: other programs' words are varied, too
)

SEVERAL = 3  # iterations, after which what one begins another one meets
TOGETHER = "programs that share words of global memory, together"


def check(
    func: Func,
    cases: Iterable[Case | tuple[Sequence[Any], Any]] | None = None,
    *,
    launch: Case | None = None,
    exhaustive: bool = False,
    max_states: int = MAX_STATES,
    save: str | Path | None = None,
) -> CheckReport:
    """Checks a function at WARP or PLACED, on the given inputs ((args, grid) pairs) or on inputs found by
    `find_cases`.  Keeps the first problem of each kind.

    launch: the launch that is asked about; of global memory what is not known for all launches is decided
    for it.  exhaustive: explores what is confluent, too.  max_states: of all explorations together; what
    they leave out counts as not proved.  save: a file for the first failing interleaving."""
    start = time.perf_counter()
    max_states = whole_number("max_states", max_states, 0)
    with paused_collector():
        report = _checked(func, cases, launch, exhaustive, max_states)
    report.seconds = time.perf_counter() - start
    if save is not None and report.failures:
        report.failures[0].save(save)
    return report


def _checked(
    func: Func,
    cases: Iterable[Case | tuple[Sequence[Any], Any]] | None,
    launch: Case | None,
    exhaustive: bool,
    max_states: int,
) -> CheckReport:
    func = func if launch is None else merged(func, launch)
    dependence = Dependence(func)
    watched = dict.fromkeys(c.op for c in (*dependence.conditions, *dependence.choices))
    runs = Runs(func, watched)
    space = InputSpace(func, [(r.array.hint, r.is_written) for r in dependence.readings])
    solver = Solver(dependence, space)
    courses = Courses(solver.values, solver.sums)
    few = passings(dependence, solver.sums)
    bends = {o: dependence.bend(o) for o in dependence.deciding if o.kind is control.for_}
    recurrences = Recurrences(ring_depth(func), courses.of_loops(), few, bends)
    checker = _Checker(func, runs, exhaustive, max_states, recurrences)
    given, found = None, []
    if cases is not None:
        given = [c if isinstance(c, Case) else Case(tuple(c[0]), grid_of(c[1])) for c in cases]
    if given is None:
        found = find_cases(func, runs, space, solver.promised(space.smallest))
        checker.is_searched = runs.is_searching = True
        checker.joint_states_left //= JOINT_SEARCHED
        checker.joint_steps_left //= JOINT_SEARCHED
        coverage = Coverage(checker, solver, courses, found)
        for case in found:
            checker.run(case)
        coverage.complete()
        checker.run_longer(space)
        coverage.judge()
        sizes = (func.params[i] for i in sorted(space.sizes))
        checker.report.sizes = tuple(p.hint for p in sizes if p in dependence.needed)
        if launch is not None:
            run_launch(runs, checker.report, checker.judge, launch, dependence.readings)
    else:
        for case in given:
            checker.run(case)
    report = checker.report
    checker.judge_loops()
    checker.judge_together()
    add_global_memory(report, func, given, found, launch)
    return report


class _Checker:
    def __init__(
        self,
        func: Func,
        runs: Runs,
        is_exhaustive: bool,
        max_states: int,
        recurrences: Recurrences,
    ) -> None:
        self.func, self.runs, self.states_left = func, runs, max_states
        self.is_exhaustive, self.is_searched = is_exhaustive, False
        self.report = CheckReport(func.name)
        self.joint_states_left, self.joint_steps_left = JOINT_STATES, JOINT_STEPS
        self._done: dict[tuple[Any, ...], Case] = {}  # what was run
        self.rich: Case | None = None  # the shortest of the inputs at which most is done
        self._richest = (0, 0)
        self.busy: Case | None = None  # likewise, where each loop runs several times
        self._busiest = (0, 0, 0)
        self.recurrences = recurrences
        constant = facts_of(func).constant
        # loops that run as often as they ever do
        self.whole = {
            o
            for o in walk(func.body)
            if o.kind is control.for_ and None not in map(constant, o.operands[:3])
        }
        # loop -> see _note_longest
        self._longest: dict[Op, tuple[tuple[int, int], Case, int]] = {}

    def run(self, case: Case, programs: tuple[int, ...] = ()) -> None:
        """Runs an input: all programs of its grid that may differ, or these."""
        if case.key in self._done or self.report.failures:
            return
        self._done[case.key] = case
        words, trips = case.describe(self.func), dict[str, set[int]]()
        try:
            for program in programs or self.runs.programs(case):
                result = self.judge(case, program)
                if result is None:
                    return
                self.report.bound += sum(s.phase >= 0 for s in result.steps)
                for loop, counts in result.trips.items():
                    trips.setdefault(loop_name(loop), set()).update(counts)
                self._note_longest(case, program, result)
                self.recurrences.add(result, case)
            if not is_reading(self.func) and 1 < math.prod(case.grid) <= JOINT_PROGRAMS:
                self._together(case)
        except NeedsData:
            self.report.notes.append(f"{words}: control flow depends on tile data; left out")
        except StepLimit as e:
            self.report.notes.append(f"{words}: {e.message}; left out")
        else:
            sorted_trips = {loop: tuple(sorted(n)) for loop, n in trips.items()}
            self.report.runs.append(Run(words, sorted_trips))

    def _note_longest(self, case: Case, program: int, result: SimReport) -> None:
        """Keeps for each loop the first of the programs that do the most different things for longest,
        and the shortest cases that do most."""
        done = len({s.op for s in result.steps})
        if (done, -len(result.steps)) > self._richest:
            self._richest, self.rich = (done, -len(result.steps)), case
        loops = sum(min(max(counts), SEVERAL) for counts in result.trips.values())
        if (done, loops, -len(result.steps)) > self._busiest:
            self._busiest, self.busy = (done, loops, -len(result.steps)), case
        for loop, counts in result.trips.items():
            rank = done, max(counts)
            if loop not in self._longest or rank > self._longest[loop][0]:
                self._longest[loop] = rank, case, program

    def longest(self, loop: Op) -> Case:
        """The case in which a loop ran for the longest."""
        return self._longest[loop][1]

    def run_longer(self, space: InputSpace) -> None:
        """Where no recurrence was seen, runs the loop longer, in the program that ran it for longest:
        what steers it two and four times as large."""
        for loop, (_, case, program) in list(self._longest.items()):
            for i in () if loop in self.whole else space.variables:
                for factor in (2, 4):
                    rank = self._longest[loop][0]
                    if self.report.failures or self.recurrences.period(loop) is not None:
                        break
                    longer = space.changed(case, {i: factor * case.values[i]})
                    programs = math.prod(longer.grid)
                    self.run(longer, (program,) if program < programs else ())
                    if self._longest[loop][0] == rank:
                        break  # something else steers it

    def judge_loops(self) -> None:
        """What the report says of longer loops; tasks that share a line share a verdict."""
        r, others = self.report, dict[str, list[str]]()
        for loop, trips in self.recurrences.trips.items():
            period, name = self.recurrences.period(loop), loop_name(loop)
            if period is not None:
                r.recurring[name] = max(period, r.recurring.get(name, 1))
            elif loop in self.whole:
                continue
            elif trips > 2 * self.recurrences.depth + 2:
                others.setdefault(name, r.not_recurring)
            elif trips and not self.is_searched:
                others.setdefault(name, r.too_short)
        for name, kind in others.items():
            if r.recurring.pop(name, None) is None or kind is r.not_recurring:
                kind.append(name)
        if self.is_searched:
            for name in r.not_recurring:
                r.unproved.append(Unproved(f"{name}: no recurrence was seen of longer loops"))

    def judge_together(self) -> None:
        """Programs that share words were run together in all orders at one input at least."""
        together = [e for e in self.report.explored if e.why == TOGETHER]
        if together and not any(e.is_complete for e in together):
            self.report.unproved.append(
                Unproved(
                    f"{TOGETHER}: {sum(e.interleavings for e in together)} interleavings were explored and "
                    "none fails, but of no input all",
                    self.func.loc,
                )
            )

    def judge(self, case: Case, program: int) -> SimReport | None:
        """One program of a case: shown to be right, or what is wrong with it is in the report (None)."""
        result: SimReport | SimError
        try:
            result = self.runs(case, program)
        except StepLimit:
            raise
        except SimError as error:
            result = error
        if isinstance(result, SimError) and self.is_searched and result.code in UNFIT:
            return None
        if isinstance(result, SimError) and self._is_known(result):
            return None
        if isinstance(result, SimError) and result.code not in NOT_CONFLUENT:
            self._fails(case, program, result)
            return None
        if isinstance(result, SimReport) and not (self.is_exhaustive or result.shares_words):
            return result
        return self._explored(case, program, result)

    def _is_known(self, error: SimError) -> bool:
        return any((error.code, error.loc) == (d.code, d.loc) for d in self.report.diagnostics)

    def _fails(self, case: Case, program: int, error: SimError) -> None:
        """Something is wrong in every order: repeats it step by step."""
        run, guide = simulation(self.func, case, program, True), Guided()
        again = attempt(run, guide)
        interleaving = None
        if isinstance(again, SimError):
            path = tuple(s.process for s in guide.steps)
            failing = shortened(run, Failing(path, guide.steps, again))
            interleaving = self._interleaving(case, program, True, failing)
        self.report.failures.append(Failure(error, interleaving))

    def _interleaving(
        self, case: Case, program: int | None, confluent: bool, f: Failing
    ) -> Interleaving:
        return Interleaving(self.func, case, program, confluent, f.path, tuple(f.steps), f.error)

    def _explored(self, case: Case, program: int, first: SimReport | SimError) -> SimReport | None:
        """The same by exploration; `first`: what the proof came to."""
        run = simulation(self.func, case, program, False)
        found = explore(run, max(self.states_left, 1))
        self.states_left -= found.states
        if found.failures:
            shortest = min((shortened(run, f) for f in found.failures), key=lambda f: len(f.steps))
            error = first if isinstance(first, SimError) else shortest.error
            interleaving = self._interleaving(case, program, False, shortest)
            self.report.failures.append(Failure(error, interleaving))
            return None
        if not found.is_complete:
            at = first.loc if isinstance(first, SimError) else self.func.loc
            self.report.unproved.append(
                Unproved(
                    f"{self._why(first)}; {found.interleavings} interleavings ({found.states} states) were "
                    "explored and none fails, but not all: order it by a barrier, or allow more with "
                    "check(max_states=…)",
                    at,
                )
            )
            return None
        words, why = case.describe(self.func), self._why(first)
        self.report.explored.append(Explored(words, why, found.interleavings, found.states, True))
        if isinstance(first, SimReport):
            return first
        assert found.report is not None
        return replace(found.report, steps=[])  # not bound: nothing to be counted

    def _together(self, case: Case) -> None:
        """All programs of a small grid, which are right by themselves, as they share global memory."""
        words = case.describe(self.func)
        if min(self.joint_states_left, self.joint_steps_left) <= 0:
            self.report.explored.append(Explored(words, TOGETHER, 0, 0, False))
            return
        run = simulation(self.func, case, None, False)
        found = explore(run, self.joint_states_left, max_steps=self.joint_steps_left)
        self.joint_states_left -= found.states
        self.joint_steps_left -= found.steps
        if found.failures:
            shortest = min((shortened(run, f) for f in found.failures), key=lambda f: len(f.steps))
            interleaving = self._interleaving(case, None, False, shortest)
            self.report.failures.append(Failure(shortest.error, interleaving))
            return
        n, m = found.interleavings, found.states
        self.report.explored.append(Explored(words, TOGETHER, n, m, found.is_complete))

    def _why(self, first: SimReport | SimError) -> str:
        if isinstance(first, SimError):
            at = f" at {first.loc.file}:{first.loc.line}" if first.loc else ""
            return f"{first.code}{at}: not bound to one phase"
        return "agents share words of global memory" if first.shares_words else "as asked"
