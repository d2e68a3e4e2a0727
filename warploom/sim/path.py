"""What the agents of a run without data do, told without running it: its *path*.

A run without data, in one order of events, follows from what its agents do one by one: which ops, on which
slots, barriers and phases, with which counts.  Programs that agree in this run alike, whatever their
arguments and whichever program of the grid they are, so that one of them need be run.  The path costs a
fraction of the run: agents go one after the other, nothing waits, and no clock is kept.

Nothing can be told where what an agent does follows from memory that the program writes (an atomic's result,
what another task put for it), or where a run writes scalars to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from warploom.ir.core import Func, Op, OpKind
from warploom.ir.ops import arith, cluster, control, mbarrier, smem, task, tile, tma
from warploom.ir.types import Pointer, Scalar
from warploom.sim.agent import Agent, NeedsData
from warploom.sim.chosen import ChosenMemory, Fill
from warploom.sim.engines import Engine
from warploom.sim.evaluate import PURE
from warploom.sim.machine import Phases
from warploom.sim.memory import bind, grid_of
from warploom.sim.outline import STEPS, Forced, Line, Outline, asked_without_data
from warploom.sim.report import SimError, SimReport
from warploom.sim.state import Program, Settings

MAX_LENGTH = 200_000  # of a path; what is longer is run

# What an agent computes for itself: numbers, which matter where something else is asked for them.
_NUMBERS: frozenset[OpKind] = frozenset(
    (
        control.while_,
        control.assume,
        control.device_assert,
        task.elect,
        task.replica_id,
        arith.fast_div,
        tile.program_id,
        tile.num_programs,
        tile.make_view,
        cluster.cta_rank,
        cluster.cta_id,
        tma.tensor_map,
    )
)
# What it decides, or chooses to work on.
_CHOICES: frozenset[OpKind] = frozenset(
    (
        control.for_,
        control.if_,
        cluster.peer,
        smem.shared_alloc,
        mbarrier.mbarrier_alloc,
        smem.shared_slot,
        smem.shared_slice,
        smem.shared_transpose,
    )
)
_WRITES = (tile.store, tile.atomic)


class _TooLong(Exception):
    """A path of more than MAX_LENGTH."""


class _Told(Outline):
    """The lines of a function whose ops tell what they are asked for, instead of doing it."""

    def __init__(self, func: Func, watched: Mapping[Op, Forced | None] | None = None) -> None:
        super().__init__(func, func.target.cost, watched=watched)
        self.path: list[Any] = []
        self._serial = 0

    @cached_property
    def is_telling(self) -> bool:
        """Does nothing that an agent does follow from memory?"""
        scalar = (Scalar, Pointer)
        for o in self.ops:
            if o.kind in PURE or o.kind in _NUMBERS or o.kind in _CHOICES or o.kind is tile.load:
                continue  # what is loaded is told where nothing is written
            if any(isinstance(v.type, scalar) for v in o.results):
                return False
            if o.kind in _WRITES and isinstance(o.operands[0].type, scalar):
                return False
        return True

    def _line(self, o: Op) -> Line:
        line = super()._line(o)
        if o.kind in PURE or o.kind in _NUMBERS or o.kind is tile.load:
            return line
        self._serial += 1
        return line._replace(run=self._telling(o, self._serial))

    def _telling(self, o: Op, serial: int) -> Callable[..., Any]:
        """Tells the op, by its number, and the scalars that it is asked for."""
        asked = asked_without_data(o)
        numbers = [i for i, v in enumerate(o.operands) if v in asked and isinstance(v.type, Scalar)]
        does = STEPS[o.kind] if o.kind in _CHOICES else None
        nothing = (None,) * len(o.results) if len(o.results) > 1 else None

        def run(a: Agent, o: Op, *values: Any) -> Any:
            self.path.append(serial)
            self.path += [values[i] for i in numbers]
            if len(self.path) > MAX_LENGTH:
                raise _TooLong
            return nothing if does is None else does(a, o, *values)

        def loop(a: Agent, o: Op, *values: Any) -> Any:
            """Where a loop begins and ends doesn't matter, only how often it is run."""
            first, stop, stride = a.numbers(values[:3])
            self.path += (serial, len(range(first, stop, max(stride, 1))))
            return STEPS[o.kind](a, o, *values)

        return loop if o.kind is control.for_ else run


@dataclass(frozen=True)
class Path:
    """What the agents of a program do.  trips: of each loop the trip counts, in any agent.  outcomes: see
    SimReport; paths may be equal all the same."""

    steps: tuple[Any, ...]
    trips: frozenset[tuple[Op, int]]
    outcomes: Mapping[tuple[Op, bool], int] = field(default_factory=dict, compare=False)


class Paths:
    """The paths of a function's programs."""

    def __init__(self, func: Func, watched: Mapping[Op, Forced | None] | None = None) -> None:
        self.func = func
        self._told = _Told(func, watched)
        self._settings = _settings(func)

    def __call__(
        self,
        args: Sequence[Any],
        grid: Sequence[int],
        number: int,
        fills: Mapping[str, Fill] | None = None,
    ) -> Path | None:
        """Equal for programs whose runs without data are equal; None where that can't be told."""
        if not self._told.is_telling:
            return None
        report = self._follow(args, grid, number, fills)
        if report is None:
            return None
        trips = frozenset((o, n) for o, counts in report.trips.items() for n in counts)
        return Path(tuple(self._told.path), trips, report.outcomes)

    def _follow(
        self,
        args: Sequence[Any],
        grid: Sequence[int],
        number: int,
        fills: Mapping[str, Fill] | None,
    ) -> SimReport | None:
        """Runs the agents of a program one after the other; None where one of them can't go on."""
        memory, params = bind(self.func, args)
        if fills is not None:
            memory = ChosenMemory(memory, fills)
        sizes, report = grid_of(grid), SimReport()
        x, y, _ = sizes
        ids = number % x, number // x % y, number // (x * y)
        engine = Engine()
        engine.max_turns = MAX_LENGTH
        program = Program(
            self.func, memory, params, ids, sizes, number, self._settings, engine, report, _unseen,
            self._told,
        )  # fmt: skip
        self._told.path = []
        try:
            with np.errstate(all="ignore"):
                for cta in program.ctas:
                    for steps in Phases(cta, {}).alone():
                        _exhaust(steps)
        except (SimError, NeedsData, _TooLong):
            return None
        return report


def _settings(func: Func) -> Settings:
    return Settings(
        is_tracked=False,
        has_data=False,
        lets_warps_lag=False,
        has_timeline=False,
        is_timed=False,
        is_bound=False,
        touched=None,
        target=func.target,
    )


def _unseen(_: Any) -> None:
    """There is no timeline."""


def _exhaust(steps: Generator[Any, None, Any]) -> None:
    for _ in steps:
        pass
