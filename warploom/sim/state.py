"""What a run is made of: programs, and their CTAs with shared memory and barriers.

Who acts on it: agent.py; what each op does to it: the steps; what begins and ends when: machine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warploom.analysis.cost import UNITS
from warploom.errors import Note
from warploom.ir.core import Func, Value
from warploom.ir.ops import mbarrier
from warploom.ir.ops.cluster import cluster_of
from warploom.ir.registers import at_entry
from warploom.sim.barriers import CountedBarrier, MBarrier, Transition
from warploom.sim.cluster import ClusterBarrier, PeerAccess
from warploom.sim.engines import Engine
from warploom.sim.global_order import GlobalAccesses
from warploom.sim.memory import GlobalMemory
from warploom.sim.numerics import FLOATS, Numerics
from warploom.sim.order import Array, Footprints, Participant
from warploom.sim.outline import Outline, outline_of
from warploom.sim.registers import RegisterPool
from warploom.sim.report import Event, ProtocolError, SimReport
from warploom.sim.shared import SharedMemory
from warploom.sim.translate import Mode
from warploom.target import Target


@dataclass(frozen=True)
class Settings:
    """How a program is run; see `simulate`."""

    is_tracked: bool
    has_data: bool
    lets_warps_lag: bool
    has_timeline: bool
    is_timed: bool
    is_bound: bool
    touched: list[Transition] | None
    target: Target
    numerics: Numerics = FLOATS


class Program:
    """One program: its CTAs (one, or those of a cluster) and their barrier.

    engine: of all programs that run in one order of events.  of: " of program 1" where several do.
    outline: of the function, unless the usual one (path.py)."""

    def __init__(
        self,
        func: Func,
        memory: GlobalMemory,
        params: dict[Value, Any],
        ids: tuple[int, int, int],
        grid: tuple[int, int, int],
        number: int,
        settings: Settings,
        engine: Engine,
        report: SimReport,
        emit: Callable[[Event], None],
        outline: Outline | None = None,
        of: str = "",
    ) -> None:
        self.func, self.memory, self.ids, self.grid, self.number = func, memory, ids, grid, number
        self.params, self.settings, self.emit, self.report = params, settings, emit, report
        outline = self.outline = outline or outline_of(
            func, settings.target.cost, settings.numerics
        )
        self.shape, self.engine, self.of = cluster_of(func), engine, of
        warps = outline.ctas * outline.warps
        self.barrier = ClusterBarrier(
            outline.cluster_component, outline.width, warps, settings.touched
        )
        self.barrier.name += of
        self.ctas = [Cta(self, rank) for rank in range(outline.ctas)]

    def dismantle(self) -> None:
        """After the run: lets go of what refers back to it, which is free without the collector then."""
        for cta in self.ctas:
            cta.reached.clear()
            cta.copied.clear()
        self.ctas.clear()

    def relaxed(self, stamp: Array) -> Array:
        """What a relaxed arrival or wait hands on: nothing of ordinary accesses."""
        return np.where(self.outline.ordinary, 0, stamp)


class Cta:
    """One CTA: its shared memory, its barriers, its units and its registers."""

    def __init__(self, program: Program, rank: int) -> None:
        p, settings, outline = program, program.settings, program.outline
        self.program, self.rank, self.outline = p, rank, outline
        self.func, self.memory, self.report = p.func, p.memory, p.report
        self.ids, self.grid, self.number = p.ids, p.grid, p.number
        self.is_tracked, self.has_data = settings.is_tracked, settings.has_data
        self.has_timeline = settings.has_timeline
        self.is_timed = settings.is_timed
        self.is_skeleton = not (self.has_data or self.has_timeline)  # see Outline.lines
        self.mode = Mode(self.is_skeleton, self.has_data, self.is_timed)
        self.is_bound, self.touched = settings.is_bound, settings.touched
        self.lets_warps_lag, self.emit = settings.lets_warps_lag, p.emit
        self.target, self.cost = settings.target, settings.target.cost
        self.numerics = settings.numerics
        self.env = dict(p.params)
        self.engine = p.engine
        self.free = dict.fromkeys(UNITS, 0.0)
        self.cycles = 0.0
        self.loads: dict[MBarrier, tuple[int, Participant]] = {}
        self.copied: dict[Any, Participant] = {}  # of each agent its last cp.async
        self.put: dict[tuple[int, int], int] = {}  # how many numbers were left at each place
        self.met: dict[int, str] = {}  # who meets at each named barrier
        self.map_writers: dict[str, int] = {}  # of each descriptor the agent that wrote it last
        self.reached: dict[Hashable, PeerAccess] = {}  # by other CTAs, the last of each kind
        self.has_begun = self.has_ended = False
        self.warps = outline.warps
        self.first_agent = rank * outline.agents
        self.numbers = outline.numberings[rank]
        self.width = outline.width
        self.of = (f" of CTA {rank}" if outline.ctas > 1 else "") + p.of  # for reports
        self.pool = RegisterPool(self.target, self.warps, at_entry(p.func, self.target))

    @cached_property
    def shared(self) -> SharedMemory:
        """Of skeleton runs the numbers only."""
        return self.numerics.shared(self.outline.shared[1])

    @cached_property
    def global_accesses(self) -> GlobalAccesses:
        return GlobalAccesses()

    @cached_property
    def footprints(self) -> Footprints:
        return Footprints(self.outline.partition, self.width // 2, self.outline.roots)

    @cached_property
    def named_barriers(self) -> list[CountedBarrier]:
        return [self._counted(f"named barrier {i}", c) for i, c in enumerate(self.numbers.named)]

    @cached_property
    def _syncs(self) -> dict[str | None, CountedBarrier]:
        names = (None, *self.outline.task_names)
        return {
            name: self._counted(f"the barrier of {name or 'the CTA'}", c)
            for name, c in zip(names, self.numbers.syncs, strict=True)
        }

    def _counted(self, name: str, component: int) -> CountedBarrier:
        return CountedBarrier(
            name + self.of, component, self.width, self.is_tracked, self.is_bound, self.touched
        )

    @cached_property
    def arrays(self) -> dict[str, list[MBarrier]]:
        """The mbarriers, by the names of their arrays."""
        components = iter(zip(self.numbers.mbarriers, self.numbers.visible, strict=True))
        out = {}
        for o in self.outline.ops:
            if o.kind is mbarrier.mbarrier_alloc:
                name, n = o.attrs["name"], o.attrs["n"]
                out[name] = [
                    MBarrier(
                        (f"{name}[{i}]" if n > 1 else name) + self.of,
                        o.attrs["count"],
                        *next(components),
                        self.width,
                        self.is_tracked,
                        self.is_bound,
                        self.touched,
                        self.rank,
                        o,
                        i,
                        self.outline.ctas > 1,
                    )
                    for i in range(n)
                ]
        return out

    def sync_barrier(self, name: str | None) -> CountedBarrier:
        """That of a task's threads, or of all."""
        return self._syncs[name]

    def still_runs(self, reach: PeerAccess) -> None:
        """Raises ProtocolError where this CTA has ended before another one's access."""
        if self.has_ended:
            raise self.after_exit(reach)

    def after_exit(self, reach: PeerAccess) -> ProtocolError:
        """What is wrong with an access that this CTA does not wait for."""
        last = self.outline.tasks.regions[0].ops[-1]
        return ProtocolError(
            "cluster-exit",
            f"{reach.party.who}: {reach.what} of CTA {self.rank}, which may have ended by then",
            reach.party.op.loc,
            (Note(f"CTA {self.rank} ends without waiting for it", last.loc),),
            help="end with self.cluster.sync(), or wait for the phases that peers' arrivals complete",
        )
