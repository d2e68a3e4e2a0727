"""Compares tiles of 64-bit places by the numbers of 32 bits that they are away from a common one.

Order: before assign_layouts, as comparisons are computed once for each layout; after everything that reads
ranges off masks.
Changes: 4 families that count places in 64 bits: attention of flash-linear-attention (attn/parallel,
stickbreaking_attn, path_attn), its chunk_scaled_dot_kkt; none of the library's.

Where a program's index is 64 bits wide, each comparison of a causal mask or of a range takes two instructions
and the numbers two registers each, though all but one scalar of either side are small.

    before:  %p, places of i64: %first and the numbers %i of i32 from it on
             %a = gt(expand_dims(%p), expand_dims(%p))     rows, columns
             %b = lt(%p, splat(%n))
    after:   %a = gt(expand_dims(%i), expand_dims(%i))
             %b = lt(%i, splat(cast(maximum(minimum(sub(%n, %first), 64), -1))))

What is beyond all differences of the small numbers is cut off: it compares alike.  It is cut off at a number
that is divisible as far as the difference is, so that elements masked alike are still seen to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warploom.analysis.facts import Facts, facts_of
from warploom.analysis.lattice import Interval, exactly
from warploom.ir import build
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Tile, dtype_of, i32, i64, shape_of

_SHAPE = frozenset((tile.expand_dims, tile.broadcast, tile.transpose))
_NEAR = Interval(-(1 << 29), 1 << 29)  # small numbers: sums of three are numbers of 32 bits
_WIDE = Interval(-(1 << 61), 1 << 61)  # scalars: sums and differences of two don't wrap


def narrow_comparisons(func: Func) -> Func:
    """See the module's docstring."""
    facts = facts_of(func).wrapping()  # what is compared may be negative because a sum wrapped

    def rule(o: Op, b: Builder) -> Sequence[Value] | None:
        if not _compares_places(o):
            return None
        x, y = (_place(facts, v) for v in o.operands)
        if x is None or y is None or (x.small is None and y.small is None):
            return None
        kind = o.kind
        if x.small is None:
            x, y, kind = y, x, arith.MIRRORED[kind]
        assert x.small is not None
        ahead = _ahead(facts, b, x, y)
        left = x.shaped(b, x.small)
        if y.small is None:
            number = build.const(b, 0) if ahead is None else ahead
            right: Value = tile.splat(b, number, shape=shape_of(left.type))
        else:
            right = y.small
            if ahead is not None:
                right = arith.add(b, right, tile.splat(b, ahead, shape=shape_of(right.type)))
            right = y.shaped(b, right)
        return (kind(b, left, right, hint=o.result.hint),)

    return rewrite(func, rule)


def has_wide_comparisons(func: Func) -> bool:
    """Are tiles of 64-bit integers compared?"""
    return any(map(_compares_places, func.body.all_ops))


def _compares_places(o: Op) -> bool:
    return (
        o.kind in arith.COMPARE
        and isinstance(o.operands[0].type, Tile)
        and dtype_of(o.operands[0].type) == i64
    )


@dataclass(frozen=True)
class _Place:
    """A tile of 64-bit integers: `first`, a scalar (None: 0), and `small`, a tile of 32 bits (None: 0), whose
    sum has its shape changed by `shapes`, the last first."""

    first: Value | None
    small: Value | None
    extent: Interval
    shapes: tuple[Op, ...]

    def shaped(self, b: Builder, v: Value) -> Value:
        for o in reversed(self.shapes):
            v = o.kind(b, v, hint=v.hint, **o.attrs)
        return v


def _place(facts: Facts, v: Value) -> _Place | None:
    """What tile v is made of; None where it isn't so, or where its numbers may be too far away."""
    shapes: list[Op] = []
    while (o := facts.maker(v)) is not None and o.kind in _SHAPE:
        shapes.append(o)
        (v,) = o.operands
    first = small = None
    for part in o.operands if o is not None and o.kind is arith.add else (v,):
        made = facts.maker(part)
        if made is None:
            return None
        if made.kind is tile.splat and first is None:
            (first,) = made.operands
        elif made.kind is arith.cast and dtype_of(made.operands[0].type) == i32 and small is None:
            (small,) = made.operands
        else:
            return None
    extent = facts.interval(small) if small is not None else exactly(0)
    is_near = extent.within(_NEAR) and (first is None or facts.interval(first).within(_WIDE))
    return _Place(first, small, extent, tuple(shapes)) if is_near else None


def _ahead(facts: Facts, b: Builder, x: _Place, y: _Place) -> Value | None:
    """How far y's scalar is ahead of x's, as far as that matters, in 32 bits; None where it isn't."""
    if x.first is y.first:
        return None
    ahead = y.first if y.first is not None else build.const(b, 0, i64)
    known = facts.interval(ahead) if x.first is None else _WIDE
    if x.first is not None:
        ahead = arith.sub(b, ahead, x.first)
    by = min((facts.divisor(p.first) for p in (x, y) if p.first is not None), default=1)
    least = (x.extent.low - y.extent.high - 1) // by * by
    most = -(-(x.extent.high - y.extent.low + 1) // by) * by
    if known.high > most:
        ahead = arith.minimum(b, ahead, build.const(b, most, i64))
    if known.low < least:
        ahead = arith.maximum(b, ahead, build.const(b, least, i64))
    return arith.cast(b, ahead, dtype=i32)
