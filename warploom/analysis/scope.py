"""What holds where: what loops and ifs pass on, the comparisons under which a block runs, and the promises
made in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from warploom.analysis.lattice import power_of_two
from warploom.ir.analysis import definitions, passed_on
from warploom.ir.core import Op, Region, Value
from warploom.ir.ops import arith, control, task, tile
from warploom.ir.types import Scalar, dtype_of


class Order(NamedTuple):
    """low + distance <= high."""

    low: Value
    high: Value
    distance: int


Orders = dict[Value, tuple[Order, ...]]  # by each of the two


@dataclass(eq=False)
class Scope:
    """Of one region and all inside it.

    made: results -> ops.  carried: what each value may be that a loop or an if passes on.  indices:
    induction variables -> loops.  block: the region that holds an op.  orders: what holds in a region.
    promised: what multiple_of says of a value, an axis each.  assumed: what assume says of a value that its
    own block makes."""

    root: Region
    made: dict[Value, Op] = field(default_factory=dict)
    carried: dict[Value, tuple[Value, ...]] = field(default_factory=dict)
    indices: dict[Value, Op] = field(default_factory=dict)
    block: dict[Op, Region] = field(default_factory=dict)
    orders: dict[Region, Orders] = field(default_factory=dict)
    promised: dict[Value, tuple[int, ...]] = field(default_factory=dict)
    assumed: Orders = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.made = definitions(self.root)
        self._region(self.root, {}, ())

    def _region(self, region: Region, around: Orders, entered: tuple[Order, ...]) -> None:
        """Notes what stands in a region, which runs where `entered` holds."""
        own = {*region.params, *(v for o in region.ops for v in o.results)}
        stated: list[Order] = []
        for o in region.ops:
            self.block[o] = region
            if o.kind is control.assume:
                stated += self._orders(o.operands[0], True)
                self._divides(o.operands[0], own)
            elif o.kind is task.tasks:  # all of them run: what one promises holds before it, too
                promises = (p for r in o.regions for p in r.ops if p.kind is control.assume)
                orders = (x for p in promises for x in self._orders(p.operands[0], True))
                stated += (x for x in orders if {x.low, x.high} <= own)
            elif o.kind is tile.multiple_of and o.operands[0] in own:
                self.promised[o.operands[0]] = tuple(map(power_of_two, o.attrs["by"]))
        for order in stated:
            for v in {order.low, order.high} & own:
                self.assumed[v] = (*self.assumed.get(v, ()), order)
        here = around
        for order in (*entered, *stated):
            here = dict(here) if here is around else here
            for v in (order.low, order.high):
                here[v] = (*here.get(v, ()), order)
        self.orders[region] = here
        for o in region.ops:
            if o.regions:
                self.carried |= passed_on(o)
                for inner, entry in zip(o.regions, self._entries(o), strict=True):
                    self._region(inner, here, entry)

    def _entries(self, o: Op) -> Iterator[tuple[Order, ...]]:
        """What holds in each region of o."""
        if o.kind is control.if_:
            yield from (tuple(self._orders(o.operands[0], taken)) for taken in (True, False))
        elif o.kind is control.for_:
            index = o.regions[0].params[0]
            self.indices[index] = o
            yield (Order(o.operands[0], index, 0), Order(index, o.operands[1], 1))
        elif o.kind is control.while_:
            condition, body = o.regions
            goes_on, *kept = condition.yielded
            named = dict(zip(kept, body.params, strict=True))
            yield ()
            yield tuple(
                Order(named.get(x.low, x.low), named.get(x.high, x.high), x.distance)
                for x in self._orders(goes_on, True)
            )
        else:
            yield from (() for _ in o.regions)

    def _orders(self, test: Value, holds: bool) -> Iterator[Order]:
        """What follows of two numbers where a test holds, or doesn't."""
        o = self.made.get(test)
        if o is None or not isinstance(test.type, Scalar):
            return
        if o.kind is arith.not_:
            yield from self._orders(o.operands[0], not holds)
        elif o.kind is (arith.and_ if holds else arith.or_):
            for x in o.operands:
                yield from self._orders(x, holds)
        elif o.kind in arith.COMPARE and dtype_of(o.operands[0].type).is_int:
            yield from _compared(o, holds)

    def _divides(self, test: Value, own: set[Value]) -> None:
        """x % n == 0 says that n divides x."""
        o = self.made.get(test)
        if o is None or o.kind is not arith.eq:
            return
        rest, n = (self.made.get(v) for v in o.operands)
        if rest is None or rest.kind is not arith.rem or n is None or n.kind is not arith.const:
            return
        x, by = rest.operands[0], self.made.get(rest.operands[1])
        if x in own and by is not None and by.kind is arith.const and n.attrs["value"] == 0:
            self.promised[x] = (power_of_two(int(by.attrs["value"])),)

    def holding(self, o: Op) -> Mapping[Value, tuple[Order, ...]]:
        """The orders that hold where op o runs."""
        return self.orders.get(self.block[o], {}) if o in self.block else {}


def _compared(o: Op, holds: bool) -> Iterator[Order]:
    x, y = o.operands
    kind = o.kind
    if kind in (arith.eq, arith.ne):
        if (kind is arith.eq) == holds:
            yield Order(x, y, 0)
            yield Order(y, x, 0)
        return
    if (known := arith.ordered(o)) is not None:
        x, y, strict = known
        yield Order(x, y, int(strict)) if holds else Order(y, x, int(not strict))
