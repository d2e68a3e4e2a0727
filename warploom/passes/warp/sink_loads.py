"""Sinks wide loads that only pass through registers to shared memory after the ones before them have passed.

Order: when barriers and guards are where they stay, before assign_layouts.  Which loads says the schedule
(`Schedule.held_loads`, ids).
Changes: 2 families: backward kernels of linear attention, which load two states in float32 and multiply them
in bfloat16 (common/chunk_o of flash-linear-attention).

before:  %x = load_box(%v, …)           after:  %x = load_box(%v, …)
         %y = load_box(%w, …)                   shared_store(%a, cast(%x))
         shared_store(%a, cast(%x))             %y = load_box(%w, …)
         use(%a)                                use(%a)
         shared_store(%b, cast(%y))             shared_store(%b, cast(%y))

So their registers are the same ones, and one is on its way while what the other brought is used.  A load
passes nothing that writes global memory or orders it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import pairwise

from warploom.ir import engines
from warploom.ir.core import Family, Func, Op, Region, Value
from warploom.ir.ops import smem
from warploom.ir.rewrite import rewrite_tasks, with_ops, with_regions
from warploom.ir.types import Tile
from warploom.schedule.model import Schedule

_KEPT = engines.BRINGS | engines.MULTIPLIES | {smem.group_sync}
_PASSABLE = _KEPT | {*engines.OPENED, *engines.CLOSED, *engines.WAITED}


def sink_loads(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    wanted = frozenset(schedule.held_loads)
    return rewrite_tasks(func, lambda o: with_regions(o, lambda r: _region(r, wanted)))


def _region(r: Region, wanted: Collection[str]) -> Region:
    ops = [with_regions(o, lambda x: _region(x, wanted)) for o in r.ops]
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
            ops[at : to + 1] = [*ops[at + 1 : to + 1], load]
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
