"""Inputs that make a function's loops run for the trip counts that matter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warploom.ir.analysis import backward_slice, loops, sources
from warploom.ir.core import KINDS, Fact, Func, Op, Value, walk
from warploom.ir.ops import arith, control, task, tile, tma
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.types import DTYPES, Pointer, Scalar, TensorMap, dtype_of
from warploom.sim.chosen import Fill
from warploom.sim.evaluate import ON_INTEGERS
from warploom.sim.machine import simulate
from warploom.sim.outline import Forced, Outline
from warploom.sim.path import Path, Paths
from warploom.sim.report import NeedsData, SimError, SimReport, StepLimit, TripLimit

MAX_STEPS = 20_000  # of the scheduler, a program: a case that takes more is left out
LENGTH_OF_A_STEP = 16  # of a path: telling so much counts as a step
MAX_CASES = 60
MOST_PROGRAMS = 16  # of an input, that are run where it can't be told that they do the same
MAX_VOLUME = 64  # of iterations in all, where several loops run for more than the least
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
        self.told = 0  # likewise: what takes as long, of paths and of iterations without any steps
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
            self.told += self._paths.work // LENGTH_OF_A_STEP
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
            _limit_trips(path, most)
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
            _limit_trips(path, most)
        found = self._by_path.get(path)
        if found is None:
            found = self._run(case, program, True)
            self._pace = max(self._pace, (found.ticks, max(1, path.events)))
            self.told += max(0, path.length // LENGTH_OF_A_STEP - len(found.steps))
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


def _limit_trips(path: Path, most: int | None) -> None:
    """Raises what the run of a path would where a loop runs more often than `most`."""
    if most is not None and max(path.most_trips.values(), default=0) > most:
        raise TripLimit("trip-limit", f"a loop runs for more than {most} iterations")


def find_cases(
    func: Func,
    runs: Runs | None = None,
    steering: Steering | None = None,
    base: Case | None = None,
) -> list[Case]:
    """Inputs that make the function's loops run for the trip counts that matter.

    Whatever a loop's bounds or a branch are computed from (integer parameters; the grid, where it is not the
    kernel's own) is tried at multiples of the constants that they are computed with; what brings a loop to a
    trip count not seen yet is kept, then combined.  Where one goes wrong on the way, it is the only one.
    runs: keeps those that it takes.  base: where the search begins."""
    try:
        steering = steering or Steering(func)
        return _search(func, runs or Runs(func), steering, base or steering.smallest)
    except _Wrong as wrong:
        return [wrong.case]


class _Wrong(Exception):
    """An input on which something goes wrong."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case


