"""How far a task's accesses to shared memory are over, at each place where it writes there (part of
shared_reuse.py).

One walk along the task, loops until nothing changes.  A product is running until wgmma_wait, a store by TMA
until its group was read, a group of cp.asyncs until it was waited for: then they are over for the warps that
waited.  A group_sync makes that the replica, or the task.  Copies that complete on an mbarrier leave no mark:
phase_counts.py tells of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeAlias

from warploom.analysis.phase_counts import Task
from warploom.ir import engines
from warploom.ir.core import Op, OpKind, Region, Value
from warploom.ir.ops import control, mbarrier, mma, smem, task
from warploom.ir.types import Shared


class Over(IntEnum):
    """How far an access is over: running, for its own warps, for its replica, for its task."""

    RUNNING = 0
    WARPS = 1
    REPLICA = 2
    TASK = 3


Mark: TypeAlias = tuple[Over, bool]  # with: is it ordered before the async proxy?

_READS = frozenset((smem.shared_load, smem.shared_get, mma.fma))
_WRITES = frozenset((smem.shared_store, smem.shared_put, smem.exchange, *smem.BY_ELEMENT))
_KNOWN = _READS | _WRITES | engines.FILLS | frozenset(engines.ISSUED)


@dataclass
class _State:
    """What is known at a point of a task.

    marks, writes: of each allocation's accesses but copies into it, and of its ordinary writes.  queues: what
    the groups of products and stores read, the open group first.  published: the barriers that were arrived
    at since its last access."""

    marks: dict[Op, frozenset[Mark]] = field(default_factory=dict)
    writes: dict[Op, frozenset[Mark]] = field(default_factory=dict)
    queues: dict[str, tuple[frozenset[Op], ...]] = field(default_factory=dict)
    published: dict[Op, frozenset[Value]] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.marks), dict(self.writes), dict(self.queues), dict(self.published))

    def joined(self, other: _State) -> _State:
        """What is known where either may have been."""
        marks, writes = (
            {x: a.get(x, frozenset()) | b.get(x, frozenset()) for x in {**a, **b}}
            for a, b in ((self.marks, other.marks), (self.writes, other.writes))
        )
        queues = {
            name: tuple(a | b for a, b in zip(self.queues[name], other.queues[name], strict=True))
            for name in self.queues
        }
        published = {**self.published, **other.published}
        for x in self.published.keys() & other.published.keys():
            published[x] = self.published[x] & other.published[x]
        return _State(marks, writes, queues, published)

    def change(self, raised: Iterable[tuple[Mark, Mark]]) -> None:
        to = dict(raised)
        self.marks, self.writes = (
            {
                x: ms if ms.isdisjoint(to) else frozenset(to.get(m, m) for m in ms)
                for x, ms in of.items()
            }
            for of in (self.marks, self.writes)
        )


@dataclass(eq=False)
class TaskScan:
    """Walks through a task.

    before_write: for each allocation that it writes, how far the accesses of each other one were over;
    rewritten, read: how far its own earlier accesses were when it was written, its writes when it was read;
    accessed_before: what was accessed before it; before_wait: the same for barriers that it waits for; fills:
    the barriers that tell of copies into it; signalled: cp_asyncs that they tell of; accessed: its places
    that ops take; ordinary: the kinds of ordinary instructions that touch it."""

    task: Task
    roots: dict[Value, Op]
    before_write: dict[Op, dict[Op, set[Mark]]] = field(default_factory=dict)
    rewritten: dict[Op, set[Mark]] = field(default_factory=dict)
    read: dict[Op, set[Mark]] = field(default_factory=dict)
    accessed_before: dict[Op, set[Op]] = field(default_factory=dict)
    before_wait: dict[Value, set[Op]] = field(default_factory=dict)
    fills: dict[Op, dict[Value, Op]] = field(default_factory=dict)
    accessed: dict[Op, dict[Value, None]] = field(default_factory=dict)
    ordinary: dict[Op, set[OpKind]] = field(default_factory=dict)
    signalled: set[Op] = field(default_factory=set)
    unknown: set[Op] = field(default_factory=set)
    end: _State = field(default_factory=_State)

    def is_ordinary(self, x: Op) -> bool:
        """Do ordinary instructions touch x?"""
        return x in self.ordinary

    def is_filled_by_tma(self, x: Op) -> bool:
        return any(o.kind in engines.COPIES_BOXES for o in self.fills.get(x, {}).values())

    def run(self, r: Region) -> None:
        waits = {
            name: max((o.attrs["pending"] for o in r.all_ops if o.kind is kind), default=0)
            for kind, name in engines.WAITED.items()
        }
        start = _State(queues={name: (frozenset(),) * (n + 2) for name, n in waits.items()})
        self.end = self.region(r, start, False)

    def region(self, r: Region, state: _State, elected: bool) -> _State:
        for i, o in enumerate(r.ops):
            if o.kind in engines.COPIES_PIECES:
                tells = [x for x in r.ops[i:] if x.kind in engines.TELLS_OF_PIECES]
                if tells:
                    self.fills.setdefault(self.roots[o.operands[1]], {})[tells[0].operands[0]] = o
                    self.signalled.add(o)
            state = self.op(o, state, elected)
        return state

    def op(self, o: Op, state: _State, elected: bool) -> _State:
        if o.kind in control.LOOPS:
            return self.loop(o, state, elected)
        if o.kind is control.if_:
            arms = [self.region(r, state.copy(), elected) for r in o.regions]
            return arms[0].joined(arms[1])
        for r in o.regions:
            state = self.region(r, state, elected or o.kind is task.elect)
        if o.kind in (smem.group_sync, smem.fence_async, mbarrier.mbarrier_arrive):
            self.order(o, state, elected)
        elif o.kind is mbarrier.mbarrier_wait:
            self.before_wait.setdefault(o.operands[0], set()).update(state.marks)
        elif o.kind in engines.CLOSED:
            *young, old, oldest = state.queues[engines.CLOSED[o.kind]]
            state.queues[engines.CLOSED[o.kind]] = (frozenset(), *young, old | oldest)
        elif o.kind in engines.WAITED:
            self.wait(o, state)
        elif o.kind not in smem.PARTS:
            self.access(o, state)
        return state

    def loop(self, o: Op, state: _State, elected: bool) -> _State:
        while True:
            after = state.copy()
            for r in o.regions:
                after = self.region(r, after, elected)
            joined = state.joined(after)
            if joined == state:
                return state
            state = joined

    def order(self, o: Op, state: _State, elected: bool) -> None:
        """A barrier of threads, a fence, an arrival."""
        if o.kind is smem.group_sync:
            self.synced(state, o.attrs["scope"] != "replica")
        elif o.kind is smem.fence_async and o.attrs.get("space", "shared") == "shared":
            least = Over.REPLICA if elected else Over.WARPS
            state.change(((over, False), (over, True)) for over in Over if over >= least)
        elif o.kind is mbarrier.mbarrier_arrive and o.attrs.get("sem", "release") == "release":
            alone = elected or o.attrs.get("by", "warp") == "one"
            least = Over.REPLICA if alone else Over.WARPS
            for x, marks in state.marks.items():
                if all(over >= least for over, _ in marks) and o.attrs.get("synced", True):
                    state.published[x] = state.published.get(x, frozenset()) | {o.operands[0]}

    def synced(self, state: _State, all_replicas: bool) -> None:
        whole = all_replicas or self.task.replicas == 1
        to = Over.TASK if whole else Over.REPLICA
        sources = (Over.WARPS, Over.REPLICA) if whole else (Over.WARPS,)
        state.change(((over, ok), (to, ok)) for over in sources for ok in (False, True))

    def wait(self, o: Op, state: _State) -> None:
        """What the groups read that it leaves is running; what older ones read is over for its warps."""
        name, kept = engines.WAITED[o.kind], o.attrs["pending"] + 1
        queue = state.queues[name]
        done = frozenset().union(*queue[kept:])
        state.queues[name] = (*queue[:kept], *(frozenset() for _ in queue[kept:]))
        running = frozenset().union(*(reads for q in state.queues.values() for reads in q))
        for x in done - running:
            marks = state.marks[x]
            state.marks[x] = frozenset((max(over, Over.WARPS), ok) for over, ok in marks)

    def access(self, o: Op, state: _State) -> None:
        """Takes down what an op does to the allocations among its operands."""
        for place in dict.fromkeys(v for v in o.operands if v in self.roots):
            x = self.roots[place]
            if o.kind not in _KNOWN or o.attrs.get("multicast") or _is_peers(place):
                self.unknown.add(x)  # who knows what the CTA in whose memory it lies is at?
            self.accessed.setdefault(x, {})[place] = None
            before = [y for y in state.marks if y is not x]
            self.accessed_before.setdefault(x, set()).update(before)
            if o.kind is smem.exchange and o.attrs.get("guarded"):
                self.synced(state, False)
            if o.kind not in _WRITES or o.kind in smem.BY_ELEMENT or o.kind is smem.exchange:
                self.read.setdefault(x, set()).update(state.writes.get(x, ()))
            if o.kind in _WRITES or o.kind in engines.FILLS:
                self.rewritten.setdefault(x, set()).update(state.marks.get(x, ()))
                found = self.before_write.setdefault(x, {})
                for y in before:
                    found.setdefault(y, set()).update(state.marks[y])
            if o.kind is smem.exchange:
                self.synced(state, False)
            state.published[x] = frozenset()
            marks = state.marks.get(x, frozenset())
            if o.kind not in engines.COPIES_BOXES and o.kind not in engines.READS_BY_ASYNC_PROXY:
                self.ordinary.setdefault(x, set()).add(o.kind)
            if o.kind in engines.COPIES_BOXES:
                self.fills.setdefault(x, {})[o.operands[2]] = o
            elif o.kind in engines.ISSUED and o not in self.signalled:
                first, *rest = state.queues[engines.ISSUED[o.kind]]
                state.queues[engines.ISSUED[o.kind]] = (first | {x}, *rest)
                marks |= {(Over.RUNNING, o.kind in engines.READS_BY_ASYNC_PROXY)}
            elif o not in self.signalled:
                marks |= {(Over.WARPS, False)}
                if o.kind in _WRITES:
                    state.writes[x] = state.writes.get(x, frozenset()) | {(Over.WARPS, False)}
            state.marks[x] = marks


def _is_peers(place: Value) -> bool:
    return isinstance(place.type, Shared) and place.type.peer


@dataclass(frozen=True)
class Fresh:
    """Is what is read of x and y what was written to the same place since the other one was written?"""

    roots: dict[Value, Op]
    x: Op
    y: Op

    def region(self, r: Region, fresh: frozenset[Value]) -> tuple[bool, frozenset[Value]]:
        """Is it so in a region, and which places are fresh after it?"""
        for o in r.ops:
            for inner in o.regions:
                is_loop = o.kind in control.LOOPS
                ok, after = self.region(inner, frozenset() if is_loop else fresh)
                if not ok:
                    return False, fresh
                fresh &= after
            for place in o.operands:
                root = self.roots.get(place)
                if root not in (self.x, self.y) or o.kind in smem.PARTS:
                    continue
                if o.kind in _WRITES:
                    fresh = frozenset(v for v in fresh if self.roots[v] is root) | {place}
                elif place not in fresh:
                    return False, fresh
        return True, fresh
