"""What each op makes of intervals: the table kind → rule of analysis/facts.py.

A rule takes the op and what is known of its operands and gives what is known of its result, of a tile's each
element.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from warploom.analysis.lattice import (
    ADDRESS,
    MOST,
    NO_NUMBER,
    Interval,
    counts_places,
    exactly,
    limits_of,
    power_of_two,
)
from warploom.ir.core import Family, Op, OpKind, Type, Value
from warploom.ir.fold import fold, quotient
from warploom.ir.ops import arith, cluster, task, tile
from warploom.ir.rules import Rules
from warploom.ir.types import DType, Pointer, Scalar, Tile, dtype_of, elem_of, i32, pointee_of

Rule = Callable[[Op, Sequence[Interval]], Interval]


def anything(t: Type) -> Interval:
    """What is known of every value of a type."""
    if not isinstance(t, (Scalar, Pointer, Tile)):
        return NO_NUMBER
    elem = elem_of(t)
    if isinstance(elem, Pointer):
        return ADDRESS
    return limits_of(elem) if elem.is_int else NO_NUMBER


def fitted(low: int, high: int, divisor: int, dtype: DType) -> Interval:
    """The integers from low to high as the dtype holds them: those that it doesn't hold wrap around, or (see
    `counts_places`) don't occur."""
    limits, found = limits_of(dtype), Interval(low, high, divisor)
    if found.within(limits):
        return found
    found = limits._replace(divisor=divisor)
    return found.refined(low, high) if counts_places(dtype) else found


def _dtype(o: Op) -> DType:
    return dtype_of(o.result.type)


