"""Places what claims a number early, and what needs the number late: its way passes under the work between.

Order: after partition_tasks, before insert_channels, which hands a number on in front of its first reader.

before:  while …: { loads; dots; store; %n = atomic(…) @{producer};  %t = add(%n, %grid);  yield(%t) }
after:   while …: { %n = atomic(…) @{producer};  loads; dots; store;  %t = add(%n, %grid);  yield(%t) }

An atomic whose result crosses moves up in its block, behind its operands and behind the accesses to memory
that come before it in its task; never out of a loop or an if, so nothing is claimed earlier than one
iteration ahead.  What observes memory (a volatile load) stays where it is written.  Arithmetic on numbers
that cross moves down, to the first op that needs it; what the user promises of them (assume), to the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from warploom.ir.analysis import free_values, is_pure
from warploom.ir.core import Effect, Func, Op, Region, Value, walk
from warploom.ir.ops import control, tile
from warploom.ir.types import Tile
from warploom.schedule.model import Schedule
from warploom.target import Target


def order_numbers(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring."""
    crossing = {i for c in schedule.channels if "number" in c.via for i in c.items}
    if not crossing:
        return func
    return func.with_(body=_ordered(func.body, crossing))


def _ordered(region: Region, crossing: set[str]) -> Region:
    ops = [
        o.with_(regions=tuple(_ordered(r, crossing) for r in o.regions)) if o.regions else o
        for o in region.ops
    ]
    if any(o.id in crossing for o in ops):
        ops = _late(_early(ops, crossing), crossing)
    return Region(region.params, tuple(ops))


def _early(ops: list[Op], crossing: set[str]) -> list[Op]:
    """The atomics as far up as they may stand."""
    out: list[Op] = []
    for o in ops:
        at = len(out)
        if o.id in crossing and o.kind is tile.atomic:
            while at > 0 and _may_pass(o, out[at - 1]):
                at -= 1
        out.insert(at, o)
    return out


def _may_pass(o: Op, before: Op) -> bool:
    """May o come before the op that stands in front of it?"""
    if set(o.operands) & set(before.results):
        return False
    inside = (before, *(x for r in before.regions for x in walk(r)))
    return all(_is_apart(x) for x in inside if x.tasks & o.tasks)


def _is_apart(o: Op) -> bool:
    """Is o no access to memory, or one that only loads a tile?  No op on numbers writes what tiles are of."""
    loads_tile = o.kind in (tile.load, tile.load_box) and isinstance(o.result.type, Tile)
    return o.kind.effect is Effect.NONE or loads_tile


def _late(ops: list[Op], crossing: set[str]) -> list[Op]:
    """Arithmetic on numbers that cross stands in front of the first op that needs it."""
    moving: dict[Value, Op] = {}  # result -> op that waits for its first reader
    numbers = {v for o in ops if o.id in crossing for v in o.results}
    out: list[Op] = []

    def place(values: Iterable[Value]) -> None:
        for v in values:
            o = moving.get(v)
            if o is not None:
                for x in o.results:
                    del moving[x]
                place(o.operands)
                out.append(o)

    promises: list[Op] = []  # of the user, on such numbers: nothing waits for them
    for o in ops:
        on_numbers = any(v in numbers or v in moving for v in o.operands)
        is_plain = is_pure(o) and not o.regions and o.kind is not control.yield_
        if on_numbers and is_plain and not any(isinstance(v.type, Tile) for v in o.results):
            moving |= dict.fromkeys(o.results, o)
        elif on_numbers and o.kind is control.assume:
            promises.append(o)
        else:
            if o is ops[-1]:
                place(v for x in promises for v in x.operands)
                out += promises
            place((*o.operands, *(v for r in o.regions for v in free_values(r))))
            out.append(o)
    return out
