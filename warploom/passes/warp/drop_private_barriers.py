"""Drops mbarriers by which uniform kernels tell themselves that slots are free: their threads meet instead.

Order: after reload_slots, which reads off arrivals when a slot is given back; before what counts barriers.
Changes: uniform kernels of one warp, or of a group of warps that wait for wgmma together, which load ahead;
of several warps rings that are filled once, where no loop is.

Such a kernel fills the slots that it gives back itself.  A wait for that costs a loop in which one lane
waits, and for each ring an arrival and a fence; and nothing is computed between the loads of a slot, as they
stand before its arrival.  Threads that meet before one of them fills slots order the same, once for all that
was given back since they met last; the proxy fence that stood before each arrival stands before that (PTX
ISA, "Async proxy").  Warps that multiply each by itself keep their mbarriers, as one may be ahead of
another, but for slots that are filled once: nobody waits for these.

    before:  %x = shared_load(%slot)                    after:  %x = shared_load(%slot)
             fence_async()                                      use(%x)
             mbarrier_arrive(%empty, %i)                        fence_async()
             use(%x)                                            group_sync()
             elect { mbarrier_wait(%empty, %j, %free)           elect { tma_load(%map, %next, …) }
                     tma_load(%map, %next, …) }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise

from warploom.ir import engines
from warploom.ir.analysis import blocks
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import control, mbarrier, smem, task
from warploom.ir.rewrite import rewrite_tasks, with_ops, with_regions, without
from warploom.passes.tile.canonicalize.cleanup import drop_dead

_OWN = (mbarrier.mbarrier_arrive, mbarrier.mbarrier_wait)


def drop_private_barriers(func: Func) -> Func:
    """See the module's docstring."""
    (phase,) = task.phases(func)
    products = any(engines.ISSUED.get(o.kind) == "products" for o in phase.all_ops)
    allocations = {o.result: o for o in func.body.by_kind.get(mbarrier.mbarrier_alloc, ())}
    private = allocations.keys() - {
        v for o in func.body.all_ops if o.kind not in _OWN for v in o.operands
    }
    once = private & _filled_once(phase)
    if phase.attrs["warps"] != (1,) and not products:
        private = once
    if not private:
        return func
    arrivals = {o for o in phase.all_ops if _is_at(o, mbarrier.mbarrier_arrive, private)}
    waits = {o for o in phase.all_ops if _is_at(o, mbarrier.mbarrier_wait, private)}
    fences = {x for r in blocks(phase.regions[0]) for x, y in pairwise(r.ops) if y in arrivals}
    fences = {o for o in fences if o.kind is smem.fence_async}

    def region(r: Region, given: bool) -> tuple[Region, bool]:
        """given: may slots have been given back since all met?  Also told of the region's end."""
        b = Builder()
        for o in r.ops:
            b.loc, b.tasks = o.loc, o.tasks
            fills, gives = (not kinds.isdisjoint(o.all_ops) for kinds in (waits, arrivals))
            if fills and not gives:
                if given:
                    meet(b)
                given = False
                b.ops += [without(o, waits)] if o not in waits else []
            elif o.regions and gives:
                o, given = inside(o, given)
                b.append(o)
            elif o not in gone:
                b.append(o)
            given |= o in arrivals and o.operands[0] not in once
        return with_ops(r, b.ops), given

    def inside(o: Op, given: bool) -> tuple[Op, bool]:
        regions, ends = zip(*(region(r, given) for r in o.regions), strict=True)
        if o.kind in control.LOOPS and any(ends) and not given:
            return inside(o, True)
        return with_regions(o, lambda r: regions[o.regions.index(r)]), given or any(ends)

    def meet(b: Builder) -> None:
        if fences:
            smem.fence_async(b)
        smem.group_sync(b, scope="replica")

    gone = arrivals | waits | fences
    func = rewrite_tasks(func, lambda o: with_regions(o, lambda r: region(r, False)[0]))
    kept = [o for o in func.body.ops if o not in {allocations[v] for v in private}]
    return drop_dead(func.with_(body=with_ops(func.body, kept)))


def _filled_once(phase: Op) -> set[Value]:
    """The mbarriers that one op waits for, which runs once and before any arrival: what is given back there
    nobody fills again.  A wait behind arrivals is for slots to be full.  None where there are loops: over
    these, tiles are spilled to bytes that were given back before."""
    if any(o.kind in control.LOOPS for o in phase.all_ops):
        return set()
    first: dict[Value, Op] = {}
    waits: Counter[Value] = Counter()
    for o in phase.all_ops:
        if o.kind in _OWN:
            first.setdefault(o.operands[0], o)
            waits[o.operands[0]] += o.kind is mbarrier.mbarrier_wait
    return {v for v, n in waits.items() if n == 1 and first[v].kind is mbarrier.mbarrier_wait}


def _is_at(o: Op, kind: object, barriers: Collection[Value]) -> bool:
    return o.kind is kind and o.operands[0] in barriers
