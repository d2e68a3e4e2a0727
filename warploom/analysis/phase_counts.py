"""Does a task wait for every phase that another one completes?  Counted in the text, for all trip counts.

The k-th wait for a slot of a ring can't return before the k-th phase of its mbarrier is complete, where the
waits begin with slot 0 and parity 0 and go on by `ring_next`.  So a task that waits as often as another one
completes phases has seen them all.  How often is compared as a tree: the loops and ifs around the waits of
the one must be those around the arrivals of the other, with bounds and conditions computed from the same
numbers.

    producer:  for(0, n, 1, 0, 0) do (i, slot, phase) { … mbarrier_expect(full, slot) … ring_next }
    consumer:  for(0, n, 1, 0, 0) do (i, slot, phase) { mbarrier_wait(full, slot, phase) … ring_next }

A loop that runs ahead (the first D before the loop, the others in it under `if(i + D < n)`) counts as the
plain loop.  What is not of this form is not counted: the answer is no.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from warploom.ir import engines
from warploom.ir.core import Effect, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, mbarrier, task
from warploom.ir.types import Tile

Number: TypeAlias = tuple[Any, ...]  # what a scalar is computed from; equal ones are equal
Tree: TypeAlias = tuple[Any, ...]  # of events, loops and ifs, in order

_ARRIVALS = engines.TELLS_OF_PIECES | {mbarrier.mbarrier_arrive, mbarrier.mbarrier_expect}
_USES = engines.COPIES_BOXES | _ARRIVALS | {mbarrier.mbarrier_wait}
_EVENTS = _ARRIVALS | {mbarrier.mbarrier_wait}
_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "minimum": min,
    "maximum": max,
}
_ZERO: Number = ("const", 0)
_EVENT: Tree = ("event",)


class Task(NamedTuple):
    """A region of a `tasks` op.  phase: the number of that op."""

    phase: int
    name: str
    warps: int
    replicas: int
    region: Region


def tasks_of(func: Func) -> tuple[Task, ...]:
    """Every task of a function at WARP or PLACED, phase after phase."""
    return tuple(
        Task(i, *row)
        for i, o in enumerate(task.phases(func))
        for row in zip(
            o.attrs["names"], o.attrs["warps"], o.attrs["replicas"], o.regions, strict=True
        )
    )


class _Uncounted(Exception):
    """The events are not of a form that is counted here."""


@dataclass(frozen=True)
class _Cursor:
    """The slot and the parity whose turn it is, by all numbers that are known to be equal to them.

    seen: how many of the slot's arrivals came already."""

    slot: frozenset[Number] = frozenset((_ZERO,))
    phase: frozenset[Number] = frozenset((_ZERO,))
    seen: int = 0


class PhaseCounts:
    """Counts phases of the mbarriers of a function."""

    def __init__(self, func: Func) -> None:
        self.tasks = tasks_of(func)
        self.numbers = _Numbers(func)
        self.users: dict[Value, list[tuple[Task, Op]]] = {}
        for t in self.tasks:
            for o in walk(t.region):
                for v in o.operands:
                    self.users.setdefault(v, []).append((t, o))
        self.counts = {
            o.result: int(o.attrs["count"])
            for o in func.body.ops
            if o.kind is mbarrier.mbarrier_alloc
        }
        self.known: dict[tuple[Task, Task, Value], bool] = {}
        self.places = _Places(func.body)

    def awaited(self, by: Task, of: Task, barrier: Value) -> bool:
        """Has every thread of `by`, when it ends, waited for all phases of the barriers, which only `of`
        completes?"""
        key = by, of, barrier
        if key not in self.known:
            self.known[key] = self._compared(*key)
        return self.known[key]

    def _compared(self, by: Task, of: Task, barrier: Value) -> bool:
        users = self.users.get(barrier, [])
        if any(o.kind not in _USES or o.attrs.get("multicast") for _, o in users):
            return False
        arrivals = [(t, o) for t, o in users if o.kind in _ARRIVALS]
        waits = [o for t, o in users if t is by and o.kind is mbarrier.mbarrier_wait]
        full, rest = divmod(self.counts.get(barrier, 0), of.replicas)
        if not waits or rest or any(t is not of for t, _ in arrivals):
            return False
        try:
            completed = self._tree(_Events(barrier, of, full, False, self.numbers, self.places))
            waited = self._tree(_Events(barrier, by, full, True, self.numbers, self.places))
        except _Uncounted:
            return False
        return _plain(completed) == waited

    def _tree(self, events: _Events) -> Tree:
        tree, end = events.of(events.task.region, _Cursor(), False)
        if end.seen not in (0, events.full):
            raise _Uncounted
        return tree


