"""What is known of the numbers of a program: ranges, divisors, and how tiles move along their axes.

One `Facts` is about one function (`facts_of`, kept as long as the function is) or about ops that are being
written.  It is lazy: `interval(v)` and `axis(v, d)` find what they need by the rules of scalar_rules.py and
axis_rules.py.  What a loop carries is found by iteration: from what holds at its entry the rules are applied
to the body, and what holds of both is kept, until nothing changes.

    %p = program_id() {axis=0}                      0 … 2^31 - 2
    %m = mul(%p, 128)                               0 … 2^31 - 1, 128 divides it
    %i = add(splat(%m), arange(0, 128))             axis 0: slope 1, 128 divides its first element
    if ge(%i, %n) { %d = sub(%i, %n) }              0 …: where it is computed, the condition holds

Signed integers of 32 bits or more are taken not to overflow in sums, differences and products, as they count
places in memory; narrow and unsigned ones, shifts and conversions wrap.  `tl.assume` and `tl.multiple_of` are
believed of values in the block that makes them, which always reaches the promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from weakref import WeakKeyDictionary

from warploom.analysis import axis_rules, scalar_rules
from warploom.analysis.axis_rules import Operand, pointee
from warploom.analysis.lattice import NO_NUMBER, AxisFact, Interval, exactly, flat, line
from warploom.analysis.scalar_rules import anything
from warploom.analysis.scope import Order, Scope
from warploom.ir.analysis import passed_on
from warploom.ir.core import MIXED, Func, Op, Value
from warploom.ir.ops import arith, control
from warploom.ir.types import Scalar, Tile

Key = Value | tuple[Value, int]  # of every element, or along an axis
Known = Interval | AxisFact
Look = Callable[[Key], Known | None]  # None: not known yet
_SOON = 2  # iterations before bounds that still move take large steps


@dataclass(eq=False)
class Facts:
    """What is known of values, by what defines them.

    maker: the op whose result a value is, None of parameters.  given: what is known of parameters.  scope:
    what holds where, as far as that is known.  trusting: divisors are positive, as those of indices are.
    wraps: no arithmetic is taken not to overflow (the program may mean its bits).  groups: what
    `contiguity.groups` found of pointers and their masks."""

    maker: Callable[[Value], Op | None]
    given: Mapping[Value, Interval] = field(default_factory=dict)
    scope: Scope | None = None
    trusting: bool = False
    wraps: bool = False
    _known: dict[Key, Known] = field(default_factory=dict)
    groups: dict[tuple[Value, ...], tuple[int, int] | None] = field(default_factory=dict)

    def interval(self, v: Value) -> Interval:
        """The range and the divisor of an integer, an address, or each element of a tile of them; of what is
        none of these NO_NUMBER."""
        found = self._get(v)
        assert isinstance(found, Interval)
        return found

    def axis(self, v: Value, axis: int) -> AxisFact:
        """How a tile moves along an axis; scalars don't."""
        if not isinstance(v.type, Tile):
            return flat(self.interval(v).divisor)
        found = self._get((v, axis))
        assert isinstance(found, AxisFact)
        return found

    def constant(self, v: Value) -> int | None:
        """The integer that v always is, where there is one."""
        return self.interval(v).constant

    def divisor(self, v: Value) -> int:
        """A power of two (up to 65536) that divides the integer v, or an address in bytes."""
        return self.interval(v).divisor

    def never_negative(self, v: Value) -> bool:
        """Is the integer v, or each element of a tile, 0 or more?"""
        return self.interval(v).low >= 0

    def never_zero(self, v: Value) -> bool:
        """Is the integer v, or each element of a tile, other than 0?"""
        return self.interval(v).is_nonzero

    def at(self, v: Value, o: Op) -> Interval:
        """The range and the divisor of v where op o runs."""
        found = self._operand(v, o, self._get)
        assert found is not None
        return found

    def under(self, given: Mapping[Value, Interval]) -> Facts:
        """What else is known where the parameters are `given`, and divisors positive."""
        return Facts(self.maker, given, self.scope, trusting=True)

    def where(self, values: Mapping[Value, Interval]) -> Facts:
        """What else is known where these values are in these ranges."""
        given = {**self.given, **values}
        return Facts(self.maker, given, self.scope, self.trusting, self.wraps)

    def wrapping(self) -> Facts:
        """What is known where no arithmetic is taken not to overflow."""
        return Facts(self.maker, self.given, self.scope, self.trusting, wraps=True)

    # ---- iteration

    def _get(self, key: Key) -> Known:
        if key not in self._known:
            self._solve(key)
        return self._known[key]

    def _solve(self, root: Key) -> None:
        """Applies the rules to all that root follows from, operands first, until nothing changes."""
        order, is_cyclic = self._order(root)
        found: dict[Key, Known] = {}
        rounds, changes = 0, True
        while changes:
            changes = False
            for key in order:
                new, old = self._applied(key, self._looking(found)), found.get(key)
                if old is not None:
                    new = _joined(old, new, rounds > _SOON, key)
                if new is not None and new != old:
                    found[key] = new
                    changes = is_cyclic
            rounds += 1
        for key in order:
            self._known[key] = found.get(key) or _nothing(key)

    def _looking(self, found: Mapping[Key, Known]) -> Look:
        return lambda key: self._known.get(key) or found.get(key)

    def _order(self, root: Key) -> tuple[list[Key], bool]:
        """What root follows from that isn't known yet, operands first; does any follow from itself?"""
        order: dict[Key, None] = {}
        entered = {root}
        stack = [(root, iter(self._needed(root)))]
        is_cyclic = False
        while stack:
            key, following = stack[-1]
            below = next(following, None)
            if below is None:
                order[key] = None
                stack.pop()
            elif below not in entered:
                entered.add(below)
                stack.append((below, iter(self._needed(below))))
            else:
                is_cyclic = is_cyclic or below not in order
        return list(order), is_cyclic

    def _needed(self, key: Key) -> list[Key]:
        """What the rule of a key looks at."""
        asked: dict[Key, None] = {}

        def look(k: Key) -> Known | None:
            asked[k] = None
            return None

        self._applied(key, look)
        return [k for k in asked if k not in self._known]

    def _applied(self, key: Key, look: Look) -> Known | None:
        """What the rule of a key gives.  It looks at all that it needs whatever it finds."""
        return self._axis(*key, look) if isinstance(key, tuple) else self._interval(key, look)

    def _sources(self, v: Value) -> Sequence[Value] | None:
        """What v may be, of what a loop or an if passes on."""
        if self.scope is not None and v in self.scope.carried:
            return self.scope.carried[v]
        o = self.maker(v)
        return passed_on(o)[v] if o is not None and o.kind in control.LEAD else None

    # ---- of every element

    def _interval(self, v: Value, look: Look) -> Interval | None:
        found = self._by_kind(v, look)
        if self.scope is None or found is None:
            return found
        for order in self.scope.assumed.get(v, ()):
            other = self.maker(order.high if order.low is v else order.low)
            if other is not None and other.kind is arith.const:
                found = _beside(v, found, order, exactly(int(other.attrs["value"])))
        if v in self.scope.promised and not isinstance(v.type, Tile):
            found = found._replace(divisor=max(found.divisor, *self.scope.promised[v]))
        return found

    def _by_kind(self, v: Value, look: Look) -> Interval | None:
        if v in self.given:
            return self.given[v]
        if anything(v.type) is NO_NUMBER:
            return NO_NUMBER
        sources = self._sources(v)
        if sources is not None:
            return _all(look(x) for x in sources)
        loop = self.scope.indices.get(v) if self.scope is not None else None
        if loop is not None:
            return _index(*(_interval(look(x)) for x in loop.operands[:3]))
        o = self.maker(v)
        if o is None:
            return anything(v.type)
        args = [self._operand(x, o, look) for x in o.operands]
        known = [x for x in args if x is not None]
        if len(known) < len(args):
            return None
        found = scalar_rules.transfer(o, v, known, self.trusting, self.wraps)
        return self._difference(o, found) if o.kind is arith.sub else found

    def _operand(self, v: Value, o: Op, look: Look) -> Interval | None:
        """What is known of an operand where op o is run."""
        found = _interval(look(v))
        if self.scope is None or (found is not None and found.constant is not None):
            return found  # a constant is known whatever it is compared with
        for order in self.scope.holding(o).get(v, ()):
            other = _interval(look(order.high if order.low is v else order.low))
            found = found and other and _beside(v, found, order, other)
        return found

    def _difference(self, o: Op, found: Interval) -> Interval:
        """x - y where one is known not to exceed the other."""
        x, y = o.operands
        for order in self.scope.holding(o).get(x, ()) if self.scope is not None else ():
            if (order.low, order.high) == (y, x):
                found = found.refined(low=order.distance)
            elif (order.low, order.high) == (x, y):
                found = found.refined(high=-order.distance)
        return found

    # ---- along an axis

    def _axis(self, v: Value, axis: int, look: Look) -> AxisFact | None:
        every, sources, o = _interval(look(v)), self._sources(v), self.maker(v)
        found: AxisFact | None = None
        if sources is not None:
            found = _all_axes([look((x, axis)) for x in sources])
        elif o is None or every is None:
            found = AxisFact(first=every.divisor) if every is not None else None
        if sources is None and o is not None:
            along = o.kind.axes(o, axis) if o.kind.axes is not None else (None,) * len(o.operands)
            args = [self._along(x, a, look) for x, a in zip(o.operands, along, strict=True)]
            known = [x for x in args if x is not None]
            if len(known) == len(args) and every is not None:
                found = axis_rules.transfer(o, v, axis, known, every)
        by = self.scope.promised.get(v) if self.scope is not None else None
        if found is not None and by is not None and found.slope == 1:
            found = line(1, max(found.first, by[axis]), pointee(v))
        return found

    def _along(self, x: Value, axis: int | None, look: Look) -> Operand | None:
        every = _interval(look(x))
        if axis is None or axis == MIXED or not isinstance(x.type, Tile):
            return every and Operand(flat(every.divisor), every)
        found = look((x, axis))
        if every is None or found is None:
            return None
        assert isinstance(found, AxisFact)
        return Operand(found, every)


