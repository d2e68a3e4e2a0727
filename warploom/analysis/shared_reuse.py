"""Which allocations of shared memory may lie in the same bytes: the accesses of one are over before the other
is written, by synchronisation that the program has anyway.

An access is over where its task has waited for it (a product until wgmma_wait, a store by TMA until its group
has been read, a copy until its mbarrier's phase), and for other threads after a barrier that they pass:

  - in a task: a group_sync of the replica, which counts for the replica's own bytes; one of the task for all;
  - from task to task: mbarriers, where the later task waits for every phase that the earlier one completes
    (phase_counts.py), the last of them after the access;
  - from phase to phase (`tasks` ops): the barrier of the CTA between.

Two relations follow.  Either y comes after x: x is never touched again once y is written.  Or one task uses
both alternately, in loops too: each time one is written, the other's accesses are over, and what is read of
either was written since.  A ring that runs ahead over tiles is never over: its producer waits for nobody who
reads the others.

Of y only the writes are asked for: who reads it reads what was written, and comes after that.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TypeAlias

from warploom.analysis.phase_counts import PhaseCounts, Task
from warploom.analysis.shared_accesses import Fresh, Over, TaskScan
from warploom.errors import InternalError
from warploom.ir.analysis import definitions
from warploom.ir.build import constant_of
from warploom.ir.core import Func, Op, Value
from warploom.ir.ops import mma, smem, task
from warploom.ir.types import Shared
from warploom.layout.shared import Geometry

Span: TypeAlias = tuple[int, int]  # bytes [first, end)


class SharedReuse:
    """What of a function's shared memory may lie in the same bytes.  Allocations go by their first of a name:
    aliases are one with what they name."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.made_by = definitions(func.body)
        self.roots = roots_of(func)
        self.counts = PhaseCounts(func)
        self.scans = {t: TaskScan(t, self.roots) for t in self.counts.tasks}
        for t, scan in self.scans.items():
            scan.run(t.region)
        self.unknown = {x for scan in self.scans.values() for x in scan.unknown}
        self.known: dict[tuple[Op, Op], Over | None] = {}

    def after(self, x: Op, y: Op) -> Over | None:
        """May y take the bytes of x?  TASK: any; REPLICA: those that the same replica used; None: none."""
        if (x, y) not in self.known:
            found = None
            if x is not y and not {x, y} & self.unknown:
                found = self._follows(x, y)
                if found is None and self._follows(y, x) is None:
                    found = self._alternate(x, y)
            self.known[x, y] = found
        return self.known[x, y]

    def fits(self, x: Op, y: Op, distance: int) -> bool:
        """May y take the bytes of x, if it begins so many bytes after x?"""
        found = self.after(x, y)
        return found is Over.TASK or (found is Over.REPLICA and not self._crosses(x, y, distance))

    def _using(self, x: Op) -> list[Task]:
        return [t for t, scan in self.scans.items() if x in scan.accessed]

    def _follows(self, x: Op, y: Op) -> Over | None:
        writers = [t for t, scan in self.scans.items() if y in scan.before_write]
        users = self._using(x)
        if not users or not writers:
            return None
        least = Over.TASK
        for s, t in product(users, writers):
            found = self._ordered(s, x, t, y)
            if found is None:
                return None
            least = min(least, found)
        return least

    def _ordered(self, s: Task, x: Op, t: Task, y: Op) -> Over | None:
        """Are all accesses of x by s over, when t first writes y?"""
        here, there = self.scans[s], self.scans[t]
        fills = here.fills.get(x, {})
        fenced = not there.is_filled_by_tma(y) or not here.is_ordinary(x)
        if s.phase > t.phase or (s is t and y in here.accessed_before.get(x, ())):
            return None
        if s.phase < t.phase:
            marks = here.end.marks[x]
            others = [u for u in self.counts.tasks if u.phase < t.phase]
            awaited = all(any(self.counts.awaited(u, s, b) for u in others) for b in fills)
            is_over = all(over > Over.RUNNING and (fenced or ok) for over, ok in marks)
            return Over.TASK if awaited and is_over else None
        if not all(self._awaited(t, y, s, b) for b in fills):
            return None
        if s is t:
            marks = frozenset(there.before_write[y].get(x, ()))
            if not all(over >= Over.REPLICA and (fenced or ok) for over, ok in marks):
                return None
            return min((over for over, _ in marks), default=Over.TASK)
        if fills:
            return Over.TASK if fenced and not here.end.marks[x] else None
        if here.is_ordinary(x) and not self._is_handed_on(s, x):
            return None
        published = here.end.published[x]
        ok = fenced and any(self._awaited(t, y, s, b) for b in published)
        return Over.TASK if ok else None

    def _is_handed_on(self, s: Task, x: Op) -> bool:
        """Do arrivals of s release its ordinary accesses to x?  They do where other tasks touch x, too; none
        shall wait for its warp's lanes for the sake of bytes (place_warp_syncs)."""
        others = any(x in scan.accessed for t, scan in self.scans.items() if t is not s)
        return others and self.scans[s].ordinary[x] <= {
            smem.shared_load,
            smem.shared_store,
            mma.fma,
        }

    def _awaited(self, t: Task, y: Op, s: Task, barrier: Value) -> bool:
        """Has t waited for all phases that s completes, before it writes y?"""
        early = y not in self.scans[t].before_wait.get(barrier, ())
        return early and self.counts.awaited(t, s, barrier)

    def _alternate(self, x: Op, y: Op) -> Over | None:
        """The same of two that one task uses alternately."""
        users = self._using(x)
        if len(users) != 1 or users != self._using(y):
            return None
        scan = self.scans[users[0]]
        if scan.fills.keys() & {x, y} or not {x, y} <= scan.before_write.keys():
            return None
        marks = {*scan.before_write[y].get(x, ()), *scan.before_write[x].get(y, ())}
        if any(over < Over.REPLICA for over, _ in marks):
            return None
        if not Fresh(self.roots, x, y).region(users[0].region, frozenset())[0]:
            return None
        return min((over for over, _ in marks), default=Over.TASK)

    def _crosses(self, x: Op, y: Op, distance: int) -> bool:
        """Does a replica write bytes of y where another one has bytes of x?"""
        for t in self._using(x):
            if y not in self.scans[t].before_write:
                continue
            for r, other in product(range(t.replicas), repeat=2):
                if r != other and _meet(
                    self._spans(x, t, r),
                    [(a + distance, b + distance) for a, b in self._spans(y, t, other)],
                ):
                    return True
        return False

    def _spans(self, x: Op, t: Task, replica: int) -> list[Span]:
        """The bytes of x that a replica touches."""
        found: set[Span] = set()
        for place in self.scans[t].accessed[x]:
            found |= _spans(place, self.made_by, replica)
        return sorted(found)