@dataclass(frozen=True)
class _Events:
    """Finds a task's arrivals at a ring's barriers, or its waits for them.  full: arrivals of a replica that
    make a phase."""

    barrier: Value
    task: Task
    full: int
    waits: bool
    numbers: _Numbers
    places: _Places

    def weight(self, o: Op, elected: bool) -> int:
        """As how many arrivals an op counts; 0 for one that is no event."""
        if not o.operands or o.operands[0] is not self.barrier:
            return 0
        if o.kind is mbarrier.mbarrier_wait:
            if self.waits and (elected or o.attrs.get("sem", "acquire") != "acquire"):
                raise _Uncounted
            return self.full if self.waits else 0
        if self.waits or o.kind not in _ARRIVALS:
            return 0
        if len(o.operands) > 2:
            raise _Uncounted  # at other CTAs' barriers
        if elected or o.kind is mbarrier.mbarrier_expect:
            each = 1
        elif o.kind in engines.TELLS_OF_PIECES:
            each = self.numbers.func.target.warp_size * self.task.warps
        else:
            threads = self.numbers.func.target.warp_size * self.task.warps
            each = {"thread": threads, "warp": self.task.warps, "one": 1}[o.attrs.get("by", "warp")]
        return each * int(o.attrs.get("count", 1))

    def of(self, r: Region, at: _Cursor, elected: bool) -> tuple[Tree, _Cursor]:
        """The events of a region, and the cursor after it."""
        tree: list[Tree] = []
        here = self.barrier, self.waits
        for o in self.places.of[r]:
            if weight := self.weight(o, elected):
                at = self.event(o, at, weight, tree)
            elif o.kind is task.ring_next:
                at = self.moved(o, at)
            elif o.regions and here in self.places.events[o]:
                if o.kind is control.for_:
                    found, at = self.loop(o, at, elected)
                elif o.kind is control.if_:
                    found, at = self.either(o, at, elected)
                elif o.kind is task.elect:
                    inner, at = self.of(o.regions[0], at, True)
                    tree += inner
                    continue
                else:
                    raise _Uncounted
                tree.append(found)
        return tuple(tree), at

    def first(self, r: Region, at: _Cursor) -> Op | None:
        """The event that a region begins with, where the cursor is known to be still the same there."""
        for o in self.places.of[r]:
            if o.kind is task.ring_next and at.seen == self.full:
                break
            if (self.barrier, self.waits) in self.places.events[o]:
                if not o.regions:
                    return o
                arms = o.regions if o.kind in (control.if_, task.elect) else ()
                return next(filter(None, (self.first(arm, at) for arm in arms)), None)
        return None

    def candidates(
        self, loop: Op, at: _Cursor, known: frozenset[Number], operand: int
    ) -> list[control.Carried | None]:
        """Which of its carried values a loop may have the slot in, or the parity; None: in none.  Only those
        for which its first event is right are tried, as all pairs of them are many where loops have rings."""
        carried = control.carried(loop)
        found = [None, *(c for c in carried if self.numbers[c.init[0]] in known)]
        first = self.first(loop.regions[0], at)
        if first is None or (operand == 2 and not self.waits):
            return found
        named = self.numbers[first.operands[operand]]
        return [c for c in found if named in (known if c is None else (self.numbers[c.params[0]],))]

    def event(self, o: Op, at: _Cursor, weight: int, tree: list[Tree]) -> _Cursor:
        right = self.numbers[o.operands[1]] in at.slot
        if self.waits:
            right = right and self.numbers[o.operands[2]] in at.phase
        if not right:
            raise _Uncounted
        if not at.seen:
            tree.append(_EVENT)
        return replace(at, seen=self.full if self.waits else at.seen + weight)

    def moved(self, o: Op, at: _Cursor) -> _Cursor:
        """The cursor after a ring_next, which may be another ring's."""
        slot, phase = (self.numbers[v] for v in o.operands)
        n = self.barrier.type.n  # type: ignore[attr-defined]
        if slot not in at.slot or phase not in at.phase or at.seen != self.full:
            return at
        if o.attrs["depth"] != n:
            return at
        slots, phases = (frozenset((self.numbers[v],)) for v in o.results)
        return _Cursor(slots, phases)

    def loop(self, o: Op, at: _Cursor, elected: bool) -> tuple[Tree, _Cursor]:
        """A loop: one of its carried values is the slot, one the parity (or the slot is always the same)."""
        slots = self.candidates(o, at, at.slot, 1)
        phases = self.candidates(o, at, at.phase, 2)
        bodies: set[Tree] = set()
        ends: list[_Cursor] = []
        for s, p in product(slots, phases):
            start = replace(
                at,
                slot=frozenset((self.numbers[s.params[0]],)) if s else at.slot,
                phase=frozenset((self.numbers[p.params[0]],)) if p else at.phase,
            )
            try:
                tree, end = self.of(o.regions[0], start, elected)
            except _Uncounted:
                continue
            slot = {self.numbers[s.yielded[0]]} if s else at.slot
            phase = {self.numbers[p.yielded[0]]} if p else at.phase
            if end.seen != at.seen or not slot <= end.slot or not phase <= end.phase:
                continue
            bodies.add(tree)
            ends.append(
                replace(
                    at,
                    slot=frozenset((self.numbers[s.result],)) if s else at.slot,
                    phase=frozenset((self.numbers[p.result],)) if p else at.phase,
                )
            )
        if len(bodies) != 1:
            raise _Uncounted
        variable = self.numbers[o.regions[0].params[0]]
        return ("loop", variable, *bodies), _Cursor(
            frozenset().union(*(e.slot for e in ends)),
            frozenset().union(*(e.phase for e in ends)),
            at.seen,
        )

    def either(self, o: Op, at: _Cursor, elected: bool) -> tuple[Tree, _Cursor]:
        (one, left), (other, right) = (self.of(r, at, elected) for r in o.regions)
        if left.seen != right.seen:
            raise _Uncounted
        slot, phase = set(left.slot & right.slot), set(left.phase & right.phase)
        for c in control.carried(o):
            a, b = (self.numbers[v] for v in c.yielded)
            if a in left.slot and b in right.slot:
                slot.add(self.numbers[c.result])
            if a in left.phase and b in right.phase:
                phase.add(self.numbers[c.result])
        condition = self.numbers[o.operands[0]]
        return ("if", condition, one, other), _Cursor(frozenset(slot), frozenset(phase), left.seen)


