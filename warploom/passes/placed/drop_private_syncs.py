"""Drops barriers between accesses of each thread to elements of its own, and those that order nothing.

Order: after assign_layouts, which says who holds which element, before allocate_shared, whose exchanges
count on the barriers that are left.
Changes: 5 families: what is computed in place, or stored twice: attention, several products, rows.

A kernel that loads what it stores, or stores to an array twice, has a barrier before either (partition_code),
as another thread may have stored what this one loads or stores.  Where all accesses to an array are boxes of
one size, in one layout, and begin a multiple of that size apart, an element is the same thread's in all of
them: program order is enough.  Nor is a second barrier needed before a load where nothing was stored since
the last one, or before a store where the array was neither loaded nor stored since.  Stores of one element
each are one thread's, in its order.  A barrier before a loop of loads is not for one of them alone: it stays.

    before:  group_sync() {scope="task", memory=true}
             %x = load_box(%v, %i)
             %y = add(%x, %x)
             group_sync() {scope="task", memory=true}
             store_box(%v, %y, %i)
    after:   %x = load_box(%v, %i)
             %y = add(%x, %x)
             store_box(%v, %y, %i)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from warploom.analysis.access import Accesses, writes_memory
from warploom.ir.analysis import touches_global
from warploom.ir.core import Func, Op, Region, Value, walk
from warploom.ir.ops import control, smem, task, tile
from warploom.ir.rewrite import rewrite_tasks, with_ops, with_regions
from warploom.ir.types import Tile, shape_of
from warploom.target import Target

_Touched = tuple[int | None, str]  # an array, and what was done to it
# What a barrier parts: a store of one element is one thread's, as are others of one element.
_APART = {
    "load": ("element", "store"),
    "element": ("load", "store"),
    "store": ("load", "element", "store"),
}


def drop_private_syncs(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    accesses = Accesses(func, target)
    bases = dict(accesses.reached())
    alone = [o.attrs["replicas"] for o in task.phases(func)] == [(1,)] and not any(
        touches_global(o) and o not in bases for o in walk(func.body)
    )
    bases = bases if alone else {}
    private = _private_accesses(accesses, bases)

    def touched(o: Op) -> frozenset[_Touched]:
        return frozenset({(bases[o], _done(o))} if o in bases else ())

    def needs(o: Op | None, since: frozenset[_Touched]) -> bool:
        """May another thread have stored what o loads, or loaded or stored what o stores?  Where the barrier
        is not for o alone: have threads touched anything?"""
        if o in private:
            return False
        if o is None or o not in bases:
            return not alone or bool(since)
        return any((bases[o], done) in since for done in _APART[_done(o)])

    def change(region: Region, since: frozenset[_Touched]) -> tuple[Region, frozenset[_Touched]]:
        """The region without what no access needs, the others barriers like any.  since: what threads have
        touched since they last met, before the region and after it."""
        ops = []
        for o, then in zip(region.ops, (*region.ops[1:], None), strict=True):
            if o.kind is smem.group_sync:
                if o.attrs.get("memory") and not needs(then, since):
                    continue
                since = frozenset()
                o = o.with_(attrs={k: v for k, v in o.attrs.items() if k != "memory"})
            elif o.regions:
                if o.kind in control.LOOPS:  # what one iteration leaves the next one finds
                    since = since.union(*map(touched, o.all_ops))
                ways = [change(r, since) for r in o.regions]
                o = o.with_(regions=tuple(r for r, _ in ways))
                since = since.union(*(left for _, left in ways))
            ops.append(o)
            since |= touched(o)
        return with_ops(region, ops), since

    return rewrite_tasks(func, lambda o: with_regions(o, lambda r: change(r, frozenset())[0]))


def _done(o: Op) -> str:
    if not writes_memory(o):
        return "load"
    return "element" if o.stores and math.prod(shape_of(o.operands[1].type)) == 1 else "store"


def _private_accesses(accesses: Accesses, bases: Mapping[Op, int | None]) -> set[Op]:
    """The accesses to arrays of which each element is one thread's."""
    by_base: dict[int | None, list[Op]] = {}
    for o, base in bases.items():
        by_base.setdefault(base, []).append(o)
    private = {None: False} | {
        base: _is_private(accesses, ops) for base, ops in by_base.items() if base is not None
    }
    return {o for base, ops in by_base.items() if private[base] for o in ops}


def guards_memory(func: Func) -> bool:
    """Has the function a barrier for accesses to global memory alone?"""
    return any(o.attrs.get("memory") for o in func.body.by_kind.get(smem.group_sync, ()))


def _is_private(accesses: Accesses, ops: Sequence[Op]) -> bool:
    """Is each element of the memory that ops access one thread's in all of them?"""
    if any(o.kind not in (tile.load_box, tile.store_box) for o in ops):
        return False
    views = {_view(accesses, o) for o in ops}
    held = {_tile(o) for o in ops}
    if None in views or len(views) > 1 or len(held) > 1:
        return False
    (view,), (t,) = views, held
    if view is None or not all(_is_fixed(accesses, v) for v in view):
        return False
    if t.layout is None or t.layout.is_replicated:
        return False
    offsets = [o.operands[2:] if o.kind is tile.store_box else o.operands[1:] for o in ops]
    rank = len(offsets[0])
    sizes = (1,) * (rank - len(t.shape)) + t.shape
    moving = 0  # axes along which different coordinates may be one place, but for an axis alone
    for n, starts in zip(sizes, zip(*offsets, strict=True), strict=True):
        fixed = len(set(starts)) == 1 and _is_fixed(accesses, starts[0])
        if not fixed and any(accesses.facts.divisor(v) % n for v in starts):
            return False
        moving += n > 1 or not fixed
    return moving <= 1


def _view(accesses: Accesses, o: Op) -> tuple[Value, ...] | None:
    """What the view of a box is made of."""
    made = accesses.view(o)
    return None if made is None else made.operands


def _tile(o: Op) -> Tile:
    t = (o.operands[1] if o.kind is tile.store_box else o.result).type
    assert isinstance(t, Tile)
    return t


def _is_fixed(accesses: Accesses, v: Value) -> bool:
    """Is v one number for the whole program?"""
    made = accesses.structure.made[v].op
    return made is None or not (accesses.structure.loops(made) or made.regions)