def _interval(found: Known | None) -> Interval | None:
    assert not isinstance(found, AxisFact)
    return found


def _nothing(key: Key) -> Known:
    return AxisFact() if isinstance(key, tuple) else anything(key.type)


def _joined(old: Known, new: Known | None, is_late: bool, key: Key) -> Known:
    """What holds of both, and (late) soon holds of all that follow."""
    if new is None:
        return old
    if isinstance(new, AxisFact) or isinstance(old, AxisFact):
        assert isinstance(new, AxisFact) and isinstance(old, AxisFact)
        return old.join(new)
    assert isinstance(key, Value)
    found = old.join(new)
    return found.widened(old, anything(key.type)) if is_late else found


def _all(found: Iterable[Known | None]) -> Interval | None:
    """What holds of all that are known."""
    known = [x for x in map(_interval, found) if x is not None]
    return reduce(Interval.join, known) if known else None


def _all_axes(found: Iterable[Known | None]) -> AxisFact | None:
    known = [x for x in found if isinstance(x, AxisFact)]
    return reduce(AxisFact.join, known) if known else None


def _beside(v: Value, found: Interval, order: Order, other: Interval) -> Interval:
    """What is known of v, one of the two that an order is about, by the other."""
    if order.high is v:
        return found.refined(low=other.low + order.distance)
    return found.refined(high=other.high - order.distance)


