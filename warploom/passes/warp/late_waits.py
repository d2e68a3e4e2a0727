"""The wait for an iteration's last dot, moved into the next iteration (part of expand_pipeline).

In a uniform kernel, where the same threads multiply and load, an iteration that drains its last dot waits for
the tensor core before it asks for the next tiles and issues the next product.  Where only the next iteration
reads the sum, and only behind a wait of its own, that wait is for both:

before (in a loop):                         after:
  %s = wgmma_wait(%f) {pending=0}             %s, %acc = wgmma_wait(%f, %sums) {pending=0}
                                              if (%started) mbarrier_arrive(%empty, %previous)
  %p, %b = arithmetic(%s, %acc)               %p, %b = arithmetic(%s, %acc)
  %g = wgmma(%p, %v, %b); wgmma_commit()      %g = wgmma(%p, %v, %b); wgmma_commit()
  %next = wgmma_wait(%g) {pending=0}
  mbarrier_arrive(%empty, %slot)
  yield(%next)                                yield(%g, %slot)
                                            and after the loop the wait, and the last release

A left operand in registers stays in them that long: it has to be made of what the wait brought, so that its
next value can't be there before, and both fit.  Rings of two slots are drained at once (in_flight_dots.py
says why), but where all are boxes, and other slots are given back in time: these are asked for under the next
products (fuse_tasks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warploom.ir import build, engines
from warploom.ir.analysis import closure, reads
from warploom.ir.core import Builder, Op, Region, Value
from warploom.ir.ops import arith, control, mbarrier, mma, smem, task
from warploom.ir.types import InFlight, Tile, dtype_of
from warploom.passes.warp.in_flight_dots import Dots

_RESERVE = 24  # registers a thread beside what dots read and write


@dataclass(frozen=True, eq=False)
class LateWait:
    """A loop of which `last`, the wait for what carried value `index` becomes, moves to `first` of the next
    iteration, and with it the releases of the slots that its dot reads."""

    loop: Op
    index: int
    first: Op
    last: Op
    releases: tuple[Op, ...]

    def write(self, b: Builder) -> None:
        """Appends the loop as it is then, and the wait for its last dot."""
        o, i = self.loop, self.index
        lo, hi, step, *init = o.operands
        slots = list(dict.fromkeys(x.operands[1] for x in self.releases))
        previous = {v: Value(v.type, "previous") for v in slots}
        last = {v: Value(v.type, "last") for v in slots}
        none = [build.const(b, 0, dtype_of(v.type)) for v in slots]
        sums, flying = (Value(self.last.operands[0].type, "sums") for _ in range(2))
        init[i] = mma.in_flight(b, init[i], hint="acc_init")
        results = (*o.results[:i], flying, *o.results[i + 1 :], *last.values())
        body = self.body(sums, previous)
        b.append(o.with_(operands=(lo, hi, step, *init, *none), results=results, regions=(body,)))
        self.wait(b, (flying,), (o.results[i],))
        if slots:
            self.release(b, arith.lt(b, lo, hi, hint="ran"), last)

    def body(self, sums: Value, previous: Mapping[Value, Value]) -> Region:
        (old,) = self.loop.regions
        i = 1 + self.index
        b = Builder(self.loop.loc, self.loop.tasks)
        for x in old.ops[:-1]:
            if x is self.first:
                with b.at(x):
                    self.wait(b, (*x.operands, sums), (*x.results, old.params[i]))
                    if previous:
                        lo = self.loop.operands[0]
                        self.release(b, arith.gt(b, old.params[0], lo, hint="started"), previous)
            elif x is not self.last and x not in self.releases:
                b.append(x)
        ends = list(old.yielded)
        ends[self.index] = self.last.operands[0]
        control.yield_(b, *ends, *previous)
        return b.region((*old.params[:i], sums, *old.params[i + 1 :], *previous.values()))

    def wait(self, b: Builder, sums: tuple[Value, ...], tiles: tuple[Value, ...]) -> None:
        b.append(self.last.with_(operands=sums, results=tiles))

    def release(self, b: Builder, when: Value, slots: Mapping[Value, Value]) -> None:
        def arrive(inner: Builder) -> None:
            for x in self.releases:
                inner.append(
                    x.with_(operands=(x.operands[0], slots[x.operands[1]], *x.operands[2:]))
                )

        build.if_(b, when, arrive)


def late_wait(o: Op, dots: Dots, threads: int, room: int, slots: int) -> LateWait | None:
    """The loop with its last dot's wait in the next iteration; None where it has to stay.  room: registers
    that each of so many threads has; slots: of a ring, at least."""
    (body,) = o.regions
    ops = list(body.ops)
    waits = [x for x in ops if engines.WAITED.get(x.kind) == "products"]
    if len(waits) < 2 or any(x.attrs["pending"] for x in waits):
        return None
    inner = (x for top in ops for r in top.regions for x in r.all_ops)
    if any(mma.is_issued(x) or x.kind is mbarrier.mbarrier_arrive for x in inner):
        return None
    first, last = waits[0], waits[-1]
    if len(last.results) != 1 or dots.only_user(last.result) is not ops[-1]:
        return None
    index = ops[-1].operands.index(last.result)
    issued = [x for x in ops[ops.index(waits[-2]) : ops.index(last)] if mma.is_issued(x)]
    if len(issued) != 1 or issued[0].result is not last.operands[0]:
        return None
    param = body.params[1 + index]
    if not _adds_to(issued[0], param, dots) or any(
        param in reads(x) for x in ops[: ops.index(first)]
    ):
        return None
    releases = _releases(ops, issued[0], last, dots, slots)
    held = [x.result.typed(InFlight).tile for x in ops if mma.is_issued(x)]
    if isinstance(left := issued[0].operands[0].type, Tile):
        held.append(left)
    if sum(t.size * t.dtype.bits for t in held) > 32 * threads * (room - _RESERVE):
        return None
    if releases is None or not _holds(ops, issued[0], first, dots):
        return None
    return LateWait(o, index, first, last, releases)


def _adds_to(dot: Op, sums: Value, dots: Dots) -> bool:
    """Does a dot add to what becomes of the sums element by element, all in their registers?"""
    v = sums
    while (o := dots.only_user(v)) is not None:
        if o.kind is mma.in_flight:
            return dots.only_user(o.result) is dot
        if o.kind not in arith.ELEMENTWISE or o.result.type != sums.type:
            return False
        v = o.result
    return False


def _holds(ops: list[Op], dot: Op, first: Op, dots: Dots) -> bool:
    """Does all that the dot reads stay as it is up to the next iteration's first wait?"""
    made = {v: x for x in ops for v in x.results}
    if isinstance(dot.operands[0].type, Tile):
        behind = closure((dot.operands[0],), lambda v: made[v].operands if v in made else ())
        if behind.isdisjoint(first.results):
            return False
    stored = {
        dots.origin(x.operands[0])[0]
        for top in ops
        for x in (top, *(x for r in top.regions for x in r.all_ops))
        if x.kind is smem.shared_store
    }
    return all(dots.origin(v)[0] not in stored for v in dot.operands[:2])


def _releases(ops: list[Op], dot: Op, last: Op, dots: Dots, least: int) -> tuple[Op, ...] | None:
    """The arrivals that give the slots back which the dot reads; None where they can't come later."""
    slots = {slot for v in dot.operands[:2] if (slot := dots.origin(v)[1]) is not None}
    rings = [x for x in ops if x.kind is task.ring_next and x.operands[0] in slots]
    if any(x.attrs["depth"] < least for x in rings):
        return None
    arrivals = [x for x in ops if x.kind is mbarrier.mbarrier_arrive and x.operands[1] in slots]
    behind = ops[ops.index(last) :]
    if any(x not in behind for x in arrivals) or slots != {x.operands[1] for x in arrivals}:
        return None
    others = [x for x in ops if x.kind is mbarrier.mbarrier_arrive and x not in arrivals]
    return tuple(arrivals) if others or least > 2 else None
