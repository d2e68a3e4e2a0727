"""An input of a function, and its runs: one a program, and of programs that do the same one for all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warploom.ir.core import Func, Op, Value, walk
from warploom.ir.ops import task, tile
from warploom.ir.types import Pointer, Scalar
from warploom.sim.chosen import Fill
from warploom.sim.machine import simulate
from warploom.sim.outline import Forced, Outline
from warploom.sim.path import Path, Paths
from warploom.sim.report import NeedsData, SimError, SimReport, StepLimit, TripLimit

MAX_STEPS = 20_000  # of the scheduler, a program: a case that takes more is left out
LENGTH_OF_A_STEP = 16  # of a path: telling so much counts as a step
MOST_PROGRAMS = 16  # of an input, that are run where it can't be told that they do the same
NOT_CONFLUENT = frozenset(
    ("unbound-arrival", "unbound-wait", "late-wait")
)  # what asks for exploration
# The launch would not pick this variant, or the program asks for other inputs.
UNFIT = ("tma-stride", "out-of-bounds", "loop-step", "assume", "device-assert", "offset-overflow")


@dataclass(frozen=True, eq=False)
class Case:
    """One input: arguments in parameter order (arrays are not touched but by scalar loads) and a grid.

    memory: the numbers in arrays, by name, where they are not those that the arrays hold."""

    args: tuple[Any, ...]
    grid: tuple[int, ...]
    memory: tuple[tuple[str, Fill], ...] = ()

    def describe(self, func: Func) -> str:
        """The numbers among the arguments, and the grid."""
        pairs = zip(func.params, self.args, strict=True)
        numbers = [f"{p.hint}={a}" for p, a in pairs if isinstance(p.type, Scalar)]
        grid = "×".join(map(str, self.grid))
        while grid.endswith("×1"):
            grid = grid[:-2]
        numbers += [f"{name} holds {fill}" for name, fill in self.memory]
        return f"{', '.join(numbers)} on grid {grid}"

    @property
    def values(self) -> tuple[Any, ...]:
        """The arguments, the number of programs, then the numbers in memory."""
        return (*self.args, math.prod(self.grid), *(fill.base for _, fill in self.memory))

    def numbers(self, func: Func) -> dict[Value, int]:
        """The integers among the arguments, by parameter."""
        pairs = zip(func.params, self.args, strict=True)
        return {v: int(a) for v, a in pairs if isinstance(v.type, Scalar) and v.type.dtype.is_int}

    @property
    def fills(self) -> dict[str, Fill] | None:
        """As `simulate` takes them."""
        return dict(self.memory) or None

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for cases with the same numbers and the same arrays, as long as these live."""
        return (
            *(id(a) if isinstance(a, np.ndarray) else a for a in self.args),
            self.grid,
            self.memory,
        )

    def copied(self) -> Case:
        """The same with arrays of its own."""
        args = (a.copy() if isinstance(a, np.ndarray) else a for a in self.args)
        return Case(tuple(args), self.grid, self.memory)


def is_reading(func: Func) -> bool:
    """Whether a run without data leaves global memory as it is: nothing writes a scalar."""
    return not any(
        o.kind in (tile.atomic, tile.store) and isinstance(o.operands[0].type, Scalar | Pointer)
        for o in walk(func.body)
    )


def ring_depth(func: Func) -> int:
    """The deepest ring of a function."""
    return max((o.attrs["depth"] for o in walk(func.body) if o.kind is task.ring_next), default=1)


