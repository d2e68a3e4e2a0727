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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from warploom import options
from warploom.errors import InternalError, LaunchError, Note, whole_number
from warploom.ir.core import HARDWARE, Func, Op, Region
from warploom.ir.ops import regs
from warploom.sim import (  # noqa: F401  (what agents do for each op: the modules fill tables)
    flow,
    steps,
    steps_async,
    steps_copies,
    steps_registers,
    steps_sync,
    steps_unaligned,
)
from warploom.sim.agent import Agent, Steps
from warploom.sim.chosen import ChosenMemory, Fill
from warploom.sim.engines import Engine, Lane
from warploom.sim.memory import bind, grid_of
from warploom.sim.numerics import FLOATS, Numerics
from warploom.sim.order import joined
from warploom.sim.outline import Outline
from warploom.sim.report import Deadlock, Event, ProtocolError, Race, SimError, SimReport, StepLimit
from warploom.sim.scheduler import ORDERS, Ordered, Scheduler
from warploom.sim.state import Cta, Program, Settings
from warploom.target import CostTable


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
    max_steps: of the scheduler, a program, and of a `while` (StepLimit).  max_trips: of any loop (TripLimit).
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
    memory, params = bind(func, args, numerics, data)
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
    target, is_timed = (
        func.target if cost is None else replace(func.target, cost=cost),
        order == "timed",
    )
    settings = Settings(
        track, data, lags, data or is_timed, is_timed, confluent, touched, target, numerics
    )
    numbered = [(n, i) for n, i in enumerate(ids) if program is None or n == program]
    for group in [numbered] if together and numbered else [[one] for one in numbered]:
        machine = Machine()
        for number, (z, y, x) in group:
            of = f" of program {number}" if len(group) > 1 else ""
            one = Program(
                func, memory, params, (x, y, z), sizes, number, settings, machine.engine, report, emit,
                outline, of,
            )  # fmt: skip
            machine.programs.append(one)
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
        report.ticks = max(report.ticks, machine.engine.tick)
        report.programs += len(group)
        for one in machine.programs:
            one.dismantle()
    report.events.sort(key=lambda e: (e.program, e.start))
    return report


_ENDED = object()


