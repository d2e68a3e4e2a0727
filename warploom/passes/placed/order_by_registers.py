"""Orders the ops of tasks whose tiles take more registers than a thread has, so that fewer are held at once.

Order: after assign_layouts, as it goes by what a thread holds of each tile; before limit_unrolling.
Changes: 3 families: attention, chunked linear attention of others: what is loaded before a loop and read
after it, results that wait for a scan before they are stored.

before:  %g = load_box(%view, …)               after:  for …
         for …                                         %g = load_box(%view, …)
         %y = mul(%sum, %g)                            %y = mul(%sum, %g)
         %s = scan(%y)                                 shared_store(%staging, %y)
         shared_store(%staging, %y)                    %s = scan(%y)

What acts stays as it stands.  Between, an op with all that it needs is moved before the others, or an op down
to its first reader, where the sum of what exceeds a thread's registers becomes less.  Loads of global memory
pass nothing that writes it or lets threads meet, loads of a slot nothing but arithmetic and waits for other
slots.  A task whose tiles are estimated to fit is left alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from warploom.ir import engines
from warploom.ir.analysis import closure, reads
from warploom.ir.core import Effect, Func, Op, Region
from warploom.ir.ops import mbarrier, mma, smem, tile
from warploom.ir.rewrite import rewrite_regions, with_ops, with_regions
from warploom.ir.types import Tile
from warploom.passes.placed.layout_rules import RULES
from warploom.passes.placed.register_pressure import Pressure, limit_of
from warploom.passes.placed.task_layouts import tiles
from warploom.target import Target

_ROUNDS = 3


def order_by_registers(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    limit = limit_of(target)

    def ordered(r: Region) -> Region:
        if not r.by_kind.get(tile.dot):
            return r
        pressure = Pressure(r)
        return _region(r, pressure, limit) if pressure.peak(r) > limit else r

    return rewrite_regions(func, ordered)


def _region(r: Region, pressure: Pressure, limit: int) -> Region:
    ops = [with_regions(o, lambda x: _region(x, pressure, limit)) for o in r.ops]
    pressure.replaced(r.ops, ops)
    found = _Ordering(r, pressure, limit, ops).ordered()
    return with_ops(r, found if found == ops else _with_syncs(ops, found))


def _with_syncs(before: Sequence[Op], ops: Sequence[Op]) -> list[Op]:
    """The ops with a barrier more where one that needs scratch has come between the barrier ahead of a store
    to shared memory and the store: the scratch and what is written may share bytes."""

    def between(ops: Sequence[Op], at: int) -> tuple[Op | None, bool]:
        """The barrier ahead, and whether the way from there uses scratch."""
        uses = False
        for o in reversed(ops[:at]):
            if o.kind is smem.group_sync:
                return o, uses
            uses |= bool(tiles(o)) and bool(RULES[o.kind].scratch(o))
        return None, uses

    found: list[Op] = []
    for i, o in enumerate(ops):
        if o.kind is smem.shared_store:
            barrier, uses = between(ops, i)
            if barrier is not None and uses and not between(before, before.index(o))[1]:
                found.append(barrier.with_())
        found.append(o)
    return found


@dataclass
class _Ordering:
    region: Region
    pressure: Pressure
    limit: int
    ops: list[Op]

    def ordered(self) -> list[Op]:
        self.needs = {o: reads(o) for o in self.ops}
        self.maker = {v: o for o in self.ops for v in o.results}
        self.multiplied = {v for o in self.ops if mma.is_issued(o) for v in o.operands}
        least = self.cost(self.ops)
        for _ in range(_ROUNDS):
            before = least
            for o in list(self.ops) if least else ():
                least = min(least, self.hoist(o, least))
            for o in reversed(list(self.ops)):
                least = min(least, self.sink(o, least))
            if least == before:
                break
        return self.ops

    def may_pass(self, o: Op, other: Op) -> bool:
        """As _may_pass; registers that a product reads are written before the fence that stands before it."""
        is_late = other.kind in engines.OPENED and not self.multiplied.isdisjoint(o.results)
        return not is_late and _may_pass(o, other)

    def cost(self, ops: Sequence[Op]) -> int:
        return self.pressure.excess(self.region, ops, self.limit)

    def keeps(self, ops: list[Op], least: int) -> int:
        """Takes an order if it costs less; what it costs."""
        if not least:
            return least
        cost = self.cost(ops)
        if cost < least:
            self.ops = ops
        return cost

    def hoist(self, o: Op, least: int) -> int:
        """Tries to put what an op doesn't need after it."""
        at = self.ops.index(o)
        before = self.ops[:at]
        fixed = [x for x in (*before, o) if x is o or not _is_movable(x)]
        needed = closure(fixed, lambda x: [self.maker[v] for v in self.needs[x] if v in self.maker])
        late: list[Op] = []
        kept: list[Op] = []
        for x in before:
            (kept if x in needed else late).append(x)
        ok = [
            x
            for x, n in zip(late, _passed(before, kept, late), strict=True)
            if all(self.may_pass(x, y) for y in (*kept[n:], o))
        ]
        stuck = closure(
            [x for x in late if x not in ok],
            lambda x: [self.maker[v] for v in self.needs[x] if v in self.maker],
        )
        late = [x for x in late if x not in stuck]
        if not late:
            return least
        moved = set(late)
        first = [*(x for x in before if x not in moved), o]
        rest = self.ops[at + 1 :]
        made = {v for x in late for v in x.results}
        to = next((i for i, x in enumerate(rest) if not made.isdisjoint(self.needs[x])), len(rest))
        if not all(self.may_pass(x, y) for x in late for y in rest[:to]):
            to = 0
        return self.keeps([*first, *rest[:to], *late, *rest[to:]], least)

    def sink(self, o: Op, least: int) -> int:
        """Tries to put an op right before its first reader, or as far down as it may go."""
        if not _is_movable(o):
            return least
        at = self.ops.index(o)
        to = at + 1
        made = set(o.results)
        while (
            to < len(self.ops)
            and made.isdisjoint(self.needs[self.ops[to]])
            and self.may_pass(o, self.ops[to])
        ):
            to += 1
        if to == at + 1 or to == len(self.ops):
            return least
        order = [*self.ops[:at], *self.ops[at + 1 : to], o, *self.ops[to:]]
        if self.pressure.is_through(o):
            self.ops = order
            return least
        return self.keeps(order, least)


def _passed(before: Sequence[Op], kept: Sequence[Op], late: Sequence[Op]) -> list[int]:
    """For each of the late ops how many of those kept stand before it."""
    places = {o: i for i, o in enumerate(before)}
    at = [places[o] for o in kept]
    return [bisect_left(at, places[x]) for x in late]


def _is_movable(o: Op) -> bool:
    """Does it only compute tiles, or load them?"""
    tiles = o.results and all(isinstance(v.type, Tile) for v in o.results)
    plain = o.kind.effect is Effect.NONE or o.loads or o.kind is smem.shared_load
    return bool(tiles) and plain and not o.regions and not o.attrs.get("volatile")


def _may_pass(o: Op, other: Op) -> bool:
    """May a movable op stand after another one that doesn't read it?"""
    if o.kind.effect is Effect.NONE:
        return True
    acting = [x for x in other.all_ops if x.kind.acts]
    if o.kind is smem.shared_load:
        return all(x.kind is mbarrier.mbarrier_wait for x in acting) and not other.regions
    return all(x.kind in engines.BRINGS for x in acting)
