"""Dots of the next iteration in flight under this iteration's arithmetic (part of expand_pipeline).

Late dots, what they alone need and what depends on them are stage 1, all else is stage 0:

before (in a loop):                    after:
  wait k;  s = a·k;  wgmma_wait 0        wait k;  s = a·k               issue, in flight
  release k                              wait v;  acc = acc + p'·v      issue, in flight; p' is carried
  p, α = arithmetic(s)                   wgmma_wait 1 → s;  release k
  wait v                                 p, α = arithmetic(s)           up to the place of the wait
  acc = acc·α + p·v;  wgmma_wait 0       wgmma_wait 0 → acc;  release v
  release v                              the rest of p;  acc = acc·α

Where the plan names a branch that changes its way once (`split`), there are two such loops, one for each arm;
where it names a select, the loop is cut around the iterations in which its mask is true everywhere.  The
producer's loop is pipelined in the same way: k of iteration i is asked for before v of iteration i - 1, as it
is waited for.

- A ring's slot is waited for in the stage that reads it first and released in the one that reads it last; a
  slot that stage 1 reads, too, is carried to the next iteration.
- What the late dots read from registers stays untouched until their wait, so its next value is made after
  it.
- The place of the wait (`eighths`) counts columns of the largest tile that goes through the special function
  units: so many eighths of it are computed before the wait, and `hold` keeps the assembler from moving
  the wait up past them.
- With `ping_pong` the groups pass a turn: whoever has it issues its dots.  Group 0 begins, and has it again
  once all groups are through an iteration.  A group that has left the loop (skip_idle) passes it on at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from warploom.analysis.loop_overlap import SplitPoint, split_point
from warploom.analysis.mask_ranges import Bounds, UnknownError, bare, clamped
from warploom.errors import InternalError
from warploom.ir import build, engines
from warploom.ir.analysis import closure, effects
from warploom.ir.core import Builder, Effect, Op, OpKind, Value
from warploom.ir.ops import arith, mbarrier, mma, regs, smem, task
from warploom.ir.rewrite import Env, clone_op
from warploom.ir.types import Scalar, Tile
from warploom.passes.warp.loop_tail import Tail
from warploom.passes.warp.mma_wait import place_wait
from warploom.passes.warp.ping_pong import OrderBarrier
from warploom.passes.warp.pipelined_loop import Copy, RingLoop, Values
from warploom.passes.warp.skip_idle import following
from warploom.schedule.model import PipelinePlan

Arms = Mapping[Op, int]  # branches and selects that always go one way: 0 is the first
# The loops that one is cut into: where each ends, and what goes one way in it.
Cuts = Sequence[tuple[Value, Arms]]


@dataclass(eq=False)
class _Ring:
    """What the body does with one slot: by the value that is its index."""

    waits: list[Op] = field(default_factory=list)  # and fences after them
    readers: list[Op] = field(default_factory=list)
    releases: list[Op] = field(default_factory=list)
    steps: list[Op] = field(default_factory=list)


class ConsumerLoop(RingLoop):
    """A loop of a consumer.  outer: definitions around it; behind: the rest of its block, of which `tail`
    moves in; order: in which its groups issue dots."""

    def __init__(
        self,
        o: Op,
        plan: PipelinePlan,
        order: OrderBarrier | None,
        outer: Mapping[Value, Op],
        behind: Sequence[Op],
    ) -> None:
        self.plan, self.order = plan, order
        self.arms: Arms = {}  # of the loop that is being written
        super().__init__(o, outer)
        done = {i for o in self.in_stage(1) for i in self.slots(o)}
        late = {v for p, v in zip(self.params, o.results, strict=True) if p in self.late_params}
        self.tail = Tail.find(
            behind,
            [v for v in o.results if v not in late],
            late,
            lambda slot: slot not in done,
            self.slots,
            lambda o: o.kind in self.remade,
        )

    def copy(self, b: Builder, env: Env) -> _Copy:
        return _Copy(self, b, env)

    # ---- dependences

    def before(self, o: Op) -> set[Op]:
        """The ops of the same iteration that o waits for directly."""
        makers = {self.made[v] for v in self.needs(o) if v in self.made}
        return makers | self.after.get(o, set())

    def order_of_effects(self) -> dict[Op, set[Op]]:
        """What the protocol orders: slot by slot wait, reads, release; other effects as they stand."""
        self.rings: dict[Value, _Ring] = {}
        attached: list[Op] = []  # fences before what they belong to
        last_wait: _Ring | None = None
        for o in self.ops:
            if o.kind is mbarrier.mbarrier_wait:
                last_wait = self.rings.setdefault(o.operands[1], _Ring())
                last_wait.waits.append(o)
                continue
            if o.kind is smem.fence_async:
                if last_wait is not None:
                    last_wait.waits.append(o)
                else:
                    attached.append(o)
                continue
            last_wait = None
            if o.kind is mbarrier.mbarrier_arrive:
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
                if mma.is_issued(o):
                    ends |= {w for w in self.ops if o.result in w.operands}
            for i, o in enumerate(ring.releases):
                after.setdefault(o, set()).update(ends, ring.releases[:i])
        return after

    def check(self, o: Op) -> None:
        known = mma.is_issued(o) or _waits(o) or o.kind is smem.shared_load
        if not known and effects(o) & (Effect.WRITE | Effect.SYNC):
            raise InternalError(f"{o.kind.name} in {self.loop.id}, which is to overlap iterations")

    # ---- stages

    def stages(self) -> dict[Op, int]:
        self.after = self.order_of_effects()
        ids = self.plan.in_stage(1)
        late = {o for o in self.ops if mma.is_issued(o) and o.id in ids}
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

    def late_rings(self) -> set[Value]:
        """The full barriers that stage 1 waits for."""
        waits = [
            x for r in self.rings.values() for x in r.waits if x.kind is mbarrier.mbarrier_wait
        ]
        return {x.operands[0] for x in waits if self.stage[x] == 1}

    def closure(self, roots: Iterable[Op]) -> set[Op]:
        """The roots and all that they wait for in their own iteration."""
        return closure(roots, self.before)

    def sections(self) -> tuple[list[Op], ...]:
        """One iteration: what issues the early dots, what issues the late ones, what runs under them, their
        end, and what has to stand after it."""
        dots = [o for o in self.ops if mma.is_issued(o)]
        by_stage = [self.in_stage(0), self.in_stage(1)]
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

    def epilogue(self, last: Copy, env: Env) -> None:
        """The tail runs under the last dots."""
        late = self.in_stage(1)
        wait = next(i for i, o in enumerate(late) if _waits(o))
        self.tail.release(last.b, env)
        last.write(late[:wait])
        self.tail.run(last.b, env)
        held = [env[v] for v in self.tail.gives if isinstance(v.type, Tile)]
        if held and self.plan.eighths > 0:
            regs.hold(last.b, *held)
        last.write(late[wait:])

    def steady_state(self, b: Builder, first: Copy, second: Value, state: Values) -> Values:
        _, hi, step = self.loop.operands[:3]
        for end, arms in self.cuts(first):
            self.arms = arms
            state = self.new_loop(b, (second, end, step), state)
            if end is not hi:
                second = following(b, second, end, step)
        self.arms = {}
        return state

    def cuts(self, first: Copy) -> Cuts:
        """Where the loop is cut, at split points of stage 0.  first: the first iteration's copy, after
        which scalars of the loop's own are known."""
        named = (o for o in self.ops if self.plan.split and o.id == self.plan.split)
        o = next((o for o in named if self.stage[o] == 0), None)
        if o is None:
            return [(self.loop.operands[1], {})]
        return self.cuts_at_branch(o, first) if o.regions else self.cuts_at_mask(o, first.b)

    def cuts_at_branch(self, o: Op, first: Copy) -> Cuts:
        point = split_point(self.old, o)
        lo, hi = self.loop.operands[:2]
        if point is None:
            return [(hi, {})]
        end = _bound(first, point, None if self.inside(point) else (lo, hi))
        return [(end, {o: point.before}), (hi, {o: 1 - point.before})]

    def cuts_at_mask(self, o: Op, b: Builder) -> Cuts:
        """Where the mask of a select begins and ceases to be true everywhere; others by it go with it."""

        def scalar(v: Value) -> Value:
            if v in self.made or v in self.old.params:
                raise UnknownError(v.hint or "a value of the loop")
            return v

        mask = bare(self, o.operands[0])
        found = Bounds(b, self, scalar, self.old.params[0]).always(mask)
        through = {
            x: 0
            for x in self.ops
            if x.kind is arith.select and not self.stage[x] and bare(self, x.operands[0]) is mask
        }
        lo, hi = self.loop.operands[:2]
        cuts: list[tuple[Value, Arms]] = [(hi, through)]
        if found.end is not None:
            cuts = [(clamped(b, found.end, lo, hi), through), (hi, {})]
        if found.begin is not None:
            cuts.insert(0, (clamped(b, found.begin, lo, hi), {}))
        return cuts

    def inside(self, point: SplitPoint) -> bool:
        """Does the branch surely change its way before the loop's end?  One does that compares the end itself
        with what lies ahead of the index (nothing wraps: the end is after a start that is not negative)."""
        lo, hi = self.loop.operands[:2]
        start, ahead = (
            build.constant_of(self.outer.get(v)) if v is not None else None
            for v in (lo, point.offset)
        )
        return point.limit is hi and start is not None and start >= 0 and (ahead or 0) >= 1

    def interleave(self, b: Builder, new: Copy, old: Copy) -> None:
        assert isinstance(new, _Copy) and isinstance(old, _Copy)
        issue_early, issue_late, under, end, behind = self.sections()
        new.flights = old.flights = []
        new.order = self.order
        new.write(issue_early)
        new.order = None
        old.write(issue_late)
        if self.order:
            self.order.arrive(b)
        start = len(b.ops)
        new.write(under)
        split = len(b.ops)
        old.write(end)
        rest = len(b.ops)
        new.env |= {p: old.get(self.ends[p]) for p in self.late_params}
        new.write(behind)
        if self.plan.eighths > 0:
            place_wait(b, start, split, rest, self.plan.eighths)


