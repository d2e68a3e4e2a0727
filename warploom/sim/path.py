"""What the agents of a run without data do, told without running it: its *path*.

A run without data, in one order of events, follows from what its agents do one by one: which ops, on which
slots, barriers and phases, with which counts.  Programs that agree in this run alike, whatever their
arguments and whichever program of the grid they are, so that one of them need be run.  The path costs a
fraction of the run: agents go one after the other, nothing waits, and no clock is kept.

What ops of a region are asked for is told together, at its end.  A loop is told once for all programs in
which it begins alike: what it does follows from its bounds and the numbers that come into it.

Where agents hand numbers on through shared memory (tiles that one of them draws from a counter), the nth
number that an agent gets from a place is taken to be the nth that was put there.  Such a path is a
*guess* until a run shows that it was (`SimReport.is_in_turn`).  Then it holds for all programs with the same
path: step by step their runs do the same in the same order, so that each gets what the same put left.

Nothing can be told where several agents access a word of global memory that one of them writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from warploom.ir.analysis import backward_slice, definitions, sources
from warploom.ir.core import Func, Op, OpKind, Region, Value
from warploom.ir.ops import arith, cluster, control, smem, task, tile, tma
from warploom.ir.types import Barriers, InFlight, Pointer, Scalar, Shared, Tile
from warploom.sim.agent import Agent, Steps
from warploom.sim.chosen import ChosenMemory, Fill
from warploom.sim.engines import Engine
from warploom.sim.evaluate import PURE
from warploom.sim.flow import is_true
from warploom.sim.machine import Phases
from warploom.sim.memory import bind, grid_of
from warploom.sim.outline import Forced, Outline, asked_without_data
from warploom.sim.report import NeedsData, SimError, SimReport, trips_of
from warploom.sim.shared import Place
from warploom.sim.state import Program, Settings
from warploom.sim.translate import Line

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
        tma.map_alloc,
    )
)
_FOR_OTHERS = (tile.load, tile.make_view)  # they do nothing by themselves
Part = Callable[[], Steps]  # of control flow

_BRANCHES = (control.for_, control.if_)  # what it decides
_ON_WORDS = (tile.store, tile.atomic)
_ON_PLACES = (smem.shared_put, smem.shared_get)
_PLACES = (
    cluster.peer,
    smem.shared_alloc,
    smem.shared_slot,
    smem.shared_slice,
    smem.shared_transpose,
)
_BY_PLACE = {tile.program_id, tile.num_programs, cluster.cta_rank, cluster.cta_id, task.replica_id}
_NOT_ASKED = (Tile, InFlight, Shared, Barriers)  # nothing that is told follows from these


class _TooLong(Exception):
    """A path of more than MAX_LENGTH."""


class _Loop(NamedTuple):
    """A loop that was told: the number of what it told, how long that is, of how many events, what the loop
    gives, and what it added to the report."""

    number: int
    length: int
    events: int
    results: Any
    trips: dict[Op, set[int]]
    outcomes: dict[tuple[Op, bool], int]


class _Predictor(Outline):
    """The lines of a function whose ops tell what they are asked for, instead of doing it.  length: of the
    path, with what loops told; events: the ops in it that are told; work: the length, without what was told
    before."""

    def __init__(self, func: Func, watched: Mapping[Op, Forced | None] | None = None) -> None:
        super().__init__(func, func.target.cost, watched=watched)
        self._of_region: dict[Region, tuple[Line, ...]] = {}
        self._loops: dict[Any, _Loop] = {}
        self._known_steps: dict[Any, Any] = {}  # equal ones are one
        self._numbers: dict[tuple[Any, ...], int] = {}  # of what loops told
        self.begin()

    def begin(self) -> None:
        """Of another program nothing is told yet.  put: the numbers left at each place, and by whom;
        got: how many each agent took there."""
        self.path: list[Any] = []
        self.length = self.events = self.work = self.handed = 0
        self.put: dict[tuple[int, int], tuple[Agent, list[Any]]] = {}
        self.got: dict[Any, int] = {}

    @cached_property
    def is_telling(self) -> bool:
        """Does what an agent does follow from nothing but numbers that are known?"""
        predicted = (o for o in self.ops if _is_predicted(o))
        places = {o.operands[0].type for o in self.ops if o.kind in _ON_PLACES}
        sizes = {(t.dtype.bytes, math.prod(t.shape)) for t in places if isinstance(t, Shared)}
        if any(n != 1 for _, n in sizes) or len(sizes) > 1:
            return False  # one may overwrite a part of another
        if self.is_guessing and len(self.phases) > 1:
            return False  # agents of the next phase would come too early
        return not any(isinstance(v.type, Scalar | Pointer) for o in predicted for v in o.results)

    @cached_property
    def is_guessing(self) -> bool:
        """Does it follow from memory that is written?"""
        return any(_hands_on(o) for o in self.ops)

    @cached_property
    def _chosen(self) -> set[Op]:
        """What makes the places that numbers are handed on in."""
        made, found = definitions(self.func.body), set[Op]()
        todo = [o.operands[0] for o in self.ops if o.kind in _ON_PLACES]
        while todo:
            o = made.get(todo.pop())
            if o is not None and o.kind in _PLACES and o not in found:
                found.add(o)
                todo += o.operands[:1]
        return found

    @cached_property
    def _followed(self) -> set[Value]:
        """What all follows from that is told: of words that nobody writes the others need not be read, and no
        view be made of them."""
        does = super()._is_in_skeleton
        roots = [
            v
            for o in self.ops
            if o.kind not in PURE and o.kind not in _FOR_OTHERS and does(o)
            for v in (o.operands if _hands_on(o) else asked_without_data(o))
            if not _is_predicted(o) or isinstance(v.type, Scalar)
        ]
        roots += [o.regions[0].yielded[0] for o in self.ops if o.kind is control.while_]
        return backward_slice(roots, sources(self.func.body), lambda v: isinstance(v.type, Tile))

    def _is_in_skeleton(self, o: Op) -> bool:
        is_left_out = o.kind in _FOR_OTHERS and self._is_simple and o.result not in self._followed
        return not is_left_out and super()._is_in_skeleton(o)

    @cached_property
    def _is_simple(self) -> bool:
        """Can no load and no view go wrong: does nothing write words, or make pointers of them?"""
        return not self.is_guessing and all(o.kind is not arith.int_to_ptr for o in self.ops)

    @cached_property
    def given(self) -> dict[Value, Any]:
        left = (o for o in self.ops if _is_predicted(o) and o not in self._chosen)
        return super().given | dict.fromkeys(v for o in left for v in o.results)

    def lines(
        self, region: Region, is_skeleton: bool = False, has_data: bool = False
    ) -> tuple[Line, ...]:
        """The ops that are told, in one line after the others."""
        if region not in self._of_region:
            every = super().lines(region, is_skeleton)
            predicted = [line.op for line in every if _is_predicted(line.op) or _hands_on(line.op)]
            asked = [
                v
                for o in predicted
                if not _hands_on(o)
                for v in asked_without_data(o)
                if isinstance(v.type, Scalar)
            ]
            lines = tuple(
                line for line in every if not _is_predicted(line.op) or line.op in self._chosen
            )
            if predicted:
                tell = partial(self._tell, region, len(predicted), len(asked))
                lines += (
                    Line(predicted[-1], tell, False, tuple(dict.fromkeys(asked)), (), (), "", 0.0),
                )
            self._of_region[region] = lines
        return self._of_region[region]

    def _line(self, o: Op) -> Line:
        line = super()._line(o)
        if o.kind is control.for_:
            return self._telling_loop(o)
        own: dict[OpKind, Callable[..., Any]] = {
            control.if_: self._branching, smem.shared_put: self._putting, smem.shared_get: self._getting,
        }  # fmt: skip
        return line._replace(run=own[o.kind]) if o.kind in own else line

    def _putting(self, a: Agent, o: Op, place: Place | None, value: Any) -> None:
        if place is None:
            raise NeedsData
        who, numbers = self.put.setdefault(place.first_byte, (a, []))
        if who is not a:
            raise NeedsData  # who comes first is for a run to say
        self.handed += 1
        numbers.append(np.full((), value, self.numerics.holds(place.type.dtype))[()])

    def _getting(self, a: Agent, o: Op, place: Place | None) -> Steps:
        if place is None:
            raise NeedsData
        at = place.first_byte
        n = self.got[a, at] = self.got.get((a, at), 0) + 1
        while at not in self.put or len(self.put[at][1]) < n:
            yield None
        return self.put[at][1][n - 1]

    def _branching(self, a: Agent, o: Op, then: Part, other: Part, c: Any) -> Steps:
        self._tell(o, 0, 2, a, o, c)
        return (then if is_true(c) else other)()

    def _telling_loop(self, loop: Op) -> Line:
        """Where a loop begins and ends doesn't matter, only how often it is run."""
        asked = self._asked_by_loop(loop)
        inside = {x.kind for x in loop.regions[0].all_ops}
        where = _place_of if inside & _BY_PLACE else lambda a: ()
        at = [i for i, v in enumerate(loop.operands) if i > 2 and _is_kept(v)]
        at += range(len(loop.operands), len(loop.operands) + len(asked or ()))

        def run(a: Agent, o: Op, whole: Part, *values: Any) -> Steps:
            first, stop, stride = a.numbers(values[:3])
            self._tell(o, 0, 2, a, o, trips_of(o, first, stop, stride))
            if asked is None:
                return whole()
            coming = *[values[i] for i in at], *where(a)
            return self._once((o, first, stop, stride, coming), a, whole)

        return Line(loop, run, False, (*loop.operands, *(asked or ())), loop.results, (), "", 0.0)

    def _tell(
        self, what: Op | Region, events: int, asked: int, a: Agent, o: Op, *numbers: Any
    ) -> None:
        step = what, *numbers
        self.path.append(self._known_steps.setdefault(step, step))
        self.length += events + asked
        self.work += events + asked
        self.events += events
        if self.length > MAX_LENGTH:
            raise _TooLong

    def _once(self, key: Any, a: Agent, whole: Part) -> Steps:
        """A loop, told where it was not yet."""
        report = a.cta.report
        if key not in self._loops:
            path, trips, outcomes = self.path, report.trips, report.outcomes
            length, events = self.length, self.events
            self.path, report.trips, report.outcomes = [], {}, {}
            results = yield from whole()
            number = self._numbers.setdefault(tuple(self.path), len(self._numbers))
            self._loops[key] = _Loop(
                number, self.length - length, self.events - events, results, report.trips,
                report.outcomes,
            )  # fmt: skip
            self.path, report.trips, report.outcomes = path, trips, outcomes
            self.length, self.events = length, events
        loop = self._loops[key]
        self.path.append(loop.number)
        self.length += loop.length
        self.events += loop.events
        for inner, counts in loop.trips.items():
            report.trips.setdefault(inner, set()).update(counts)
        for seen, iteration in loop.outcomes.items():
            report.outcomes[seen] = max(iteration, report.outcomes.get(seen, 0))
        return loop.results

    def _asked_by_loop(self, loop: Op) -> tuple[Value, ...] | None:
        """The values from outside that what a loop tells follows from; None where it follows from more."""
        asked, made = dict.fromkeys(loop.results), set[Value]()
        todo = list(loop.regions)
        while todo:
            region = todo.pop()
            made.update(region.params)
            asked.update(dict.fromkeys(region.yielded))
            for line in self.lines(region, True):
                o = line.op
                if o.kind is tile.load or _hands_on(o) or self.watched.get(o) is not None:
                    return None
                asked.update(dict.fromkeys(line.operands))
                made.update(o.results)
                todo += o.regions
        outside = [v for v in asked if v not in made and v not in loop.results]
        if not all(_is_kept(v) or isinstance(v.type, _NOT_ASKED) for v in asked):
            return None
        return tuple(filter(_is_kept, outside))