def _index(lo: Interval | None, hi: Interval | None, step: Interval | None) -> Interval | None:
    """A loop's index, in iterations that there are."""
    if lo is None or hi is None or step is None:
        return None
    by = min(lo.divisor, step.divisor)
    return Interval(lo.low, max(lo.low, (hi.high - 1) // by * by), by)


# ---- of functions

_FACTS: WeakKeyDictionary[Func, Facts] = WeakKeyDictionary()


def facts_of(func: Func) -> Facts:
    """What is known of a function's values, and of what its launch says of its parameters (attrs "facts",
    "nonnegative" and "positive").

    >>> from warploom.ir.core import Level, Region
    >>> from warploom.ir.types import i32
    >>> n = Value(Scalar(i32), "n")
    >>> func = Func("f", Region((n,), ()), Level.TILE, {"facts": (Fact(16),), "nonnegative": (0,)})
    >>> facts_of(func).interval(n)
    Interval(low=0, high=2147483647, divisor=16)
    """
    if func not in _FACTS:
        scope = Scope(func.body)
        _FACTS[func] = Facts(scope.made.get, parameters(func), scope)
    return _FACTS[func]


def least_of(func: Func) -> dict[int, int]:
    """What integer parameters (by their place) are taken not to be less than."""
    zero, one = (func.attrs.get(name, ()) for name in ("nonnegative", "positive"))
    return {**dict.fromkeys(zero, 0), **dict.fromkeys(one, 1)}


def parameters(func: Func) -> dict[Value, Interval]:
    """What a function's launch says of its parameters."""
    least = least_of(func)
    found = {}
    for i, (p, fact) in enumerate(zip(func.params, func.facts, strict=True)):
        known = anything(p.type)
        if isinstance(fact.value, int) and isinstance(p.type, Scalar) and p.type.dtype.is_int:
            known = exactly(int(fact.value))
        elif known is not NO_NUMBER:
            known = known._replace(divisor=fact.divisible)
        found[p] = known.refined(low=least.get(i))
    return found
