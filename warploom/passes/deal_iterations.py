"""Deals a loop's iterations out to the consumer's groups: each takes a tile of its own, in turn.

Order: after pipeline_consumer; every loop of the consumer has its final form.

before (G replicas, all running all of it):     after:
  for t in lo … hi, step s, cursor               cursor moved on by `replica` iterations
    loop of dots: wait full[slot] …              for t in lo + replica·s … hi, step G·s, cursor
    store                                          take the turn
                                                   loop of dots: wait full[slot] …
                                                   pass the turn on
                                                   store
                                                   cursor moved on by G - 1 iterations

`Schedule.dealt` names the loop; schedule/dealing.py tells that its iterations need nothing of each other.

The producer still fills the rings for all iterations in their order, so between two iterations of its own
a group moves its cursors on by what the others use: a copy of the body that computes nothing else, and
where a loop only turns rings, what it comes to.

The turn is held from the first wait for a slot to the last.  That is for speed (one group's dots, then the
next one's) and for correctness: a parity wait tells only neighbouring phases apart (PTX ISA,
mbarrier.try_wait), so a group may wait for its slots only when the slots before them are known to be full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import backward_slice, free_values, sources
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, control, hopper, task
from warploom.ir.rewrite import Env, inline, substitute_operands
from warploom.ir.types import Scalar, i32
from warploom.passes.turns import ISSUE, Turns
from warploom.schedule.model import Schedule
from warploom.target import Target

Values = tuple[Value, ...]
Moved = Callable[[Builder, Value, Values], Values]


def deal_iterations(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    if not schedule.dealt:
        return func
    ops = tuple(
        _tasks(o, schedule.dealt, schedule.tasks[0].name) if o.kind is task.tasks else o
        for o in func.body.ops
    )
    return func.with_(body=Region(func.body.params, ops))


def _tasks(o: Op, loop: str, consumer: str) -> Op:
    at = o.attrs["names"].index(consumer)
    regions = list(o.regions)
    turns = Turns.of(regions[at], o.attrs["replicas"][at], ISSUE)
    ops: list[Op] = []
    for x in regions[at].ops:
        if x.kind is control.for_ and x.id == loop:
            b = Builder(x.loc, x.tasks)
            _deal(b, x, turns)
            ops += b.ops
        else:
            ops.append(x)
    if not turns.used:
        raise InternalError(
            f"deal_iterations: the consumer has no loop {loop} that waits for slots"
        )
    regions[at] = turns.begin(Region((), tuple(ops)))
    return o.with_(regions=tuple(regions))


def _deal(b: Builder, o: Op, turns: Turns) -> None:
    lo, hi, step, *init = o.operands
    (body,) = o.regions
    assert isinstance(step.type, Scalar)
    dtype = step.type.dtype
    move_on = _move_on(body, hi)

    def ahead(b: Builder, n: Value) -> Value:
        """n iterations, counted as the loop counts."""
        many = n if dtype is i32 else arith.cast(b, n, dtype=dtype)
        distance: Value = arith.mul(b, many, step)
        return distance

    first = arith.add(b, lo, ahead(b, turns.replica), hint=body.params[0].hint)
    zero, one = build.const(b, 0), build.const(b, 1)

    def others(inner: Builder, n: Value, state: Values) -> Values:
        return move_on(inner, arith.add(inner, lo, ahead(inner, n)), state)

    hints = tuple(v.hint for v in body.params[1:])
    start = build.for_(
        b, (zero, turns.replica, one), init, others, iv="skipped", hints=hints, unroll=1
    )
    stride = ahead(b, build.const(b, turns.groups))

    waits = [
        i
        for i, x in enumerate(body.ops)
        if any(y.kind is hopper.mbarrier_wait for y in walk(Region((), (x,))))
    ]
    inner = b.nested()
    for i, x in enumerate(body.ops[:-1]):
        if waits and i == waits[0]:
            turns.take(inner)
        inner.append(x)
        if waits and i == waits[-1]:
            turns.pass_on(inner)
    state = body.yielded
    for n in range(1, turns.groups):
        state = move_on(
            inner, arith.add(inner, body.params[0], ahead(inner, build.const(inner, n))), state
        )
    control.yield_(inner, *state)
    b.append(o.with_(operands=(first, hi, stride, *start), regions=(inner.region(body.params),)))


# ---- an iteration of which only the cursors are computed


def _move_on(body: Region, hi: Value) -> Moved:
    """move(builder, index, carried): what the iteration of that index makes of the carried values."""
    bare = _Slice(backward_slice(body.yielded, sources(body))).region(body)
    depends = body.params[0] in free_values(Region((), bare.ops))

    def once(b: Builder, index: Value, state: Values) -> Values:
        return inline(b, bare, (index, *state))

    def if_there_is_one(b: Builder, index: Value, state: Values) -> Values:
        there = arith.lt(b, index, hi)
        return build.if_(b, there, lambda then: once(then, index, state), lambda other: state)

    return if_there_is_one if depends else once


@dataclass(eq=False)
class _Slice:
    """Copies what computes the needed values, and nothing else.  env: what stands for values now."""

    needed: set[Value]
    env: Env = field(default_factory=dict)

    def region(self, r: Region, kept: Sequence[int] | None = None) -> Region:
        """kept: which of the values that it yields (None: all)."""
        b = Builder()
        for o in r.ops[:-1]:
            if any(v in self.needed for v in o.results):
                with b.at(o):
                    self.op(o, b)
        ends = r.yielded if kept is None else [r.yielded[i] for i in kept]
        control.yield_(b, *(self.env.get(v, v) for v in ends))
        return b.region(r.params)

    def op(self, o: Op, b: Builder) -> None:
        o = substitute_operands(o, self.env)
        kept = [i for i, v in enumerate(o.results) if v in self.needed]
        results = tuple(o.results[i] for i in kept)
        if not o.regions:
            b.append(o)
        elif o.kind is control.if_:
            b.append(
                o.with_(results=results, regions=tuple(self.region(r, kept) for r in o.regions))
            )
        elif o.kind is control.for_:
            (body,) = o.regions
            params = (body.params[0], *(body.params[1 + i] for i in kept))
            bare = Region(params, self.region(body, kept).ops)
            init = tuple(o.operands[3 + i] for i in kept)
            loop = o.with_(operands=(*o.operands[:3], *init), results=results, regions=(bare,))
            ends = _turned(b, loop)
            if ends is None:
                b.append(loop)
            else:
                self.env.update(zip(results, ends, strict=True))
        else:
            raise InternalError(f"deal_iterations: {o.kind.name} decides how rings turn")


def _turned(b: Builder, o: Op) -> Values | None:
    """What a loop that does nothing but turn rings comes to; None where it does something else."""
    (body,) = o.regions
    turns = body.ops[:-1]
    after = dict(zip(body.params[1:], body.yielded, strict=True))
    cursors = {
        v: r
        for x in turns
        if x.kind is task.ring_next
        for v, r in zip(x.operands, x.results, strict=True)
    }
    if any(x.kind is not task.ring_next for x in turns) or cursors != after:
        return None
    lo, hi, step = o.operands[:3]
    assert isinstance(lo.type, Scalar)
    dtype = lo.type.dtype
    zero, one = build.const(b, 0, dtype), build.const(b, 1, dtype)
    up = arith.sub(b, arith.add(b, arith.sub(b, hi, lo), step), one)
    n = arith.idiv(b, arith.maximum(b, up, zero), step)
    n = n if dtype is i32 else arith.cast(b, n, dtype=i32)
    initial = dict(zip(body.params[1:], o.operands[3:], strict=True))
    ends: dict[Value, Value] = {}
    for x in turns:
        slot, phase = x.operands
        depth = build.const(b, x.attrs["depth"])
        total = arith.add(b, initial[slot], n)
        rounds = arith.idiv(b, total, depth)
        odd = arith.and_(b, rounds, build.const(b, 1))
        ends[slot] = arith.rem(b, total, depth)
        ends[phase] = arith.xor(b, initial[phase], odd)
    return tuple(ends[p] for p in body.params[1:])