class _Copy(Copy):
    """A copy with wgmmas and `arms` of the loop.  flights: those in flight, in order; None: each is waited
    for.  order: to be waited for before the next one."""

    flights: list[Value] | None = None
    order: OrderBarrier | None = None

    def __init__(self, loop: ConsumerLoop, b: Builder, env: Env) -> None:
        super().__init__(loop, b, env)
        self.arms = loop.arms

    def op(self, o: Op) -> None:
        if o in self.arms and o.regions:
            arm = o.regions[self.arms[o]]
            self.write(arm.ops[:-1])
            for v, y in zip(o.results, arm.yielded, strict=True):
                self.env[v] = self.get(y)
        elif o in self.arms:
            self.env[o.result] = self.get(o.operands[1 + self.arms[o]])
        elif mma.is_issued(o):
            if self.order is not None:
                self.order.wait(self.b)
                self.order = None
            engines.OPENS["products"](self.b)
            self.b.append(clone_op(o, self.env))
            engines.CLOSES["products"](self.b)
            if self.flights is not None:
                self.flights.append(self.env[o.result])
        elif _waits(o):
            pending = 0
            if self.flights is not None and o.operands:
                newest = max(self.flights.index(self.env[v]) for v in o.operands)
                pending = len(self.flights) - 1 - newest
            copy = clone_op(o, self.env)
            self.b.append(copy.with_(attrs={**copy.attrs, "pending": pending}))
        else:
            super().op(o)


def _bound(first: Copy, point: SplitPoint, between: tuple[Value, Value] | None) -> Value:
    """The first index at which the branch has changed its way, at least and at most as `between` says: the
    limit is brought there before anything is taken from it, as it may be the least or the greatest number."""
    b, at = first.b, first.get(point.limit)
    offset = None if point.offset is None else first.get(point.offset)
    one = build.const(b, 1, at.typed(Scalar).dtype) if point.inclusive else None

    def moved(v: Value, there: OpKind, back: OpKind) -> Value:
        v = v if offset is None else there(b, v, offset)
        return v if one is None else back(b, v, one)

    if between is not None:
        low, high = (moved(v, arith.add, arith.sub) for v in between)
        at = arith.minimum(b, arith.maximum(b, at, low), high, hint="iteration")
    return moved(at, arith.sub, arith.add)


def _waits(o: Op) -> bool:
    return engines.WAITED.get(o.kind) == "products"
