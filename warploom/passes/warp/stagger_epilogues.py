"""Staggers the epilogues of consumer groups: one group's runs under the other's products.

Order: after expand_pipeline.  `Schedule.staggered_loops` names the main loops before these epilogues.
Changes: 3 families: products with long activations, gated pairs of the library (1 to 2 % of them:
docs/log/2026-11-21-gated-pair.md), a cross entropy in a product.

before:  for … (tiles) {                   after:  for … (tiles) {
           %f = for … (main loop)                    %f = for … (main loop)
                                                     named_barrier(%replica)              take the turn
           %sum = wgmma_wait(%f)                     %sum = wgmma_wait(%f)
           %out = arithmetic(%sum)                   %out = arithmetic(%sum)
           store_box(%c_view, %out)                  store_box(%c_view, %out)
                                                     named_barrier(%next) {arrive=true}   pass it on
         }                                         }

The turn is taken before the wait: the assembler keeps arithmetic after a wait, not after a named barrier.
A group that has left the main loop (skip_idle.py) takes it when it has given back what others wait for.
"""

from __future__ import annotations

from warploom.ir.core import Builder, Func, Op, Region
from warploom.ir.rewrite import rewrite_regions, with_regions
from warploom.ir.types import Tile
from warploom.passes.warp.ping_pong import END, OrderBarrier
from warploom.passes.warp.skip_idle import REST
from warploom.schedule.model import Schedule
from warploom.target import Target


def stagger_epilogues(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    left = {p.loop for p in schedule.idle}
    loops = tuple(f"{x}{REST}" if x in left else x for x in schedule.staggered_loops)

    def region(r: Region, groups: int, warps: int) -> Region:
        if groups == 1:
            return r
        order = OrderBarrier.of(r, groups, warps, END, target)
        return order.begin(_rewritten(r, order, loops))

    return rewrite_regions(func, region, "replicas", "warps")


def _rewritten(r: Region, order: OrderBarrier, loops: tuple[str, ...]) -> Region:
    b = Builder()
    last = None
    for i, o in enumerate(r.ops):
        b.append(with_regions(o, lambda x: _rewritten(x, order, loops)))
        if o.id in loops and o.regions:
            with b.at(o):
                order.wait(b)
            behind = range(i + 1, len(r.ops) - 1)  # up to the yield
            last = max((n for n in behind if _handles_tiles(r.ops[n])), default=i)
        if i == last:
            with b.at(o):
                order.arrive(b)
    return b.region(r.params)


def _handles_tiles(o: Op) -> bool:
    """Does o compute or store tiles?"""
    return any(isinstance(v.type, Tile) for x in o.all_ops for v in (*x.operands, *x.results))
