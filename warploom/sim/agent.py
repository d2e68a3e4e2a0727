"""An agent: one replica of a task, as a generator over its region.

All its warps run in step; what they know of others is kept warp by warp (order.py), so that a missing
synchronisation inside the replica is seen all the same.  A step is one op; ops that block yield a
`Block` until it is ready, and synchronising ops yield once so that others may run in between.  By the cost
table's clock arithmetic yields as well: who comes to a unit first has it first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.errors import Note
from warploom.ir.core import Op, Region, Value
from warploom.ir.types import pointee_of
from warploom.sim.barriers import MBarrier, Transition
from warploom.sim.engines import BulkStores, Copies, Lane, WgmmaQueue
from warploom.sim.order import Array, Loops, Participant, joined, located
from warploom.sim.outline import STEPS
from warploom.sim.report import Event, NeedsData, ProtocolError, SyncStep
from warploom.sim.shared import Place
from warploom.sim.state import Cta

# What a lagging warp does in order, and what its lane 0 does without waiting for the other lanes.
LAGS = ("lag", "lane 0")

Steps = Generator["Block | None", None, Any]


@dataclass(eq=False)
class Block:
    """Why an agent can't go on: `ready` says when it can; the rest is for the deadlock report."""

    ready: Callable[[], bool]
    op: Op
    what: str  # "full[1], phase 3 (parity 1)"
    found: Callable[[], str]
    cause: Callable[[], str] = str  # none is known
    code: str = "deadlock"  # of the report
    parties: Callable[[], tuple[Note, ...]] = tuple  # who did their part


