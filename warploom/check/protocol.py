"""The checker: one tracked run a trip count decides deadlocks and races for all interleavings.

The argument.  In a tracked run (sim/machine.py) every arrival is shown to know that all earlier phases of
its barrier are complete, every copy likewise, and every wait to be over before the phase after the one
that it waits for can complete.  So each is bound to one full phase in *every* order of events, the
program is confluent, and the happens-before relation of the one run is that of all runs at the same trip
counts: an access that it leaves unordered races in some order, a phase that does not complete in it
completes in none.  Trip counts: 0, 1, around the depth of the rings, beyond twice the depth, several
tiles a program.  Beyond them: where the steps of a loop's iterations (op, barrier, phase relative to the
iteration's) recur, so does the state of barriers and cursors, and longer loops only repeat what was run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warploom.ir.core import Fact, Func, Op, walk
from warploom.ir.ops import arith, control, hopper, task
from warploom.ir.types import Pointer, Scalar, TensorMap
from warploom.sim.agent import NeedsData
from warploom.sim.machine import simulate
from warploom.sim.report import MemoryFault, SimError, SimReport, StepLimit, SyncStep

MAX_STEPS = 20_000  # of the scheduler, a program: a case that takes more is left out
MAX_CASES = 60
_UNFIT = ("tma-stride", "out-of-bounds", "loop-step")  # the launch would not pick this variant


@dataclass(frozen=True, eq=False)
class Case:
    """One input: arguments in parameter order (arrays are not touched but by scalar loads) and a grid."""

    args: tuple[Any, ...]
    grid: tuple[int, ...]

    def describe(self, func: Func) -> str:
        """The numbers among the arguments, and the grid."""
        pairs = zip(func.params, self.args, strict=True)
        numbers = [f"{p.hint}={a}" for p, a in pairs if isinstance(p.type, Scalar)]
        return f"{', '.join(numbers)} on grid {'×'.join(map(str, self.grid))}"


@dataclass(frozen=True)
class Run:
    """One case that was run: its words, and the trip counts of each loop (by its source line)."""

    case: str
    trips: dict[str, tuple[int, ...]]


@dataclass
class CheckReport:
    """What was proved, at which trip counts, and what is wrong (each with both parties)."""

    name: str
    runs: list[Run] = field(default_factory=list)
    diagnostics: list[SimError] = field(default_factory=list)
    recurring: dict[str, int] = field(default_factory=dict)  # loop -> period in iterations
    not_recurring: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is wrong, and something was run."""
        return not self.diagnostics and bool(self.runs)

    def __str__(self) -> str:
        lines = []
        for d in self.diagnostics:
            lines += [str(d), ""]
        if self.ok:
            lines.append(
                f"{self.name}: no deadlock and no race, in any order of events, at these trip counts:"
            )
            seen: dict[str, set[int]] = {}
            for run in self.runs:
                for loop, trips in run.trips.items():
                    seen.setdefault(loop, set()).update(trips)
            lines += [f"  {loop}: {', '.join(map(str, sorted(t)))}" for loop, t in seen.items()]
            lines.append(
                f"  ({len(self.runs)} inputs; every arrival and wait bound to one full phase)"
            )
            for loop, period in self.recurring.items():
                lines.append(
                    f"  {loop}: the state recurs every {period} iterations: longer loops too"
                )
            for loop in self.not_recurring:
                lines.append(f"  {loop}: no recurrence was seen; longer loops are not proved")
        elif self.diagnostics:
            lines.append(f"{self.name}: {len(self.diagnostics)} problem(s) found")
        else:
            lines.append(f"{self.name}: nothing was proved")
        return "\n".join(lines + [f"  note: {n}" for n in self.notes])