def _search(func: Func, runs: Runs, steering: Steering, base: Case) -> list[Case]:
    depth = ring_depth(func)
    wanted = sorted({0, 1, 2, max(depth - 1, 1), depth, depth + 1, 2 * depth + 1, 3 * depth + 3})
    seen, least = _trips(runs, base), steering.least(base)
    is_told = runs.path(base, 0) is not None
    # The smaller, the shorter are all runs from here, where paths do not spare them; where one loop is as
    # long as any need be, no other one can be made longer from here.
    is_long = any(n > wanted[-1] for _, n in seen)
    if not seen or is_long or (not is_told and seen == _trips(runs, least)):
        base, seen = least, seen or _trips(runs, least)
    kept: dict[int, dict[int, set[tuple[Op, int]]]] = {}  # variable -> value -> what it is good for
    usual, work = _iterations(func, _trips(runs, base)), dict[tuple[int, int], float]()
    for i in steering.variables:
        tried: set[int] = set()
        for unit in steering.units(i):
            for t in wanted:
                if unit * t in tried:
                    continue
                tried.add(unit * t)
                try:
                    reached = _trips(runs, steering.case(base.values, {i: unit * t}), wanted[-1])
                except TripLimit:
                    break  # further multiples only run longer
                new = {(o, n) for o, n in reached if n in wanted} - seen
                if new:
                    seen |= new
                    kept.setdefault(i, {})[unit * t] = new
                    work[i, unit * t] = _iterations(func, reached) / usual
    base = _widest(runs, steering, base, kept)
    values = base.values
    choices = [sorted({*kept[i], values[i]}) if i in kept else [a] for i, a in enumerate(values)]
    combined = itertools.product(*(list(enumerate(c)) for c in choices))
    cases = [
        steering.case([a for _, a in picked])
        for picked in combined
        if sum(rank > 3 for rank, _ in picked) <= 1  # no two loops long at once
    ]
    steered = {i: {o for good in found.values() for o, _ in good} for i, found in kept.items()}

    def steers_twice(c: Case) -> bool:
        """Two numbers that count in the same loops are both out of the ordinary: one is enough."""
        changed = [steered[i] for i in kept if c.values[i] != values[i]]
        return any(changed.count(one) > 1 for one in changed)

    cases = [c for c in cases if not steers_twice(c)]

    def volume(c: Case) -> float:
        return math.prod(work.get((i, c.values[i]), 1) for i in kept)

    small = [c for c in cases if volume(c) <= MAX_VOLUME]
    cases = [c for c in cases if sum(c.values[i] != values[i] for i in kept) <= 1 or c in small]
    cases.sort(key=volume)
    if steering.has_own_grid or steering.grid in kept:
        return cases[:MAX_CASES]
    more = [Case(c.args, (2,), c.memory) for c in cases[:3]]  # with fewer tiles than programs, too
    return cases[:MAX_CASES] + more


def _iterations(func: Func, reached: set[tuple[Op, int]]) -> int:
    """Of the loop that runs for most, in all iterations of the loops around it, by trip counts."""
    most, around = dict(sorted(reached, key=lambda loop: loop[1])), loops(func.body)
    return max([1, *(math.prod(most.get(x, 1) for x in (o, *around[o])) for o in most)])


