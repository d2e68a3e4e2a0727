"""Software-pipelines the dynamic tile scheduler: hoists the atomic that fetches the next tile's index, and
sinks its first use.

The work between hides the atomic's latency.

Order: after partition_tasks, before insert_channels, which hands a number on before its first reader.
Changes: 3 families: products that draw their tiles, and the library's attention that does (where causal 0.92
to 0.97 of the explicit kernel before the next tile's number came early, then 0.96 to 1.03:
docs/log/2026-11-21-attention-dynamic-tiles.md); schedulers of that kind.

before:  while …: { loads; dots; store; %n = atomic(…) @{producer};  %t = add(%n, %grid);  yield(%t) }
after:   while …: { %n = atomic(…) @{producer};  loads; dots; %t = add(%n, %grid); store;  yield(%t) }

An atomic whose result crosses moves up in its block, after its operands and after the accesses to memory
that come before it in its task; never out of a loop or an if, so nothing is claimed earlier than one
iteration ahead.  What observes memory (a volatile load) stays where it is written.  Arithmetic on numbers
that cross, and what the user promises of them (assume), comes after the last op that fills a ring: the
producer hands the number on when it has asked for all that the iteration needs, and what ends the iteration
hides its latency.
"""

from __future__ import annotations

from collections.abc import Iterable

from warploom.ir.analysis import free_values, is_pure
from warploom.ir.core import Effect, Func, Op, Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.rewrite import with_regions
from warploom.ir.types import Tile
from warploom.schedule.model import Schedule


def pipeline_scalars(func: Func, schedule: Schedule) -> Func:
    """See the module's docstring."""
    crossing = {i for c in schedule.channels if "number" in c.via for i in c.items}
    items = {i for c in schedule.channels for i in c.all_items} - crossing
    return func.with_(body=_ordered(func.body, crossing, items))


def _ordered(region: Region, crossing: set[str], items: set[str]) -> Region:
    ops = [with_regions(o, lambda r: _ordered(r, crossing, items)) for o in region.ops]
    if any(o.id in crossing for o in ops):
        ops = _behind_loads(_early(ops, crossing), crossing, items)
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
    """May o come before the op that stands before it?"""
    if set(o.operands) & set(before.results):
        return False
    return all(_is_apart(x) for x in before.all_ops if x.tasks & o.tasks)


def _is_apart(o: Op) -> bool:
    """Is o no access to memory, or one that only loads a tile?  No op on numbers writes what tiles are of."""
    loads_tile = o.loads and isinstance(o.result.type, Tile)
    return o.kind.effect is Effect.NONE or loads_tile


def _behind_loads(ops: list[Op], crossing: set[str], items: set[str]) -> list[Op]:
    """Arithmetic on numbers that cross stands after the last op that fills a ring, or where it is needed
    before."""
    filling = [i for i, o in enumerate(ops) if any(x.id in items for x in o.all_ops)]
    last = max(filling, default=-1)
    if last < 0:
        return ops
    waiting: list[Op] = []
    numbers = {v for o in ops if o.id in crossing for v in o.results}
    out: list[Op] = []

    def place(values: Iterable[Value]) -> None:
        """What computes the values."""
        for v in values:
            o = next((x for x in waiting if v in x.results), None)
            if o is not None:
                waiting.remove(o)
                place(o.operands)
                out.append(o)

    for o in ops[: last + 1]:
        if _follows(o, numbers):
            numbers.update(o.results)
            waiting.append(o)
        else:
            place((*o.operands, *(v for r in o.regions for v in free_values(r))))
            out.append(o)
    out += waiting
    rest: list[Op] = []
    late: set[Value] = set()  # made after that place
    for o in ops[last + 1 :]:
        if _follows(o, numbers) and late.isdisjoint(o.operands):
            numbers.update(o.results)
            out.append(o)
        else:
            late.update(o.results)
            rest.append(o)
    return out + rest


def _follows(o: Op, numbers: set[Value]) -> bool:
    """Is o arithmetic on one of the numbers, or a promise about it?"""
    if o.regions or o.kind is control.yield_ or numbers.isdisjoint(o.operands):
        return False
    if o.kind is control.assume:
        return True
    return is_pure(o) and not any(isinstance(v.type, Tile) for v in o.results)