def _is_predicted(o: Op) -> bool:
    """Is it told, instead of done?"""
    return not _hands_on(o) and not (
        o.kind in PURE or o.kind in _NUMBERS or o.kind in _BRANCHES or o.kind is tile.load
    )


def _hands_on(o: Op) -> bool:
    """Does it write numbers to memory, or get one that was written?"""
    is_number = not isinstance(o.operands[0].type, Tile) if o.operands else False
    return o.kind in _ON_PLACES or (o.kind in _ON_WORDS and is_number)


def _is_kept(v: Value) -> bool:
    """Is a value a number that loops are told apart by?"""
    return isinstance(v.type, Pointer) or (isinstance(v.type, Scalar) and v.type.dtype.is_int)


def _place_of(a: Agent) -> tuple[Any, ...]:
    return a.cta.ids, a.cta.grid, a.cta.rank, a.replica


@dataclass(frozen=True)
class Path:
    """What the agents of a program do.  trips: of each loop the trip counts, in any agent.  outcomes: see
    SimReport; paths may be equal all the same.  length, events: how much they do, the ops among it; the same
    of equal ones."""

    steps: tuple[Any, ...]
    trips: frozenset[tuple[Op, int]]
    outcomes: Mapping[tuple[Op, bool], int] = field(default_factory=dict, compare=False)
    is_guess: bool = False
    length: int = 0
    events: int = 0

    @cached_property
    def most_trips(self) -> Mapping[Op, int]:
        """The most iterations of each loop, in any agent."""
        return dict(sorted(self.trips, key=lambda loop: loop[1]))