class Agent:
    """One replica of a task in one CTA.  `clock` is (warps, 2·D), see order.py; `index` counts the agents of
    the whole program."""

    def __init__(
        self,
        cta: Cta,
        name: str,
        replica: int,
        replicas: int,
        warps: int,
        first_warp: int,
        index: int,
    ) -> None:
        self.cta, self.name, self.replica, self.replicas = cta, name, replica, replicas
        self.warps, self.index = warps, cta.first_agent + index
        self.label = (f"{name}[{replica}]" if replicas > 1 else name) + cta.of
        own, numbers = np.arange(first_warp, first_warp + warps), cta.numbers
        self.warps_of_cta = range(first_warp, first_warp + warps)
        self.own_warps = own + cta.rank * cta.warps  # of the cluster
        self.program_order = own + numbers.warps.start
        self.access_order = own + numbers.accesses.start
        self.lane_order = own + numbers.lanes.start
        self.queue_order = own + numbers.queues.start
        self.copy_order = own + numbers.copies.start
        self.bulk_order = numbers.bulk.start + index
        self.written_order = np.array([numbers.written.start + index])
        self.elected_order = np.array([numbers.elected.start + index])
        self.clock: Array = np.zeros((warps, cta.width), np.int64)
        flat, step = self.clock.reshape(-1), cta.width + 1
        self.positions: Array = flat[self.program_order[0] :: step]
        self.accesses: Array = flat[self.access_order[0] :: step]
        self.queues: Array = flat[self.queue_order[0] :: step]
        self.positions[:] = self.accesses[:] = 1
        self.clock[:, numbers.begun.start] = 1
        self.elected: Array = self.clock[:1].copy()  # of the elected thread
        self.fenced: Array = np.zeros(
            warps, np.int64
        )  # each warp's position at its last proxy fence
        self.env: dict[Value, Any] = dict(cta.env)
        self.made: dict[Value, int] = {}  # count at which a tile came into registers
        self.count = 0  # of steps, and tiles that came into registers, so far
        self.time = 0.0
        self.is_solo = False  # inside elect
        self.loops: Loops = ()
        self.trips = 0  # of all `for`s so far
        self.iterations: tuple[tuple[Op, int], ...] = ()  # of each loop around it the iteration
        self.block: Block | None = None
        self.is_done = False
        self.passed: tuple[MBarrier, int, Op] | None = None  # its last wait, and for which phase
        self.wgmma = WgmmaQueue()
        self.bulk = BulkStores()
        self.got: dict[tuple[int, int], int] = {}  # how many numbers it took from each place
        self.copies = Copies()
        self.issued = 0  # actions with a lane of their own
        # The words that it told the report of, each with the access.
        self._touched: set[tuple[Op, int]] = set()
        # The iterations of its last step, and its steps in these.
        self._logged: tuple[Any, dict[Any, SyncStep]] = None, {}

    # ---- who and what it knows

    def follow(self, before: Sequence[Agent], synced: bool) -> None:
        """Begins after the phase of `before`.  synced: a barrier ends it."""
        if before:
            known = np.concatenate([a.known() for a in before])  # by warp
            known = joined(known) if synced else known[self.warps_of_cta]
            np.maximum(self.clock, known, out=self.clock)
            self.released()
            self.time = max(a.time for a in before) + self.cta.cost.sync

    @property
    def rows(self) -> Array:
        """What each of the executing threads knows: one row a warp, inside elect that of its thread."""
        return self.elected if self.is_solo else self.clock

    def elect(self) -> None:
        """One thread goes on: it knows what its warp does, and what it learned before."""
        self.is_solo = True
        self.of_elected()

    def of_elected(self) -> Array:
        """What the elected thread knows: as each of its warp, and what it did and learned itself."""
        np.maximum(self.elected, self.clock[:1], out=self.elected)
        self.elected[0, self.elected_order] = self.positions[0]
        return self.elected

    @property
    def who(self) -> str:
        return located(self.label, self.loops)

    def party(self, o: Op) -> Participant:
        return Participant(self.label, self.loops, o)

    def released(self) -> None:
        """After a release: what the executing warps do from now on is not covered by it."""
        if self.is_solo:
            self.positions[0] += 1
            self.accesses[0] += 1
            self.of_elected()
        else:
            self.positions += 1
            self.accesses += 1

    def known(self) -> Array:
        """What the executing threads know together: of each warp what any of its lanes does, each of its own
        accesses and cp.asyncs as well."""
        if self.is_solo:
            return self.elected
        rows, half, copies = self.of_first_lanes(), self.cta.width // 2, self.copies
        own = np.arange(self.warps)
        for at, over in (
            (self.lane_order, self.positions),
            (self.lane_order + half, self.fenced),
            (self.copy_order, copies.known),
            (self.copy_order + half, copies.fenced),
        ):
            rows[own, at] = np.maximum(rows[own, at], over)
        return rows

    def of_first_lanes(self) -> Array:
        """What lane 0 of each warp knows, that of the first as the elected thread."""
        rows = self.clock.copy()
        rows[:1] = self.of_elected()
        return rows

    def epochs(self) -> Array:
        """The executing warps' own positions."""
        return (self.positions[:1] if self.is_solo else self.positions).copy()

    def proof(self) -> tuple[Array, Array]:
        """Components and epochs of what the executing threads do now: it is over for who knows them."""
        if self.is_solo:
            return self.proof_of_elected()
        return self.lane_order, self.positions.copy()

    def proof_of_elected(self) -> tuple[Array, Array]:
        """The same of what the elected thread does alone."""
        return self.elected_order, self.positions[:1].copy()

    def error(self, code: str, message: str, o: Op, help: str | None = None) -> ProtocolError:
        return ProtocolError(code, f"{self.who}: {message}", o.loc, (), help)

    def need_solo(self, o: Op, why: str, help: str | None = None) -> None:
        """Raises ProtocolError where more than one thread does it."""
        if not self.is_solo:
            raise self.error("outside-elect", why, o, help)

    def lane(self, kind: str, warp: int = 0) -> Lane:
        return Lane(kind, self.label, warp)

    def own_lane(self, kind: str) -> Lane:
        """A lane for one action, which nothing orders against others."""
        self.issued += 1
        return Lane(kind, self.label, self.issued)

    def touch(self, o: Op, mode: str, pointer: Any) -> None:
        """Records an access to a scalar in global memory."""
        if isinstance(pointer, np.ndarray) and pointer.ndim:
            return
        if self.cta.touched is None:
            access = o, int(pointer)
            if access in self._touched:
                return
            self._touched.add(access)
        memory, dtype = self.cta.memory, pointee_of(o.operands[0].type)
        buffer, at = memory.split(int(memory.settled(pointer, dtype, o.loc)), o.loc)
        thing = f"{buffer.name}[{at - buffer.origin}]"
        agents = self.cta.report.words.setdefault(thing, {})
        agents[self.label] = agents.get(self.label, False) or mode == "write"
        if self.cta.touched is not None:
            self.cta.touched.append(Transition(thing, mode, 0, False, self.party(o)))

    def log(self, o: Op, thing: str, phase: int = -1) -> None:
        """Records a step of the protocol."""
        if self.cta.is_tracked:
            copies, dots, bulk = self.copies, self.wgmma, self.bulk
            if self.iterations is not self._logged[0]:
                steps = self.cta.outline.steps
                self._logged = steps.setdefault(
                    (self.label, self.iterations), (self.iterations, {})
                )
                self.iterations = self._logged[0]
            age = (
                dots.committed - dots.known,
                bulk.committed - bulk.known,
                len(copies.groups) - copies.waited,
            )
            iterations, known = self._logged
            fields = o, thing, phase, age
            if (step := known.get(fields)) is None:
                step = known[fields] = SyncStep(self.label, o, iterations, thing, phase, age)
            self.cta.report.steps.append(step)

    # ---- time

    def spend(self, unit: str, cycles: float, name: str) -> None:
        """Holds a unit for so many cycles, after whoever holds it now."""
        if self.cta.is_skeleton:
            return
        start = max(self.time, self.cta.free[unit]) if cycles else self.time
        self.time = start + cycles
        if cycles:
            self.cta.free[unit] = self.time
            self.emit(unit, name, start, self.time)

    def stall(self, until: float, o: Op, cause: str) -> None:
        """Waits until a time; it takes longer to wake up than to pass by what is over already."""
        if self.cta.is_skeleton:
            return
        if until > self.time:
            self.emit("wait", name_of(o), self.time, until, cause)
            self.time = until + self.cta.cost.wake
        else:
            self.time += self.cta.cost.sync

    def transfer(self, o: Op, size: int) -> float:
        """TMA moves `size` bytes; gives the time when the last of them is on its way."""
        cta = self.cta
        if cta.is_skeleton:
            return 0.0
        start = max(self.time, cta.free["tma"])
        end = start + cta.cost.transfer(size)
        cta.free["tma"] = end
        self.emit("tma", name_of(o), start, end)
        self.time += cta.cost.sync
        return end

    def multiply(self, o: Op, mnk: tuple[int, int, int], bits: int) -> float:
        """The tensor cores multiply; gives the time when the result is there."""
        cta = self.cta
        if cta.is_skeleton:
            return 0.0
        cycles = cta.target.mma_cycles(*mnk, bits)
        start = max(self.time, cta.free["tensor"])
        cta.free["tensor"] = start + cycles
        self.emit("tensor", name_of(o), start, start + cycles)
        self.time += cta.cost.scalar
        return start + cycles + cta.cost.tensor_latency

    def emit(self, unit: str, name: str, start: float, end: float, cause: str = "") -> None:
        if self.cta.has_timeline:
            self.cta.emit(Event(self.cta.number, self.label, unit, name, start, end, cause))

    # ---- running

    def run(self, region: Region, budget: Op | None) -> Steps:
        """A task's region, after the setmaxnreg that it begins with."""
        if budget is not None:
            yield from STEPS[budget.kind](self, budget)
        yield from self.region(region)
        yield from self.settle(region.ops[-1])
        self.finish(region)
        self.is_done = True

    def region(self, region: Region) -> Steps:
        """What a region does; gives what it yields."""
        cta = self.cta
        run, asked = cta.outline.translated(region, cta.mode)
        steps: Steps = run(self, *map(self.env.__getitem__, asked))
        return steps

    def number(self, x: Any) -> int:
        """A scalar that control flow or an address needs."""
        if x is None:
            raise NeedsData
        return int(x)

    def numbers(self, xs: Sequence[Any]) -> list[int]:
        return [int(self.number(x) if x is None else x) for x in xs]

    def offsets(self, xs: Sequence[Any]) -> list[int]:
        """Where in global memory a copy goes; without data nobody asks."""
        return self.numbers(xs) if self.cta.has_data else []

    def wait_until(self, block: Block) -> Steps:
        """Blocks until ready; always gives others a turn first."""
        self.block = block
        yield block
        while not block.ready():
            yield block
        self.block = None

    def settle(self, o: Op) -> Steps:
        """Lets the replica's lagging warps catch up."""
        if not self.cta.lets_warps_lag:
            return
        lanes = [self.lane(kind, w) for kind in LAGS for w in range(1, self.warps)]
        engine = self.cta.engine
        if not any(engine.pending(lane) for lane in lanes):
            return
        yield from self.wait_until(
            Block(
                lambda: not any(engine.pending(lane) for lane in lanes),
                o,
                "its other warps",
                lambda: "they lag",
            )
        )

    def lag(self, warp: int, run: Callable[[], None], kind: str = "lag") -> None:
        """What a warp other than the first does, perhaps later than the first does.  kind: of LAGS."""
        if warp == 0 or self.is_solo or not self.cta.lets_warps_lag:
            run()
        else:
            self.cta.engine.issue("lagging warp", run, self.time, self.lane(kind, warp))

    def finish(self, region: Region) -> None:
        """Checks at the end of the task that nothing of its own is still going on."""
        last = region.ops[-1]
        if self.bulk.open or self.bulk.known < self.bulk.committed:
            raise self.error(
                "exit-store",
                "ends while its TMA stores may still read shared memory",
                self.bulk.last_op or last,
                "the thread that issued them calls self.tma.commit_group() and self.tma.wait_group(0) "
                "before the task ends",
            )
        if self.wgmma.unfinished or self.wgmma.known < self.wgmma.committed:
            raise self.error(
                "exit-wgmma",
                "ends with wgmmas that it never waited for",
                self.wgmma.last_op or last,
                "call self.wgmma.wait_group(0) before the task ends, and read the accumulator behind it",
            )

    # ---- operands

    def barrier(self, o: Op, barriers: list[MBarrier], index: Any) -> MBarrier:
        i = self.number(index)
        if not 0 <= i < len(barriers):
            raise self.error(
                "barrier-index",
                f"barrier {i} of an array of {len(barriers)}",
                o,
                f"index 0 to {len(barriers) - 1}: a ring's slot returns to 0 (self.ring_next)",
            )
        return barriers[i]

    def place(self, o: Op, fn: Callable[[], Place]) -> Place:
        try:
            return fn()
        except IndexError as e:
            raise self.error(
                "slot-index",
                str(e),
                o,
                "a ring's slot returns to 0 behind its last (self.ring_next)",
            ) from None


def name_of(o: Op) -> str:
    return o.id or o.kind.name
