"""What each op makes of the axes of tiles: the table kind → rule of analysis/facts.py.

A rule takes the op and what is known of its operands along one axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from warploom.analysis.lattice import (
    MOST,
    AxisFact,
    Interval,
    counts_places,
    flat,
    limits_of,
    line,
    power_of_two,
)
from warploom.analysis.scalar_rules import EXACT
from warploom.ir.core import Family, Op, Value
from warploom.ir.ops import arith, task, tile
from warploom.ir.rules import Rules
from warploom.ir.types import DType, Pointer, dtype_of, elem_of, shape_of


class Operand(NamedTuple):
    """What is known of an operand: along the axis that is the result's, and of every element."""

    axis: AxisFact
    every: Interval


Rule = Callable[[Op, Sequence[Operand]], AxisFact]


def _wraps(o: Op, args: Sequence[Operand]) -> bool:
    """May elements of a sum, a difference or a product wrap around?"""
    elem = elem_of(o.result.type)
    if isinstance(elem, Pointer) or counts_places(elem):
        return False
    return not EXACT[o.kind](*(a.every for a in args)).within(limits_of(elem))


def _sum(o: Op, args: Sequence[Operand]) -> AxisFact:
    x, y = args
    size = pointee(o.result)
    first_of_y = min(MOST, y.axis.first * size)
    slope = None
    if x.axis.slope is not None and y.axis.slope is not None and not _wraps(o, args):
        slope = x.axis.slope + (-y.axis.slope if o.kind is arith.sub else y.axis.slope)
    first = min(x.axis.first, first_of_y)
    contiguity = min(x.axis.contiguity, y.axis.constancy, y.every.divisor)
    if o.kind is not arith.sub:
        other = min(y.axis.contiguity, x.axis.constancy, max(1, x.every.divisor // size))
        contiguity = max(contiguity, other)
    found = line(slope, first, size)
    return found._replace(
        contiguity=max(found.contiguity, contiguity), constancy=_equal(slope, args)
    )


def pointee(v: Value) -> int:
    """Bytes of what a value, or each element of a tile, points to; 1 of numbers."""
    elem = elem_of(v.type)
    return elem.dtype.bytes if isinstance(elem, Pointer) else 1


def _equal(slope: int | None, args: Sequence[Operand]) -> int:
    return MOST if slope == 0 else min(a.axis.constancy for a in args)


def _product(o: Op, args: Sequence[Operand]) -> AxisFact:
    x, y = args
    if y.axis.slope != 0 or y.every.constant is None:
        x, y = y, x
    slope, by = None, y.every.constant
    if x.axis.slope == y.axis.slope == 0:
        slope = 0
    elif y.axis.slope == 0 and by is not None and x.axis.slope is not None and not _wraps(o, args):
        slope = x.axis.slope * by
    first = min(MOST, x.axis.first * y.axis.first)
    found = line(slope, first)._replace(constancy=_equal(slope, args))
    if by == 1:
        return found._replace(contiguity=max(found.contiguity, x.axis.contiguity))
    return found


def _shl(o: Op, args: Sequence[Operand]) -> AxisFact:
    x, y = args
    by, dtype = y.every.constant, dtype_of(o.result.type)
    if by is None or not 0 <= by < dtype.bits:
        return _elementwise(o, args)
    limits = limits_of(dtype)
    fits = limits.low <= x.every.low << by and x.every.high << by <= limits.high
    slope = x.axis.slope << by if fits and x.axis.slope is not None else None
    found = line(slope, min(MOST, x.axis.first << min(by, 16)))
    return found._replace(constancy=_equal(slope, args))


def _quotient(o: Op, args: Sequence[Operand]) -> AxisFact:
    """x // y changes only where x passes a multiple of y, if division rounds down."""
    x, y = args
    by = y.every.constant
    if o.kind is arith.shr:
        by = 1 << by if by is not None and 0 <= by < dtype_of(o.result.type).bits else None
        y = Operand(flat(power_of_two(by)), y.every._replace(divisor=power_of_two(by))) if by else y
    found = _elementwise(o, args)
    slope = x.axis.slope
    divides = by is not None and 0 < by == power_of_two(by) <= x.axis.first
    if by and divides and slope is not None and slope % by == 0:  # each quotient is exact
        return line(slope // by, x.axis.first // by)._replace(constancy=_equal(slope, args))
    down = o.kind is arith.shr or x.every.low >= 0
    if not down or (o.kind is arith.shr and by is None):
        return found
    alike = min(x.axis.contiguity, y.axis.constancy, y.every.divisor)
    return found._replace(constancy=max(found.constancy, alike))


def _rest(o: Op, args: Sequence[Operand]) -> AxisFact:
    """x % y goes on as x does between multiples of y."""
    x, y = args
    found = _elementwise(o, args)
    if x.every.low < 0:
        return found
    nearest = y.every.low if y.every.low > 0 else -y.every.high
    if x.every.high < nearest:
        return x.axis
    run = min(x.axis.contiguity, y.axis.constancy, y.every.divisor)
    return found._replace(contiguity=max(found.contiguity, run))


def _cast(o: Op, args: Sequence[Operand]) -> AxisFact:
    (x,) = args
    source, to = dtype_of(o.operands[0].type), dtype_of(o.result.type)
    if not source.is_int or not to.is_int or to.kind == "bool":
        return _elementwise(o, args)
    if x.every.within(limits_of(to)):
        return x.axis
    slope = 0 if x.axis.slope == 0 else None  # it wraps between aligned groups, not in them
    contiguity = min(x.axis.contiguity, 1 << (to.bits - 1))
    return AxisFact(slope, x.axis.first, contiguity, x.axis.constancy)


def _compare(o: Op, args: Sequence[Operand]) -> AxisFact:
    """x < y and x >= y change only where a moving x passes y (and, mirrored, y > x and y <= x)."""
    found = _elementwise(o, args)
    x, y = args if o.kind in (arith.lt, arith.ge) else args[::-1]
    if o.kind in (arith.eq, arith.ne):
        return found
    alike = min(x.axis.contiguity, y.axis.constancy, y.every.divisor)
    return found._replace(constancy=max(found.constancy, alike))


def _elementwise(o: Op, args: Sequence[Operand]) -> AxisFact:
    """Of equal operands the results are equal."""
    slope = 0 if all(a.axis.slope == 0 for a in args) else None
    return AxisFact(slope, constancy=_equal(slope, args))


def _moved(o: Op, args: Sequence[Operand]) -> AxisFact:
    return args[0].axis


def _arange(o: Op, args: Sequence[Operand]) -> AxisFact:
    return line(1, power_of_two(o.attrs["start"]))


def _reshaped(o: Op, args: Sequence[Operand]) -> AxisFact:
    return args[0].axis if tile.inserts_units(o) else AxisFact()


def _unknown(o: Op, args: Sequence[Operand]) -> AxisFact:
    return AxisFact()


RULES: Rules[Rule] = Rules(
    "how does a tile that it makes move along an axis",
    {
        **dict.fromkeys((Family.COMBINE, Family.ACCESS, Family.SHARED), _unknown),
        **dict.fromkeys((Family.CHANNEL, Family.WAIT), _unknown),
        Family.POINTWISE: _elementwise,
        tile.splat: _moved,
        tile.arange: _arange,
        Family.MOVE: _moved,
        tile.reshape: _reshaped,
        **dict.fromkeys((tile.slice_tile, tile.concat, task.slice_block), _unknown),
        **dict.fromkeys(arith.COMPARE, _compare),
        **dict.fromkeys((arith.add, arith.sub, arith.addptr), _sum),
        arith.mul: _product,
        arith.shl: _shl,
        arith.shr: _quotient,
        arith.idiv: _quotient,
        arith.rem: _rest,
        arith.cast: _cast,
    },
)


def transfer(o: Op, result: Value, axis: int, args: Sequence[Operand], every: Interval) -> AxisFact:
    """What is known of one of an op's results, a tile, along an axis.  args: of its operands along the axis
    that this one is of theirs (OpKind.axes); every: of all elements of the result."""
    if shape_of(result.type)[axis] == 1:
        return flat(every.divisor)
    elem, rule = elem_of(result.type), RULES[o.kind]
    if o.kind.family is Family.POINTWISE and isinstance(elem, DType) and elem.is_float:
        rule = _elementwise
    found = rule(o, args)
    return found._replace(first=max(found.first, every.divisor))
