"""The simulator of WARP and PLACED: tasks as agents on one thread, asynchronous engines beside them.

`simulate` runs each program of a grid by itself: a CTA, or the CTAs of a cluster together.  A scheduler
picks what happens next: an agent's next step or an engine's action.  `order` says how:

  late     engines act only when no agent can, the oldest action first
  reverse  likewise, but the newest action and the last agent first
  early    engines act at once
  seeded   random priorities that change now and then
  timed    by the cost table's clock: the predicted timeline

With `track` (the default) vector clocks prove for the run's trip counts what no single order could
show: every access ordered, every arrival and wait bound to one full phase (order.py, barriers.py).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import warploom.sim.steps_async  # noqa: F401  (with steps.py and steps_sync.py: what agents do for each op)
from warploom.analysis.cost import UNITS
from warploom.errors import InternalError, LaunchError, Note, whole_number
from warploom.ir.core import HARDWARE, Effect, Func, Op, Region, Value, walk
from warploom.ir.ops import mbarrier, regs, smem, tma
from warploom.ir.ops.cluster import cluster_of, peer
from warploom.ir.registers import at_entry
from warploom.sim.agent import Agent, Steps, name_of
from warploom.sim.barriers import CountedBarrier, MBarrier, Touch
from warploom.sim.chosen import ChosenMemory, Fill
from warploom.sim.cluster import ClusterBarrier, Reach
from warploom.sim.engines import Engine, Lane
from warploom.sim.memory import GlobalMemory, bind, grid_of
from warploom.sim.numerics import FLOATS, Numerics
from warploom.sim.order import Array, Footprints, Party
from warploom.sim.outline import Outline, outline_of
from warploom.sim.registers import RegisterPool
from warploom.sim.report import Deadlock, Event, MemoryFault, ProtocolError, SimError, SimReport
from warploom.sim.scheduler import ORDERS, Ordered, Scheduler
from warploom.sim.shared import Place, SharedMemory
from warploom.target import CostTable, Target

_PARTS = (smem.shared_slot, smem.shared_slice, smem.shared_transpose, peer)


def simulate(
    func: Func,
    args: Sequence[Any],
    grid: int | Sequence[int],
    *,
    seed: int | None = None,
    order: str = "seeded",
    trace: Callable[[Event], None] | None = None,
    track: bool = True,
    data: bool = True,
    max_steps: int | None = None,
    max_trips: int | None = None,
    confluent: bool = True,
    scheduler: Scheduler | None = None,
    program: int | None = None,
    together: bool = False,
    outline: Outline | None = None,
    fills: Mapping[str, Fill] | None = None,
    cost: CostTable | None = None,
    numerics: Numerics = FLOATS,
) -> SimReport:
    """Runs a function at WARP or PLACED on NumPy arrays; they are written in place.

    args, grid: as for the oracle.  seed, order: see the module's docstring.  trace: called with each
    event of the timeline.  track=False leaves the happens-before proof out and lets warps of one replica
    drift apart instead, so that only what goes wrong by itself is reported.  data=False runs the protocol
    alone: no tile is computed or moved (agent.NeedsData where control flow depends on one).
    max_steps: of the scheduler, for each program (StepLimit).  max_trips: of any loop (TripLimit).
    confluent=False: a tracked run in which arrivals and waits count in whatever phase they meet, as on the
    hardware, and nothing is asked of other orders.  scheduler: picks what happens next, instead of `order`.
    program: only the program with this number.  together: all programs at once, as far as they share global
    memory: in one order of events.  numerics: how numbers are held and computed.
    cost: instead of the target's own table.
    outline: of the function, with what is watched in it.  fills: without data, the numbers in the arrays of
    these names (sim/chosen.py), instead of those that the arrays hold.
    Raises Deadlock, Race, ProtocolError, MemoryFault, LaunchError."""
    if func.level not in HARDWARE:
        raise InternalError(f"{func.name} is at {func.level.name}: the oracle interprets it")
    if order not in ORDERS:
        raise LaunchError(
            "order", f"there is no order {order!r}", help=f"orders: {', '.join(ORDERS)}"
        )
    if seed is not None:
        seed = whole_number("seed", seed)
    if max_steps is not None:
        max_steps = whole_number("max_steps", max_steps, 1)
    memory, params = bind(func, args, numerics)
    if fills is not None:
        memory = ChosenMemory(memory, fills)
    sizes = grid_of(grid)
    report = SimReport()

    def emit(event: Event) -> None:
        report.events.append(event)
        if trace is not None:
            trace(event)

    ids = itertools.product(range(sizes[2]), range(sizes[1]), range(sizes[0]))
    lags = not confluent or (not track and order != "timed")
    touched = scheduler.touched if scheduler else None
    settings = Settings(
        track,
        data,
        lags,
        data or order == "timed",
        order == "timed",
        confluent,
        touched,
        func.target if cost is None else replace(func.target, cost=cost),
        numerics,
    )
    numbered = [(n, i) for n, i in enumerate(ids) if program is None or n == program]
    for group in [numbered] if together and numbered else [[one] for one in numbered]:
        machine = Machine()
        for number, (z, y, x) in group:
            of = f" of program {number}" if len(group) > 1 else ""
            machine.programs.append(
                Program(
                    machine,
                    func,
                    memory,
                    params,
                    (x, y, z),
                    sizes,
                    number,
                    of,
                    settings,
                    emit,
                    report,
                    outline,
                )
            )
        first = group[0][0]
        rng = random.Random(hash((seed or 0, first)))
        with np.errstate(all="ignore"):
            try:
                machine.run(scheduler or Ordered(order, rng, max_steps, max_trips))
            except SimError as e:
                e.program = first
                raise
        ctas = [cta for one in machine.programs for cta in one.ctas]
        report.cycles = max(report.cycles, *(cta.cycles for cta in ctas))
        report.programs += len(group)
    report.events.sort(key=lambda e: (e.program, e.start))
    return report


@dataclass(frozen=True)
class Settings:
    """How a program is run; see `simulate`."""

    is_tracked: bool
    has_data: bool
    lets_warps_lag: bool
    has_timeline: bool
    is_timed: bool
    is_bound: bool
    touched: list[Touch] | None
    target: Target
    numerics: Numerics = FLOATS


class Machine:
    """Programs that run in one order of events, usually one: their engines, and the agents that go on."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.going: dict[Agent, Steps] = {}
        self.programs: list[Program] = []

    def run(self, scheduler: Scheduler) -> None:
        """Runs the programs to their ends."""
        for program in self.programs:
            program.begin()
        scheduler.run(self)
        for program in self.programs:
            for cta in program.ctas:
                cta.finish()

    def deadlock(self) -> Deadlock:
        """No agent can go on: who waits for what."""
        agents = [a for program in self.programs for cta in program.ctas for a in cta.agents]
        notes = []
        for a in agents:
            if a.is_done:
                notes.append(Note(f"{a.label} has ended"))
            elif a.block is not None:
                notes.append(
                    Note(f"{a.who} waits for {a.block.what}: {a.block.found()}", a.block.op.loc)
                )
                notes += [n for n in a.block.parties() if n not in notes]
        blocked = [(a, a.block) for a in agents if not a.is_done and a.block is not None]
        for_registers = [(a, b) for a, b in blocked if b.code == "setmaxnreg"]
        blocked = for_registers or blocked  # what waits for them needs no reason of its own
        causes: dict[str, list[str]] = {}  # what waits for the same reason
        for _, b in blocked:
            waits = causes.setdefault(b.cause(), [])
            if b.what not in waits:
                waits.append(b.what)
        first, block = blocked[0]
        return Deadlock(
            block.code,
            f"no task of program {first.cta.ids} can go on",
            block.op.loc,
            tuple(notes),
            help="likely cause: " + "; ".join(f"{', '.join(w)}: {c}" for c, w in causes.items()),
        )


