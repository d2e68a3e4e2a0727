"""Sinks what would only wait in registers: casts to wider elements, wide loads on their way to shared memory.

Order: after hoist_loads, whose loads are on their way before that, and when barriers and guards are where
they stay; before assign_layouts.
Changes: 8 families: norms of rows that fit a block and load their weights first (registers hold them as they
were loaded, 48 a thread instead of 64, and one more program fits on a multiprocessor), gated units, residual
streams, convolutions along a sequence; backward kernels of linear attention, which load two states in float32
and multiply them in bfloat16.

A cast in a kernel without dots sinks past what makes its threads wait, to its first use; in others, loops
place their operands' widening.

before:  %w = load_box(%v, …)           after:  %w = load_box(%v, …)
         %wide = cast(%w)                       %s = reduce(%x)
         %s = reduce(%x)                        %wide = cast(%w)
         use(%wide, %s)                         use(%wide, %s)

Loads that the schedule names (`Schedule.held_loads`, ids) sink until the ones before them have passed through
registers: theirs are the same ones then, and one is on its way while what the other brought is used.  A load
passes nothing that writes global memory or orders it.

before:  %x = load_box(%v, …)           after:  %x = load_box(%v, …)
         %y = load_box(%w, …)                   shared_store(%a, cast(%x))
         shared_store(%a, cast(%x))             %y = load_box(%w, …)
         use(%a)                                use(%a)
         shared_store(%b, cast(%y))             shared_store(%b, cast(%y))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise

from warploom.ir import engines
from warploom.ir.analysis import waits
from warploom.ir.core import Family, Func, Op, Region, Value
from warploom.ir.ops import arith, smem
from warploom.ir.rewrite import rewrite_regions, with_ops, with_regions
from warploom.ir.types import Tile
from warploom.schedule.model import Schedule

_KEPT = engines.BRINGS | engines.MULTIPLIES | {smem.group_sync}
_PASSABLE = _KEPT | {*engines.OPENED, *engines.CLOSED, *engines.WAITED}


def sink_values(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    wanted = frozenset(schedule.held_loads)
    if not wanted:
        return rewrite_regions(func, _with_late_casts)
    return rewrite_regions(func, lambda r: _with_late_loads(r, wanted))


def holds_values(func: Func, schedule: Schedule | None) -> bool:
    """Is anything to be sunk?  Not in scripts."""
    if schedule is None:
        return False
    return bool(schedule.held_loads) or engines.MULTIPLIES.isdisjoint(func.body.by_kind)


# ---- casts


def _with_late_casts(r: Region) -> Region:
    ops = list(r.ops)
    for o in filter(_widens, reversed(r.ops)):
        at = ops.index(o)
        use = next(i for i, x in enumerate(ops) if i > at and _uses(x, o))
        if any(map(waits, ops[at + 1 : use])):
            ops.insert(use - 1, ops.pop(at))
    return with_ops(r, ops)


def _widens(o: Op) -> bool:
    if o.kind is not arith.cast or not isinstance(o.result.type, Tile):
        return False
    given = o.operands[0].type
    return isinstance(given, Tile) and given.dtype.bits < o.result.type.dtype.bits


def _uses(user: Op, o: Op) -> bool:
    return any(o.result in x.operands for x in user.all_ops)


# ---- loads


def _with_late_loads(r: Region, wanted: Collection[str]) -> Region:
    ops = [with_regions(o, lambda x: _with_late_loads(x, wanted)) for o in r.ops]
    made = {v: o for o in ops for v in o.results}
    readers = Counter(v for o in r.all_ops for v in o.operands)
    copies = [
        (load, o)
        for o in ops
        if o.kind is smem.shared_store and (load := _copied(o.operands[1], made, readers))
    ]
    for (_, stored), (load, _) in pairwise((x, o) for x, o in copies if x.id in wanted):
        at, to = ops.index(load), ops.index(stored)
        if at < to and all(_is_passable(o) for o in ops[at + 1 : to]):
            ops.insert(to, ops.pop(at))
    return with_ops(r, ops)


def _copied(v: Value, made: dict[Value, Op], readers: Counter[Value]) -> Op | None:
    """The load from which a tile follows element by element, all on the way read once; None without one."""
    o = made.get(v)
    if o is None or readers[v] != 1 or o.loads:
        return o if o is not None and readers[v] == 1 else None
    tiles = [x for x in o.operands if isinstance(x.type, Tile)]
    if o.kind.family is not Family.POINTWISE or len(tiles) != 1:
        return None
    return _copied(tiles[0], made, readers)


def _is_passable(o: Op) -> bool:
    return all(x.kind in _PASSABLE for x in o.all_ops if x.kind.acts)