def check(
    func: Func, cases: Iterable[Case | tuple[Sequence[Any], Any]] | None = None
) -> CheckReport:
    """Checks a function at WARP or PLACED, on the given inputs ((args, grid) pairs) or on inputs found by
    `find_cases`.  Stops at the first problem of each kind of error."""
    report = CheckReport(func.name)
    if cases is None:
        try:
            found = find_cases(func)
        except SimError as e:  # wrong on the smallest input already
            report.diagnostics.append(e)
            return report
    else:
        found = [c if isinstance(c, Case) else Case(tuple(c[0]), _grid(c[1])) for c in cases]
    periods: dict[Op, int | None] = {}
    for case in found:
        try:
            result = run_case(func, case)
        except NeedsData:
            report.notes.append(
                f"{case.describe(func)}: control flow depends on tile data; left out"
            )
            continue
        except StepLimit:
            report.notes.append(f"{case.describe(func)}: more than {MAX_STEPS} steps; left out")
            continue
        except SimError as e:
            if all(e.code != d.code or e.loc != d.loc for d in report.diagnostics):
                report.diagnostics.append(e)
            continue
        trips = {loop_name(o): tuple(sorted(t)) for o, t in result.trips.items()}
        report.runs.append(Run(case.describe(func), trips))
        for loop, period in recurrences(result, ring_depth(func)).items():
            before = periods.get(loop, period)
            periods[loop] = None if period is None or before is None else max(period, before)
    for loop, period in periods.items():
        if period is None:
            report.not_recurring.append(loop_name(loop))
        else:
            report.recurring[loop_name(loop)] = period
    return report


def run_case(func: Func, case: Case) -> SimReport:
    """One tracked run without tile data.  Raises what the simulator finds."""
    return simulate(func, case.args, case.grid, order="early", data=False, max_steps=MAX_STEPS)


def _grid(grid: Any) -> tuple[int, ...]:
    return (grid,) if isinstance(grid, int) else tuple(grid)


def loop_name(o: Op) -> str:
    """A loop in words: its variable and its line."""
    hint = o.regions[-1].params[0].hint if o.regions[-1].params else ""
    return f"loop over {hint or 'i'}" + (f" at {o.loc.file}:{o.loc.line}" if o.loc else "")


def ring_depth(func: Func) -> int:
    """The deepest ring of a function."""
    return max((o.attrs["depth"] for o in walk(func.body) if o.kind is task.ring_next), default=1)


# ---- longer loops


def recurrences(result: SimReport, depth: int) -> dict[Op, int | None]:
    """For each loop that ran for more than twice the rings' depth: after how many iterations its steps
    recur with all phases moved by the same even number (so slots and parities recur), or None.

    The first iteration may differ (it has no previous slot to release), and so may the last `depth`
    ones (nothing is left to be fetched ahead)."""
    out: dict[Op, int | None] = {}
    for (_, loop, _), turns in _by_iteration(result.steps).items():
        middle = turns[1 : len(turns) - depth]
        if len(middle) < 2 * depth + 1:
            continue
        period = next((p for p in range(1, len(middle)) if _recurs(middle, p)), None)
        out[loop] = period if out.get(loop, period) == period else None
    return out


_Turn = list[tuple[Op, tuple[tuple[Op, int], ...], str, int]]


def _by_iteration(
    steps: list[SyncStep],
) -> dict[tuple[str, Op, tuple[tuple[Op, int], ...]], list[_Turn]]:
    """The steps of each iteration of each run of each loop (a run: the agent and the outer iterations)."""
    out: dict[tuple[str, Op, tuple[tuple[Op, int], ...]], list[_Turn]] = {}
    for s in steps:
        for i, (loop, turn) in enumerate(s.loops):
            turns = out.setdefault((s.agent, loop, s.loops[:i]), [])
            while len(turns) <= turn:
                turns.append([])
            turns[turn].append((s.op, s.loops[i + 1 :], s.barrier, s.phase))
    return out


def _recurs(turns: list[_Turn], period: int) -> bool:
    for earlier, later in zip(turns, turns[period:], strict=False):
        if [t[:3] for t in earlier] != [t[:3] for t in later]:
            return False
        if any((b[3] - a[3]) % 2 for a, b in zip(earlier, later, strict=True)):
            return False
    return True


