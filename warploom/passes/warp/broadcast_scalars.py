"""Broadcasts a scalar that one thread gets from memory to all threads of its task.

Order: at WARP, after fuse_tasks; a producer that is one elected thread, or a lone warp with an atomic, needs
none of it.
Changes: 3 families: split-K with a counter, stream-K, tiles drawn from a counter; all are wrong without it.

before:  %n = atomic(%p, %one) {fn="add"}              by 4 warps, with the result in use
after:   group_sync()                                  all have read the number before
         elect() do { %m = atomic(%p, %one) {fn="add"};  shared_put(%numbers, %m) }
         group_sync()
         %n = shared_get(%numbers)

Atomics and volatile loads on numbers, and the clock, are read once.  Of several replicas the first runs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from warploom.analysis.access import is_on_numbers
from warploom.ir import build
from warploom.ir.analysis import first_meeting
from warploom.ir.core import Builder, Func, Op, Region, Value, walk
from warploom.ir.ops import arith, smem, task, tile
from warploom.ir.rewrite import with_regions
from warploom.ir.types import Scalar, i32
from warploom.passes.warp.lower_scalars import get_number, put_number, slots_of


def broadcast_scalars(func: Func) -> Func:
    """See the module's docstring."""
    top: list[Op] = []
    ops: list[Op] = []
    for o in func.body.ops:
        if o.kind is task.tasks:
            rows = zip(o.regions, o.attrs["warps"], o.attrs["replicas"], strict=True)
            o = o.with_(regions=tuple(_Sharer(r, w, n, top).region() for r, w, n in rows))
            ops += top
        ops.append(o)
    return func.with_(body=Region(func.body.params, tuple(ops)))


@dataclass(eq=False)
class _Sharer:
    """The region of one task; `top` grows by its slots."""

    old: Region
    warps: int
    replicas: int
    top: list[Op]
    replica: Value = field(default_factory=lambda: Value(Scalar(i32), "replica"))
    is_new: bool = False  # the replica's id was not asked for before

    def region(self) -> Region:
        self.used = {v for o in walk(self.old) for v in o.operands}
        known = [o.result for o in self.old.ops if o.kind is task.replica_id]
        if known:
            self.replica = known[0]
        new = self.rewritten(self.old)
        if not self.is_new or known:
            return new
        first = Op(task.replica_id, results=(self.replica,))
        return Region((), (first, *new.ops))

    def rewritten(self, r: Region) -> Region:
        b = Builder()
        for o in r.ops:
            if o.kind is task.elect:
                b.append(o)
            elif self.is_shared(o):
                with b.at(o):
                    self.share(o, b)
            else:
                b.append(with_regions(o, self.rewritten))
        return Region(r.params, tuple(b.ops))

    def is_shared(self, o: Op) -> bool:
        if not any(v in self.used for v in o.results):
            return False
        if not is_on_numbers(o):
            return o.kind is tile.globaltimer
        several = self.warps * self.replicas > 1
        return (o.kind is tile.atomic and several) or bool(o.attrs.get("volatile"))

    def share(self, o: Op, b: Builder) -> None:
        t = o.result.typed(Scalar)
        top = Builder(o.loc)
        name = f"number{len(self.top)}"
        slots = slots_of(top, t.dtype, 1, name, name)
        self.top += top.ops
        scope = "task" if self.replicas > 1 else "replica"
        place = smem.shared_slot(b, slots, build.const(b, 0))
        got = Value(t, o.result.hint)

        def once(b: Builder) -> None:
            b.append(o.with_(results=(got,)))
            put_number(b, place, got)

        if not _have_met(b):
            smem.group_sync(b, scope=scope)
        if self.replicas > 1:
            self.is_new = True
            first = arith.eq(b, self.replica, build.const(b, 0), hint="first")
            build.if_(b, first, lambda b: build.elect(b, once))
        else:
            build.elect(b, once)
        smem.group_sync(b, scope=scope)
        get_number(b, place, t.dtype, o.result.hint)
        b.ops[-1] = b.ops[-1].with_(results=o.results)


def _have_met(b: Builder) -> bool:
    """Has nothing been done since a barrier of the whole task?"""
    last = first_meeting(reversed(b.ops))
    return last is not None and last.attrs["scope"] == "task"
