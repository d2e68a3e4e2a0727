"""The launch that is asked about, run as it is: its numbers, the words in its arrays, all its programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

import numpy as np

from warploom.check.dependence import Reading
from warploom.check.explore import Failing, Guided, attempt, simulation
from warploom.check.interleaving import Interleaving, shortened
from warploom.check.report import CheckReport, Failure, Unproved
from warploom.check.runs import Case, Runs, is_reading
from warploom.ir.core import Func
from warploom.ir.types import Pointer
from warploom.sim.report import NeedsData, SimError, StepLimit

MOST_STEPS = 10_000  # of all programs
MOST_PROGRAMS = 1024
GOLDEN = (math.sqrt(5) - 1) / 2
SMALL = 4096  # elements of arrays whose words decide nothing


def run_launch(
    runs: Runs,
    report: CheckReport,
    judge: Callable[[Case, int], object],
    launch: Case,
    readings: Collection[Reading],
) -> None:
    """Runs a launch within its steps: each program by itself, at first some that are far from each other;
    where some wait for others, all at once.  Adds to the report what fails, and what was not run.

    judge: keeps what is wrong with a program.  readings: the arrays whose words decide
    something."""
    func, words, n = runs.func, launch.describe(runs.func), math.prod(launch.grid)
    case = _with_words(func, launch, readings)
    if report.failures:
        return
    if case is None:
        report.notes.append(f"{words}: was not run as it is, as its arrays are not on the host")
        return
    end, done, waits = runs.taken + runs.path_steps + MOST_STEPS, 0, False
    for program in _far_apart(n):
        if runs.taken + runs.path_steps > end:
            break
        try:
            runs.trips(case, program, None)
        except StepLimit:
            waits = not is_reading(func)
            continue
        except NeedsData:
            break
        except SimError:
            judge(case, program)
        done += 1
        if report.failures:
            return
    if done == n or (waits and _is_run_at_once(func, report, case)):
        return
    report.notes.append(f"{words}: {done} of {n} programs were run as they are in this launch")
    numbers = {p.hint: x for p, x in launch.numbers(func).items()}
    for name in (name for name in report.sizes if numbers[name] < 0):
        reason = f"{name} is negative in this launch, of which not all programs were run"
        report.unproved.append(Unproved(reason, func.loc))


def _with_words(func: Func, launch: Case, readings: Collection[Reading]) -> Case | None:
    """The launch with the contents of the arrays that are read, and small ones for the others; None where
    contents are not known."""
    args, read = list(launch.args), {r.array for r in readings}
    for i, p in enumerate(func.params):
        if isinstance(p.type, Pointer) and p not in read:
            args[i] = np.zeros(SMALL, p.type.dtype.numpy)
        elif isinstance(p.type, Pointer) and not isinstance(args[i], np.ndarray):
            return None
    return Case(tuple(args), launch.grid, launch.memory)


def _far_apart(n: int) -> Iterable[int]:
    """Numbers below n, not too many, the first of them far from each other."""
    most = min(n, MOST_PROGRAMS)
    spread = sorted(range(most), key=lambda i: i * GOLDEN % 1)
    return dict.fromkeys((0, n - 1, *(i * n // most for i in spread)))


def _is_run_at_once(func: Func, report: CheckReport, case: Case) -> bool:
    """Runs all programs together, in one order; whether they came to their ends."""
    run, guide = simulation(func, case, None, False), Guided()
    try:
        found = attempt(run, guide)
    except (StepLimit, NeedsData):
        return False
    if isinstance(found, SimError):
        path = tuple(s.process for s in guide.steps)
        f = shortened(run, Failing(path, guide.steps, found))
        interleaving = Interleaving(func, case, None, False, f.path, tuple(f.steps), f.error)
        report.failures.append(Failure(found, interleaving))
    return True