# ---- inputs


def find_cases(func: Func) -> list[Case]:
    """Inputs that make the function's loops run for the trip counts that matter.

    Every integer parameter is tried at multiples of the constants that the function divides and steps by;
    what brings a loop to a trip count not seen yet is kept, then combined.  Raises what goes wrong on
    the smallest input."""
    depth = ring_depth(func)
    wanted = sorted({0, 1, 2, max(depth - 1, 1), depth, depth + 1, 2 * depth + 1, 3 * depth + 3})
    base = _smallest(func)
    kept: dict[int, dict[int, set[tuple[Op, int]]]] = {}
    seen: set[tuple[Op, int]] = set()
    for i, param in enumerate(func.params):
        if not isinstance(param.type, Scalar) or not param.type.dtype.is_int:
            continue
        if _fact(func, i).value is not None:
            continue
        for unit in _units(func):
            for t in wanted:
                args = [*base.args]
                args[i] = unit * t
                reached = _trips(func, Case(tuple(args), base.grid))
                if any(n > wanted[-1] for _, n in reached):
                    break  # further multiples only run longer
                new = {(o, n) for o, n in reached if n in wanted} - seen
                if new:
                    seen |= new
                    kept.setdefault(i, {})[unit * t] = new
    base = _widest(func, base, kept)
    choices = [sorted({*kept.get(i, {}), a}) if i in kept else [a] for i, a in enumerate(base.args)]
    combined = itertools.product(*(list(enumerate(c)) for c in choices))
    cases = [
        Case(tuple(a for _, a in picked), base.grid)
        for picked in combined
        if sum(rank > 3 for rank, _ in picked) <= 1  # no two loops long at once
    ]
    cases.sort(key=lambda c: sum(c.args[i] // max(min(kept[i]), 1) for i in kept))
    more = [Case(c.args, (2,)) for c in cases[:3]]  # with fewer tiles than programs, too
    return cases[:MAX_CASES] + more


def _widest(func: Func, base: Case, kept: Iterable[int]) -> Case:
    """The numbers that steer no loop as large as one tile allows, so that data fills it."""
    args = [*base.args]
    trips = _trips(func, base)
    for i, param in enumerate(func.params):
        is_free = isinstance(param.type, Scalar) and param.type.dtype.is_int and i not in kept
        if not is_free or _fact(func, i).value is not None:
            continue
        for unit in _units(func):
            wide = [*args[:i], unit, *args[i + 1 :]]
            if unit > args[i] and _trips(func, Case(tuple(wide), base.grid)) == trips:
                args = wide
                break
    return Case(tuple(args), base.grid)


def _fact(func: Func, i: int) -> Fact:
    facts: tuple[Fact, ...] = func.attrs.get("facts", ())
    return facts[i] if i < len(facts) else Fact()


def _smallest(func: Func) -> Case:
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
    return Case(tuple(args), (1,))


def _units(func: Func) -> list[int]:
    """Constants that a loop bound may be counted in."""
    found = {1}
    for o in walk(func.body):
        if o.kind is arith.const and isinstance(o.attrs["value"], int):
            found.add(o.attrs["value"])
        elif o.kind is hopper.tensor_map and isinstance(o.result.type, TensorMap):
            found.update(o.result.type.box)
    return sorted((n for n in found if 1 <= n <= 1024 and n & (n - 1) == 0), reverse=True)


def _trips(func: Func, case: Case) -> set[tuple[Op, int]]:
    """(loop, trip count) of the task loops in one run; empty where the input does not fit."""
    try:
        result = run_case(func, case)
    except (StepLimit, NeedsData):
        return set()
    except MemoryFault as e:
        if e.code in _UNFIT:
            return set()
        raise
    except SimError as e:
        if e.code in _UNFIT:
            return set()
        raise
    loops = {o for o in walk(func.body) if o.kind in (control.for_, control.while_)}
    return {(o, n) for o, trips in result.trips.items() if o in loops for n in trips}
