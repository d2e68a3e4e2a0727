"""From clock stamps (passes/placed/instrument.py) to the events of a timeline, as a simulation reports them.

What a stamp can't see is bounded by what it can: an asynchronous copy or product is over when a wait that
covers it has ended, or had already been when that wait found nothing to wait for.  Its event reaches from
its issue to that moment; the engine may have been idle in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warploom.analysis.cost import elementwise
from warploom.ir.core import Func, Op, walk
from warploom.ir.ops import mbarrier, mma, smem, task, tma
from warploom.ir.types import Barriers, Shared, Tile
from warploom.passes.placed.instrument import Site
from warploom.sim.agent import name_of
from warploom.sim.report import Event, SimReport
from warploom.target import CostTable

Records: TypeAlias = NDArray[
    np.uint32
]  # (n, 2): site | index << 16, clock; in the order in which they were made
Key: TypeAlias = tuple[str, int]  # a barrier: name of its array, index
LEAST_WORK = 8  # cycles (of the cost table) below which a piece of code isn't worth a box


class Moment(NamedTuple):
    """One stamp: where, at which barrier of an array, when (cycles since the CTA's first stamp)."""

    site: Site
    barrier: int
    time: float


class Copy(NamedTuple):
    """A copy that was issued for a phase of a barrier."""

    op: Op
    start: float
    barrier: Key
    phase: int


def stamp_cost(agents: Sequence[Records]) -> int:
    """Cycles from one stamp to the next with nothing in between: every task starts with two."""
    gaps = [(int(r[1, 1]) - int(r[0, 1])) % (1 << 32) for r in agents if len(r) > 1]
    return min(gaps, default=0)


def events_of(
    func: Func,
    sites: Sequence[Site],
    records: Sequence[Sequence[Records]],
    cost: CostTable,
    program: int = 0,
) -> SimReport:
    """The events of one program.

    func: the stamped function.  records: of each CTA of the program and each of its agents (the order of
    `task.agents`).  Every CTA's clock starts at 0 with its first stamp.
    """
    names, report = _Names(func), SimReport(programs=1)
    work = {id(site): _heaviest(site.work, cost) for site in sites}
    rows = task.agents(func)
    replicated = {name for name, r in rows if r > 0}
    for rank, agents in enumerate(records):
        names.of = f" of CTA {rank}" if len(records) > 1 else ""
        spent = stamp_cost(agents)
        first = [r[0, 1] for r in agents if len(r)]
        walks = []
        for (name, replica), r in zip(rows, agents, strict=True):
            if len(r):
                label = (f"{name}[{replica}]" if name in replicated else name) + names.of
                one = _Agent(label, program, names, spent, cost)
                one.walk(_moments(sites, r, first), work)
                walks.append(one)
        for one in walks:
            report.events += [*one.events, *one.arrivals([w.arrived for w in walks])]
            report.cycles = max(report.cycles, one.end)
    report.events.sort(key=lambda e: e.start)
    return report


def _moments(sites: Sequence[Site], records: Records, first: Sequence[Any]) -> list[Moment]:
    """Times since the earliest of the agents' first stamps; the clock has 32 bits and wraps."""
    half = 1 << 31  # the agents of a CTA start together, compared with the clock's period
    origin = min(first, key=lambda t: (int(t) - int(first[0]) + half) % (2 * half))
    clock = np.concatenate([[origin], records[:, 1]]).astype(np.uint32)
    times = np.cumsum(np.diff(clock).astype(np.int64))
    return [
        Moment(sites[(int(what) & 0xFFFF) - 1], int(what) >> 16, float(t))
        for what, t in zip(records[:, 0], times, strict=True)
    ]


class _Groups:
    """Copies of an agent in groups: those of the open one, and the groups under way."""

    def __init__(self) -> None:
        self.open: list[tuple[Op, float]] = []
        self.closed: list[list[tuple[Op, float]]] = []

    def commit(self) -> None:
        self.closed.append(self.open)
        self.open = []

    def waited(self, pending: int) -> list[tuple[Op, float]]:
        """The copies that a wait covers."""
        done = max(0, len(self.closed) - pending)
        over = [copy for group in self.closed[:done] for copy in group]
        del self.closed[:done]
        return over


class _Agent:
    """What one agent's stamps say.  spent: cycles of a stamp."""

    def __init__(
        self, label: str, program: int, names: _Names, spent: float, cost: CostTable
    ) -> None:
        self.label, self.program, self.names = label, program, names
        self.spent, self.cost = spent, cost
        self.events: list[Event] = []
        self.arrived: dict[Key, list[float]] = {}  # when it knew of each phase of a barrier
        self.copies: list[Copy] = []
        self.phases: dict[Key, int] = {}  # how many it has opened
        self.pieces = _Groups()  # cp.asyncs; the open ones are those that no arrival follows yet
        self.product: tuple[Op, float] | None = None  # the first of the open group
        self.groups: list[tuple[Op, float]] = []  # in flight
        self.stores = _Groups()
        self.tensor_until = self.begun = self.end = 0.0

    def walk(self, moments: Sequence[Moment], work: Mapping[int, tuple[str, Op] | None]) -> None:
        """Reads all its stamps in order.  work: what each site's agent computes after it."""
        for before, now in pairwise(moments):
            site, t = now.site, now.time
            start = max(before.time, t - self.cost.sync) if site.role == "done" else t
            computed = work[id(before.site)]
            if computed is not None:
                self._emit(*computed, before.time, start)
            if site.op is not None:
                key = self.names.barrier(site.op, now.barrier)
                match site.role:
                    case "begin":
                        self.begun = t
                    case "end":
                        over = self._over(t)
                        self._emit(
                            "wait",
                            site.op,
                            self.begun,
                            over,
                            self.names.cause(site.op, now.barrier),
                        )
                        self._waited(site.op, key, over)
                    case "issue":
                        self._issued(site.op, key, t)
                    case "done":
                        self._emit(
                            "sync", site.op, start, t, self.names.cause(site.op, now.barrier)
                        )
                        self._signalled(site.op, key, start)
        self.end = moments[-1].time

    def _over(self, t: float) -> float:
        """When what it waited for happened, if it went on at t; the begin of a wait that only passed."""
        took = t - self.begun - self.spent
        if took <= self.cost.sync:
            return self.begun
        return self.begun + max(0.0, took - self.cost.wake)

    def arrivals(self, everyone: Sequence[Mapping[Key, list[float]]]) -> list[Event]:
        """Its copies, those of a phase together, until the first that waits for the phase knows of it."""
        phases: dict[tuple[Key, int], list[Copy]] = {}
        for c in self.copies:
            phases.setdefault((c.barrier, c.phase), []).append(c)
        found = []
        for (key, phase), copies in phases.items():
            start = copies[0].start
            times = [seen[key] for seen in everyone if key in seen]
            end = min((t[phase] for t in times if len(t) > phase), default=start)
            names = ", ".join(dict.fromkeys(name_of(c.op) for c in copies))
            event = Event(self.program, self.label, "tma", names, start, max(end, start + 1))
            found.append(event)
        return found

    def _waited(self, o: Op, key: Key, over: float) -> None:
        if o.kind is mbarrier.mbarrier_wait:
            self.arrived.setdefault(key, []).append(over)
        elif o.kind is mma.wgmma_wait:
            done = max(0, len(self.groups) - o.attrs["pending"])
            for product, start in self.groups[:done]:
                start = max(start, self.tensor_until)
                self._emit("tensor", product, start, max(over, start + 1))
            if done:
                self.tensor_until = max(self.tensor_until, over)
            del self.groups[:done]
        elif o.kind in (tma.tma_store_wait, smem.cp_async_wait):
            groups = self.stores if o.kind is tma.tma_store_wait else self.pieces
            for copy, start in groups.waited(o.attrs["pending"]):
                self._emit("tma", copy, start, max(over, start + 1))

    def _issued(self, o: Op, key: Key, t: float) -> None:
        if o.kind is tma.tma_load:  # its bytes were expected before
            self.copies.append(Copy(o, t, key, max(0, self.phases.get(key, 0) - 1)))
        elif o.kind is tma.tma_store:
            self.stores.open.append((o, t))
        elif o.kind is smem.cp_async:
            self.pieces.open.append((o, t))
        elif self.product is None:
            self.product = o, t

    def _signalled(self, o: Op, key: Key, start: float) -> None:
        if o.kind is mma.wgmma_commit:
            if self.product is not None:  # the tensor cores take no more than they can queue
                self._emit("wait", self.product[0], self.product[1], start, "wgmma issue")
            self.groups += [] if self.product is None else [self.product]
            self.product = None
        elif o.kind is tma.tma_store_commit:
            self.stores.commit()
        elif o.kind is smem.cp_async_commit:
            self.pieces.commit()
        elif o.kind in (mbarrier.mbarrier_expect, mbarrier.cp_async_arrive):
            phase = self.phases.get(key, 0)
            self.phases[key] = phase + 1
            if o.kind is mbarrier.cp_async_arrive:
                self.copies += [Copy(c, start, key, phase) for c, start in self.pieces.open]
                self.pieces.open.clear()

    def _emit(self, unit: str, o: Op, start: float, end: float, cause: str = "") -> None:
        if end > start:
            self.events.append(self._event(unit, o, start, end, cause))

    def _event(self, unit: str, o: Op, start: float, end: float, cause: str = "") -> Event:
        return Event(self.program, self.label, unit, name_of(o), start, end, cause)


class _Names:
    """What ops wait for and signal, in the simulator's words.  `of`: " of CTA 1" in a cluster."""

    def __init__(self, func: Func) -> None:
        self.made = {v: o for o in walk(func.body) for v in o.results}
        self.of = ""

    def barrier(self, o: Op, index: int) -> Key:
        """The mbarrier that an op is about; ("", 0) where it is about none."""
        made = self._array(o)
        return ("", 0) if made is None else (made.attrs["name"], index)

    def cause(self, o: Op, index: int) -> str:
        made = self._array(o)
        if made is not None:
            name = made.attrs["name"]
            return (f"{name}[{index}]" if made.attrs["n"] > 1 else name) + self.of
        match o.kind:
            case mma.wgmma_wait | mma.wgmma_commit:
                return "wgmma"
            case tma.tma_store_wait | tma.tma_store_commit:
                return "stores"
            case smem.cp_async_wait | smem.cp_async_commit:
                return "copies"
            case smem.named_barrier:
                return f"named barrier {o.attrs['id'] + index}{self.of}"
            case smem.group_sync:
                scope = o.attrs["scope"]
                return f"the barrier of the {'CTA' if scope == 'cta' else scope}{self.of}"
        return "cluster"

    def _array(self, o: Op) -> Op | None:
        """The mbarrier_alloc of an op's barriers, those of a peer included."""
        for v in o.operands:
            if isinstance(v.type, Barriers):
                made = self.made[v]
                while made.kind is not mbarrier.mbarrier_alloc:
                    made = self.made[made.operands[0]]
                return made
        return None


# ---- what was computed between two stamps


def _heaviest(ops: Sequence[Op], cost: CostTable) -> tuple[str, Op] | None:
    """(unit, op) of the op that takes most of a piece of code; None where it is all small."""
    costs = [(*_cost(o, cost), o) for o in ops]
    if sum(cycles for _, cycles, _ in costs) < LEAST_WORK:
        return None
    unit, _, o = max(costs, key=lambda c: c[1])
    return unit, o


def _cost(o: Op, cost: CostTable) -> tuple[str, float]:
    if o.kind in (smem.shared_load, smem.shared_store, *smem.BY_ELEMENT):
        s = o.operands[0].typed(Shared)
        return "shared", s.tile_bytes / cost.shared_bytes
    if o.kind is mma.fma:
        k = o.operands[0].typed(Shared).shape[-1]
        return "alu", o.result.typed(Tile).size * k / cost.alu_lanes
    if o.accesses:
        return "memory", float(cost.tma_latency)
    is_tile = any(isinstance(v.type, Tile) for v in (*o.results, *o.operands))
    if o.computes and is_tile:
        return elementwise(cost, o)
    return "alu", 0.0
