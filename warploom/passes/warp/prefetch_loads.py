"""Prefetches into registers: loads of a loop without dots are issued some iterations ahead of their use.

Order: before layouts are given, behind everything that makes loops at WARP.  Which loads, and how far ahead,
is the schedule's decision (`Schedule.prefetches`, ids of loops and loads).

before:  for %i in %lo … %hi:       after, one iteration ahead:
           %x = load_box(%v, %i)      if(%lo < %hi) {
           use(%x)                      %first = load_box(%v, %lo)
                                        for %i in %lo … %hi, carrying %x from %first:
                                          %ahead = select(%hi - %i > %step, %i + %step, %i)
                                          %next = load_box(%v, %ahead)
                                          use(%x)
                                          yield(%next)
                                      }

The last iterations load once more what they have, from the L1: no branch stands around a load, behind which
its registers would have to be those of the other arm.

Two iterations ahead the elements of three are held.  What is on its way must not be moved, as a move waits
for it: each of the three keeps to its registers, and the loop's body is written three times, for iterations
i, i + 1 and i + 2; behind the loop twice more, for what is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.rewrite import Env, clone_op
from warploom.ir.types import Scalar, dtype_of, shape_of
from warploom.passes.warp.skip_idle import following
from warploom.schedule.model import AheadPlan, Schedule
from warploom.schedule.prefetch import place_of
from warploom.target import Target

Values = tuple[Value, ...]
Rows = list[Values]  # of each slot the elements of each load
Bounds = tuple[Value, Value, Value]


def prefetch_loads(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    plans = {p.loop: p for p in schedule.prefetches}
    return func.with_(body=_region(func.body, plans))


def _region(r: Region, plans: Mapping[str, AheadPlan]) -> Region:
    b = Builder()
    for o in r.ops:
        if o.regions:
            o = o.with_(regions=tuple(_region(x, plans) for x in o.regions))
        if o.kind is control.for_ and o.id in plans:
            with b.at(o):
                _Loop(o, plans[o.id]).write(b)
        else:
            b.append(o)
    return Region(r.params, tuple(b.ops))


class _Loop:
    """One loop.  loads: those that run ahead, `place` what computes where they load from; slots: iterations
    whose elements have registers of their own."""

    def __init__(self, o: Op, plan: AheadPlan) -> None:
        self.loop, self.n = o, plan.iterations
        (self.body,) = o.regions
        self.loads = [x for x in self.body.ops if x.id in plan.loads]
        place = place_of(self.body, [v for x in self.loads for v in x.operands])
        if place is None:
            raise InternalError(
                f"prefetch_loads: loads of {o.id} follow from what the loop carries"
            )
        self.place = place
        self.slots = self.n + 1 if self.n > 1 else 1

    def write(self, b: Builder) -> None:
        lo, hi = self.loop.operands[:2]
        runs = arith.lt(b, lo, hi, hint="runs")
        build.if_(b, runs, self.some, lambda b: self.loop.operands[3:])
        b.ops[-1] = b.ops[-1].with_(results=self.loop.results)

    def some(self, b: Builder) -> Values:
        """At least one iteration."""
        o, (lo, hi, step) = self.loop, self.loop.operands[:3]
        steps = [self.times(b, step, k) for k in range(self.slots + 1)]
        first = [self.loaded(b, lo, hi, by) for by in (None, *steps[1 : self.n])]
        init = o.operands[3:]
        if self.slots == 1:
            return self.turns(b, (lo, hi, step), init, first, steps)
        end = arith.sub(b, hi, steps[self.n])  # where no whole turn is left
        rest = following(b, lo, end, steps[-1])
        first.append(tuple(_zeros(b, x.result) for x in self.loads))
        state = self.turns(b, (lo, end, steps[-1]), init, first, steps)
        own, waiting = state[: len(init)], self.cut(state[len(init) :])
        for k in range(self.n):
            at = arith.add(b, rest, steps[k], hint=self.index.hint) if k else rest

            def then(b: Builder, k: int = k, at: Value = at, own: Values = own) -> Values:
                return self.iteration(b, at, own, waiting[k])

            own = build.if_(b, arith.lt(b, at, hi), then, lambda b, own=own: own)  # type: ignore[misc]
        return own

    @property
    def index(self) -> Value:
        return self.body.params[0]

    def turns(
        self, b: Builder, bounds: Bounds, init: Values, first: Rows, steps: Sequence[Value]
    ) -> Values:
        """The loop, each turn as many iterations as there are slots; what it carried, and what was on its way
        behind that."""
        (_, hi, _), n = self.loop.operands[:3], len(init)

        def turn(b: Builder, i: Value, state: Values) -> Values:
            own, waiting = state[:n], self.cut(state[n:])
            for k in range(self.slots):
                at = arith.add(b, i, steps[k], hint=i.hint) if k else i
                late = self.loaded(b, at, hi, steps[self.n])
                own = self.iteration(b, at, own, waiting[k])
                waiting[(k + self.n) % self.slots] = late
            return (*own, *flat(waiting))

        hints = [v.hint for v in (*self.body.params[1:], *flat(first))]
        state = (*init, *flat(first))
        results = build.for_(b, bounds, state, turn, iv=self.index.hint, hints=hints)
        b.ops[-1] = b.ops[-1].with_(id=self.loop.id, attrs=dict(self.loop.attrs))
        return results if self.slots > 1 else results[:n]

    def iteration(self, b: Builder, i: Value, own: Values, elements: Values) -> Values:
        """One iteration without its loads; gives what it carries on."""
        env: Env = dict(zip(self.body.params, (i, *own), strict=True))
        env.update(zip((x.result for x in self.loads), elements, strict=True))
        for x in self.body.ops[:-1]:
            if x not in self.loads:
                b.append(clone_op(x, env))
        return tuple(env.get(v, v) for v in self.body.yielded)

    def cut(self, values: Values) -> Rows:
        """What slots hold, slot by slot."""
        n = len(self.loads)
        return [values[at : at + n] for at in range(0, len(values), n)]

    def times(self, b: Builder, step: Value, k: int) -> Value:
        """k steps."""
        assert isinstance(step.type, Scalar)
        if k == 1:
            return step
        product: Value = arith.mul(b, step, build.const(b, k, step.type.dtype), hint="ahead")
        return product

    def loaded(self, b: Builder, at: Value, hi: Value, by: Value | None) -> Values:
        """What the loads give for the iteration of index at + by (None: 0), or once more for that of index
        `at` where there is none."""
        index = at
        if by is not None:
            # The difference: at + by may wrap where the loop ends at the largest number.
            more = arith.gt(b, arith.sub(b, hi, at), by, hint="more")
            index = arith.select(b, more, arith.add(b, at, by), at, hint=self.index.hint)
        env: Env = {self.index: index}
        for o in (*self.place, *self.loads):
            with b.at(o):
                b.append(clone_op(o, env))
        return tuple(env[o.result] for o in self.loads)


def _zeros(b: Builder, v: Value) -> Value:
    zero = build.const(b, 0, dtype_of(v.type))
    zeros: Value = tile.splat(b, zero, shape=shape_of(v.type), hint=v.hint)
    return zeros


def flat(rows: Rows) -> Values:
    return tuple(v for row in rows for v in row)
