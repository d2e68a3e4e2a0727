"""Late release: the wgmmas of one iteration stay in flight while the next iteration issues its own.

Order: after partition_code; before fuse_tasks, whose loads then find the slot of the iteration before.

before (in a loop):                          after:
  %t = in_flight(%acc)                         %started = gt(%k, %lo)
  wgmma_fence()                                wgmma_fence()
  %f = wgmma(%a, %b, %t, %true)                %f = wgmma(%a, %b, %acc, %started)
  wgmma_commit()                               wgmma_commit()
  %next = wgmma_wait(%f) {pending=0}           wgmma_wait() {pending=1}
  mbarrier_arrive(%empty, %slot)               if(%started) { mbarrier_arrive(%empty, %previous) }
  yield(%next)                                 yield(%f, %slot)
                                             and behind the loop the wait for all, the last release

The accumulator is carried as InFlight.  Where it starts as a constant zero it starts as `no_acc`, and
the first wgmma ignores it; after zero iterations a select gives the zeros.

It refuses (the loop stays as it is) where the schedule asks for none in flight; where a dot's result is
needed in the iteration that computes it; where a dot stands deeper than the loop's own block or has a
left operand in registers (pinned until the wait); where an operand is written to shared memory in the loop
itself (it would be overwritten while it is read); and where a ring has a single slot, which has to be
drained before it can be filled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warploom.ir import build
from warploom.ir.analysis import definitions, uses
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, mbarrier, mma, smem, task, tile
from warploom.ir.types import InFlight, Scalar, Tile, i1, i32
from warploom.schedule.model import Schedule
from warploom.target import Target

_VIEWS = frozenset({smem.shared_slice, smem.shared_transpose})


def pipeline_wgmma(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    return func.with_(body=_Pipeliner(func).region(func.body))


@dataclass(frozen=True, eq=False)
class _Chain:
    """wgmmas of one iteration that accumulate into carried value `index`, in order."""

    index: int
    wgmmas: tuple[Op, ...]
    starts: tuple[Op, ...]  # the in_flight before each
    waits: tuple[Op, ...]  # the wait after each


@dataclass(frozen=True, eq=False)
class _Plan:
    """What is done to one loop.  releases: (arrive, its slot) of the rings that wgmma reads in place."""

    chains: tuple[_Chain, ...]
    releases: tuple[Op, ...]


class _Pipeliner:
    def __init__(self, func: Func) -> None:
        self.made = definitions(func.body)
        self.uses = uses(func.body)

    def region(self, r: Region) -> Region:
        b = Builder()
        for o in r.ops:
            with b.at(o):
                new = o.with_(regions=tuple(map(self.region, o.regions))) if o.regions else o
                plan = self.plan(o) if o.kind is control.for_ else None
                if plan is None:
                    b.append(new)
                else:
                    self.apply(new, plan, b)
        return Region(r.params, tuple(b.ops))

    # ---- analysis

    def plan(self, o: Op) -> _Plan | None:
        (body,) = o.regions
        inside = [x for x in walk(body) if x.kind is mma.wgmma]
        chains = tuple(
            c for i, p in enumerate(body.params[1:]) if (c := self.chain(i, p, body)) is not None
        )
        pooled = [w for c in chains for w in c.wgmmas]
        if not inside or set(inside) != set(pooled):
            return None
        if any(isinstance(w.operands[0].type, Tile) for w in inside):
            return None
        stored = {self.memory(x.operands[0]) for x in walk(body) if x.kind is smem.shared_store}
        if any(self.memory(v) in stored for w in inside for v in w.operands[:2]):
            return None
        slots = {s for w in inside for v in w.operands[:2] if (s := self.slot(v)) is not None}
        releases = tuple(
            x for x in body.ops if x.kind is mbarrier.mbarrier_arrive and x.operands[1] in slots
        )
        for x in body.ops:
            if x.kind is task.ring_next and x.operands[0] in slots and x.attrs["depth"] < 2:
                return None
        return _Plan(chains, releases)

    def chain(self, index: int, param: Value, body: Region) -> _Chain | None:
        """The wgmmas through which a carried tile passes and nothing else."""
        here = set(body.ops)
        at = param
        wgmmas: list[Op] = []
        starts: list[Op] = []
        waits: list[Op] = []
        while True:
            start = self.only_user(at)
            if start is None or start not in here:
                return None
            if start is body.ops[-1]:
                ok = bool(wgmmas) and start.operands[index] is at
                return _Chain(index, tuple(wgmmas), tuple(starts), tuple(waits)) if ok else None
            if start.kind is not mma.in_flight:
                return None
            wgmma = self.only_user(start.result)
            if wgmma is None or wgmma.kind is not mma.wgmma or wgmma not in here:
                return None
            wait = self.only_user(wgmma.result)
            if wait is None or wait.kind is not mma.wgmma_wait or len(wait.operands) != 1:
                return None
            wgmmas.append(wgmma)
            starts.append(start)
            waits.append(wait)
            at = wait.result

    def only_user(self, v: Value) -> Op | None:
        users = self.uses.get(v, [])
        once = len(users) == 1 and sum(x is v for x in users[0].operands) == 1
        return users[0] if once else None

    def slot(self, v: Value) -> Value | None:
        """The index of the slot that a shared operand lies in."""
        o = self.made.get(v)
        while o is not None and o.kind in _VIEWS:
            o = self.made.get(o.operands[0])
        return o.operands[1] if o is not None and o.kind is smem.shared_slot else None

    def memory(self, v: Value) -> Value:
        """The allocation that a slot or a part of one lies in."""
        o = self.made.get(v)
        while o is not None and o.kind in _VIEWS | {smem.shared_slot}:
            v = o.operands[0]
            o = self.made.get(v)
        return v

    def zero(self, v: Value) -> bool:
        o = self.made.get(v)
        if o is None or o.kind is not tile.splat:
            return False
        return build.constant_of(self.made.get(o.operands[0])) == 0

    # ---- rewriting

    def apply(self, o: Op, plan: _Plan, b: Builder) -> None:
        """Appends the pipelined loop and what follows it."""
        lo, hi = o.operands[:2]
        init = list(o.operands[3:])
        results = list(o.results)
        from_zero = set()
        for c in plan.chains:
            start = init[c.index]
            assert isinstance(start.type, Tile)
            if self.zero(start):
                from_zero.add(c)
                init[c.index] = mma.no_acc(
                    b, shape=start.type.shape, dtype=start.type.dtype, hint="acc_init"
                )
            else:
                init[c.index] = mma.in_flight(b, start, hint="acc_init")
            results[c.index] = Value(init[c.index].type, start.hint)
        init += [build.const(b, 0) for _ in plan.releases]
        last = [Value(Scalar(i32), "last") for _ in plan.releases]
        body = self.body(o, plan, from_zero)
        b.append(
            o.with_(operands=(*o.operands[:3], *init), results=(*results, *last), regions=(body,))
        )
        flights = tuple(results[c.index] for c in plan.chains)
        finals = tuple(o.results[c.index] for c in plan.chains)
        sums = tuple(
            Value(v.type, "sum") if c in from_zero else v
            for c, v in zip(plan.chains, finals, strict=True)
        )
        b.append(Op(mma.wgmma_wait, flights, {"pending": 0}, sums, (), b.tasks, b.loc))
        if not from_zero and not plan.releases:
            return
        some = arith.lt(b, lo, hi, hint="ran")
        self.release(b, some, plan, last)
        for c, total, final in zip(plan.chains, sums, finals, strict=True):
            if c in from_zero:
                operands = (some, total, o.operands[3 + c.index])
                b.append(Op(arith.select, operands, {}, (final,), (), b.tasks, b.loc))

    def release(self, b: Builder, when: Value, plan: _Plan, slots: Sequence[Value]) -> None:
        def arrive(inner: Builder) -> None:
            for x, slot in zip(plan.releases, slots, strict=True):
                inner.append(x.with_(operands=(x.operands[0], slot, *x.operands[2:])))

        if plan.releases:
            build.if_(b, when, arrive)

    def body(self, o: Op, plan: _Plan, from_zero: set[_Chain]) -> Region:
        (old,) = o.regions
        params = list(old.params)
        previous = [Value(Scalar(i32), "previous") for _ in plan.releases]
        acc: dict[
            Op, tuple[Value, bool]
        ] = {}  # wgmma -> accumulator, ignored in the first iteration
        ends = list(old.yielded)
        for c in plan.chains:
            tiles = c.waits[0].result.type
            assert isinstance(tiles, Tile)
            at = params[1 + c.index] = Value(InFlight(tiles), params[1 + c.index].hint)
            for n, w in enumerate(c.wgmmas):
                acc[w] = at, c in from_zero and n == 0
                at = w.result
            ends[c.index] = at
        dropped = {x for c in plan.chains for x in (*c.starts, *c.waits)} | set(plan.releases)
        for c in from_zero:
            flag = self.made[c.wgmmas[0].operands[3]]
            if self.only_user(flag.result) is c.wgmmas[0]:
                dropped.add(flag)
        commits = [x for x in old.ops if x.kind is mma.wgmma_commit]
        b = Builder(o.loc, o.tasks)
        started: Value | None = None
        for x in old.ops[:-1]:
            if x in dropped:
                continue
            if x.kind is mma.wgmma_fence and started is None:
                started = arith.gt(b, params[0], o.operands[0], hint="started")
            if x in acc:
                at, ignored = acc[x]
                use = x.operands[3]
                if ignored:
                    assert started is not None
                    use = started
                elif not build.constant_of(self.made.get(use)):
                    use = build.const(b, True, i1)
                x = x.with_(operands=(*x.operands[:2], at, use))
            b.append(x)
            if x is commits[-1]:
                mma.wgmma_wait(b, pending=len(commits))
                assert started is not None
                self.release(b, started, plan, previous)
        control.yield_(b, *ends, *(x.operands[1] for x in plan.releases))
        return b.region((*params, *previous))
