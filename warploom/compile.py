"""Takes a kernel down the pipeline (passes/pipeline.py) from either front door; transforms nothing itself.

After every pass the verifier runs; a `CompileError` passes through untouched, any other exception
becomes an `InternalError` that names the pass and leaves a reproducer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from warploom import options
from warploom.errors import CompileError, InternalError, WarploomError
from warploom.frontend.reads import Reads
from warploom.ir.capabilities import refuse_missing
from warploom.ir.core import Func, Level, walk
from warploom.ir.ops import task
from warploom.ir.printer import print_func
from warploom.ir.verify import verify
from warploom.passes.pipeline import Choice, Pass, Road, from_choice, names, rows
from warploom.passes.placed.part_lifetimes import part_alike
from warploom.schedule.model import Knobs, Launch, Schedule, SplitPlan, TaskPlan
from warploom.schedule.resources import Headroom
from warploom.target import DEFAULT, Target


@dataclass(frozen=True)
class Lowered:
    """A kernel on its whole way down.  `steps`: (pass name, function after it), in order."""

    steps: tuple[tuple[str, Func], ...]
    schedule: Schedule
    placed: Func
    reads: Reads | None = field(default=None, compare=False)  # what its translation read
    _texts: dict[str, str] = field(default_factory=dict, compare=False)

    def at(self, level: Level) -> Func:
        """The last function at a level.  Raises KeyError where the road skipped it."""
        for _, func in reversed(self.steps):
            if func.level is level:
                return func
        raise KeyError(level.name)

    @property
    def tile(self) -> Func:
        return self.at(Level.TILE)

    @property
    def written(self) -> Func:
        """What the frontend made, before any pass: at TILE, of an explicit kernel at WARP."""
        return self.steps[0][1]

    @property
    def source(self) -> Func:
        """The canonical function that all else is made of: at TILE, of an explicit kernel at WARP."""
        return next(f for name, f in reversed(self.steps) if name == "canonicalize")

    @property
    def bare(self) -> Func:
        """The program as a script would say it: the last function without layouts, with the barriers that
        part_lifetimes puts once there are some."""
        after = dict(self.steps)
        at = [name for name, _ in self.steps].index
        found = self.steps[at("assign_layouts") - 1][1]
        if "part_lifetimes" not in after:
            return found
        return part_alike(found, self.steps[at("part_lifetimes") - 1][1], after["part_lifetimes"])

    @property
    def levels(self) -> dict[str, str]:
        """Level name -> IR text of the last function at that level."""
        if not self._texts:
            last = {func.level: func for _, func in self.steps}
            self._texts.update({lv.name: print_func(f) for lv, f in sorted(last.items())})
        return self._texts


def lower(
    func: Func,
    knobs: Knobs,
    target: Target,
    *,
    schedule: Schedule | None = None,
    structured: bool = True,
    overlap: bool = False,
    foreign: bool = False,
    in_order: bool = False,
    headroom: Headroom | None = None,
    launch: Launch | None = None,
) -> Lowered:
    """Take a TILE function down to PLACED.

    schedule: one to apply instead of choosing (refused where it was made for another TILE text).
    structured: False leaves every access by pointers (the variant for launches that break what
    recover_boxes assumes).  overlap: True where pointer arguments may overlap: every access keeps
    the program's order; in_order: stores do.  foreign: True where others launch the kernel, with all
    arguments in order, and take no other variant.  headroom: registers to leave free beyond the
    estimate.  launch: what is known of the launches.  Raises CompileError for the user's mistakes
    and unmeetable requests.
    """
    if overlap:
        func = func.with_(attrs={**func.attrs, "overlap": True})
    if in_order:
        func = func.with_(attrs={**func.attrs, "in_order": True})
    if foreign:
        func = func.with_(attrs={**func.attrs, "foreign": True})
    if target.name != DEFAULT.name:
        func = func.with_(attrs={**func.attrs, "target": target.name})
    refuse_missing(func, func.loc)
    road = Road(target, knobs, schedule, structured, headroom, launch)
    return _lowered(_run((("frontend", func),), rows(func), road), road)


def lower_again(
    first: Lowered,
    knobs: Knobs,
    target: Target,
    headroom: Headroom,
    launch: Launch | None,
    is_new: Callable[[Schedule], bool],
) -> Lowered | None:
    """`first` lowered with other headroom, from the choice of the schedule on; None where that is none that
    `is_new`."""
    road = Road(target, knobs, headroom=headroom, launch=launch, cluster=first.schedule.cluster)
    before = tuple(step for step in first.steps if step[1].level is Level.TILE)
    choice, *ahead = from_choice()
    before = _run(before, [choice], road)
    if road.schedule is not None and not is_new(road.schedule):
        return None
    return _lowered(_run(before, ahead, road), road)


def _lowered(steps: tuple[tuple[str, Func], ...], road: Road) -> Lowered:
    if road.schedule is None:
        raise InternalError("the pipeline chooses no schedule")
    return Lowered(steps, road.schedule, _debuggable(steps[-1][1], road.knobs.debug))


def lower_explicit(func: Func, target: Target, debug: bool | str = False) -> Lowered:
    """Take an explicit kernel, a function at WARP, down to PLACED: nothing is chosen for it.

    Raises CompileError for the user's mistakes that only layouts and memory show."""
    steps = _run((("translate", func),), rows(func), Road(target))
    return Lowered(steps, _as_written(steps[1][1]), _debuggable(steps[-1][1], debug))


