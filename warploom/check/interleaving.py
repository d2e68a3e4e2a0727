"""One order of events that fails: made short, printed, kept in a file, run again.

A file is one line of JSON (input, choices, what goes wrong) and the function's text with its locations, so it
needs nothing else:

    python -m warploom check --replay deadlock.interleaving

and as a test, of the kernel as it was or as it is now:

    assert replay("deadlock.interleaving").code == "deadlock"
    assert replay("deadlock.interleaving", func=compiled.placed) is None
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (NumPy finds its dtypes by name)
import numpy as np

from warploom.check.explore import (
    Diverged,
    Failing,
    Guided,
    Redundant,
    Simulation,
    Step,
    attempt,
    simulation,
)
from warploom.check.runs import Case
from warploom.errors import LaunchError, source_line
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.sim.barriers import Transition
from warploom.sim.chosen import Fill
from warploom.sim.report import Deadlock, Exchange, SimError, SimReport

_FORMAT = "warploom interleaving 1"
_LINES = 16  # of actions that are printed


@dataclass(frozen=True, eq=False)
class Interleaving:
    """A failing order of events: of one program of the grid, or of all together (None), at one input, as a
    list of processes.

    confluent: what fails is the tracked run itself, whatever the order; see `simulate`."""

    func: Func
    case: Case
    program: int | None
    confluent: bool
    path: tuple[str, ...]
    steps: tuple[Step, ...]
    error: SimError

    def __str__(self) -> str:
        """The actions of the parties concerned, in order, each with its source line and iteration; where
        registers run dry in some orders, who takes them in one."""
        if isinstance(self.error, Deadlock) and self.error.order:
            return "\n".join(_exchanges(self.error.order, self.case.describe(self.func)))
        parties = self._parties()
        lines = [(step, t) for step in self.steps for t in step.touches if step.agent in parties]
        shown = _merged([_action(step, t) for step, t in lines])
        hidden = max(0, len(shown) - _LINES)
        shown = shown[hidden:]
        widths = [max((len(row[i]) for row in shown), default=0) for i in range(2)]
        programs = "all programs" if self.program is None else f"program {self.program}"
        text = [
            f"an interleaving that fails, {len(self.path)} steps of {programs}, "
            f"{self.case.describe(self.func)}:"
        ]
        if hidden:
            text.append(f"  … {hidden} earlier actions of {', '.join(parties)}")
        for who, what, where in shown:
            text.append(f"  {who:<{widths[0]}}  {what:<{widths[1]}}  {where}".rstrip())
        if not shown:
            text.append("  nothing is waited for, nothing is told")
        text.append(f"  then: {self.error.message}")
        return "\n".join(text)

    def _parties(self) -> list[str]:
        """The agents that the error names; all, where it is none."""
        agents = list(dict.fromkeys(s.agent for s in self.steps))
        said = " ".join((self.error.message, *(n.message for n in self.error.notes)))
        return [a for a in agents if a in said] or agents

    def save(self, path: str | Path) -> None:
        """Writes the interleaving and the function to a file."""
        runs = [(name, len(list(group))) for name, group in itertools.groupby(self.path)]
        head = {
            "format": _FORMAT,
            "args": [_to_json(a) for a in self.case.args],
            "grid": self.case.grid,
            "memory": [(name, astuple(fill)) for name, fill in self.case.memory],
            "program": self.program,
            "confluent": self.confluent,
            "code": self.error.code,
            "choices": runs,
        }
        text = print_func(self.func, locs=True)
        Path(path).write_text(f"{json.dumps(head)}\n{text}", encoding="utf-8")

    def rerun(self, func: Func | None = None) -> Interleaving | None:
        """What the same choices lead to, in another function as far as they go there; None: nothing fails."""
        run = simulation(func or self.func, self.case, self.program, self.confluent)
        guide = Guided(self.path, is_strict=func is None)
        error = attempt(run, guide)
        if isinstance(error, SimReport):
            return None
        path = tuple(s.process for s in guide.steps)
        args = (func or self.func, self.case, self.program, self.confluent)
        return Interleaving(*args, path, tuple(guide.steps), error)


def load(path: str | Path) -> Interleaving:
    """An interleaving that `save` wrote.  Raises LaunchError on another file."""
    first, _, text = Path(path).read_text(encoding="utf-8").partition("\n")
    try:
        head = json.loads(first)
        if head["format"] != _FORMAT:
            raise KeyError
    except (ValueError, KeyError, TypeError):
        raise LaunchError("interleaving", f"{path} holds no interleaving") from None
    func = parse_func(text, str(path))
    memory = tuple((name, Fill(*fill)) for name, fill in head.get("memory", ()))
    case = Case(tuple(map(_from_json, head["args"])), tuple(head["grid"]), memory)
    names = tuple(name for name, n in head["choices"] for _ in range(n))
    error = SimError(head["code"], "as it was found", None)
    return Interleaving(func, case, head["program"], head["confluent"], names, (), error)


def replay(path: str | Path, func: Func | None = None) -> SimError | None:
    """Runs a saved interleaving again, in the function that it was found in or in another; gives what goes
    wrong, None where nothing does."""
    found = load(path).rerun(func)
    return found.error if found else None


def _to_json(a: Any) -> Any:
    if not isinstance(a, np.ndarray):
        return a.item() if isinstance(a, np.generic) else a
    data = base64.b64encode(a.tobytes()).decode() if a.view(np.uint8).any() else ""
    return {"dtype": a.dtype.name, "shape": a.shape, "data": data}


def _from_json(a: Any) -> Any:
    if not isinstance(a, dict):
        return a
    made = np.zeros(a["shape"], np.dtype(a["dtype"]))
    if a["data"]:
        made.reshape(-1).view(np.uint8)[:] = np.frombuffer(base64.b64decode(a["data"]), np.uint8)
    return made


def _exchanges(order: Sequence[Exchange], case: str) -> Iterator[str]:
    """The setmaxnregs of an order that gets stuck."""
    yield f"an order of setmaxnregs that gets stuck, {case}:"
    rows = [(e.label, e.before, e.after, e.op.loc) for e in order]
    for (label, before, after, loc), same in itertools.groupby(rows):
        where = f"  {Path(loc.file).name}:{loc.line}" if loc else ""
        yield f"  {len(list(same))} warps of {label}: {before} → {after} registers a thread{where}"
    yield "  then no warp gets what it asks for"


def _action(step: Step, t: Transition) -> tuple[str, str, str]:
    """Who, what, and the source line."""
    who = f"a copy of {t.party.who}" if "tma_load" in step.process else t.party.who
    end = ": complete" if t.completes else ""
    match t.mode:
        case "arrive":
            what = f"arrives at {t.thing}, phase {t.phase}{end}"
        case "wait":
            what = f"passes {t.thing}, {t.phase} phases complete"
        case "pass":
            what = f"passes {t.thing}, generation {t.phase}"
        case "setmaxnreg":
            what = f"has {t.phase} registers a thread"
        case mode:
            what = f"{mode}s {t.thing}"
    loc = t.party.op.loc
    if loc is None:
        return who, what, ""
    line = source_line(loc.file, loc.line).strip()
    return who, what, f"{Path(loc.file).name}:{loc.line}  {line[:60]}".rstrip()


def _merged(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Warps that do the same one after the other in one row."""
    out = []
    for (who, what, where), same in itertools.groupby(rows):
        n = len(list(same))
        out.append((who, f"{what} (×{n})" if n > 1 else what, where))
    return out