def roots_of(func: Func) -> dict[Value, Op]:
    """For each value that is shared memory the allocation that it is a part of, or an alias of."""
    allocations = [o for o in func.body.ops if o.kind is smem.shared_alloc]
    named = {o.attrs["name"]: o for o in allocations}
    found: dict[Value, Op] = {}
    for o in allocations:
        chain = [o]
        while (name := chain[-1].attrs.get("alias")) is not None:
            if named[name] in chain:
                raise InternalError(f"shared_reuse: {o.attrs['name']} is an alias of itself")
            chain.append(named[name])
        found[o.result] = chain[-1]
    for o in func.body.all_ops:
        if o.operands and o.operands[0] in found and o.kind is not smem.shared_alloc:
            found.update((v, found[o.operands[0]]) for v in o.results if isinstance(v.type, Shared))
    return found


# ---- bytes


def _spans(place: Value, made_by: dict[Value, Op], replica: int) -> set[Span]:
    """The bytes, from the allocation's first, that a view may take in one replica: of slots and parts with
    other indices than constants and the replica's number, all that they may be."""
    chain: list[Op] = []
    while made_by[place].kind is not smem.shared_alloc:
        chain.insert(0, made_by[place])
        place = made_by[place].operands[0]
    t = place.typed(Shared)
    inside = [(0, t.slot_bytes)]
    chosen = set(range(prod(t.lead)))

    def known(v: Value) -> int | None:
        o = made_by.get(v)
        if o is not None and o.kind is task.replica_id:
            return replica
        found = constant_of(o)
        return None if found is None else int(found)

    if chain and chain[0].kind is smem.shared_slot:
        axes = [known(v) for v in chain.pop(0).operands[1:]]
        options = [range(n) if i is None else (i,) for i, n in zip(axes, t.lead, strict=True)]
        chosen = set()
        for at in product(*options):
            number = 0
            for i, n in zip(at, t.lead, strict=True):
                number = number * n + i
            chosen.add(number)
    if chain and chain[0].kind is smem.shared_slice:
        inside = _part(t, chain[0], [known(v) for v in chain[0].operands[1:]])
    return {(n * t.slot_bytes + a, n * t.slot_bytes + b) for n in chosen for a, b in inside}


def _part(t: Shared, o: Op, block: list[int | None]) -> list[Span]:
    """The bytes of a slice of a slot: rows of its first axis in each panel, or whole panels."""
    g, shape = Geometry(t.box, t.dtype.bytes, t.inner, t.swizzle), o.attrs["shape"]
    panels = range(g.bytes // g.panel_bytes)
    rows = range(g.rows)
    outer = next((a for a in range(len(t.box)) if a != t.inner), None)
    for axis, (n, at) in enumerate(zip(shape, block, strict=True)):
        if at is None or n == t.box[axis]:
            continue
        if axis == t.inner and n % g.row_elements == 0:
            first = at * n // g.row_elements
            panels = range(first, first + n // g.row_elements)
        elif axis == outer:
            stride = g.row_strides[axis]
            rows = range(at * n * stride, (at + 1) * n * stride)
    size, base = g.row_bytes, g.panel_bytes
    return [(p * base + rows.start * size, p * base + rows.stop * size) for p in panels]


def _meet(some: list[Span], others: list[Span]) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)
