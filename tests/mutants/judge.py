"""What harm a mutant does by itself, and what `check` says of it.

*Harmful* is judged apart from the checker: the mutant hangs, gives a wrong result or is stopped by the
simulated machine in untracked data runs, in adversarial and in random orders.  Data are random residues, and
floats are computed in the field (sim/algebra.py), where any wrong operand shows.  A mutant under a condition
is run where the condition flips: elsewhere it is its original.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.mutants.change import Mutant, Setting
from tests.mutants.conditions import Seen
from tests.mutants.guards import GUARD
from warploom.check import Case, Verdict, check
from warploom.ir.core import Func, walk
from warploom.ir.types import Pointer
from warploom.sim import field
from warploom.sim.machine import simulate
from warploom.sim.outline import Outline
from warploom.sim.report import MemoryFault, NeedsData, SimError
from warploom.sim.residues import ALGEBRA

MAX_STEPS = 50_000
MAX_ELEMENTS = 1 << 24
WORDS = 4096  # in the array of integers that mutants have beside their original's
Arrays = tuple[np.ndarray[Any, np.dtype[Any]], ...]


@dataclass(frozen=True, eq=False)
class Trial:
    """One data run's input and what the original gives."""

    case: Case
    expected: Arrays


@dataclass(frozen=True)
class Harm:
    """how: the mutant fails in data runs ("" where it does not).  flipped: its condition flipped in some."""

    how: str
    flipped: bool


@dataclass(frozen=True)
class Judged:
    """A mutant with its harm and what `check` says: the verdict, of what is broken its code, of what is not
    proved the reason, and the whole message.  replays: a failing interleaving fails when it is run again."""

    mutant: Mutant
    harm: Harm
    verdict: Verdict
    code: str
    message: str
    replays: bool
    seconds: float

    @property
    def is_missed(self) -> bool:
        return bool(self.harm.how) and self.verdict is Verdict.PROVED


# ---- inputs


def trial(func: Func, case: Case) -> Trial:
    """Random residues and the original's results on them.  Arrays grow until the original stays inside them.
    Integers (counters, flags) begin at zero."""
    elements = 1 << 12
    while True:
        rng = np.random.default_rng(0)
        args = tuple(
            (
                np.zeros(elements, p.type.dtype.numpy)
                if p.type.dtype.is_int
                else field.random(rng, elements)
            )
            if isinstance(p.type, Pointer)
            else a
            for p, a in zip(func.params, case.args, strict=True)
        )
        own = _copies(args)
        try:
            simulate(func, own, case.grid, order="early", track=False, numerics=ALGEBRA)
        except MemoryFault as e:
            if e.code != "out-of-bounds" or elements > MAX_ELEMENTS:
                raise
            elements *= 4
            continue
        return Trial(Case(args, case.grid), _arrays(own))


def seen_in(func: Func, case: Case) -> Seen:
    """How often the loops run in an input: the numbers alone are run."""
    report = simulate(func, _copies(case.args), case.grid, order="early", track=False, data=False)
    return Seen(case, {loop: max(counts) for loop, counts in report.trips.items()})


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def _arrays(args: tuple[Any, ...]) -> Arrays:
    return tuple(a for a in args if isinstance(a, np.ndarray))


# ---- harm


def harm(mutant: Mutant, trials: Sequence[Trial], seeds: int = 4) -> Harm:
    """How a mutant fails by itself, without the checker, in the adversarial and in random orders."""
    flipped = [t for t in trials if not mutant.family or _flips(mutant, t.case)]
    orders: list[tuple[str, int]] = [("late", 0), ("early", 0), ("reverse", 0)]
    orders += [("seeded", s) for s in range(seeds)]
    own: dict[Trial, Arrays] = {}  # what the mutant gave in its first order
    for order, seed in orders:
        for t in flipped:
            args = _with_setting(t.case.args, mutant)
            try:
                simulate(
                    mutant.func,
                    args,
                    t.case.grid,
                    order=order,
                    seed=seed,
                    track=False,
                    max_steps=MAX_STEPS,
                    numerics=ALGEBRA,
                )
            except SimError as e:
                return Harm(f"{e.code} ({order})", True)
            wanted = own.setdefault(t, _arrays(args)) if mutant.own_result else t.expected
            if any(_differ(x, y) for x, y in zip(_arrays(args), wanted, strict=False)):
                return Harm(f"wrong result ({order})", True)
    return Harm("", bool(flipped))


def _differ(x: Any, y: Any) -> bool:
    return not np.array_equal(x, y, equal_nan=x.dtype == np.float64)


def _with_setting(args: tuple[Any, ...], mutant: Mutant) -> tuple[Any, ...]:
    """An input's own copy of its arguments, then the two that a mutant under a condition has."""
    own = _copies(args)
    return (*own, *_beside(mutant.setting)) if mutant.family else own


def _beside(setting: Setting) -> tuple[Any, int]:
    words = np.zeros(WORDS, np.int32)
    for at, word in setting.words:
        words[at] = word
    return words, setting.extra


def _flips(mutant: Mutant, case: Case) -> bool:
    """Does the condition fail in an input?  The numbers alone are run; what goes wrong there, or asks for
    data, counts as if it did."""
    guards = [o for o in walk(mutant.func.body) if o.id == GUARD]
    outline = Outline(mutant.func, mutant.func.target.cost, ALGEBRA, dict.fromkeys(guards))
    try:
        report = simulate(
            mutant.func,
            _with_setting(case.args, mutant),
            case.grid,
            order="early",
            track=False,
            data=False,
            max_steps=MAX_STEPS,
            outline=outline,
            numerics=ALGEBRA,
        )
    except (SimError, NeedsData):
        return True
    return any((o, False) in report.outcomes for o in guards)


# ---- the checker


def judged(
    mutant: Mutant,
    trials: Sequence[Trial],
    seeds: int = 4,
    cases: Sequence[Case] | None = None,
    launch: Case | None = None,
) -> Judged:
    """One mutant, judged and checked, on `cases` or on inputs that `check` finds; at a launch of its
    original, as a user's first call is checked."""
    found = harm(mutant, trials, seeds)
    start = time.process_time()
    if launch is not None:
        launch = Case(_with_setting(launch.args, mutant), launch.grid)
    report = check(mutant.func, cases, launch=launch)
    seconds = time.process_time() - start
    code, message, replays = "", "", False
    if report.failures:
        first = report.failures[0]
        code, message = first.error.code, str(first.error)
        replays = first.interleaving is not None and first.interleaving.rerun() is not None
    elif report.verdict is Verdict.NOT_PROVED:
        code = report.unproved[0].reason if report.unproved else "no input was found that runs it"
        message = str(report)
    return Judged(mutant, found, report.verdict, code, message, replays, seconds)
