"""Skips iterations that cannot affect a group's output, and does what the group still owes the others in them
(part of partition_code).

before:  for j in lo … hi:                    after:  for j in lo … end:  as before
           wait full k;  s = q·k;  …                  for j in following … hi:
           release k                                    wait full k;  release k

`Schedule.idle` names the loops and says why a group needs no more of their iterations
(analysis/idle_iterations.py).  Slots are still taken and given back, one by one: a barrier's phases are
counted by all groups that read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from warploom.analysis.access import Accesses
from warploom.analysis.idle_iterations import outside
from warploom.analysis.mask_ranges import Bounds, ahead_of, clamped
from warploom.analysis.structure import Structure
from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import backward_slice, is_pure, sources
from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import arith, control, mbarrier, task
from warploom.ir.rewrite import Env, clone_op
from warploom.ir.types import Scalar, dtype_of
from warploom.schedule.model import IdlePlan

REST = ".rest"  # after the id of a loop: what is left of it for a group that has left it
_PROTOCOL = frozenset((mbarrier.mbarrier_wait, mbarrier.mbarrier_arrive, task.ring_next))


def end_for(
    b: Builder,
    plan: IdlePlan,
    accesses: Accesses,
    loop: Op,
    known: Callable[[Value], Value | None],
    bounds: tuple[Value, Value],
) -> Value:
    """Where the function's `loop` ends for this group.  known: a value of the function in the task, if it
    is there yet; bounds: the loop's in the task."""
    structure = accesses.structure
    (body,) = loop.regions
    scalars = _Scalars(b, structure, known)
    tell = Bounds(b, structure, ahead_of(structure, loop, scalars.get), body.params[0])
    named = {o.id: o for o in structure.ops if o.id}
    lo, end = bounds
    if plan.mask:
        own = tell.false_from(named[plan.mask].operands[0])
        if plan.branch:
            stretch = tell.always(named[plan.branch].operands[0])
            split = stretch.begin or stretch.end
            assert split is not None  # the branch changes its way once
            own = arith.maximum(b, own, split)
        own = clamped(b, own, *bounds)
        for i in plan.positive:
            number = scalars.get(structure.root.params[i])
            above = arith.gt(b, number, build.const(b, 0.0, dtype_of(number.type)))
            own = arith.select(b, above, own, end)
        end = own
    behind = [outside(tell, accesses, named[name], axis) for name, axis in plan.stores]
    if behind:
        end = arith.select(b, functools.reduce(partial(arith.and_, b), behind), lo, end)
    return end


@dataclass(eq=False)
class _Scalars:
    """Scalars of the function that a task computes ahead of their place."""

    b: Builder
    structure: Structure
    known: Callable[[Value], Value | None]
    env: Env = field(default_factory=dict)

    def get(self, v: Value) -> Value:
        here = self.env.get(v) or self.known(v)
        if here is not None:
            return here
        maker = self.structure.maker(v)
        if maker is None or maker.regions or not is_pure(maker):
            raise InternalError(f"{v.hint or 'a value'} can't be computed in front of its place")
        for x in maker.operands:
            self.env[x] = self.get(x)
        self.b.append(clone_op(maker.with_(tasks=frozenset(), id=""), self.env))
        return self.env[v]


def skip_idle(b: Builder, loop: Op, end: Value) -> None:
    """Appends a task's `loop` up to `end`, and what is left of it."""
    (body,) = loop.regions
    lo, hi, step, *init = loop.operands
    protocol = [o for o in body.ops if o.kind in _PROTOCOL]
    needed = backward_slice([v for o in protocol for v in o.operands], sources(body))
    kept = [o for o in body.ops[:-1] if o in protocol or not needed.isdisjoint(o.results)]
    if any(o.regions for o in kept):
        raise InternalError(f"{loop.id}: what a slot is depends on what is computed")
    advanced = {v for o in protocol for v in o.results}
    cursors = [i for i, v in enumerate(body.yielded) if v in advanced]
    results = list(loop.results)
    for i in cursors:
        results[i] = Value(loop.results[i].type, loop.results[i].hint)
    b.append(loop.with_(operands=(lo, end, step, *init), results=tuple(results)))

    def owed(inner: Builder, i: Value, carried: tuple[Value, ...]) -> list[Value]:
        env: Env = {body.params[0]: i}
        env |= {body.params[1 + c]: v for c, v in zip(cursors, carried, strict=True)}
        for o in kept:
            with inner.at(o):
                inner.append(clone_op(o.with_(id=""), env))
        return [env[body.yielded[c]] for c in cursors]

    at = len(b.ops)
    first = following(b, lo, end, step)
    build.for_(b, (first, hi, step), [results[i] for i in cursors], owed)
    final = tuple(loop.results[i] for i in cursors)
    (rest,) = (o for o in b.ops[at:] if o.kind is control.for_)
    b.ops[b.ops.index(rest)] = rest.with_(id=f"{loop.id}{REST}", results=final)


def following(b: Builder, lo: Value, hi: Value, step: Value) -> Value:
    """The first of lo, lo + step, … that is not below hi."""
    t = lo.typed(Scalar)
    left = arith.maximum(b, arith.sub(b, hi, lo), build.const(b, 0, t.dtype))
    up = arith.sub(b, arith.add(b, left, step), build.const(b, 1, t.dtype))
    whole = arith.mul(b, arith.idiv(b, up, step), step)
    return arith.add(b, lo, whole, hint="following")