class Steering:
    """What the trip counts of a function depend on.

    A *variable* is a parameter by its index, or, after the last of them, the number of programs."""

    def __init__(self, func: Func, arrays: Sequence[tuple[str, bool]] = ()) -> None:
        self.func = func
        self.grid = len(func.params)
        self.arrays = [name for name, _ in arrays]
        self.longest = 3 * ring_depth(func) + 3
        self._written = dict(arrays)
        self._own_grid: tuple[Any, ...] = func.attrs.get("grid", ())
        roots: list[Value] = []
        for o in walk(func.body):
            roots += o.operands[:1] if o.kind is control.assume else control.deciding(o)
        self._constants = {
            o.result: o.attrs["value"]
            for o in walk(func.body)
            if o.kind is arith.const and isinstance(o.attrs["value"], int)
        }
        self._slice = backward_slice(roots, sources(func.body))
        self.variables = [
            i
            for i, param in enumerate(func.params)
            if isinstance(param.type, Scalar)
            and param.type.dtype.is_int
            and _fact(func, i).value is None
            and (param in self._slice or self._own_grid)
        ]
        ids = (tile.program_id, tile.num_programs)
        follows_grid = any(o.kind in ids and o.result in self._slice for o in walk(func.body))
        if follows_grid and not self._own_grid:
            self.variables.append(self.grid)
        self.variables += [self.array(name) for name, written in arrays if not written]
        self.free = {
            i
            for i, param in enumerate(func.params)
            if isinstance(param.type, Scalar)
            and param.type.dtype.is_int
            and _fact(func, i).value is None
        }

    @cached_property
    def sizes(self) -> set[int]:
        """The parameters that are taken not to be negative: what extents and grids are made of; in a kernel
        that does not say its grid itself what loops end by, too."""
        kinds = (tile.make_view, tma.tensor_map)
        asked = [o.operands for o in walk(self.func.body) if o.kind in kinds]
        if not self._own_grid:
            asked += [control.deciding(o) for o in walk(self.func.body) if o.kind in control.LOOPS]
        extents = [v for values in asked for v in values if isinstance(v.type, Scalar)]
        behind = backward_slice(extents, sources(self.func.body))
        of_grid = set(itertools.chain(*map(_arguments, self._own_grid)))
        return {i for i in self.free if self.func.params[i] in behind or i in of_grid}

    def array(self, name: str) -> int:
        """The variable that stands for the numbers in an array."""
        return self.grid + 1 + self.arrays.index(name)

    @cached_property
    def smallest(self) -> Case:
        """The input to begin with."""
        return self.case(_smallest(self.func))

    def is_written(self, name: str) -> bool:
        """Does the kernel write the array whose words decide something?"""
        return self._written[name]

    def with_grid(self, case: Case, least: Sequence[int]) -> Case | None:
        """The same with a grid that is at least so large along each axis; None where none was found."""
        grid = (*case.grid, 1, 1)[:3]
        if not self._own_grid:
            return Case(case.args, tuple(map(max, grid, least)), case.memory)
        for i in sorted(self.free):
            for unit, more in itertools.product(self.units(i), least):
                n = unit * (more + 1)
                grown = self.case(case.values, {i: max(n, case.args[i])})
                if all(a >= b for a, b in zip((*grown.grid, 1, 1), least, strict=False)):
                    return grown
        return None

    def programs(self, case: Case, args: Sequence[Any]) -> list[Any]:
        """The sizes of the grid at an input where its numbers are these (or arrays of them)."""
        if not self._own_grid:
            return [np.int32(n) for n in (*case.grid, 1, 1)[:3]]
        ctas = [np.maximum(0, _evaluated(e, args)) for e in self._own_grid]
        per_program = cluster_of(self.func)
        sizes = [n // per for n, per in zip(ctas, per_program, strict=False)]
        return [*sizes, *(np.int32(1),) * (3 - len(sizes))]

    def divisor(self, i: int) -> int:
        """What parameter i is a multiple of, as far as the variant knows."""
        return _fact(self.func, i).divisible

    def least(self, case: Case) -> Case:
        """The same with all numbers as small as they may be, but not zero."""
        return self.case(case.values, {i: self.divisor(i) for i in self.free})

    def allowed(self, i: int, n: int) -> list[int]:
        """The numbers next to n that variable i may have, as far as the variant knows."""
        if i >= self.grid:
            return [n]  # programs, or words of an array
        by, bounds = self.divisor(i), np.iinfo(dtype_of(self.func.params[i].type).numpy)
        below = n - n % by
        least = 0 if i in self.sizes else bounds.min
        return [x for x in sorted({below, n + -n % by}) if least <= x <= bounds.max]

    @property
    def has_own_grid(self) -> bool:
        """An explicit kernel says by itself how many programs it has."""
        return bool(self._own_grid)

    def units(self, variable: int) -> list[int]:
        """Constants that a loop bound may be counted in: what it is divided by, what a loop steps by."""
        found = {1}
        if variable >= self.grid:
            return [1]
        for o in walk(self.func.body):
            if o.kind in (arith.idiv, arith.fast_div, arith.rem) and o.result in self._slice:
                found.add(self._constants.get(o.operands[1], 1))
            elif o.kind is arith.shr and o.result in self._slice:
                found.add(1 << min(self._constants.get(o.operands[1], 0), 10))
            elif o.kind is control.for_:
                found.add(self._constants.get(o.operands[2], 1))
            elif o.kind is tma.tensor_map and isinstance(o.result.type, TensorMap):
                found.update(o.result.type.box)
        return sorted((n for n in found if 1 <= n <= 1024), reverse=True)

    def case(self, values: Sequence[Any], changed: Mapping[int, int] | None = None) -> Case:
        """The input with these values of all variables (and other parameters), some of them changed."""
        rest = [1, *(0 if self._written[name] else 1 for name in self.arrays)]
        at = [*values, *rest[max(0, len(values) - self.grid) :]]
        for i, n in (changed or {}).items():
            at[i] = n
        args = tuple(at[: self.grid])
        memory = tuple(zip(self.arrays, map(Fill, at[self.grid + 1 :]), strict=True))
        if not self._own_grid:
            return Case(args, (at[self.grid],), memory)
        ctas = (max(0, int(_evaluated(e, args))) for e in self._own_grid)
        per_program = cluster_of(self.func)
        grid = tuple(n // per for n, per in zip(ctas, per_program, strict=False))
        return Case(args, grid, memory)

    def changed(self, case: Case, numbers: Mapping[int, int]) -> Case:
        """An input with some numbers changed; other arrays hold what they held."""
        found = self.case(case.values, numbers)
        both = zip(case.memory, found.memory, strict=True)
        memory = tuple(new if self.array(new[0]) in numbers else old for old, new in both)
        keeps_grid = not self._own_grid and self.grid not in numbers
        return Case(found.args, case.grid if keeps_grid else found.grid, memory)


def _evaluated(expression: tuple[Any, ...], args: Sequence[Any]) -> Any:
    """A size of an explicit kernel's grid (codegen/host.py says what such expressions are)."""
    match expression:
        case ("arg", i):
            return args[i]
        case ("const", n):
            return n
        case ("cast", dtype, x):
            return _number(_evaluated(x, args), dtype)
    kind, dtype, *operands = expression
    return ON_INTEGERS[KINDS[kind]](*(_number(_evaluated(x, args), dtype) for x in operands))


def _arguments(expression: tuple[Any, ...]) -> Iterator[int]:
    """The parameters that a size of a grid is made of."""
    if expression[0] == "arg":
        yield expression[1]
    for x in expression[1:]:
        if isinstance(x, tuple):
            yield from _arguments(x)


def _number(x: Any, dtype: str) -> Any:
    return np.asarray(x).astype(DTYPES[dtype].numpy)[()]


def _widest(runs: Runs, steering: Steering, base: Case, kept: Collection[int]) -> Case:
    """The numbers that steer no loop as large as one tile allows, so that data fills it."""
    func = runs.func
    trips = _trips(runs, base)
    for i, param in enumerate(func.params):
        is_free = isinstance(param.type, Scalar) and param.type.dtype.is_int and i not in kept
        if not is_free or _fact(func, i).value is not None:
            continue
        for unit in steering.units(i):
            wide = steering.case(base.values, {i: unit})
            if unit > base.args[i] and wide.grid == base.grid and _trips(runs, wide) == trips:
                base = wide
                break
    return base


def _fact(func: Func, i: int) -> Fact:
    facts: tuple[Fact, ...] = func.attrs.get("facts", ())
    return facts[i] if i < len(facts) else Fact()


def _smallest(func: Func) -> list[Any]:
    """Arguments as small as the function takes them: pointers to little, integers 16 (or as specialized)."""
    args: list[Any] = []
    for i, param in enumerate(func.params):
        match param.type:
            case Pointer(dtype=dtype):
                args.append(np.zeros(4096, dtype.numpy))
            case Scalar(dtype=dtype) if dtype.is_int:
                value = _fact(func, i).value
                args.append(16 if value is None else value)
            case _:
                args.append(1.0)
    return args


def _trips(runs: Runs, case: Case, most: int | None = None) -> set[tuple[Op, int]]:
    """(loop, trip count) of the task loops in one run, of the first and the last program (which have the
    most and the least to do); empty where the input does not fit.  Raises TripLimit where a program runs a
    loop more often than `most`."""
    programs = math.prod(case.grid)
    found: set[tuple[Op, int]] = set()
    for program in sorted({0, programs - 1}) if programs else ():
        path = runs.path(case, program)
        if path is not None:
            _limit_trips(path, most)
        try:
            result = runs.trips(case, program, most)
        except TripLimit:
            raise
        except (StepLimit, NeedsData):
            return set()
        except SimError as e:
            if e.code in UNFIT:
                return set()
            raise _Wrong(case) from e
        found |= {(o, n) for o, trips in result.trips.items() for n in trips}
    return found