class Program:
    """One program: its CTAs (one, or those of a cluster) and their barrier.  of: " of program 1" where
    several run together.  outline: of the function, unless the usual one (path.py)."""

    def __init__(
        self,
        machine: Machine,
        func: Func,
        memory: GlobalMemory,
        params: dict[Value, Any],
        ids: tuple[int, int, int],
        grid: tuple[int, int, int],
        number: int,
        of: str,
        settings: Settings,
        emit: Callable[[Event], None],
        report: SimReport,
        outline: Outline | None = None,
    ) -> None:
        self.func, self.memory, self.ids, self.grid, self.number = func, memory, ids, grid, number
        self.params, self.settings, self.emit, self.report = params, settings, emit, report
        outline = self.outline = outline or outline_of(
            func, settings.target.cost, settings.numerics
        )
        self.shape = cluster_of(func)
        self.engine, self.going, self.of = machine.engine, machine.going, of
        warps = outline.ctas * outline.warps
        self.barrier = ClusterBarrier(
            outline.cluster_component, outline.width, warps, settings.touched
        )
        self.barrier.name += of
        self.ctas = [Cta(self, rank) for rank in range(outline.ctas)]

    def relaxed(self, stamp: Array) -> Array:
        """What a relaxed arrival or wait hands on: nothing of ordinary accesses."""
        return np.where(self.outline.ordinary, 0, stamp)

    def begin(self) -> None:
        """Starts its CTAs; those of a cluster begin one after the other."""
        for cta in self.ctas:
            if len(self.ctas) == 1:
                cta.begin()
            else:
                lane = Lane("begin", f"the cluster{self.of}", cta.rank)
                self.engine.issue("begin", cta.begin, 0.0, lane)


