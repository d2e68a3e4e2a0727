"""Ping-pong over tiles: consumer warp groups process alternate iterations of a loop over output tiles.

Order: after expand_pipeline; every loop of the consumer has its final form.
Changes: 3 families: persistent products, with descriptors too; of the library's 2 to 8 % of those with K ≤
2048 (docs/log/2026-11-21-ping-pong-tiles.md).

before (G replicas, all running all of it):     after:
  for t in lo … hi, step s, cursor               cursor moved on by `replica` iterations
    loop of dots: wait full[slot] …              for t in lo + replica·s … hi, step G·s, cursor
    store                                          take the turn
                                                   loop of dots: wait full[slot] …
                                                   pass the turn on
                                                   store
                                                   cursor moved on by G - 1 iterations

`Schedule.ping_pong_loop` names the loop; analysis/shared_loops.py tells that its iterations are
independent.

The producer still fills the rings for all iterations in their order, so between two iterations of its own
a group moves its cursors on by what the others use: a copy of the body that computes nothing else, and
where a loop only steps rings, what it comes to.

The turn is held from the first wait for a slot to the last.  That is for speed (one group's dots, then the
next one's) and for correctness: a parity wait tells only neighbouring phases apart (PTX ISA,
mbarrier.try_wait), so a group may wait for its slots only when the slots before them are known to be full.
"""

from __future__ import annotations

from collections.abc import Callable

from warploom.errors import InternalError
from warploom.ir import build
from warploom.ir.analysis import backward_slice, free_values, sources
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, control, mbarrier
from warploom.ir.rewrite import inline, rewrite_tasks
from warploom.ir.types import Scalar, i32
from warploom.passes.warp.backward_slices import Slice, Values
from warploom.passes.warp.ping_pong import ISSUE, OrderBarrier
from warploom.schedule.model import Schedule
from warploom.target import Target

Moved = Callable[[Builder, Value, Values], Values]


def ping_pong_tiles(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    loop, consumer = schedule.ping_pong_loop, schedule.tasks[0].name
    return rewrite_tasks(func, lambda o: _tasks(o, loop, consumer, target))


def _tasks(o: Op, loop: str, consumer: str, target: Target) -> Op:
    at = o.attrs["names"].index(consumer)
    regions = list(o.regions)
    replicas, warps = o.attrs["replicas"][at], o.attrs["warps"][at]
    order = OrderBarrier.of(regions[at], replicas, warps, ISSUE, target)
    ops: list[Op] = []
    for x in regions[at].ops:
        if x.kind is control.for_ and x.id == loop:
            b = Builder(x.loc, x.tasks)
            _alternate(b, x, order)
            ops += b.ops
        else:
            ops.append(x)
    if not order.used:
        raise InternalError(
            f"ping_pong_tiles: the consumer has no loop {loop} that waits for slots"
        )
    regions[at] = order.begin(Region((), tuple(ops)))
    return o.with_(regions=tuple(regions))


def _alternate(b: Builder, o: Op, order: OrderBarrier) -> None:
    lo, hi, step, *init = o.operands
    (body,) = o.regions
    dtype = step.typed(Scalar).dtype
    move_on = _move_on(body, hi)

    def ahead(b: Builder, n: Value) -> Value:
        """n iterations, counted as the loop counts."""
        many = n if dtype is i32 else arith.cast(b, n, dtype=dtype)
        return arith.mul(b, many, step)

    first = arith.add(b, lo, ahead(b, order.replica), hint=body.params[0].hint)
    zero, one = build.const(b, 0), build.const(b, 1)

    def others(inner: Builder, n: Value, state: Values) -> Values:
        return move_on(inner, arith.add(inner, lo, ahead(inner, n)), state)

    hints = tuple(v.hint for v in body.params[1:])
    start = build.for_(
        b, (zero, order.replica, one), init, others, iv="skipped", hints=hints, unroll=1
    )
    stride = ahead(b, build.const(b, order.groups))

    waits = [
        i
        for i, x in enumerate(body.ops)
        if any(y.kind is mbarrier.mbarrier_wait for y in x.all_ops)
    ]
    inner = b.nested()
    for i, x in enumerate(body.ops[:-1]):
        if waits and i == waits[0]:
            order.wait(inner)
        inner.append(x)
        if waits and i == waits[-1]:
            order.arrive(inner)
    state = body.yielded
    for n in range(1, order.groups):
        state = move_on(
            inner, arith.add(inner, body.params[0], ahead(inner, build.const(inner, n))), state
        )
    control.yield_(inner, *state)
    b.append(o.with_(operands=(first, hi, stride, *start), regions=(inner.region(body.params),)))


# ---- an iteration of which only the cursors are computed


def _move_on(body: Region, hi: Value) -> Moved:
    """move(builder, index, carried): what the iteration of that index makes of the carried values."""
    bare = Slice(backward_slice(body.yielded, sources(body))).region(body)
    depends = body.params[0] in free_values(Region((), bare.ops))

    def once(b: Builder, index: Value, state: Values) -> Values:
        return inline(b, bare, (index, *state))

    def if_there_is_one(b: Builder, index: Value, state: Values) -> Values:
        there = arith.lt(b, index, hi)
        return build.if_(b, there, lambda then: once(then, index, state), lambda other: state)

    return if_there_is_one if depends else once
