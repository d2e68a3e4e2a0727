"""Loads of a loop without dots, in registers some iterations ahead of their use (part of expand_pipeline).

Loads and what computes their places are stage 0, all else is stage 1, one or two iterations later:

before:  for %i in %lo … %hi:       after, one iteration ahead:
           %x = load_box(%v, %i)      if(%lo < %hi) {
           use(%x)                      %first = load_box(%v, %lo)
                                        for %i in %lo … %hi, carrying %x from %first:
                                          %ahead = select(%hi - %i > %step, %i + %step, %i)
                                          %next = load_box(%v, %ahead)
                                          use(%x)
                                          yield(%next)
                                      }

There is no epilogue: the last iterations load once more what they have, from the L1, as after a branch
around a load its registers would have to be those of the other arm.

Two iterations ahead the elements of three are held.  What is on its way must not be moved, as a move waits
for it: the loop's body is written three times, for iterations i, i + 1 and i + 2; after the loop twice more,
for what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import Env
from warploom.ir.types import Scalar, dtype_of, shape_of
from warploom.passes.warp.pipelined_loop import PipelinedLoop, Values
from warploom.passes.warp.skip_idle import following
from warploom.schedule.model import PipelinePlan
from warploom.schedule.prefetch import place_of


class PrefetchedLoop(PipelinedLoop):
    """See the module's docstring.  place: what computes where the loads load from, in both stages."""

    def __init__(self, o: Op, plan: PipelinePlan) -> None:
        self.distance = plan.distance
        self.unroll = self.distance + 1 if self.distance > 1 else 1
        self.loads = [x for x in o.regions[0].ops if x.id in plan.in_stage(0)]
        place = place_of(o.regions[0], [v for x in self.loads for v in x.operands])
        if place is None:
            raise InternalError(f"loads of {o.id} follow from what the loop carries")
        self.place = place
        super().__init__(o)
        self.kept, self.carried_late, self.late_params = [], self.params, set(self.params)
        self.delayed = [x.result for x in self.loads]

    def stages(self) -> dict[Op, int]:
        return {o: int(o not in self.loads) for o in self.ops}

    def in_stage(self, n: int) -> list[Op]:
        return super().in_stage(1) if n else [*self.place, *self.loads]

    def with_iterations(self, b: Builder) -> Values:
        lo, hi, step, *init = self.loop.operands
        self.steps = [self.times(b, step, k) for k in range(self.unroll + 1)]
        rows = [self.row(b, lo, init)]
        for k in range(1, self.distance):
            rows.append(self.row(b, self.ahead(b, lo, self.steps[k]), init))
        if self.unroll == 1:
            state = self.new_loop(b, (lo, hi, step), (*init, *rows[0]))
            return state[: len(init)]
        # where no whole unrolled iteration is left
        end = arith.sub(b, hi, self.steps[self.distance])
        rest = following(b, lo, end, self.steps[-1])
        rows.append(tuple(_zeros(b, x.result) for x in self.loads))
        state = (*init, *(v for row in rows for v in row))
        state = self.new_loop(b, (lo, end, self.steps[-1]), state)
        own, rows = state[: len(init)], self.in_flight(state)
        for k in range(self.distance):
            at = arith.add(b, rest, self.steps[k], hint=self.index.hint) if k else rest

            def then(b: Builder, k: int = k, at: Value = at, own: Values = own) -> Values:
                past = dict(zip(self.params, own, strict=True))
                past.update(zip(self.delayed, rows[k], strict=True))
                old = self.copy(b, {self.index: at, **past})
                old.write(self.in_stage(1))
                return tuple(old.get(self.ends[p]) for p in self.params)

            own = build.if_(b, arith.lt(b, at, hi), then, lambda b, own=own: own)  # type: ignore[misc]
        return own

    def row(self, b: Builder, index: Value, init: Sequence[Value]) -> Values:
        """What the loads give for an iteration before the loop."""
        first = self.prologue(b, index, init)
        return tuple(map(first.get, self.delayed))

    def indices(self, b: Builder, i: Value, k: int) -> tuple[Env, Env]:
        at = arith.add(b, i, self.steps[k], hint=i.hint) if k else i
        ahead = self.ahead(b, at, self.steps[self.distance])
        return {self.index: ahead}, {self.index: at}

    def ahead(self, b: Builder, at: Value, by: Value) -> Value:
        """The index at + by, or `at` where there is no such iteration."""
        # The difference: at + by may wrap where the loop ends at the largest number.
        more = arith.gt(b, arith.sub(b, self.loop.operands[1], at), by, hint="more")
        return arith.select(b, more, arith.add(b, at, by), at, hint=self.index.hint)

    def times(self, b: Builder, step: Value, k: int) -> Value:
        """k steps."""
        if k == 1:
            return step
        return arith.mul(b, step, build.const(b, k, step.typed(Scalar).dtype), hint="ahead")


def _zeros(b: Builder, v: Value) -> Value:
    zero = build.const(b, 0, dtype_of(v.type))
    return tile.splat(b, zero, shape=shape_of(v.type), hint=v.hint)
