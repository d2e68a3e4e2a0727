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
the plan names a branch that turns once (`split`), there are two such loops, one for each arm; where it names
a select, it is cut around the iterations in which its mask is true everywhere.  The producer's loop is cut
in the same way: k of iteration i is asked for before v of iteration i - 1, as it is waited for.

- A ring's slot is waited for in the stage that reads it first and released in the one that reads it last; a
  slot that stage 1 reads, too, is carried to the next turn.
- What the late dots read from registers stays untouched until their wait, so its next value is made behind
  it.
- The place of the wait (`eighths`) counts columns of the largest tile that goes through the special function
  units: so many eighths of it are computed before the wait, and `hold` keeps the assembler from moving
  the wait up past them.
- With `ping_pong` the groups pass a turn: whoever has it issues its dots.  Group 0 begins, and has it again
  once all groups are through an iteration.  A group that has left the loop (skip_idle) passes it on at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from warploom.analysis.loop_overlap import turning_point
from warploom.analysis.mask_ranges import Bounds, UnknownError, bare, clamped
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import closure, definitions, effects, reads
from warploom.ir.core import Builder, Effect, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, mbarrier, mma, regs, smem, task
from warploom.ir.rewrite import Env, clone_op, rewrite
from warploom.ir.types import Tile
from warploom.passes.tile.canonicalize.simplify import Simplifier
from warploom.passes.warp.mma_wait import place_wait
from warploom.passes.warp.ping_pong import ISSUE, Turns
from warploom.passes.warp.skip_idle import REST
from warploom.passes.warp.stage_split import Arms, Copy, Cuts, TwoStages
from warploom.schedule.model import OverlapPlan, Schedule
from warploom.target import Target


