"""Finds gathers whose index is each place with some of its bits flipped: partners exchange in registers.

Order: before assign_layouts, which gives operand and result one layout then.
Changes: 2 families: sorts, whose steps exchange partners; tiles the other way around.

before:  %other = xor(%places, %two)                 after:  %other = xor(%places, %two)
         %y = gather(%x, %other) {axis=0}                    %y = gather(%x, %other) {axis=0, flips=2}

Bits of a place that are a lane's or a register's take no shared memory and no barrier.
"""

from __future__ import annotations

from collections.abc import Mapping

from warploom.ir import build
from warploom.ir.analysis import definitions
from warploom.ir.core import Func, Op, Region, Value
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import with_ops, with_regions
from warploom.ir.types import shape_of


def find_flips(func: Func) -> Func:
    """See the module's docstring."""
    makers = definitions(func.body)

    def region(r: Region) -> Region:
        return with_ops(r, [marked(with_regions(o, region)) for o in r.ops])

    def marked(o: Op) -> Op:
        if o.kind is not tile.gather or shape_of(o.result.type) != shape_of(o.operands[0].type):
            return o
        flips = _flips(o.operands[1], o.attrs["axis"], makers)
        return o.with_(attrs={**o.attrs, "flips": flips}) if flips else o

    return func.with_(body=region(func.body))


def _flips(index: Value, axis: int, makers: Mapping[Value, Op]) -> int:
    """The bits of a place along the axis that the index has flipped; 0 where it is no such."""
    o = makers.get(index)
    if o is None:
        return 0
    if o.kind is tile.broadcast and shape_of(o.operands[0].type)[axis] > 1:
        return _flips(o.operands[0], axis, makers)
    if o.kind is tile.expand_dims and o.attrs["axis"] != axis:
        return _flips(o.operands[0], axis - (o.attrs["axis"] < axis), makers)
    if o.kind not in (arith.xor, arith.sub) or len(shape_of(index.type)) != 1:
        return 0
    (n,) = shape_of(index.type)
    numbers = [c for v in o.operands if (c := _number(v, makers)) is not None]
    if len(numbers) != 1 or not any(_counts(v, n, makers) for v in o.operands):
        return 0
    (c,) = numbers
    if o.kind is arith.sub and (c != n - 1 or _number(o.operands[0], makers) is None):
        return 0
    return c if 0 < c < n and n % (1 << c.bit_length()) == 0 else 0


def _number(v: Value, makers: Mapping[Value, Op]) -> int | None:
    o = makers.get(v)
    splatted = makers.get(o.operands[0]) if o is not None and o.kind is tile.splat else o
    value = build.constant_of(splatted)
    return value if isinstance(value, int) else None


def _counts(v: Value, n: int, makers: Mapping[Value, Op]) -> bool:
    """Is v 0, 1 … n - 1?"""
    o = makers.get(v)
    return o is not None and o.kind is tile.arange and (o.attrs["start"], o.attrs["end"]) == (0, n)