class Runs:
    """Tracked runs of a function without data, in one order; each program of each input is run once, and
    of programs that do the same only the first.  shares: are some expected to?"""

    def __init__(
        self,
        func: Func,
        watched: Mapping[Op, Forced | None] | None = None,
        shares: bool = True,
    ) -> None:
        self.func = func
        self.outline = Outline(func, func.target.cost, watched=watched)
        self.outcomes: dict[tuple[Op, bool], int] = {}  # of all runs; see SimReport
        # The most iterations of each loop in a program in which a condition came to an outcome.
        self.trips_with: dict[tuple[Op, bool], dict[Op, int]] = {}
        self._reaching: dict[tuple[Op, bool], tuple[int, Case, int]] = {}  # see reaching
        self._found: dict[Any, tuple[Case, SimReport | Exception]] = {}
        self._paths = Paths(func, watched, MAX_STEPS)  # a run takes no more iterations, either
        self._most_trips: dict[Any, dict[Op, int]] = {}
        self.taken = 0  # steps of all runs
        self.path_steps = 0  # likewise: what takes as long, of paths and iterations without steps
        self.is_searching = False  # are inputs to be left out that take too many steps?
        self._pace = 0, 1  # of the longest run: steps of the scheduler, events of its path
        self._too_long: set[Any] = set()  # without a path
        self._path_of: dict[Any, tuple[Case, Path | None]] = {}
        self._by_path: dict[Path, SimReport] = {}
        self._is_untold = not shares  # are there no paths, or was a guess wrong?

    def __call__(self, case: Case, program: int, most: int | None = None) -> SimReport:
        """Raises what the run does: SimError, NeedsData; TripLimit where a loop of a program without a path
        runs more often than `most`."""
        key = *case.key, program
        if key not in self._found:
            try:
                self._found[key] = case, self._first_like(case, program, most)
            except TripLimit:
                raise  # the whole run is still to be made
            except (SimError, NeedsData) as e:
                self._found[key] = case, e
        _, found = self._found[key]  # with the case its arrays stay, and their ids
        if isinstance(found, Exception):
            raise found
        trips = self._most_trips.setdefault(case.key, {})
        for loop, n in found.most_trips.items():
            trips[loop] = max(n, trips.get(loop, 0))
        return found

    def programs(self, case: Case) -> Sequence[int]:
        """The programs of an input that are to be run: all, or some of many that may all differ; what a
        condition says of a program's number is asked for by itself."""
        n = math.prod(case.grid)
        if n <= MOST_PROGRAMS or self.path(case, 0) is not None:
            return range(n)
        return sorted({0, 1, n // 2, n - 1})

    def path(self, case: Case, program: int) -> Path | None:
        """What a program does, where that can be told without a run."""
        found = self.predicted(case, program)
        return None if found is None or found.is_guess else found

    def predicted(self, case: Case, program: int) -> Path | None:
        """The same, or a guess."""
        if self._is_untold:
            return None
        key = *case.key, program
        if key not in self._path_of:
            found = self._paths(case.args, case.grid, program, case.fills)
            self._path_of[key] = case, found
            self.path_steps += self._paths.work // LENGTH_OF_A_STEP
            if found is None and self._is_too_long(self._paths.events):
                self._too_long.add(key)
        return self._path_of[key][1]

    def steps(self, case: Case, program: int) -> int:
        """The steps of a program as far as its path tells, those that telling it takes counted as well."""
        path, (ticks, of) = self.predicted(case, program), self._pace
        return 0 if path is None else path.events * ticks // of + path.length // LENGTH_OF_A_STEP

    def _is_too_long(self, events: int) -> bool:
        """Would a program with so many events take too many steps, by the pace of those that were run?"""
        ticks, of = self._pace
        return self.is_searching and events * ticks > MAX_STEPS * of

    def most_trips(self, case: Case, program: int, most: int) -> Mapping[Op, int]:
        """How often a program runs each loop at most, as predicted, else as run.  Raises what its run does;
        TripLimit where a loop runs more often than `most`, but for a path that is no guess."""
        path = self.predicted(case, program)
        if path is None:
            return self(case, program, most).most_trips
        if path.is_guess:
            limit_trips(path, most)
        return path.most_trips

    def reaching(self, op: Op, outcome: bool | None = None) -> tuple[Case, int] | None:
        """The longest input and program, by the iterations of its loops, that came to a condition, or to one
        of its outcomes."""
        outcomes = (False, True) if outcome is None else (outcome,)
        found = [self._reaching[op, x] for x in outcomes if (op, x) in self._reaching]
        return max(found, key=lambda f: f[0])[1:] if found else None

    def _note(
        self,
        case: Case,
        program: int,
        outcomes: Mapping[tuple[Op, bool], int],
        trips: Mapping[Op, int],
    ) -> None:
        """Keeps the outcomes of watched conditions: the last iteration of each, the loops' trip counts."""
        length = sum(trips.values())
        for key, iteration in outcomes.items():
            self.outcomes[key] = max(iteration, self.outcomes.get(key, 0))
            if length > self._reaching.get(key, (-1,))[0]:
                self._reaching[key] = length, case, program
            known = self.trips_with.setdefault(key, {})
            for loop, n in trips.items():
                known[loop] = max(n, known.get(loop, 0))

    def length(self, case: Case, loop: Op | None = None) -> int:
        """The iterations of a loop, or of the longest one, that were run at an input."""
        trips = self._most_trips.get(case.key, {})
        return max(trips.values(), default=0) if loop is None else trips.get(loop, 0)

    def _first_like(self, case: Case, program: int, most: int | None) -> SimReport:
        """The run of the first program that did the same, or this one's."""
        path = self.predicted(case, program)
        events = 0 if path is None else path.events
        if (*case.key, program) in self._too_long or self._is_too_long(events):
            raise StepLimit("step-limit", f"the program takes more than {MAX_STEPS} steps")
        if path is None:
            return self._run(case, program, True, most)
        if path.is_guess:
            limit_trips(path, most)
        found = self._by_path.get(path)
        if found is None:
            found = self._run(case, program, True)
            self._pace = max(self._pace, (found.ticks, max(1, path.events)))
            self.path_steps += max(0, path.length // LENGTH_OF_A_STEP - len(found.steps))
            if path.is_guess and not found.is_in_turn:
                self._is_untold = True
                return found
            self._by_path[path] = found
        # After the run: a run that is left out proves nothing.
        self._note(case, program, path.outcomes, found.most_trips)
        return found

    def _run(self, case: Case, program: int, confluent: bool, most: int | None = None) -> SimReport:
        args = case.args if is_reading(self.func) else case.copied().args
        try:
            found = simulate(
                self.func, args, case.grid, order="early", data=False, max_steps=MAX_STEPS,
                confluent=confluent, program=program, outline=self.outline, fills=case.fills,
                max_trips=most,
            )  # fmt: skip
        except TripLimit:
            raise
        except StepLimit:
            self.taken += MAX_STEPS // 4
            raise
        self._note(case, program, found.outcomes, found.most_trips)
        self.taken += len(found.steps)
        return found

    def trips(self, case: Case, program: int, most: int | None) -> SimReport:
        """The same; of a program that is not confluent as it happens to go.  Raises TripLimit where a loop
        runs more often than `most`."""
        try:
            return self(case, program, most)
        except SimError as e:
            if e.code not in NOT_CONFLUENT:
                raise
        return self._run(case, program, False, most)


def limit_trips(path: Path, most: int | None) -> None:
    """Raises what the run of a path would where a loop runs more often than `most`."""
    if most is not None and max(path.most_trips.values(), default=0) > most:
        raise TripLimit("trip-limit", f"a loop runs for more than {most} iterations")
