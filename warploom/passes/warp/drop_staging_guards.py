"""Drops what guards staging in loops where another guard does, and lets stores by TMA go on reading.

Order: after merge_elects; before allocate_shared, which lets allocations share bytes where guards part them.
Changes: loops that store several tiles, or whose dots read what they compute: gated delta rules, delta
products, state-space recurrences, attention's backward passes.

Before threads write a tile for a store or a dot to read from shared memory they wait until what was there has
been read (`tma_store_wait`, by the thread that issued the store), and meet.  Each such guard is made as if it
were the only one.  In a loop one at the start of an iteration may do for all; the last ones are tried first.
A guard that has to stay waits for as few stores as its own staging needs.

What is asked (`TaskScan`) is whether every access is as far over, when the allocation is written again or
what was written is read, as it was.  Bytes are not shared then where a guard had parted them, so it is done
only where all allocations fit beside each other.

    before:  elect { tma_store_wait() {pending=0} }     after:  elect { tma_store_wait() {pending=0} }
             group_sync()                                       group_sync()
             shared_store(%a, %x)                               shared_store(%a, %x)
             fence_async(); group_sync()                        fence_async(); group_sync()
             elect { tma_store(%map, %a, …)                     elect { tma_store(%map, %a, …)
                     tma_store_commit()                                 tma_store_commit() }
                     tma_store_wait() {pending=0} }             shared_store(%b, %y)
             group_sync()                                       …
             shared_store(%b, %y)
             …
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from warploom.analysis.phase_counts import Task, tasks_of
from warploom.analysis.shared_accesses import Mark, TaskScan
from warploom.analysis.shared_reuse import roots_of
from warploom.ir.core import Effect, Func, Op, Region, Value
from warploom.ir.engines import CLOSED, FILLS, WAITED
from warploom.ir.ops import control, smem, task
from warploom.ir.rewrite import with_ops, with_regions
from warploom.ir.types import Shared
from warploom.schedule.model import Schedule
from warploom.target import Target

MOST = 4  # groups that a wait leaves running

Changes: TypeAlias = Mapping[Op, Op | None]  # ops of a task, and what is there instead


def drop_staging_guards(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    roots = roots_of(func)
    if not _fits(func, roots, schedule, target):
        return func
    changes: dict[Op, Op | None] = {}
    for t in tasks_of(func):
        changes |= _fewer(t, roots)
    return func.with_(body=_changed(func.body, changes)) if changes else func


def _fits(func: Func, roots: dict[Value, Op], schedule: Schedule, target: Target) -> bool:
    """Is there room for all of shared memory side by side?  In a uniform kernel for as many programs of a
    multiprocessor as if the staging had its bytes from each other."""
    sizes = {
        o: math.prod(s.lead) * s.slot_bytes
        for o in func.body.by_kind.get(smem.shared_alloc, ())
        if (s := o.result.typed(Shared))
    }
    total = sum(sizes.values())
    if schedule.specialized:
        return total <= target.part(schedule.ctas_per_sm).shared_bytes
    filled = {roots[o.operands[1]] for o in func.body.all_ops if o.kind in FILLS}
    staging = [n for o, n in sizes.items() if o not in filled]
    threads = sum(t.warps * t.replicas for t in schedule.tasks) * target.warp_size
    least = total - sum(staging) + max(staging, default=0)
    return target.resident(threads, 1, total) == target.resident(threads, 1, least) > 0


def _fewer(t: Task, roots: dict[Value, Op]) -> dict[Op, Op | None]:
    """Which waits and barriers of a task go, and which waits leave groups running."""
    found: dict[Op, Op | None] = {}
    guards = list(_guards(t.region))
    if not guards:
        return found
    # The rest of a task is scanned once for each guard, so without what says nothing.  Nor are barriers for
    # global memory guards: where they order no accesses to it drop_private_syncs drops them.
    silent = {o: None for o in t.region.all_ops if o.attrs.get("memory") or _is_silent(o, roots)}
    bare = _changed(t.region, silent)
    before = _state(bare, t, roots)

    def holds(more: Changes) -> bool:
        return _state(_changed(bare, {**found, **more}), t, roots) == before

    for wait, sync, _ in reversed(guards):
        gone = {o: None for o in (wait, sync) if o is not None}
        if holds(gone):
            found |= gone
    for wait, _, most in guards:
        if wait is None or wait in found or wait.attrs["pending"]:
            continue
        for n in range(1, min(most, MOST) + 1):
            fewer = {wait: wait.with_(attrs={**wait.attrs, "pending": n})}
            if not holds(fewer):
                break  # the more a wait leaves running, the less is over behind it
            found |= fewer
    return found


def _is_silent(o: Op, roots: Mapping[Value, Op]) -> bool:
    """Does it neither order accesses to shared memory nor make one?"""
    acts = o.regions or o.kind.effect is not Effect.NONE or o.kind is control.yield_
    return not acts and not any(v in roots for v in o.operands)


def _state(r: Region, t: Task, roots: dict[Value, Op]) -> list[dict[Op, Mark]]:
    """How far the accesses to each allocation are over when it is written again, and its writes when it is
    read, at least."""
    scan = TaskScan(t._replace(region=r), roots)
    scan.run(r)
    return [
        {x: min(marks) for x, marks in of.items() if marks} for of in (scan.rewritten, scan.read)
    ]


def _guards(r: Region, most: int | None = None) -> Iterator[tuple[Op | None, Op, int]]:
    """The barriers in loops after which shared memory is written, each with the wait for stores ahead of it,
    if there is one, and the groups of stores that its loop closes but one."""
    for i, o in enumerate(r.ops):
        if most is not None and _meets(o) and _writes(r.ops[i + 1 :]):
            yield _wait(r.ops[:i]), o, most
        for inner in o.regions:
            closed = sum(CLOSED.get(x.kind) == "stores" for x in inner.all_ops)
            yield from _guards(inner, max(0, closed - 1) if o.kind in control.LOOPS else most)


def _meets(o: Op) -> bool:
    return o.kind is smem.group_sync and o.attrs["scope"] == "replica" and not o.attrs.get("memory")


def _writes(ops: Sequence[Op]) -> bool:
    """Is the first of these that does more than compute a store to shared memory?"""
    acting = (o for o in ops if o.regions or o.kind.effect is not Effect.NONE)
    return (first := next(acting, None)) is not None and first.kind is smem.shared_store


def _wait(ops: Sequence[Op]) -> Op | None:
    """The wait for stores at the end of these."""
    last = next((o for o in reversed(ops) if o.regions or o.kind.effect is not Effect.NONE), None)
    if last is None or last.kind is not task.elect:
        return None
    *_, wait, _ = (None, *last.regions[0].ops)
    if wait is None or WAITED.get(wait.kind) != "stores" or not wait.attrs["read"]:
        return None
    return wait


def _changed(r: Region, changes: Changes) -> Region:
    kept = [o for x in r.ops if (o := changes.get(x, x)) is not None]
    ops = [with_regions(o, lambda x: _changed(x, changes)) for o in kept]
    return with_ops(r, [o for o in ops if o.kind is not task.elect or len(o.regions[0].ops) > 1])
