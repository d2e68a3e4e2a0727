"""The pipeline: an ordered table of passes, and what runs between them.  No transformation of its own.

    TILE ── canonicalize (, run_once, canonicalize), structure_access, take_promises, load_once
         ── (choose_cluster, partition_ctas)
         ── choose ── passes.PASSES ── assign_layouts, allocate_shared ─▶ PLACED

After every pass the verifier runs; a `CompileError` passes through untouched, any other exception
becomes an `InternalError` that names the pass and leaves a reproducer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from warploom import options
from warploom.errors import CompileError, InternalError, WarploomError
from warploom.frontend.reads import Reads
from warploom.ir.core import Func, Level, walk
from warploom.ir.ops import task
from warploom.ir.printer import print_func
from warploom.ir.verify import verify
from warploom.passes import PASSES
from warploom.passes.placed.allocate_shared import allocate_shared
from warploom.passes.placed.assign_layouts import assign_layouts
from warploom.passes.tile.canonicalize import canonicalize, number_ops
from warploom.passes.tile.load_once import load_once
from warploom.passes.tile.partition_ctas import partition_ctas
from warploom.passes.tile.run_once import run_once
from warploom.passes.tile.structure_access import structure_access
from warploom.passes.tile.take_promises import take_promises
from warploom.passes.warp.merge_elects import merge_elects
from warploom.schedule.clusters import choose_cluster
from warploom.schedule.heuristic import choose, tile_hash
from warploom.schedule.model import (
    ClusterPlan,
    Knobs,
    Launch,
    Reason,
    Schedule,
    SplitPlan,
    TaskPlan,
)
from warploom.schedule.once import loops
from warploom.schedule.resources import Room
from warploom.target import Target

Pass = Callable[[Func, Schedule, Target], Func]  # explicit kernels have no schedule: None


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
        """The last function without layouts: the program as a script would say it."""
        at = next(i for i, (name, _) in enumerate(self.steps) if name == "assign_layouts")
        return self.steps[at - 1][1]

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
    room: Room | None = None,
    launch: Launch | None = None,
) -> Lowered:
    """Take a TILE function down to PLACED.

    schedule: one to apply instead of choosing (refused where it was made for another TILE text).
    structured: False leaves every access by pointers (the variant for launches that break what
    structure_access assumes).  overlap: True where pointer arguments may overlap: every access keeps
    the program's order.  room: registers that the chooser leaves free beyond its estimate.  launch: what is
    known of the launches.  Raises
    CompileError for the user's mistakes and unmeetable requests.
    """
    if overlap:
        func = func.with_(attrs={**func.attrs, "overlap": True})
    steps: list[tuple[str, Func]] = [("frontend", func)]

    def step(name: str, run: Callable[[Func], Func]) -> None:
        before = steps[-1][1]
        with _blame(name, before):
            after = run(before)
            # What a pass left alone is verified already, but for what the frontend made.
            if options.get().verify and (after is not before or len(steps) == 1):
                verify(after)
        steps.append((name, after))
        _dump(len(steps) - 1, name, after)

    _dump(0, "frontend", func)
    step("canonicalize", lambda f: number_ops(canonicalize(f, None, target)))
    if launch is not None and launch.short and loops(steps[-1][1], target):
        step("run_once", lambda f: run_once(f, None, target))
        step("canonicalize", lambda f: number_ops(canonicalize(f, None, target)))
    if structured:
        step("structure_access", lambda f: structure_access(f, None, target))
    step("take_promises", lambda f: take_promises(f, None, target))
    step("load_once", lambda f: load_once(f, None, target))
    if structured:
        step("canonicalize", lambda f: canonicalize(f, None, target))
    whole = steps[-1][1]
    with _blame("choose_cluster", whole):
        cluster = schedule.cluster if schedule else choose_cluster(whole, knobs, target)
    if cluster.ctas > 1:
        step("partition_ctas", lambda f: partition_ctas(f, cluster, target))
        step("canonicalize", lambda f: number_ops(canonicalize(f, None, target)))
    tile = steps[-1][1]
    if schedule is None:
        with _blame("choose", tile):
            schedule = choose(tile, knobs, target, room, launch)
        schedule = _clustered(schedule, cluster)
    elif schedule.tile_hash != tile_hash(tile):
        raise CompileError(
            "schedule",
            f"the schedule was made for another kernel (TILE text {schedule.tile_hash}, "
            f"this one is {tile_hash(tile)})",
            func.loc,
            help="leave schedule= out, or take the schedule of a variant with this signature and these "
            "constexprs",
        )
    plan = schedule
    passes: list[tuple[str, Pass]] = [(name, run) for name, run, _ in PASSES]
    passes += [("assign_layouts", assign_layouts), ("allocate_shared", allocate_shared)]
    for name, run in passes:
        step(name, lambda f, run=run: run(f, plan, target))  # type: ignore[misc]
    placed = steps[-1][1]
    if knobs.debug:
        placed = placed.with_(attrs={**placed.attrs, "debug": True})
    return Lowered(tuple(steps), schedule, placed)


def _clustered(schedule: Schedule, cluster: ClusterPlan) -> Schedule:
    """The schedule with what was chosen before it."""
    if cluster.ctas == 1:
        return schedule
    said = f"a cluster of {cluster.ctas} CTAs, each with 1/{cluster.ctas} of {cluster.axis}"
    reasons = (Reason("kernel", said, cluster.because), *schedule.reasons)
    return replace(schedule, cluster=cluster, reasons=reasons)


# What option WARPLOOM_DUMP may name: the frontends' results, and every pass of either road.
DUMPED = (
    *("frontend", "run_once", "structure_access", "take_promises", "load_once", "partition_ctas"),
    *("translate", "canonicalize", "merge_elects"),
    *(name for name, _, _ in PASSES),
    *("assign_layouts", "allocate_shared"),
)


def _dump(index: int, name: str, func: Func) -> None:
    wanted = options.get().dump
    if not wanted:
        return
    if wanted not in ("all", *DUMPED):
        raise CompileError(
            "option",
            f"{options.PREFIX}DUMP names {wanted}, which is no pass",
            help=f"all, or one of {', '.join(DUMPED)}",
        )
    if wanted in ("all", name):
        folder = Path(options.get().keep or "out") / func.name
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


def lower_explicit(func: Func, target: Target, debug: bool = False) -> Lowered:
    """Take an explicit kernel, a function at WARP, down to PLACED: nothing is chosen for it.

    Raises CompileError for the user's mistakes that only layouts and memory show."""
    steps: list[tuple[str, Func]] = [("translate", func)]
    _dump(0, "translate", func)
    passes: list[tuple[str, Pass]] = [
        ("canonicalize", lambda f, s, t: number_ops(canonicalize(f, s, t))),
        ("merge_elects", merge_elects),
        ("assign_layouts", assign_layouts),
        ("allocate_shared", allocate_shared),
    ]
    for name, run in passes:
        before = steps[-1][1]
        with _blame(name, before):
            after = run(before, None, target)  # type: ignore[arg-type]
            if options.get().verify:
                verify(after)
        steps.append((name, after))
        _dump(len(steps) - 1, name, after)
    placed = steps[-1][1]
    if debug:
        placed = placed.with_(attrs={**placed.attrs, "debug": True})
    return Lowered(tuple(steps), _as_written(steps[1][1]), placed)


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