class _Places:
    """Where mbarriers are used and cursors move on.

    of: the ops of each region that do so, also inside.  events: of these ops the barriers, their own or
    inside, and whether they are waited for."""

    def __init__(self, body: Region) -> None:
        self.of: dict[Region, tuple[Op, ...]] = {}
        self.events: dict[Op, set[tuple[Value, bool]]] = {}
        self._visit(body)

    def _visit(self, r: Region) -> set[tuple[Value, bool]]:
        ops: list[Op] = []
        found: set[tuple[Value, bool]] = set()
        for o in r.ops:
            events = set[tuple[Value, bool]]().union(*map(self._visit, o.regions))
            if o.kind in _EVENTS:
                events.add((o.operands[0], o.kind is mbarrier.mbarrier_wait))
            if events or o.kind is task.ring_next:
                ops.append(o)
                self.events[o] = events
            found |= events
        self.of[r] = tuple(ops)
        return found


@dataclass(eq=False)
class _Numbers:
    """What each scalar is computed from, down to arguments, blockIdx, loop variables; what memory or control
    flow gives stands for itself."""

    func: Func
    known: dict[Value, Number] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.visit(self.func.body, 0)

    def __getitem__(self, v: Value) -> Number:
        return self.known.get(v) or ("value", id(v))

    def visit(self, r: Region, depth: int) -> None:
        for o in r.ops:
            if o.kind is control.for_:
                bounds = tuple(self[v] for v in o.operands[:3])
                self.known[o.regions[0].params[0]] = ("variable", depth, *bounds)
            for inner in o.regions:
                self.visit(inner, depth + (o.kind in control.LOOPS))
            if o.regions or o.kind.effect is not Effect.NONE or o.kind is task.replica_id:
                continue
            if any(isinstance(v.type, Tile) for v in (*o.operands, *o.results)):
                continue
            made = self.made(o)
            for i, v in enumerate(o.results):
                self.known[v] = made if len(o.results) == 1 else (i, *made)

    def made(self, o: Op) -> Number:
        if o.kind is arith.const:
            return ("const", o.attrs["value"])
        operands = [self[v] for v in o.operands]
        name = o.kind.name
        if name in _FOLDED and all(n[0] == "const" for n in operands):
            return ("const", _FOLDED[name](*(n[1] for n in operands)))
        if name == "add" and _ZERO in operands:
            return operands[1 - operands.index(_ZERO)]
        return (name, repr(sorted(o.attrs.items())), *operands)