def _run(
    done: tuple[tuple[str, Func], ...], ahead: Iterable[Pass | Choice], road: Road
) -> tuple[tuple[str, Func], ...]:
    """(pass, function after it): those done, and each row ahead that has something to do.  The first of all
    is what came in by a door."""
    steps, asked = list(done), options.get()
    if len(steps) == 1:
        _dump(asked, 0, *steps[0])
    for row in ahead:
        before = steps[-1][1]
        with _blame(row.name, before):
            if isinstance(row, Choice):
                row.decide(before, road)
                continue
            if not row.when(before, road):
                continue
            after = row.run(before, road)
            if after.level is not row.after:
                raise InternalError(f"it makes level {after.level.name}, not {row.after.name}")
            # What a pass left alone is verified already, but for what the frontend made.
            if asked.verify and (after is not before or len(steps) == 1):
                verify(after, road.target)
        road.last = row.name
        steps.append((row.name, after))
        _dump(asked, len(steps) - 1, row.name, after)
    return tuple(steps)


def _debuggable(func: Func, debug: bool | str) -> Func:
    return func.with_(attrs={**func.attrs, "debug": debug}) if debug else func


# What option WARPLOOM_DUMP may name: what comes in by either door, and every pass.
DUMPED = ("frontend", "translate", *names())


def _dump(asked: options.Options, index: int, name: str, func: Func) -> None:
    wanted = asked.dump
    if not wanted:
        return
    if wanted not in ("all", *DUMPED):
        raise CompileError(
            "option",
            f"{options.PREFIX}DUMP names {wanted}, which is no pass",
            help=f"all, or one of {', '.join(DUMPED)}",
        )
    if wanted in ("all", name):
        folder = Path(asked.keep or "out") / func.name
        text = print_func(func, locs=False).encode()
        options.write(folder / f"{index:02d}_{name}.ir", text, "DUMP")


class _blame:
    """Turns an unexpected exception inside a pass into an InternalError with a reproducer."""

    def __init__(self, name: str, before: Func) -> None:
        self.name, self.before = name, before

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or (
            isinstance(error, WarploomError) and not isinstance(error, InternalError)
        ):
            return
        handle, path = tempfile.mkstemp(prefix=f"warploom-{self.name}-", suffix=".ir")
        with os.fdopen(handle, "w") as out:
            out.write(print_func(self.before, locs=True))
        raise InternalError(
            f"pass {self.name} failed on kernel {self.before.name}: {type(error).__name__}: {error}\n"
            f"This is a bug of warploom; please report it with {path}"
        ) from error


def _as_written(func: Func) -> Schedule:
    """The schedule of an explicit kernel: its tasks, as their author wrote them."""
    rows = [
        (name, region)
        for o in task.phases(func)
        for name, region in zip(o.attrs["names"], o.regions, strict=True)
    ]
    assign: dict[str, tuple[str, ...]] = {
        o.id: (name,) for name, region in rows for o in walk(region) if o.id
    }
    plans = [
        TaskPlan(name, "written", warps, replicas, registers)
        for o in task.phases(func)
        for name, warps, replicas, registers in zip(
            *(o.attrs[k] for k in ("names", "warps", "replicas", "registers")), strict=True
        )
    ]
    return Schedule("", len(plans) > 1, tuple(plans), assign, SplitPlan(None, 1), (), (), 0)
