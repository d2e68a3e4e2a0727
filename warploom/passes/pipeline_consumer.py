"""Overlap inside a consumer: dots of the next iteration in flight under this iteration's arithmetic.

Order: after pipeline_wgmma (which takes the loops whose dots don't wait for each other).

What `Schedule.overlaps` says of a loop is done to it: *late* dots, what they alone need and what depends
on them are stage 1, all else is stage 0.  One turn of the new loop does stage 0 of iteration i and stage 1 of
iteration i - 1:

before (in a loop):                    after:
  wait k;  s = a·k;  wgmma_wait 0        wait k;  s = a·k               issue, in flight
  release k                              wait v;  acc = acc + p'·v      issue, in flight; p' is carried
  p, α = arithmetic(s)                   wgmma_wait 1 → s;  release k
  wait v                                 p, α = arithmetic(s)           up to the place of the wait
  acc = acc·α + p·v;  wgmma_wait 0       wgmma_wait 0 → acc;  release v
  release v                              the rest of p;  acc = acc·α

The loop stands in `if lo < hi`, behind stage 0 of its first iteration and before stage 1 of its last.  Where
the plan names a branch that turns once (`split`), there are two such loops, one for each arm.

- A ring's slot is waited for in the stage that reads it first and released in the one that reads it last; a
  slot, or any value of stage 0 that stage 1 reads, is carried to the next turn.  Views, constants and splats
  are made again where they are read.
- What the late dots read from registers stays untouched until their wait, so its next value is made behind
  it.
- The place of the wait (`eighths`) counts columns of the largest tile that goes through the special function
  units: so many eighths of it are computed before the wait, and `hold` keeps the assembler from moving
  the wait up past them.
- With `ping_pong` the groups pass a turn: whoever has it issues its dots.  Group 0 begins, and has it again
  once all groups are through an iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import definitions, effects, free_values
from warploom.ir.core import Builder, Effect, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, hopper, task, tile
from warploom.ir.rewrite import Env, clone_op
from warploom.ir.types import Scalar, Shared, Tile
from warploom.passes.turns import ISSUE, Turns
from warploom.passes.wait_place import place_wait
from warploom.schedule.model import OverlapPlan, Schedule
from warploom.schedule.overlap import TurningPoint, turning_point
from warploom.target import Target

# Made again where they are read: they take no instruction, or no register that another place could spare.
_REMADE = frozenset(
    (arith.const, tile.splat, tile.expand_dims, tile.broadcast, tile.arange, hopper.no_acc)
) | frozenset((hopper.shared_slot, hopper.shared_slice, hopper.shared_transpose))
_AROUND_WGMMA = (hopper.wgmma_fence, hopper.wgmma_commit)


def pipeline_consumer(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    plans = {p.loop: p for p in schedule.overlaps}
    if not plans:
        return func
    ops = tuple(_tasks(o, plans) if o.kind is task.tasks else o for o in func.body.ops)
    return func.with_(body=Region(func.body.params, ops))


def _tasks(o: Op, plans: dict[str, OverlapPlan]) -> Op:
    regions = []
    for region, replicas in zip(o.regions, o.attrs["replicas"], strict=True):
        late = {d for p in plans.values() for d in p.late}
        if any(x.kind is hopper.wgmma and x.id in late for x in walk(region)):
            region = _Consumer(region, replicas, plans).region()
        regions.append(region)
    return o.with_(regions=tuple(regions))


class _Consumer:
    """The region of one task."""

    def __init__(self, region: Region, replicas: int, plans: dict[str, OverlapPlan]) -> None:
        self.old = region
        self.plans = plans
        self.turns = Turns.of(region, replicas, ISSUE)

    def region(self) -> Region:
        return self.turns.begin(self.rewritten(self.old))

    def rewritten(self, r: Region) -> Region:
        b = Builder()
        for o in r.ops:
            if o.regions:
                o = o.with_(regions=tuple(map(self.rewritten, o.regions)))
            plan = self.plans.get(o.id) if o.kind is control.for_ else None
            if plan is None:
                b.append(o)
            else:
                with b.at(o):
                    _Loop(o, plan, self.turns if plan.ping_pong else None).write(b)
        return Region(r.params, tuple(b.ops))


@dataclass(eq=False)
class _Ring:
    """What the body does with one slot: by the value that is its index."""

    waits: list[Op] = field(default_factory=list)  # and fences behind them
    readers: list[Op] = field(default_factory=list)
    releases: list[Op] = field(default_factory=list)
    steps: list[Op] = field(default_factory=list)


class _Loop:
    """One loop in two stages."""

    def __init__(self, o: Op, plan: OverlapPlan, turns: Turns | None) -> None:
        self.loop, self.plan, self.turns = o, plan, turns
        (self.old,) = o.regions
        self.made = definitions(Region((), self.old.ops))
        # A wgmma stands for its fence and commit as well; what is made again stands nowhere.
        self.ops = [
            x for x in self.old.ops[:-1] if x.kind not in _REMADE and x.kind not in _AROUND_WGMMA
        ]
        self.index = {x: i for i, x in enumerate(self.ops)}
        self.after = self.order_of_effects()
        self.stage = self.stages()
        carried = zip(self.old.params[1:], self.old.yielded, strict=True)
        self.ends = dict(carried)
        self.late_params = {p for p, v in self.ends.items() if self.stage_of(v) == 1}
        late = [v for o in self.ops if self.stage[o] == 1 for v in self.needs(o)]
        params = self.old.params[1:]
        self.kept = [p for p in params if p not in self.late_params]
        self.carried_late = [p for p in params if p in self.late_params and p in late]
        # Values of stage 0 that stage 1 reads a turn later.
        self.delayed = [
            v for v in dict.fromkeys(late) if v not in self.late_params and self.stage_of(v) == 0
        ]

    # ---- dependences

    def needs(self, o: Op) -> list[Value]:
        """What o reads of the body, through what is made again: results of `ops` and parameters."""
        found: dict[Value, None] = {}
        work = [*o.operands, *(v for r in o.regions for v in free_values(r))]
        params = set(self.old.params)
        while work:
            v = work.pop()
            maker = self.made.get(v)
            if maker is not None and maker.kind in _REMADE:
                work.extend(maker.operands)
            elif v in params or maker in self.index:
                found[v] = None
        return list(found)

    def before(self, o: Op) -> set[Op]:
        """The ops of the same iteration that o waits for directly."""
        makers = {self.made[v] for v in self.needs(o) if v in self.made}
        return makers | self.after.get(o, set())

    def order_of_effects(self) -> dict[Op, set[Op]]:
        """What the protocol orders: slot by slot wait, reads, release; other effects as they stand."""
        self.rings: dict[Value, _Ring] = {}
        attached: list[Op] = []  # fences in front of what they belong to
        last_wait: _Ring | None = None
        for o in self.ops:
            if o.kind is hopper.mbarrier_wait:
                last_wait = self.rings.setdefault(o.operands[1], _Ring())
                last_wait.waits.append(o)
                continue
            if o.kind is hopper.fence_async:
                if last_wait is not None:
                    last_wait.waits.append(o)
                else:
                    attached.append(o)
                continue
            last_wait = None
            if o.kind is hopper.mbarrier_arrive:
                self.rings.setdefault(o.operands[1], _Ring()).releases += [*attached, o]
                attached = []
            elif o.kind is task.ring_next:
                self.rings.setdefault(o.operands[0], _Ring()).steps.append(o)
            else:
                for slot in self.slots(o):
                    self.rings.setdefault(slot, _Ring()).readers.append(o)
                self.check(o)
        after: dict[Op, set[Op]] = {}
        for ring in self.rings.values():
            ends = set(ring.readers)
            for o in ring.readers:
                after.setdefault(o, set()).update(ring.waits)
                if o.kind is hopper.wgmma:
                    ends |= {w for w in self.ops if o.result in w.operands}
            for i, o in enumerate(ring.releases):
                after.setdefault(o, set()).update(ends, ring.releases[:i])
        return after

    def check(self, o: Op) -> None:
        known = (hopper.wgmma, hopper.wgmma_wait, hopper.shared_load)
        if o.kind not in known and effects(o) & (Effect.WRITE | Effect.SYNC):
            raise InternalError(f"{o.kind.name} in {self.loop.id}, which is to overlap iterations")

    def slots(self, o: Op) -> Iterable[Value]:
        """Indices of the slots that o reads."""
        read = (*o.operands, *(v for r in o.regions for v in free_values(r)))
        work = [v for v in read if isinstance(v.type, Shared)]
        while work:
            maker = self.made.get(work.pop())
            if maker is None:
                continue
            if maker.kind is hopper.shared_slot:
                yield maker.operands[1]
            else:
                work += [v for v in maker.operands if isinstance(v.type, Shared)]

    # ---- stages

    def stages(self) -> dict[Op, int]:
        late = {o for o in self.ops if o.kind is hopper.wgmma and o.id in self.plan.late}
        starts = {o.operands[2] for o in late}
        stage: dict[Op, int] = {}
        rings = {x for r in self.rings.values() for x in (*r.waits, *r.releases, *r.steps)}
        for o in self.ops:
            if o in rings:
                continue
            is_late = o in late or any(v in starts for v in o.results)
            stage[o] = int(is_late or any(stage.get(x) == 1 for x in self.before(o)))
        for r in self.rings.values():
            reads = [stage[o] for o in r.readers] or [0]
            stage |= dict.fromkeys((*r.waits, *r.steps), min(reads))
            stage |= dict.fromkeys(r.releases, max(reads))
            depth = min((o.attrs["depth"] for o in r.steps), default=2)
            if min(reads) < max(reads) and depth < 2:
                raise InternalError(f"a ring of one slot feeds both stages of {self.loop.id}")
        return stage

    def stage_of(self, v: Value) -> int:
        maker = self.made.get(v)
        return self.stage.get(maker, 0) if maker is not None else 0

    def closure(self, roots: Iterable[Op]) -> set[Op]:
        """The roots and all that they wait for in their own iteration."""
        found: set[Op] = set()
        work = list(roots)
        while work:
            o = work.pop()
            if o not in found:
                found.add(o)
                work.extend(self.before(o))
        return found

    def sections(self) -> tuple[list[Op], ...]:
        """One turn: what issues the early dots, what issues the late ones, what runs under them, their end,
        and what has to stand behind it."""
        dots = [o for o in self.ops if o.kind is hopper.wgmma]
        by_stage = [[o for o in self.ops if self.stage[o] == s] for s in (0, 1)]
        first = self.closure(o for o in dots if self.stage[o] == 0)
        second = self.closure(o for o in dots if self.stage[o] == 1)
        pinned = {
            v for o in dots if self.stage[o] == 1 for v in self.needs(o) if isinstance(v.type, Tile)
        }
        behind: set[Op] = set()
        for o in by_stage[0]:
            ends = any(v in self.late_params for v in self.needs(o))
            if ends or pinned & set(o.results) or self.before(o) & behind:
                behind.add(o)
        return (
            [o for o in by_stage[0] if o in first],
            [o for o in by_stage[1] if o in second],
            [o for o in by_stage[0] if o not in first and o not in behind],
            [o for o in by_stage[1] if o not in second],
            [o for o in by_stage[0] if o not in first and o in behind],
        )

    # ---- the new code

    def write(self, b: Builder) -> None:
        o = self.loop
        lo, hi = o.operands[:2]
        init = o.operands[3:]
        runs = arith.lt(b, lo, hi, hint="runs")
        build.if_(b, runs, self.some, lambda _: init)
        b.ops[-1] = b.ops[-1].with_(results=o.results)

    def some(self, b: Builder) -> Sequence[Value]:
        """At least one iteration."""
        o = self.loop
        lo, hi, step = o.operands[:3]
        early = [x for x in self.ops if self.stage[x] == 0]
        late = [x for x in self.ops if self.stage[x] == 1]
        params = self.old.params
        first = _Copy(self, b, dict(zip(params, (lo, *o.operands[3:]), strict=True)))
        first.write(early)
        init = [
            *(first.get(self.ends[p]) for p in self.kept),
            *(first.env[p] for p in self.carried_late),
            *(first.get(v) for v in self.delayed),
        ]
        second = arith.add(b, lo, step, hint="second")
        cut = self.cut()
        if cut is None:
            results = self.turns_of(b, (second, hi, step), init, {})
        else:
            branch, point = cut
            end = arith.minimum(b, hi, first.bound(point), hint="turn")
            before, after = {branch: point.before}, {branch: 1 - point.before}
            init = [*self.turns_of(b, (second, end, step), init, before)]
            results = self.turns_of(b, (_following(b, second, end, step), hi, step), init, after)
        finals = dict(zip((*self.kept, *self.carried_late, *self.delayed), results, strict=True))
        last = _Copy(self, b, {p: finals[p] for p in (*self.carried_late, *self.delayed)})
        last.write(late)
        return [last.get(self.ends[p]) if p in self.late_params else finals[p] for p in params[1:]]

    def cut(self) -> tuple[Op, TurningPoint] | None:
        """The branch of stage 0 at whose turning point the loop is cut in two."""
        for o in self.ops:
            if self.plan.split and o.id == self.plan.split and self.stage[o] == 0:
                point = turning_point(self.old, o)
                return (o, point) if point is not None else None
        return None

    def turns_of(
        self,
        b: Builder,
        bounds: tuple[Value, Value, Value],
        init: Sequence[Value],
        arms: dict[Op, int],
    ) -> tuple[Value, ...]:
        """A loop of turns.  arms: branches that always go one way."""
        names = (*self.kept, *self.carried_late, *self.delayed)
        index = self.old.params[0]

        def turn(inner: Builder, i: Value, carried: tuple[Value, ...]) -> Sequence[Value]:
            now = {index: i, **dict(zip(self.kept, carried, strict=False))}
            past = dict(zip(names[len(self.kept) :], carried[len(self.kept) :], strict=True))
            return self.turn(inner, now, past, arms)

        place = len(b.ops)
        hints = [v.hint for v in names]
        results = build.for_(b, bounds, init, turn, iv=index.hint, hints=hints)
        b.ops[place] = b.ops[place].with_(id=self.loop.id, attrs=dict(self.loop.attrs))
        return results

    def turn(self, b: Builder, now: Env, past: Env, arms: dict[Op, int]) -> list[Value]:
        """Stage 0 of this iteration and stage 1 of the one before."""
        issue_early, issue_late, under, end, behind = self.sections()
        new, old = _Copy(self, b, now, arms), _Copy(self, b, past, arms)
        new.turns = self.turns
        new.write(issue_early, in_flight=True)
        new.turns = None
        old.flights = new.flights
        old.write(issue_late, in_flight=True)
        if self.turns:
            self.turns.pass_on(b)
        start = len(b.ops)
        new.write(under, in_flight=True)
        split = len(b.ops)
        old.write(end, in_flight=True)
        rest = len(b.ops)
        new.env |= {p: old.get(self.ends[p]) for p in self.late_params}
        new.write(behind, in_flight=True)
        if self.plan.eighths > 0:
            place_wait(b, start, split, rest, self.plan.eighths)
        return [
            *(new.get(self.ends[p]) for p in self.kept),
            *(new.get(p) for p in self.carried_late),
            *(new.get(v) for v in self.delayed),
        ]


def _following(b: Builder, lo: Value, hi: Value, step: Value) -> Value:
    """The first of lo, lo + step, … that is not below hi."""
    t = lo.type
    assert isinstance(t, Scalar)
    left = arith.maximum(b, arith.sub(b, hi, lo), build.const(b, 0, t.dtype))
    up = arith.sub(b, arith.add(b, left, step), build.const(b, 1, t.dtype))
    whole = arith.mul(b, arith.idiv(b, up, step), step)
    following: Value = arith.add(b, lo, whole, hint="following")
    return following


class _Copy:
    """Copies ops of the body into a builder; `env`: values of the body -> of the copy.  flights: dots in
    flight, in order."""

    def __init__(
        self, loop: _Loop, b: Builder, env: Env, arms: dict[Op, int] | None = None
    ) -> None:
        self.loop, self.b, self.env, self.arms = loop, b, dict(env), arms or {}
        self.flights: list[Value] = []
        self.turns: Turns | None = None

    def get(self, v: Value) -> Value:
        """v in the copy, made again where it has to be."""
        if v not in self.env:
            maker = self.loop.made.get(v)
            if maker is None and v not in self.loop.old.params:
                return v  # from outside of the loop
            if maker is None:
                raise InternalError(f"{v.hint or 'a value'} of {self.loop.loop.id} comes too late")
            if maker.kind not in _REMADE:
                raise InternalError(f"{v.hint or 'a value'} of {self.loop.loop.id} comes too late")
            for x in maker.operands:
                self.env[x] = self.get(x)
            self.b.append(clone_op(maker, self.env))
        return self.env[v]

    def write(self, ops: Iterable[Op], in_flight: bool = False) -> None:
        for o in ops:
            for v in (*o.operands, *(v for r in o.regions for v in free_values(r))):
                self.env[v] = self.get(v)
            with self.b.at(o):
                self.op(o, in_flight)

    def bound(self, point: TurningPoint) -> Value:
        """The first index at which the branch has turned."""
        at = self.get(point.limit)
        if point.offset is not None:
            at = arith.sub(self.b, at, self.get(point.offset))
        if point.inclusive:
            assert isinstance(at.type, Scalar)
            at = arith.add(self.b, at, build.const(self.b, 1, at.type.dtype))
        return at

    def op(self, o: Op, in_flight: bool) -> None:
        if o in self.arms:
            arm = o.regions[self.arms[o]]
            self.write(arm.ops[:-1])
            for v, y in zip(o.results, arm.yielded, strict=True):
                self.env[v] = self.get(y)
        elif o.kind is hopper.wgmma:
            if self.turns is not None:
                self.turns.take(self.b)
                self.turns = None
            hopper.wgmma_fence(self.b)
            self.b.append(clone_op(o, self.env))
            hopper.wgmma_commit(self.b)
            self.flights.append(self.env[o.result])
        elif o.kind is hopper.wgmma_wait:
            pending = 0
            if in_flight and o.operands:
                newest = max(self.flights.index(self.env[v]) for v in o.operands)
                pending = len(self.flights) - 1 - newest
            copy = clone_op(o, self.env)
            self.b.append(copy.with_(attrs={**copy.attrs, "pending": pending}))
        else:
            self.b.append(clone_op(o, self.env))