def _plain(tree: Tree) -> Tree:
    """The tree with loops that run ahead written as plain ones: their events are as many."""
    found: list[Tree] = []
    for p in tree:
        part = ("loop", p[1], _plain(p[2])) if p[0] == "loop" else p
        joined = _run_ahead(found[-1], part) if found else None
        found[len(found) - (joined is not None) :] = [joined or part]
    return tuple(found)


def _run_ahead(early: Tree, steady: Tree) -> Tree | None:
    """for(lo, min(hi, lo + D)) {E};  for(i from lo to hi) { if(i + D < hi) {E} } as for(lo, hi) {E}, D a
    multiple of the step."""
    if early[0] != "loop" or steady[0] != "loop":
        return None
    (*_, first, end, stride), (*_, lo, hi, step) = early[1], steady[1]
    body = steady[2]
    if (first, stride) != (lo, step) or len(body) != 1 or body[0][0] != "if":
        return None
    _, condition, ahead, other = body[0]
    if ahead != early[2] or other or condition[0] != "lt" or condition[3] != hi:
        return None
    if condition[2][0] != "add" or steady[1] not in condition[2][2:]:
        return None
    a, b = condition[2][2:]
    distance = b if a == steady[1] else a
    starts = {_sum(lo, distance), _sum(distance, lo)}
    if end[0] == "minimum":
        is_end = hi in end[2:] and not starts.isdisjoint(end[2:])
    else:  # all of them are known
        is_end = hi[0] == "const" and end in {
            ("const", min(hi[1], n[1])) for n in starts if n[0] == "const"
        }
    return ("loop", steady[1], ahead) if is_end and _is_multiple(distance, step) else None


def _sum(a: Number, b: Number) -> Number:
    if a[0] == b[0] == "const":
        return ("const", a[1] + b[1])
    if _ZERO in (a, b):
        return b if a == _ZERO else a
    return ("add", "[]", a, b)


def _is_multiple(distance: Number, step: Number) -> bool:
    """Is it known to be one of the step, and not negative?"""
    if distance[0] == step[0] == "const":
        return bool(step[1] > 0 and distance[1] >= 0 and distance[1] % step[1] == 0)
    if distance[0] != "mul" or step not in distance[2:]:
        return False
    a, b = distance[2:]
    factor = b if a == step else a
    return bool(factor[0] == "const" and factor[1] >= 0)