class Machine:
    """Programs that run in one order of events, usually one: their engines, and the agents that go on."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.going: dict[Agent, Steps] = {}
        self.programs: list[Program] = []
        self.phases: dict[Cta, Phases] = {}

    def run(self, scheduler: Scheduler) -> None:
        """Runs the programs to their ends."""
        going, engine, most = self.going, self.engine, scheduler.max_steps
        engine.max_trips = scheduler.max_trips
        engine.max_iterations = options.get().max_trips if most is None else most
        engine.max_counted = options.FOR_TRIPS * engine.max_iterations
        for program in self.programs:
            self._begin(program)
        while True:  # a step of an agent or an engine
            heads = engine.heads() if engine.lanes else []
            ready = []
            if not (heads and scheduler.engines_first):
                ready = [a for a in going if a.block is None or a.block.ready()]
            if not ready and not heads:
                break
            scheduler.tick = engine.tick = scheduler.tick + 1
            if most is not None and scheduler.tick > most:
                raise StepLimit("step-limit", f"the program takes more than {most} steps")
            choice = scheduler.pick(ready, heads)
            if not isinstance(choice, Agent):
                engine.perform(choice)
            elif next(going[choice], _ENDED) is _ENDED:
                del going[choice]
                self.phases[choice.cta].ended(choice)
        if going:
            raise self.deadlock()
        for phases in self.phases.values():
            phases.finish()

    def _begin(self, program: Program) -> None:
        """Starts its CTAs; those of a cluster begin one after the other."""
        for cta in program.ctas:
            phases = self.phases[cta] = Phases(cta, self.going)
            if len(program.ctas) == 1:
                phases.begin()
            else:
                lane = Lane("begin", f"the cluster{program.of}", cta.rank)
                self.engine.issue("begin", phases.begin, 0.0, lane)

    def deadlock(self) -> Deadlock:
        """No agent can go on: who waits for what."""
        agents = [a for phases in self.phases.values() for a in phases.agents]
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


class Phases:
    """The run of one CTA, phase by phase.  agents: of the running phase."""

    def __init__(self, cta: Cta, going: dict[Agent, Steps]) -> None:
        self.cta, self.going = cta, going
        self.agents: list[Agent] = []
        self.phases = cta.outline.phases
        self.started = 0  # agents of all phases so far
        self.next_phase = 0

    def begin(self) -> None:
        """Runs the prologue and starts the first phase."""
        self.cta.has_begun = True
        self._prologue()
        self._advance()

    def alone(self) -> Iterator[Steps]:
        """After the prologue, each agent's steps by themselves, for lines that wait for nothing (path.py)."""
        self.cta.has_begun = True
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
        self.going.update(self._start(o))

    def ended(self, agent: Agent) -> None:
        """An agent has come to its end; with the last one of a phase the next phase starts."""
        if self.next_phase == len(self.phases):
            self.cta.program.barrier.leave(agent.own_warps)
        if any(not a.is_done for a in self.agents):
            return
        if self.next_phase < len(self.phases):
            self._advance()
            return
        self.cta.has_ended = True
        if not self.cta.is_tracked:
            self.check_exit()

    def finish(self) -> None:
        """Checks the end of the CTA, when the whole program has ended."""
        self.check_exit()
        self.cta.pool.prove()
        self.cta.cycles = max(*(agent.time for agent in self.agents), *self.cta.free.values())

    def _start(self, o: Op) -> list[tuple[Agent, Steps]]:
        """The agents of a phase."""
        running: list[tuple[Agent, Steps]] = []
        before, first_warp, a = self.agents, 0, o.attrs
        synced = not before or self.phases[self.next_phase - 2].attrs.get("synced", True)
        keys = ("names", "warps", "replicas", "registers")
        per_task = zip(*(a[key] for key in keys), o.regions, strict=True)
        for name, warps, replicas, registers, region in per_task:
            budget = None if registers is None else _budget(o, region, registers)
            for r in range(replicas):
                index = self.started + len(running)
                agent = Agent(self.cta, name, r, replicas, warps, first_warp, index)
                agent.follow(before, synced)
                first_warp += warps
                running.append((agent, agent.run(region, budget)))
        self.started += len(running)
        self.agents = [agent for agent, _ in running]
        self.cta.pool.owners = {agent.label: agent.warps_of_cta for agent in self.agents}
        return running

    def _prologue(self) -> None:
        """The ops before `tasks`, which every thread runs."""
        if (early := self.cta.outline.unwaited) is not None:
            raise Race(
                "grid-race",
                f"{early.kind.name} touches global memory that an earlier grid may still write or read",
                early.loc,
                help="a grid that may begin before those ahead of it have ended waits for them first",
            )
        entry = Agent(self.cta, "entry", 0, 1, 1, 0, 0)
        prologue = self.cta.outline.prologue
        running = entry.region(prologue)
        while True:
            try:
                block = next(running)
            except StopIteration as end:
                self.cta.env.update(zip(prologue.yielded, end.value, strict=True))
                return
            if block is not None:
                raise ProtocolError("blocks", "nothing before `tasks` may wait", block.op.loc)

    def check_exit(self) -> None:
        """No copy may still be on its way into shared memory when the CTA ends."""
        known = joined([joined(agent.known()) for agent in self.agents])
        for b, (phase, party) in self.cta.loads.items():
            is_over = known[b.component] > phase if self.cta.is_tracked else b.in_flight == 0
            if not is_over:
                raise ProtocolError(
                    "exit-load",
                    f"the program ends without waiting for phase {phase} of {b.name}: a copy by "
                    f"{party.who} may still write shared memory",
                    party.op.loc,
                    help="wait for that phase before the end, or leave the last copies out",
                )
        for agent, party in self.cta.copied.items():
            if self.cta.is_tracked and (known[agent.copy_order] < agent.copies.issued).any():
                raise ProtocolError(
                    "exit-copy",
                    f"the program ends while a cp.async of {party.who} may still write shared memory",
                    party.op.loc,
                    help="self.cp_async.wait_all() before the end, or leave the last copies out",
                )
        for reach in self.cta.reached.values():
            if self.cta.is_tracked and not reach.is_over(known):
                raise self.cta.after_exit(reach)


def _budget(phase: Op, region: Region, registers: int) -> Op:
    """The setmaxnreg that a task begins with."""
    loc = region.ops[-1].loc or phase.loc
    attrs = {"registers": registers, "action": ""}
    return Op(regs.setmaxnreg, (), attrs, (), (), frozenset(), loc)
