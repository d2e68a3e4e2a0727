"""Searching for inputs: candidates are made of an input and what is wished for beside it, and run, within a
number of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from warploom.check.recurrence import Recurrences
from warploom.check.report import CheckReport
from warploom.check.runs import MOST_PROGRAMS, Case, Runs
from warploom.check.solve import Solver
from warploom.check.values import Wish
from warploom.ir.core import Op
from warploom.sim.chosen import PATTERNS, Fill

MUCH_LONGER = 4  # times the iterations of the longest loop in the base
MOST_OF_GRID = (1 << 31) - 1  # programs along an axis
MOST_STEPS = 20_000  # of inputs that are to flip conditions; as many of those that lengthen a loop


class Checker(Protocol):
    """What runs inputs: protocol.py."""

    report: CheckReport
    recurrences: Recurrences
    runs: Runs
    rich: Case | None
    busy: Case | None
    whole: set[Op]

    def run(self, case: Case, programs: tuple[int, ...] = ()) -> None: ...
    def longest(self, loop: Op) -> Case: ...


class Search:
    """The inputs that were found for a checker, and more of them.  solver: finds wishes."""

    def __init__(self, checker: Checker, solver: Solver, cases: list[Case]) -> None:
        self.checker, self.solver = checker, solver
        self.dependence, self.space = solver.dependence, solver.space
        self.runs, self.report, self.cases = checker.runs, checker.report, cases
        self.is_cut = False  # did the steps not suffice?
        self._end = 0, 0  # the steps after which it is over, and what was told
        self._made: dict[Any, tuple[Case | None, tuple[int, ...]]] = {}  # of wishes beside an input

    @property
    def longest(self) -> Case:
        """Of the inputs that were found the one with the longest loops."""
        return max(self.cases, key=self.runs.length)

    def begin(self, steps: int = MOST_STEPS) -> None:
        self._end = self.runs.taken + steps, self.runs.path_steps + steps

    def is_over(self) -> bool:
        """Has a search taken as many steps as it may?"""
        steps, path_steps = self._end
        is_over = self.runs.taken > steps or self.runs.path_steps > path_steps
        self.is_cut |= is_over
        return is_over

    def run(self, base: Case, wish: Wish, most: int | None = None) -> None:
        """Runs an input with what is wished for, also with other numbers in parts of an array; none in which
        a program takes more than `most` steps."""
        if self.is_over():
            return
        case, programs = self.made(base, wish)
        if case is None:
            return
        if most is not None and self.runs.steps(case, min(programs, default=0)) > most:
            return
        self.checker.run(case, programs)
        for i in wish.numbers:
            if i > self.space.grid and not self.report.failures:
                at = i - self.space.grid - 1
                was, now = base.memory[at][1].base, case.memory[at][1].base
                for pattern in PATTERNS[1:]:
                    self.run_filled(case, at, Fill(was, now, pattern), programs)

    def run_filled(self, case: Case, at: int, fill: Fill, programs: tuple[int, ...] = ()) -> None:
        """Runs an input with other numbers in one of its arrays."""
        memory = list(case.memory)
        memory[at] = memory[at][0], fill
        self.checker.run(Case(case.args, case.grid, tuple(memory)), programs)

    def made(self, base: Case, wish: Wish) -> tuple[Case | None, tuple[int, ...]]:
        """The input, and the programs of it to be run (none: all)."""
        key = base, tuple(sorted(wish.numbers.items())), tuple(sorted(wish.ids.items()))
        if key not in self._made:
            self._made[key] = self._make(base, wish)
        return self._made[key]

    def _make(self, base: Case, wish: Wish) -> tuple[Case | None, tuple[int, ...]]:
        case = self.space.changed(base, wish.numbers)
        if wish.ids:
            wanted = [wish.ids.get(axis, 0) for axis in range(3)]
            grown = self.space.with_grid(case, [n + 1 for n in wanted])
            if grown is None or max(grown.grid) > MOST_OF_GRID:
                return None, ()
            case = grown
            x, y, _ = (*case.grid, 1, 1)[:3]
            at = wanted[0] + x * (wanted[1] + y * wanted[2])
            programs = math.prod(case.grid)
            case = self._with_work(case, at, base, wish)
            if programs > MOST_PROGRAMS:
                return case, tuple(sorted({0, at, programs - 1}))
        else:
            case = self._with_work(case, 0, base, wish)
        return case, ()

    def _with_work(self, case: Case, at: int, base: Case, wish: Wish) -> Case:
        """The same, or larger numbers with which a program runs its loops as often as the first one does in
        the base: in a launch with more programs than tiles the last ones do nothing, and a number that turns
        a condition may leave little to do.  A kernel that chooses its grid gives each program work."""
        if self.space.has_own_grid:
            return case

        def trips(case: Case, program: int) -> Mapping[Op, int]:
            path = self.runs.path(case, program)
            return {} if path is None else path.most_trips

        wanted = trips(base, 0)

        def lacking(case: Case) -> tuple[list[int], bool]:
            """By how much loops are too short, and whether others are much longer than asked for."""
            found = trips(case, at)
            short = [
                -(-n // max(found.get(o, 0), 1)) for o, n in wanted.items() if found.get(o, 0) < n
            ]
            return short, max(found.values(), default=0) > MUCH_LONGER * max(
                wanted.values(), default=0
            )

        missing, _ = lacking(case)
        programs = math.prod(case.grid) if wish.ids else 1
        for i in self.space.variables:
            if not missing:
                break
            if i >= self.space.grid or i in wish.numbers:
                continue
            least = case.args[i]
            units = sorted({least, *self.space.units(i)})
            for n, factor in ((n, by) for n in units for by in sorted({programs, *missing})):
                larger = self.space.changed(case, {i: n * factor})
                still, is_far = lacking(larger)
                if (len(still), sum(still)) < (len(missing), sum(missing)):
                    case, missing = larger, still
                if not missing or is_far:  # a larger one lengthens what is long enough
                    break
            unit = self.space.divisor(i)  # as small as serves, or nearly so
            low, high = max(0, least) // unit, case.args[i] // unit
            while high - low > 1 + high // 8:
                n = (low + high) // 2
                smaller = self.space.changed(case, {i: n * unit})
                if lacking(smaller)[0] == missing:
                    case, high = smaller, n
                else:
                    low = n
        return case