def pipeline_consumer(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    plans = {p.loop: p for p in schedule.overlaps}
    made = definitions(func.body)
    ops = tuple(_tasks(o, plans, made) if o.kind is task.tasks else o for o in func.body.ops)
    # arms without an iteration hold what is known now: sums of zeros
    return rewrite(func.with_(body=Region(func.body.params, ops)), Simplifier())


def _tasks(o: Op, plans: dict[str, OverlapPlan], made: Mapping[Value, Op]) -> Op:
    late = {d for p in plans.values() for d in p.late}
    consumers = {
        i: _Consumer(region, replicas, plans, made)
        for i, (region, replicas) in enumerate(zip(o.regions, o.attrs["replicas"], strict=True))
        if any(x.kind is mma.wgmma and x.id in late for x in walk(region))
    }
    regions = {i: c.region() for i, c in consumers.items()}
    rings = {loop: full for c in consumers.values() for loop, full in c.late_rings.items()}
    for i, region in enumerate(o.regions):
        if i not in regions:
            regions[i] = _in_order(region, rings)
    return o.with_(regions=tuple(regions[i] for i in range(len(o.regions))))


class _Consumer:
    """The region of one task.  late_rings: loop -> full barriers that its stage 1 waits for."""

    def __init__(
        self,
        region: Region,
        replicas: int,
        plans: dict[str, OverlapPlan],
        made: Mapping[Value, Op],
    ) -> None:
        self.old = region
        self.made = made
        self.plans = plans
        self.turns = Turns.of(region, replicas, ISSUE)
        self.late_rings: dict[str, set[Value]] = {}
        self.left: dict[
            str, Value
        ] = {}  # what is left of a loop with turns -> where the loop began

    def region(self) -> Region:
        return self.turns.begin(self.rewritten(self.old))

    def rewritten(self, r: Region) -> Region:
        b = Builder()
        ops = deque(r.ops)
        while ops:
            o = ops.popleft()
            if o.regions:
                o = o.with_(regions=tuple(map(self.rewritten, o.regions)))
            plan = self.plans.get(o.id) if o.kind is control.for_ else None
            if plan is None:
                b.append(self.passing(o) if o.id in self.left else o)
            else:
                turns = self.turns if plan.ping_pong else None
                if turns:
                    self.left[f"{o.id}{REST}"] = o.operands[0]
                loop = _Loop(o, plan, turns, self.made, tuple(ops))
                self.late_rings[o.id] = loop.late_rings()
                with b.at(o):
                    loop.write(b)
                ops = deque(loop.tail.rest)
        return Region(r.params, tuple(b.ops))

    def passing(self, o: Op) -> Op:
        """What is left of a loop, with its turns: one an iteration but the first."""
        (body,) = o.regions
        b = Builder(o.loc, o.tasks)

        def turn(inner: Builder) -> None:
            self.turns.take(inner)
            self.turns.pass_on(inner)

        build.if_(b, arith.gt(b, body.params[0], self.left[o.id]), turn)
        return o.with_(regions=(Region(body.params, (*b.ops, *body.ops)),))


def _in_order(r: Region, late: dict[str, set[Value]]) -> Region:
    """A producer's region whose loads come in the order in which consumers now wait for them."""
    b = Builder()
    for o in r.ops:
        if o.regions:
            o = o.with_(regions=tuple(_in_order(x, late) for x in o.regions))
        loads = _Loads(o, late[o.id]) if o.kind is control.for_ and late.get(o.id) else None
        if loads is None or loads.tangled:
            b.append(o)
        else:
            with b.at(o):
                loads.write(b)
    return Region(r.params, tuple(b.ops))


@dataclass(eq=False)
class _Ring:
    """What the body does with one slot: by the value that is its index."""

    waits: list[Op] = field(default_factory=list)  # and fences behind them
    readers: list[Op] = field(default_factory=list)
    releases: list[Op] = field(default_factory=list)
    steps: list[Op] = field(default_factory=list)


class _Loop(TwoStages):
    """One loop of the consumer."""

    def __init__(
        self,
        o: Op,
        plan: OverlapPlan,
        turns: Turns | None,
        outer: Mapping[Value, Op],
        behind: Sequence[Op],
    ) -> None:
        self.plan, self.turns = plan, turns
        super().__init__(o, outer, behind)

    def copy(self, b: Builder, env: Env, arms: Arms | None = None) -> _Copy:
        return _Copy(self, b, env, arms or {})

    # ---- dependences

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
                if o.kind is mma.wgmma:
                    ends |= {w for w in self.ops if o.result in w.operands}
            for i, o in enumerate(ring.releases):
                after.setdefault(o, set()).update(ends, ring.releases[:i])
        return after

    def check(self, o: Op) -> None:
        known = (mma.wgmma, mma.wgmma_wait, smem.shared_load)
        if o.kind not in known and effects(o) & (Effect.WRITE | Effect.SYNC):
            raise InternalError(f"{o.kind.name} in {self.loop.id}, which is to overlap iterations")

    # ---- stages

    def stages(self) -> dict[Op, int]:
        self.after = self.order_of_effects()
        late = {o for o in self.ops if o.kind is mma.wgmma and o.id in self.plan.late}
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
        """One turn: what issues the early dots, what issues the late ones, what runs under them, their end,
        and what has to stand behind it."""
        dots = [o for o in self.ops if o.kind is mma.wgmma]
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

    def finish(self, last: Copy, late: Sequence[Op], env: Env) -> None:
        """The tail runs under the last dots."""
        wait = next(i for i, o in enumerate(late) if o.kind is mma.wgmma_wait)
        self.tail.release(last.b, env)
        last.write(late[:wait])
        self.tail.run(last.b, env)
        held = [env[v] for v in self.tail.gives if isinstance(v.type, Tile)]
        if held and self.plan.eighths > 0:
            regs.hold(last.b, *held)
        last.write(late[wait:])

    def cuts(self, first: Copy) -> Cuts:
        named = (o for o in self.ops if self.plan.split and o.id == self.plan.split)
        o = next((o for o in named if self.stage[o] == 0), None)
        if o is None:
            return super().cuts(first)
        return self.cuts_at_branch(o, first) if o.regions else self.cuts_at_mask(o, first.b)

    def cuts_at_branch(self, o: Op, first: Copy) -> Cuts:
        point = turning_point(self.old, o)
        if point is None:
            return super().cuts(first)
        lo, hi = self.loop.operands[:2]
        end = first.bound(point, None if self.inside(point) else (lo, hi))
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

    def maker(self, v: Value) -> Op | None:
        """The op that makes v, in the loop or around it."""
        return self.made.get(v) or self.outer.get(v)

    def mixed(self, b: Builder, new: Copy, old: Copy) -> None:
        assert isinstance(new, _Copy) and isinstance(old, _Copy)
        issue_early, issue_late, under, end, behind = self.sections()
        new.flights = old.flights = []
        new.turns = self.turns
        new.write(issue_early)
        new.turns = None
        old.write(issue_late)
        if self.turns:
            self.turns.pass_on(b)
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
    """A copy with wgmmas.  flights: those in flight, in order; None: each is waited for.  turns: to be
    taken before the next one."""

    flights: list[Value] | None = None
    turns: Turns | None = None

    def op(self, o: Op) -> None:
        if o.kind is mma.wgmma:
            if self.turns is not None:
                self.turns.take(self.b)
                self.turns = None
            mma.wgmma_fence(self.b)
            self.b.append(clone_op(o, self.env))
            mma.wgmma_commit(self.b)
            if self.flights is not None:
                self.flights.append(self.env[o.result])
        elif o.kind is mma.wgmma_wait:
            pending = 0
            if self.flights is not None and o.operands:
                newest = max(self.flights.index(self.env[v]) for v in o.operands)
                pending = len(self.flights) - 1 - newest
            copy = clone_op(o, self.env)
            self.b.append(copy.with_(attrs={**copy.attrs, "pending": pending}))
        else:
            super().op(o)


class _Loads(TwoStages):
    """The producer's side of a consumer's loop.  What the consumer waits for in stage 1 (`late`: the full
    barriers) is asked for a turn later.

    tangled: an op fills slots for both stages, or the slot of a late one is not the loop's own: the loop has
    to stay as it is."""

    def __init__(self, o: Op, late: set[Value]) -> None:
        self.late = late
        self.tangled = False
        super().__init__(o)

    def stages(self) -> dict[Op, int]:
        late = self.late_slots()
        early = {o.operands[0] for o in self.ops if o.kind is task.ring_next} - late
        self.tangled = not late <= set(self.old.params) or not early
        readers: dict[Value, list[Op]] = {}
        for o in self.ops:
            for v in self.needs(o):
                readers.setdefault(v, []).append(o)
        stage: dict[Op, int] = {}
        behind = 0  # stage of the op behind that fills something
        for o in reversed(self.ops):
            touched = {*reads(o), *self.slots(o)}
            if touched & (late | early):
                self.tangled |= bool(touched & late and touched & early)
                behind = stage[o] = int(bool(touched & late))
            elif effects(o) & (Effect.WRITE | Effect.SYNC):
                stage[o] = behind
            else:
                users = [x for v in o.results for x in readers.get(v, ())]
                passed_on = not set(o.results).isdisjoint(self.old.yielded)
                stage[o] = int(bool(users) and not passed_on and all(stage[x] for x in users))
        return stage

    def late_slots(self) -> set[Value]:
        """Slots that are filled for stage 1."""
        inside = [x for o in self.ops for x in (o, *(y for r in o.regions for y in walk(r)))]
        return {
            x.operands[i + 1] for x in inside for i, v in enumerate(x.operands) if v in self.late
        }

    def mixed(self, b: Builder, new: Copy, old: Copy) -> None:
        new.write(o for o in self.ops if self.stage[o] == 0)
        old.write(o for o in self.ops if self.stage[o] == 1)