def _corners(f: Callable[[int, int], int], x: Interval, y: Interval) -> tuple[int, int]:
    """The least and the greatest of f, which is monotone in each argument."""
    ends = [f(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    return min(ends), max(ends)


# ---- sums, products, quotients: the exact range, before the dtype's


def times(x: Interval, y: Interval) -> Interval:
    """Exact products."""
    return Interval(*_corners(operator.mul, x, y), min(MOST, x.divisor * y.divisor))


def _shifted(x: Interval, y: Interval) -> Interval:
    return Interval(*_corners(operator.lshift, x, y), min(MOST, x.divisor << min(y.low, 16)))


def plus(x: Interval, y: Interval) -> Interval:
    """Exact sums."""
    return Interval(x.low + y.low, x.high + y.high, min(x.divisor, y.divisor))


def _minus(x: Interval, y: Interval) -> Interval:
    return Interval(x.low - y.high, x.high - y.low, min(x.divisor, y.divisor))


EXACT: Mapping[OpKind, Callable[[Interval, Interval], Interval]] = {
    arith.add: plus,
    arith.sub: _minus,
    arith.mul: times,
}


def _exact(o: Op, args: Sequence[Interval]) -> Interval:
    return fitted(*EXACT[o.kind](*args), _dtype(o))


def _idiv(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    n = y.constant
    divisor = x.divisor // n if n and n > 0 and n & -n == n and x.divisor >= n else 1
    if y.is_nonzero:
        low, high = _corners(quotient, x, y)
    else:  # of the divisors that are not 0, those next to it make the greatest quotients
        most = max(abs(x.low), abs(x.high))
        low, high = -most, most
        if y.low == 0:
            low, high = min(x.low, 0), max(x.high, 0)
    return fitted(low, high, divisor, _dtype(o))


def _rem(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    nearest = y.low if y.low > 0 else -y.high if y.high < 0 else 1
    if max(abs(x.low), abs(x.high)) < nearest:
        return x
    n = y.constant
    if n and abs(n) == power_of_two(n) and x.divisor >= abs(n):
        return exactly(0)
    most = max(abs(y.low), abs(y.high)) - 1
    low = 0 if x.low >= 0 else max(x.low, -most)
    high = 0 if x.high <= 0 else min(x.high, most)
    return Interval(min(low, 0), max(high, 0), min(x.divisor, y.divisor))


def _least(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    if x.high <= y.low or y.high <= x.low:
        return x if x.high <= y.low else y
    return Interval(min(x.low, y.low), min(x.high, y.high), min(x.divisor, y.divisor))


def _greatest(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    if x.low >= y.high or y.low >= x.high:
        return x if x.low >= y.high else y
    return Interval(max(x.low, y.low), max(x.high, y.high), min(x.divisor, y.divisor))


def _neg(o: Op, args: Sequence[Interval]) -> Interval:
    (x,) = args
    return fitted(-x.high, -x.low, x.divisor, _dtype(o))


def _abs(o: Op, args: Sequence[Interval]) -> Interval:
    (x,) = args
    least = 0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
    return fitted(least, max(abs(x.low), abs(x.high)), x.divisor, _dtype(o))


# ---- bits


def _and(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    divisor = max(x.divisor, y.divisor)
    tops = [a.high for a in args if a.low >= 0]
    if not tops:
        return limits_of(_dtype(o))._replace(divisor=divisor)
    return Interval(0, min(tops), divisor)


def _or(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    divisor = min(x.divisor, y.divisor)
    if min(x.low, y.low) < 0:
        return limits_of(_dtype(o))._replace(divisor=divisor)
    least = max(x.low, y.low) if o.kind is arith.or_ else 0
    return Interval(least, (1 << max(x.high, y.high).bit_length()) - 1, divisor)


def _not(o: Op, args: Sequence[Interval]) -> Interval:
    (x,), dtype = args, _dtype(o)
    top = -1 if dtype.kind == "int" else limits_of(dtype).high
    return Interval(top - x.high, top - x.low)


def _shl(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    dtype = _dtype(o)
    found = _shifted(x, _shifts(y, dtype))
    limits = limits_of(dtype)  # (what shifts may mean its bits rather than a number: it wraps)
    return found if found.within(limits) else limits._replace(divisor=found.divisor)


def _shr(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    by = _shifts(y, _dtype(o))
    divisor = max(1, x.divisor >> by.low) if by.constant is not None else 1
    return Interval(*_corners(operator.rshift, x, by), divisor)


def _shifts(y: Interval, dtype: DType) -> Interval:
    """Shifts by the width or more are not defined."""
    return Interval(0, dtype.bits - 1).refined(y.low, y.high)


# ---- comparisons, choices, conversions


def _compare(o: Op, args: Sequence[Interval]) -> Interval:
    x, y = args
    match o.kind:
        case arith.gt | arith.le:
            x, y = y, x
    match o.kind:
        case arith.lt | arith.gt:
            known = True if x.high < y.low else False if x.low >= y.high else None
        case arith.le | arith.ge:  # x >= y; y <= x
            known = True if x.low >= y.high else False if x.high < y.low else None
        case _:
            same = x.constant is not None and x.constant == y.constant
            apart = x.high < y.low or y.high < x.low
            known = (same if same or apart else None) if o.kind is arith.eq else None
            if o.kind is arith.ne and (same or apart):
                known = apart
    return Interval(0, 1) if known is None else exactly(int(known))


def _select(o: Op, args: Sequence[Interval]) -> Interval:
    c, x, y = args
    if c.constant is not None:
        return x if c.constant else y
    return x.join(y)


def _cast(o: Op, args: Sequence[Interval]) -> Interval:
    (x,), dtype = args, _dtype(o)
    if dtype.kind == "bool":
        if x.constant is None and x.low <= 0 <= x.high:
            return Interval(0, 1)
        return exactly(int(x.constant != 0))
    limits = limits_of(dtype)
    return x if x.within(limits) else limits._replace(divisor=x.divisor)


def _bitcast(o: Op, args: Sequence[Interval]) -> Interval:
    return limits_of(_dtype(o))._replace(divisor=args[0].divisor)


def _const(o: Op, args: Sequence[Interval]) -> Interval:
    return exactly(int(o.attrs["value"]))


def _addptr(o: Op, args: Sequence[Interval]) -> Interval:
    p, offset = args
    size = pointee_of(o.result.type).bytes
    return ADDRESS._replace(divisor=min(p.divisor, offset.divisor * size))


def _address(o: Op, args: Sequence[Interval]) -> Interval:
    return anything(o.result.type)._replace(divisor=args[0].divisor)


# ---- tiles, and the program


def _same(o: Op, args: Sequence[Interval]) -> Interval:
    parts = zip(o.operands, args, strict=True)  # beside tiles there are places of parts
    return reduce(Interval.join, [x for v, x in parts if isinstance(v.type, Tile)] or args)


def _arange(o: Op, args: Sequence[Interval]) -> Interval:
    start, end = o.attrs["start"], o.attrs["end"]
    return Interval(start, end - 1, power_of_two(start) if end - start == 1 else 1)


def _reduce(o: Op, args: Sequence[Interval]) -> Interval:
    (x,), fn = args, o.attrs["fn"]
    if fn in ("max", "min"):
        return x
    divisor = 1 if fn == "mul" else x.divisor
    return limits_of(_dtype(o))._replace(divisor=divisor)


def _program(o: Op, args: Sequence[Interval]) -> Interval:
    least = int(o.kind is tile.num_programs)
    return Interval(least, limits_of(i32).high - 1 + least)


def _rank(o: Op, args: Sequence[Interval]) -> Interval:
    return Interval(0, cluster.MAX_CTAS - 1)


def _count(o: Op, args: Sequence[Interval]) -> Interval:
    return Interval(0, limits_of(i32).high)


def _place(o: Op, args: Sequence[Interval]) -> Interval:
    """Of a slot and of its phase: never negative."""
    return Interval(0, max(1, o.attrs["depth"] - 1))


def _unknown(o: Op, args: Sequence[Interval]) -> Interval:
    """What it makes comes from memory, or is no number: `transfer` says all that there is to say."""
    return anything(o.result.type)


RULES: Rules[Rule] = Rules(
    "which numbers does it make",
    {
        **dict.fromkeys((Family.ACCESS, Family.SHARED, Family.CHANNEL, Family.WAIT), _unknown),
        **dict.fromkeys((Family.PLACE, Family.ISSUE, Family.ACCUMULATOR, Family.OUTPUT), _unknown),
        Family.COMBINE: _unknown,
        Family.MOVE: _same,
        **dict.fromkeys(
            (
                *arith.MATH,
                arith.div,
                arith.div_rn,
                arith.pow_,
                arith.atan2,
                *arith.BESSEL,
                arith.decode,
                arith.inline_asm,
            ),
            _unknown,
        ),
        **dict.fromkeys(EXACT, _exact),
        **dict.fromkeys(arith.COMPARE, _compare),
        arith.const: _const,
        arith.idiv: _idiv,
        arith.fast_div: _idiv,
        arith.rem: _rem,
        arith.minimum: _least,
        arith.maximum: _greatest,
        arith.neg: _neg,
        arith.abs_: _abs,
        arith.and_: _and,
        arith.or_: _or,
        arith.xor: _or,
        arith.not_: _not,
        arith.shl: _shl,
        arith.shr: _shr,
        arith.select: _select,
        arith.cast: _cast,
        arith.bitcast: _bitcast,
        arith.addptr: _addptr,
        **dict.fromkeys((arith.int_to_ptr, arith.ptr_to_int), _address),
        tile.splat: _same,
        tile.arange: _arange,
        tile.reduce: _reduce,
        tile.scan: _reduce,
        tile.program_id: _program,
        tile.num_programs: _program,
        task.replica_id: _count,
        task.ring_next: _place,
        cluster.cta_rank: _rank,
        cluster.cta_id: _rank,
    },
)


def transfer(
    o: Op, v: Value, args: Sequence[Interval], trusting: bool = False, wraps: bool = False
) -> Interval:
    """What is known of v, which o makes (no loop, no if).  trusting: divisors are positive.  wraps: numbers
    of every dtype wrap around."""
    limits = anything(v.type)
    rule = RULES[o.kind]
    if limits is NO_NUMBER or rule is _unknown:
        return limits
    known = list(args)
    if trusting and o.kind in (arith.idiv, arith.rem) and known[1].high > 0:
        known[1] = known[1].refined(low=1)
    if o.kind in arith.ELEMENTWISE and o.kind not in arith.NOT_FOLDED:
        numbers = [n for a in known if (n := a.constant) is not None]
        if len(numbers) == len(known):
            value = fold(o.kind, numbers, dtype_of(o.operands[-1].type), o.attrs.get("dtype"))
            return limits if value is None else exactly(int(value))
    found = rule(o, known)
    return limits._replace(divisor=found.divisor) if wraps and _overflows(o, known) else found


def _overflows(o: Op, args: Sequence[Interval]) -> bool:
    """May the numbers of an op that is taken not to overflow do so?"""
    if o.kind in EXACT:
        return not EXACT[o.kind](*args).within(limits_of(_dtype(o)))
    if o.kind not in (arith.neg, arith.abs_, arith.idiv):
        return False
    # the least number is the one whose negative the dtype doesn't hold
    return args[0].low == limits_of(_dtype(o)).low < 0