# ---- making it short


def shortened(run: Simulation, found: Failing) -> Failing:
    """The same failure with fewer steps.  No process of the result can be stopped one step earlier, the
    others going on in the same order as far as they can: it would fail otherwise or not at all.  (That no
    other order fails sooner is not said.)  A deadlock needs all steps."""
    if isinstance(found.error, Deadlock):
        return found
    best, before = found, None
    while before is not best:
        before = best
        for process in dict.fromkeys(s.process for s in reversed(best.steps[:-1])):
            best = _stopped(run, best, process)
    return best


def _stopped(run: Simulation, best: Failing, process: str) -> Failing:
    """The same failure with one process stopped as early as it still comes about, as far as halving tells."""
    own = [i for i, s in enumerate(best.steps[:-1]) if s.process == process]
    few, many = 0, len(own)  # so many of its steps: too few perhaps, enough surely
    kept = many - 1  # where nothing is to be gained, one try says so
    while few < many:
        full, dropped = best.history.full, sum(1 << i for i in own[kept:])
        shorter = None
        if not full[-1] & dropped:  # else the step that fails would not come about
            path = [s.process for i, s in enumerate(best.steps) if not full[i] & dropped]
            shorter = _same(run, path, best.error)
        if shorter is None:
            few = kept + 1
        else:
            many, best = kept, shorter
            own = [i for i, s in enumerate(best.steps[:-1]) if s.process == process]
        kept = (few + many) // 2
    return best


def _same(run: Simulation, path: list[str], error: SimError) -> Failing | None:
    """The run of a path, where it ends in the same error."""

    def stop(steps: list[Step], options: list[str]) -> str:
        raise Redundant

    guide = Guided(path, stop)
    try:
        found = attempt(run, guide)
    except (Redundant, Diverged):
        return None
    if isinstance(found, SimReport) or (found.code, found.loc) != (error.code, error.loc):
        return None
    return Failing(tuple(s.process for s in guide.steps), guide.steps, found)