class Paths:
    """The paths of a function's programs.  most_iterations: of a `while` in a path.  work: what telling the
    last one took, in what it told; events: the ops that it told, to its end or to where it got too long."""

    def __init__(
        self,
        func: Func,
        watched: Mapping[Op, Forced | None] | None = None,
        most_iterations: int = MAX_LENGTH,
    ) -> None:
        self.func, self.work, self.events = func, 0, 0
        self._most_iterations = most_iterations
        self._predictor = _Predictor(func, watched)
        self._settings = _settings(func)

    def __call__(
        self,
        args: Sequence[Any],
        grid: Sequence[int],
        number: int,
        fills: Mapping[str, Fill] | None = None,
    ) -> Path | None:
        """Equal for programs whose runs without data are equal; None where that can't be told."""
        predictor = self._predictor
        self.work = self.events = 0
        if not predictor.is_telling or 0 in grid_of(grid):
            return None
        if predictor.is_guessing:
            args = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
        paths, report = list[list[Any]](), SimReport()
        try:
            with np.errstate(all="ignore"):
                is_over = self._follow(args, grid, number, fills, paths, report)
        except (SimError, NeedsData, _TooLong):
            return None
        finally:
            self.work, self.events = predictor.work, predictor.events
        if not is_over or report.shares_words:
            return None
        trips = frozenset((o, n) for o, counts in report.trips.items() for n in counts)
        steps = tuple(map(tuple, paths))
        return Path(
            steps, trips, report.outcomes, predictor.is_guessing, predictor.length, predictor.events
        )

    def _follow(
        self,
        args: Sequence[Any],
        grid: Sequence[int],
        number: int,
        fills: Mapping[str, Fill] | None,
        paths: list[list[Any]],
        report: SimReport,
    ) -> bool:
        """Runs the agents of a program, each until it ends or waits for a number; whether all ended."""
        memory, params = bind(self.func, args)
        if fills is not None:
            memory = ChosenMemory(memory, fills)
        x, y, _ = sizes = grid_of(grid)
        ids = number % x, number // x % y, number // (x * y)
        engine = Engine()
        engine.max_iterations = self._most_iterations
        engine.max_counted = 10 * MAX_LENGTH
        program = Program(
            self.func, memory, params, ids, sizes, number, self._settings, engine, report, _unseen,
            self._predictor,
        )  # fmt: skip
        predictor = self._predictor
        predictor.begin()
        agents = [steps for cta in program.ctas for steps in Phases(cta, {}).alone()]
        going = [(steps, list[Any]()) for steps in agents]
        paths += [predictor.path, *(path for _, path in going)]
        idle = 0
        while going and idle < 2:  # an atomic waits once, though for nothing
            before = predictor.length, len(going), predictor.handed
            going = [(steps, path) for steps, path in going if self._goes_on(steps, path)]
            now = predictor.length, len(going), predictor.handed
            idle = idle + 1 if now == before else 0
        program.dismantle()
        return not going

    def _goes_on(self, steps: Steps, path: list[Any]) -> bool:
        """Runs an agent until it waits; False where it ends."""
        self._predictor.path = path
        return next(steps, _ENDED) is not _ENDED


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


_ENDED = object()