class Cta:
    """One CTA: its shared memory, barriers and agents."""

    def __init__(self, program: Program, rank: int) -> None:
        p, settings, outline = program, program.settings, program.outline
        self.program, self.rank, self.outline = p, rank, outline
        self.func, self.memory, self.report = p.func, p.memory, p.report
        self.ids, self.grid, self.number = p.ids, p.grid, p.number
        self.is_tracked, self.has_data = settings.is_tracked, settings.has_data
        self.has_timeline = settings.has_timeline
        self.is_timed = settings.is_timed
        self.is_skeleton = not (self.has_data or self.has_timeline)  # see Outline.lines
        self.is_bound, self.touched = settings.is_bound, settings.touched
        self.lets_warps_lag, self.emit = settings.lets_warps_lag, p.emit
        self.target, self.cost = settings.target, settings.target.cost
        self.numerics = settings.numerics
        self.env = dict(p.params)
        self.engine = p.engine
        self.free = dict.fromkeys(UNITS, 0.0)
        self.cycles = 0.0
        self.loads: dict[MBarrier, tuple[int, Party]] = {}
        self.reached: dict[Hashable, Reach] = {}  # by other CTAs, the last of each kind
        self.agents: list[Agent] = []  # of the running phase
        self.started = 0  # agents of all phases so far
        self.next_phase = 0
        self.has_begun = self.has_ended = False
        self.phases, self.tasks, self.warps = outline.phases, outline.tasks, outline.warps
        self.first_agent = rank * outline.agents
        self.numbers = outline.numberings[rank]
        self.width = outline.width
        self.of = (f" of CTA {rank}" if outline.ctas > 1 else "") + p.of  # for reports
        self.arrays = self._arrays()
        self.pool = RegisterPool(self, at_entry(p.func, self.target))

    @cached_property
    def shared(self) -> SharedMemory:
        """Of skeleton runs the numbers only."""
        return self.numerics.shared(self.outline.shared[1])

    @cached_property
    def footprints(self) -> Footprints:
        return Footprints(self.outline.partition, self.width // 2)

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

    def _arrays(self) -> dict[str, list[MBarrier]]:
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
        return self._syncs[name]

    def sync_threads(self, a: Agent, scope: str) -> int:
        return self.target.warp_size * (a.warps * a.replicas if scope == "task" else self.warps)

    # ---- accesses to shared memory, tracked

    def read(
        self,
        a: Agent,
        o: Op,
        what: str,
        s: Place,
        components: Array,
        epochs: Array,
        is_async: bool,
        mn_axis: int | None = None,
    ) -> None:
        """A read of a tile here, over for whoever knows `epochs` of `components`.  mn_axis: as wgmma reads
        it; raises LayoutError where it can't."""
        if self.is_tracked:
            a.log(o, s.name)
            now = a.access(o, what, components, epochs, False)
            kind = 0 if not is_async else 1 + (o.kind is tma.tma_store)
            at = self.outline.regions(s, mn_axis)
            try:
                self.footprints.read(now, at, 4 * a.index + kind, a.rows, is_async)
            except MemoryFault as e:
                e.help, waits = a.why_unwritten()
                writers = (Note("these bytes are written here", w.loc) for w in self._writers(s))
                e.notes = (*waits, *writers)
                raise

    def write(
        self,
        a: Agent,
        o: Op,
        what: str,
        s: Place,
        components: Array,
        epochs: Array,
        is_async: bool,
        is_generic: bool,
        visible: Array | None = None,
    ) -> None:
        """A write of a tile here.  visible: see Access."""
        if self.is_tracked:
            a.log(o, s.name)
            now = a.access(o, what, components, epochs, is_generic, visible)
            self.footprints.write(now, self.outline.regions(s), a.rows, is_async)

    def _writers(self, s: Place) -> list[Op]:
        """The ops that write the allocation which a place belongs to."""
        family: set[Value] = set()
        found = []
        for o in walk(self.func.body):
            if o.kind is smem.shared_alloc and o.attrs["name"] == s.name.partition("[")[0]:
                family.add(o.result)
            elif o.kind in _PARTS:
                if o.operands[0] in family:
                    family.add(o.result)
            elif (
                Effect.WRITE in o.kind.effect
                and o.kind is not tma.tma_store
                and any(v in family for v in o.operands)
            ):
                found.append(o)
        return found

    # ---- time

    def transfer(self, a: Agent, o: Op, size: int) -> float:
        """TMA moves `size` bytes; gives the time when the last of them is on its way."""
        if self.is_skeleton:
            return 0.0
        start = max(a.time, self.free["tma"])
        end = start + self.cost.transfer(size)
        self.free["tma"] = end
        a.emit("tma", name_of(o), start, end)
        a.time += self.cost.sync
        return end

    def multiply(self, a: Agent, o: Op, mnk: tuple[int, int, int], bits: int) -> float:
        """The tensor cores multiply; gives the time when the result is there."""
        if self.is_skeleton:
            return 0.0
        cycles = self.target.mma_cycles(*mnk, bits)
        start = max(a.time, self.free["tensor"])
        self.free["tensor"] = start + cycles
        a.emit("tensor", name_of(o), start, start + cycles)
        a.time += self.cost.scalar
        return start + cycles + self.cost.tensor_latency

    # ---- what other CTAs do to this one

    def reach(self, a: Agent, o: Op, what: str, made: Op | None) -> None:
        """Another CTA's agent touches this one's shared memory: it must have begun, and not ended."""
        known = int(a.rows[:, self.numbers.begun.start].min())
        if not self.has_begun or (self.is_tracked and not known):
            raise ProtocolError(
                "cluster-start",
                f"{a.who}: {what} of CTA {self.rank}, which may not have begun: its barriers are "
                "initialised when it does",
                o.loc,
                () if made is None else (Note("initialised at the start of each CTA", made.loc),),
                help="self.cluster.sync() must stand between the start and the first access to a peer",
            )
        self.still_runs(Reach(a.party(o), what))

    def still_runs(self, reach: Reach) -> None:
        """Raises ProtocolError where this CTA has ended before another one's access."""
        if self.has_ended:
            raise self._after_exit(reach)

    def _after_exit(self, reach: Reach) -> ProtocolError:
        last = self.tasks.regions[0].ops[-1]
        return ProtocolError(
            "cluster-exit",
            f"{reach.party.who}: {reach.what} of CTA {self.rank}, which may have ended by then",
            reach.party.op.loc,
            (Note(f"CTA {self.rank} ends without waiting for it", last.loc),),
            help="end with self.cluster.sync(), or wait for the phases that peers' arrivals complete",
        )

    # ---- the run

    def begin(self) -> None:
        """Runs the prologue and starts the first phase."""
        self.has_begun = True
        self._prologue()
        self._advance()

    def alone(self) -> Iterator[Steps]:
        """After the prologue, each agent's steps by themselves, for lines that wait for nothing (path.py)."""
        self.has_begun = True
        self._prologue()
        for o in self.phases:
            self.agents = []  # nobody knows anything of anybody
            agents = iter(self._start(o))
            for region, replicas in zip(o.regions, o.attrs["replicas"], strict=True):
                for agent, _ in itertools.islice(agents, replicas):
                    yield agent.region(region)

    def _advance(self) -> None:
        """Starts the next phase."""
        o = self.phases[self.next_phase]
        self.next_phase += 1
        self.program.going.update(self._start(o))

    def ended(self, agent: Agent) -> None:
        """An agent has come to its end; with the last one of a phase the next phase starts."""
        if self.next_phase == len(self.phases):
            self.program.barrier.leave(agent)
        if any(not a.is_done for a in self.agents):
            return
        if self.next_phase < len(self.phases):
            self._advance()
            return
        self.has_ended = True
        if not self.is_tracked:
            self.check_exit()

    def finish(self) -> None:
        """Checks the end of the CTA, when the whole program has ended."""
        self.check_exit()
        self.pool.prove()
        self.cycles = max(*(agent.time for agent in self.agents), *self.free.values())

    def _start(self, o: Op) -> list[tuple[Agent, Steps]]:
        """The agents of a phase; a barrier stands between them and those of the phase before."""
        running: list[tuple[Agent, Steps]] = []
        before, first_warp, a = self.agents, 0, o.attrs
        keys = ("names", "warps", "replicas", "registers")
        per_task = zip(*(a[key] for key in keys), o.regions, strict=True)
        for name, warps, replicas, registers, region in per_task:
            budget = None if registers is None else _budget(o, region, registers)
            for r in range(replicas):
                index = self.started + len(running)
                agent = Agent(self, name, r, replicas, warps, first_warp, index)
                agent.follow(before)
                first_warp += warps
                running.append((agent, agent.run(region, budget)))
        self.started += len(running)
        self.agents = [agent for agent, _ in running]
        return running

    def _prologue(self) -> None:
        """The ops before `tasks`, which every thread runs."""
        entry = Agent(self, "entry", 0, 1, 1, 0, 0)
        for block in entry.region(self.outline.prologue):
            if block is not None:
                raise ProtocolError("blocks", "nothing before `tasks` may wait", block.op.loc)
        self.env = entry.env

    def check_exit(self) -> None:
        """No copy may still be on its way into shared memory when the CTA ends."""
        known = np.max([agent.clock.max(axis=0) for agent in self.agents], axis=0)
        for b, (phase, party) in self.loads.items():
            is_over = known[b.component] > phase if self.is_tracked else b.in_flight == 0
            if not is_over:
                raise ProtocolError(
                    "exit-load",
                    f"the program ends without waiting for phase {phase} of {b.name}: a copy by "
                    f"{party.who} may still write shared memory",
                    party.op.loc,
                    help="wait for that phase before the end, or leave the last copies out",
                )
        for reach in self.reached.values():
            if self.is_tracked and not reach.is_over(known):
                raise self._after_exit(reach)


def _budget(phase: Op, region: Region, registers: int) -> Op:
    """The setmaxnreg that a task begins with."""
    loc = region.ops[-1].loc or phase.loc
    attrs = {"registers": registers, "action": ""}
    return Op(regs.setmaxnreg, (), attrs, (), (), frozenset(), loc)
