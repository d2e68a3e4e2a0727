"""Uniform kernels: barriers between what was read and what is loaded next, so that both have the same bytes.

Order: before allocate_shared, which finds out what a barrier allows (analysis/shared_reuse.py).
Changes: 4 families: products whose tiles leave by TMA; kernels of several products one after the other
(chunks of linear attention, delta rules), two loops on one sum.

In a uniform kernel the loads of a second loop are issued after the first one, in the program's order, yet no
warp waits for another there: its rings have bytes of their own, as has what a tile is stored from.  A barrier
costs some tens of cycles and a program has few such places, so there is one wherever it lets another CTA onto
the multiprocessor (for what a tile is stored from only where few threads would be there), and nowhere else.
A load comes after the wait for the last products of the loop before it, no later.  No fence is needed: slots
that ordinary instructions read are released after one.

    before:  for …  { mbarrier_wait(%full_x); use(%x); mbarrier_arrive(%empty_x) }
             elect() do { tma_load(%y) }
    after:   for …  { mbarrier_wait(%full_x); use(%x); mbarrier_arrive(%empty_x) }
             group_sync() {scope="task"}
             elect() do { tma_load(%y) }                         %y may lie where %x was
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from itertools import pairwise

from warploom.ir import engines
from warploom.ir.analysis import allocations_of, blocks, is_pure
from warploom.ir.core import Builder, Family, Func, Op, Region
from warploom.ir.ops import control, smem, task
from warploom.ir.rewrite import rewrite_tasks, with_ops, with_regions
from warploom.passes.placed.allocate_shared import bytes_needed
from warploom.schedule.forms import ENOUGH_THREADS
from warploom.target import Target

_MOST = 8  # places that are tried
_STORES = (smem.shared_store, smem.shared_scatter)


def part_lifetimes(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    resident = _Resident(func, target)
    places = resident.places
    if not places or resident.most <= resident.alone:
        return func
    for o in resident.places:
        fewer = [x for x in places if x is not o]
        if resident.of(fewer) == resident.most:
            places = fewer
    return _parted(func, places)


def resident_parted(func: Func, target: Target, enough: int) -> int:
    """The CTAs that share a multiprocessor after part_lifetimes, as far as memory and threads decide.  Those
    without its barriers, if they are `enough`."""
    resident = _Resident(func, target)
    return resident.alone if resident.alone >= enough else max(resident.alone, resident.most)


class _Resident:
    """CTAs of a multiprocessor, as far as memory and threads decide: alone, without a barrier; most, with one
    at each of the places where one may be."""

    def __init__(self, func: Func, target: Target) -> None:
        (phase,) = task.phases(func)
        self._func, self._target = func, target
        self._threads = target.warp_size * phase.attrs["warps"][0] * phase.attrs["replicas"][0]
        self.places = _first_writes(func, phase.regions[0])[:_MOST]
        if self.places and self.alone * self._threads >= ENOUGH_THREADS:
            self.places = [o for o in self.places if o.kind not in _STORES]

    @cached_property
    def alone(self) -> int:
        return self.of(())

    @cached_property
    def most(self) -> int:
        return self.of(self.places) if self.places else self.alone

    def of(self, places: Collection[Op]) -> int:
        """With barriers at these places."""
        needed = bytes_needed(_parted(self._func, places), self._target)
        return self._target.resident(self._threads, 1, needed)


def part_alike(func: Func, before: Func, after: Func) -> Func:
    """`func`, the program of `before` without layouts, with the barriers that make `after` of `before`."""
    if after is before:
        return func
    old = set(before.body.all_ops)
    parted = {
        y for r in blocks(after.body) for x, y in pairwise(r.ops) if x not in old and y in old
    }
    there, here = (_first_writes(f, task.phases(f)[0].regions[0]) for f in (before, func))
    return _parted(func, [x for x, y in zip(here, there, strict=True) if y in parted])


def _first_writes(func: Func, region: Region) -> list[Op]:
    """The ops of a task's main block that are the first to touch an allocation, and write it, after others
    were used."""
    made, seen, found = allocations_of(func), set[Op](), list[Op]()
    inner = [o for o in region.ops if o.kind is control.if_ and any(map(_fills, o.all_ops))]
    if inner:
        return [x for r in inner[0].regions for x in _first_writes(func, r)]
    for o in region.ops:
        touches = [x for x in o.all_ops if x.kind.family is not Family.PLACE]
        touched = {made[v] for x in touches for v in x.operands if v in made}
        writes = any(_fills(x) or x.kind in _STORES for x in o.all_ops)
        if writes and seen and touched - seen:
            found.append(o)
        if not (o.kind is task.elect and not seen):
            seen |= touched
    return found


def _fills(o: Op) -> bool:
    return o.kind in engines.FILLS


def _parted(func: Func, places: Collection[Op]) -> Func:
    """With a barrier before each of the places."""
    return rewrite_tasks(func, lambda o: with_regions(o, lambda r: _region(r, places)))


def _region(region: Region, places: Collection[Op]) -> Region:
    ops: list[Op] = []
    late: list[Op] = []  # what waits for the products before it
    for o in region.ops:
        if late and (o is region.ops[-1] or not _may_precede(o, late)):
            ops += late
            late = []
        if o not in places:
            ops.append(with_regions(o, lambda r: _region(r, places)))
            continue
        b = Builder(o.loc)
        smem.group_sync(b, scope="task")
        late += [*b.ops, o]
    return with_ops(region, ops)


def _may_precede(o: Op, late: list[Op]) -> bool:
    """Is o a wait for products, or what computes numbers of other things than `late` makes?"""
    if engines.WAITED.get(o.kind) == "products":
        return True
    made = {v for x in late for v in x.results}
    return is_pure(o) and not o.regions and made.isdisjoint(o.operands)
