"""Loads of a lone warp's loop of dots that no ring brings: in registers an iteration ahead of their use.

Order: after fuse_tasks, which finds loops in both copies of a kernel by their ids.  Which loads says the
schedule (`Schedule.pipelines`, beside_rings); how they are written, prefetched_loads.py.
Changes: 3 families: states of linear attention with one warp, the gates and decays of a chunk; scaled
products.

before:  for(%lo, %hi, …) do (%i, %sum)        after:  if(lt(%lo, %hi)) do {
           %g = load_box(%v, %i)                         %first = load_box(%v, %lo)
           %y = mul(%x, broadcast(%g))                   for(%lo, %hi, …, %first) do (%i, %sum, %g)
           %more = dot(%y, %z, %sum)                       %ahead = select(…, add(%i, %step), %i)
                                                           %next = load_box(%v, %ahead)
                                                           %y = mul(%x, broadcast(%g))
                                                           %more = dot(%y, %z, %sum)

Where several warps share a multiprocessor's quarter, others run while one waits; a lone one waits itself.
"""

from __future__ import annotations

from warploom.ir.core import Builder, Func, Region
from warploom.ir.rewrite import rewrite_tasks, with_regions
from warploom.passes.warp.prefetched_loads import PrefetchedLoop
from warploom.schedule.model import Schedule


def prefetch_beside_rings(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    plans = {p.loop: p for p in schedule.pipelines if p.beside_rings}

    def region(r: Region) -> Region:
        b = Builder()
        for o in r.ops:
            o = with_regions(o, region)
            if o.id in plans:
                with b.at(o):
                    PrefetchedLoop(o, plans[o.id]).write(b)
            else:
                b.append(o)
        return Region(r.params, tuple(b.ops))

    return rewrite_tasks(func, lambda o: with_regions(o, region))
