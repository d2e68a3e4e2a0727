"""The road from TILE to PLACED: one list, top to bottom, for both front doors.

An automatic kernel enters at the first row; an explicit one, which is a function at WARP, where `entry` says
so.  A `Pass` changes the function, where its `when` holds; a `Choice` decides something that later rows read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from warploom.analysis.trip_counts import single_trips
from warploom.errors import CompileError
from warploom.ir.core import Func, Level
from warploom.passes.placed.allocate_shared import allocate_shared
from warploom.passes.placed.assign_layouts import assign_layouts
from warploom.passes.placed.drop_private_syncs import drop_private_syncs, guards_memory
from warploom.passes.placed.limit_unrolling import limit_unrolling
from warploom.passes.placed.narrow_comparisons import (
    has_wide_comparisons,
    narrow_comparisons,
)
from warploom.passes.placed.order_by_registers import order_by_registers
from warploom.passes.placed.part_lifetimes import part_lifetimes
from warploom.passes.placed.pipeline_unaligned_loads import (
    has_unaligned_loads,
    pipeline_unaligned_loads,
)
from warploom.passes.placed.place_fences import place_fences
from warploom.passes.placed.place_grid_wait import place_grid_wait
from warploom.passes.placed.place_warp_syncs import place_warp_syncs
from warploom.passes.placed.reload_slots import reload_slots
from warploom.passes.placed.spill_to_shared import spill_to_shared
from warploom.passes.task.fuse_dots import fuse_dots
from warploom.passes.task.insert_channels import insert_channels
from warploom.passes.task.partition_data import partition_data
from warploom.passes.task.partition_tasks import partition_tasks
from warploom.passes.task.pipeline_scalars import pipeline_scalars
from warploom.passes.tile.apply_alignment_hints import apply_alignment_hints
from warploom.passes.tile.canonicalize import canonicalize, number_ops
from warploom.passes.tile.convert_ifs import convert_ifs
from warploom.passes.tile.decode_scaled_dots import decode_scaled_dots, has_scaled_dots
from warploom.passes.tile.deduplicate_loads import deduplicate_loads
from warploom.passes.tile.divide_blocks import divide_blocks, has_quotients
from warploom.passes.tile.hoist_stores import has_no_dots, hoist_stores
from warploom.passes.tile.partition_ctas import partition_ctas
from warploom.passes.tile.peel_single_trip_loops import peel_single_trip_loops
from warploom.passes.tile.recover_boxes import recover_boxes
from warploom.passes.tile.split_last_wave import split_last_wave
from warploom.passes.tile.split_reduction import split_reduction
from warploom.passes.tile.strip_mine_rows import has_wide_rows, strip_mine_rows
from warploom.passes.warp.broadcast_scalars import broadcast_scalars
from warploom.passes.warp.delay_row_reduction import delay_row_reduction
from warploom.passes.warp.drop_private_barriers import drop_private_barriers
from warploom.passes.warp.drop_staging_guards import drop_staging_guards
from warploom.passes.warp.expand_pipeline import expand_pipeline
from warploom.passes.warp.fuse_tasks import fuse_tasks
from warploom.passes.warp.hoist_loads import hoist_loads
from warploom.passes.warp.hoist_operands import hoist_operands
from warploom.passes.warp.merge_elects import merge_elects
from warploom.passes.warp.order_atomics import ATOMICS, order_atomics
from warploom.passes.warp.partition_code import partition_code
from warploom.passes.warp.partition_copies import partition_copies
from warploom.passes.warp.ping_pong_tiles import ping_pong_tiles
from warploom.passes.warp.prefetch_beside_rings import prefetch_beside_rings
from warploom.passes.warp.sink_values import holds_values, sink_values
from warploom.passes.warp.specialize_gathers import specialize_gathers, takes_slices
from warploom.passes.warp.specialize_stores import specialize_stores
from warploom.passes.warp.stagger_epilogues import stagger_epilogues
from warploom.schedule.clusters import choose_cluster
from warploom.schedule.heuristic import choose, tile_hash
from warploom.schedule.model import (
    LAST_WAVE,
    ClusterPlan,
    Knobs,
    Launch,
    Parts,
    Reason,
    Schedule,
)
from warploom.schedule.resources import Headroom
from warploom.schedule.split_k import MOST_PARTS
from warploom.target import Target


@dataclass
class Road:
    """What one kernel's rows ask, and what its choices have said so far.

    given: a schedule to apply instead of choosing.  structured: may accesses become boxes of views?
    headroom: registers to leave free beyond the estimate.  launch: what is known of the launches.
    """

    target: Target
    knobs: Knobs = field(default_factory=Knobs)
    given: Schedule | None = None
    structured: bool = True
    headroom: Headroom | None = None
    launch: Launch | None = None
    cluster: ClusterPlan = field(default_factory=ClusterPlan)
    schedule: Schedule | None = None
    last: str = ""  # the pass that ran last

    def planned(self, asks: Callable[[Schedule], object]) -> bool:
        """Is there a schedule, and does it ask for this?"""
        return self.schedule is not None and bool(asks(self.schedule))


@dataclass(frozen=True)
class Pass:
    """From a function to one at level `after`, where `when` holds.  entry: do explicit kernels enter here?"""

    name: str
    run: Callable[[Func, Road], Func]
    after: Level
    when: Callable[[Func, Road], bool]
    entry: bool = False


@dataclass(frozen=True)
class Choice:
    """Something decided about a function, written into the road."""

    name: str
    decide: Callable[[Func, Road], None]


def _with_road(ask: Callable[..., Any]) -> Callable[[Func, Road], Any]:
    """A function of a kernel's function and more, which it gets of the road by their names (`road`: all of
    it).  A pass before the choice of a schedule, or of explicit kernels, gets None for that."""
    _, *names = inspect.signature(ask).parameters
    return lambda f, r: ask(f, *(r if name == "road" else getattr(r, name) for name in names))


def _always(func: Func) -> bool:
    return True


def _row(run: Callable[..., Func], after: Level, when: Callable[..., bool] = _always) -> Pass:
    """A pass whose parameters are fields of the road."""
    return Pass(run.__name__, _with_road(run), after, _with_road(when))


def _asked(run: Callable[..., Func], after: Level, asks: Callable[[Schedule], object]) -> Pass:
    """A pass that the schedule asks for."""
    return _row(run, after, lambda f, road: road.planned(asks))


def _canonicalized(func: Func, road: Road) -> Func:
    warps = road.given.tasks[0].warps if road.given else road.knobs.num_warps
    return canonicalize(func, road.target, road.target.warps_together(warps))


def _canonical(after: Level, when: Callable[..., bool] = _always) -> Pass:
    return Pass(
        "canonicalize", lambda f, r: number_ops(_canonicalized(f, r)), after, _with_road(when)
    )


def _behind(name: str) -> Pass:
    """Canonical form again, where the pass of that name has run."""
    return _canonical(Level.TILE, lambda f, last: last == name)


def _structured(func: Func, structured: bool) -> bool:
    return structured


def _divided(func: Func, cluster: ClusterPlan) -> bool:
    return cluster.axis is not None


def _has_atomics(func: Func) -> bool:
    return any(o.kind in ATOMICS for o in func.body.all_ops)


def _one_trip(func: Func, launch: Launch | None, target: Target) -> bool:
    return launch is not None and launch.short and bool(single_trips(func, target))


def _choose_cluster(func: Func, road: Road) -> None:
    given = road.given
    if given:
        road.cluster = given.cluster
    else:
        parts: Parts = road.launch.split_k if road.launch else 1
        road.cluster = choose_cluster(func, road.knobs, road.target, parts)


def _choose(func: Func, road: Road) -> None:
    if road.given is None:
        chosen = choose(func, road.knobs, road.target, road.headroom, road.launch)
        road.schedule = _stripped(_clustered(chosen, road.cluster), func)
        return
    if road.given.tile_hash != tile_hash(func):
        raise CompileError(
            "schedule",
            f"the schedule was made for another kernel (TILE text {road.given.tile_hash}, "
            f"this one is {tile_hash(func)})",
            func.loc,
            help="leave schedule= out, or take the schedule of a variant with this signature and these "
            "constexprs",
        )
    road.schedule = road.given


def _clustered(schedule: Schedule, cluster: ClusterPlan) -> Schedule:
    """The schedule with what was chosen before it."""
    if cluster.axis is None:
        return schedule
    what = "the iterations of its loop" if cluster.axis == "K" else cluster.axis
    said = f"a cluster of {cluster.ctas} CTAs, each with 1/{cluster.ctas} of {what}"
    if cluster.axis == LAST_WAVE:
        said = f"up to {MOST_PARTS} CTAs share the iterations of each program of the last wave"
    reasons = (Reason("kernel", said, cluster.because), *schedule.reasons)
    return replace(schedule, cluster=cluster, reasons=reasons)


def _stripped(schedule: Schedule, func: Func) -> Schedule:
    """The schedule with what strip_mine_rows did, and what it was told, as reasons."""
    why, same = "a thread has fewer registers than elements of one", "they have one address"
    reasons = [
        Reason("kernel", f"tiles of {n:,} elements are computed in {parts} parts", why)
        for n, parts in func.attrs.get("strips", ())
    ]
    for i, j in func.attrs.get("one_array", ()):
        names = f"{func.params[i].hint} and {func.params[j].hint}"
        reasons.append(Reason("kernel", f"{names} are one array", same))
    return replace(schedule, reasons=(*reasons, *schedule.reasons))


def _uniform(schedule: Schedule) -> bool:
    return any(t.role == "inline" for t in schedule.tasks)


def _one_replica(schedule: Schedule) -> bool:
    return _uniform(schedule) and schedule.tasks[0].replicas == 1


PIPELINE: tuple[Pass | Choice, ...] = (
    _row(decode_scaled_dots, Level.TILE, has_scaled_dots),
    _canonical(Level.TILE),
    _row(peel_single_trip_loops, Level.TILE, _one_trip),
    _behind("peel_single_trip_loops"),
    _row(divide_blocks, Level.TILE, has_quotients),
    _behind("divide_blocks"),
    _row(strip_mine_rows, Level.TILE, has_wide_rows),
    _behind("strip_mine_rows"),
    _row(recover_boxes, Level.TILE, _structured),
    _row(apply_alignment_hints, Level.TILE),
    _row(deduplicate_loads, Level.TILE),
    _row(convert_ifs, Level.TILE, has_no_dots),
    _row(hoist_stores, Level.TILE, has_no_dots),
    Pass("canonicalize", _canonicalized, Level.TILE, _with_road(_structured)),
    Choice("choose_cluster", _choose_cluster),
    _row(partition_ctas, Level.TILE, lambda f, cluster: cluster.axis in ("M", "N")),
    _row(split_reduction, Level.TILE, lambda f, cluster: cluster.axis == "K"),
    _row(split_last_wave, Level.TILE, lambda f, cluster: cluster.axis == LAST_WAVE),
    _canonical(Level.TILE, _divided),
    Choice("choose", _choose),
    _row(partition_tasks, Level.TASK),
    _asked(partition_data, Level.TASK, lambda s: s.split.count > 1),
    _asked(fuse_dots, Level.TASK, lambda s: s.fused_dots),
    _asked(pipeline_scalars, Level.TASK, lambda s: any("number" in c.via for c in s.channels)),
    _row(insert_channels, Level.CHANNEL),
    _row(partition_code, Level.WARP),
    _asked(delay_row_reduction, Level.WARP, lambda s: s.delayed_reductions),
    _asked(hoist_loads, Level.WARP, lambda s: s.hoisted_loads),
    _asked(hoist_operands, Level.WARP, lambda s: s.hoisted_operands),
    _asked(expand_pipeline, Level.WARP, lambda s: s.pipelines or s.dots_in_flight),
    _asked(stagger_epilogues, Level.WARP, lambda s: s.staggered_loops),
    _asked(ping_pong_tiles, Level.WARP, lambda s: s.ping_pong_loop),
    _asked(specialize_stores, Level.WARP, lambda s: any(p.by_task for p in s.stores)),
    _asked(partition_copies, Level.WARP, lambda s: _uniform(s) and s.tasks[0].replicas > 1),
    _asked(fuse_tasks, Level.WARP, _uniform),
    _asked(prefetch_beside_rings, Level.WARP, lambda s: any(p.beside_rings for p in s.pipelines)),
    _row(broadcast_scalars, Level.WARP),
    replace(_canonical(Level.WARP, lambda f, schedule: schedule is None), entry=True),
    _row(merge_elects, Level.WARP),
    _asked(drop_staging_guards, Level.WARP, lambda s: s.channels or s.stores),
    _row(sink_values, Level.WARP, holds_values),
    _row(specialize_gathers, Level.WARP, takes_slices),
    _row(order_atomics, Level.WARP, _has_atomics),
    _asked(reload_slots, Level.WARP, lambda s: s.few_registers),
    _asked(drop_private_barriers, Level.WARP, _one_replica),
    _row(narrow_comparisons, Level.WARP, has_wide_comparisons),
    _row(assign_layouts, Level.WARP),
    _row(drop_private_syncs, Level.WARP, guards_memory),
    _asked(spill_to_shared, Level.WARP, lambda s: s.few_registers and _uniform(s)),
    _asked(order_by_registers, Level.WARP, lambda s: s.few_registers),
    _row(limit_unrolling, Level.WARP),
    _row(place_fences, Level.WARP),
    _asked(part_lifetimes, Level.WARP, _uniform),
    _row(allocate_shared, Level.PLACED),
    _row(place_grid_wait, Level.PLACED, lambda f, target: target.grid.dependent),
    _row(place_warp_syncs, Level.PLACED),
    _row(pipeline_unaligned_loads, Level.PLACED, has_unaligned_loads),
)


def rows(func: Func) -> Sequence[Pass | Choice]:
    """What lies ahead of a function: all of one at TILE, the last rows of an explicit one."""
    if func.level is Level.TILE:
        return PIPELINE
    at = next(i for i, row in enumerate(PIPELINE) if isinstance(row, Pass) and row.entry)
    return PIPELINE[at:]


def from_choice() -> Sequence[Pass | Choice]:
    """The choice of the schedule, and what lies ahead of it."""
    at = next(i for i, row in enumerate(PIPELINE) if row.name == "choose")
    return PIPELINE[at:]


def names() -> tuple[str, ...]:
    """The passes, each once, in the order in which they first run."""
    return tuple(dict.fromkeys(row.name for row in PIPELINE if isinstance(row, Pass)))
