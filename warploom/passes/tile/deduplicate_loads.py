"""Loads an element that neighbours in a tile share once: the weight of a channel for all of its pixels.

Order: after recover_boxes and apply_alignment_hints (what is a box, or moves in runs, is none of this);
before a schedule is chosen.
Changes: group norm (270 instructions an iteration become 90: docs/log/2026-11-21-corpus-plain.md), scales of
grouped weights.

before:  %c = idiv(%at, splat(%pixels)) : tile<1024xi32>         where 16 divides %pixels, as %at's first
         %x = load(addptr(splat(%w), %c), %mask) : tile<1024xf32>
after:   %c = idiv(add(splat(%start), mul(arange(0, 64), 16)), splat(%pixels)) : tile<64xi32>
         %few = load(addptr(splat(%w), %c), …) : tile<64xf32>
         %x = reshape(broadcast(expand_dims(%few)))

Which elements are alike is proved (constancy, analysis/facts.py); what computes their places is written again
for the first of each group.  A pointer that is computed in another way than from coordinates and scalars
stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from warploom.analysis.facts import Facts, facts_of
from warploom.ir import build
from warploom.ir.analysis import definitions
from warploom.ir.core import Builder, Func, Op, Value
from warploom.ir.ops import arith, tile
from warploom.ir.rewrite import rewrite
from warploom.ir.types import Tile, elem_of, shape_of


def deduplicate_loads(func: Func) -> Func:
    """See the module's docstring."""
    facts = facts_of(func)
    made = definitions(func.body)

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if o.kind is not tile.load or not isinstance(o.result.type, Tile):
            return None
        if o.attrs.get("volatile") or o.attrs.get("run"):
            return None
        for axis, n in shared(facts, o):
            thin = _Thin(b, made, axis, n)
            if all(thin.may(v) for v in o.operands):
                return (_spread(b, thin.load(o), shape_of(o.result.type), axis, n),)
        return None

    return rewrite(func, rule)


def shared(facts: Facts, o: Op) -> list[tuple[int, int]]:
    """(axis, n): aligned groups of n > 1 elements along the axis are the same; the last axis first."""
    found = []
    for axis, extent in reversed(tuple(enumerate(shape_of(o.result.type)))):
        n = min(facts.axis(v, axis).constancy for v in o.operands)
        n = min(n, extent & -extent)
        if n > 1:
            found.append((axis, n))
    return found


def _spread(b: Builder, few: Value, shape: tuple[int, ...], axis: int, n: int) -> Value:
    """Each element n times, one after the other along the axis."""
    wide = tile.expand_dims(b, few, axis=axis + 1)
    old = shape_of(wide.type)
    wide = tile.broadcast(b, wide, shape=(*old[: axis + 1], n, *old[axis + 2 :]))
    return tile.reshape(b, wide, shape=shape, hint=few.hint)


class _Thin:
    """Writes values for the first of every n elements along an axis."""

    def __init__(self, b: Builder, made: Mapping[Value, Op], axis: int, n: int) -> None:
        self.b, self.made, self.axis, self.n = b, made, axis, n
        self.done: dict[tuple[Value, int], Value] = {}

    def may(self, v: Value, axis: int | None = None) -> bool:
        """Is v computed from coordinates and scalars alone?"""
        at = self.axis if axis is None else axis
        o = self.made.get(v)
        if not isinstance(v.type, Tile):
            return True
        if o is None:
            return False
        if o.kind in (tile.splat, tile.arange):
            return True
        inner = self.inner(o, at)
        if inner is None:
            return o.kind is tile.broadcast
        return all(self.may(x, inner) for x in o.operands)

    def inner(self, o: Op, axis: int) -> int | None:
        """The operands' axis that an axis of o's result is; None where they have none, or o is of no use."""
        if o.kind in arith.ELEMENTWISE:
            return axis
        moves = o.kind in (tile.expand_dims, tile.broadcast, tile.transpose)
        return o.kind.axes(o, axis)[0] if moves and o.kind.axes is not None else None

    def load(self, o: Op) -> Value:
        operands = tuple(self.get(v, self.axis) for v in o.operands)
        t = o.result.type
        result = Value(Tile(self.shape(shape_of(t), self.axis), elem_of(t)), o.result.hint)
        self.b.append(o.with_(operands=operands, results=(result,)))
        return result

    def shape(self, old: tuple[int, ...], axis: int) -> tuple[int, ...]:
        return tuple(m // self.n if a == axis else m for a, m in enumerate(old))

    def get(self, v: Value, axis: int) -> Value:
        if not isinstance(v.type, Tile):
            return v
        if (v, axis) not in self.done:
            o = self.made[v]
            with self.b.at(o):
                self.done[v, axis] = self.made_thin(o, axis, self.shape(v.type.shape, axis))
        return self.done[v, axis]

    def made_thin(self, o: Op, axis: int, shape: tuple[int, ...]) -> Value:
        b, hint = self.b, o.result.hint
        if o.kind is tile.arange:
            count = tile.arange(b, start=0, end=shape[0])
            step = tile.splat(b, build.const(b, self.n), shape=shape)
            start = tile.splat(b, build.const(b, o.attrs["start"]), shape=shape)
            return arith.add(b, arith.mul(b, count, step), start, hint=hint)
        inner = self.inner(o, axis)
        operands = o.operands if inner is None else tuple(self.get(v, inner) for v in o.operands)
        attrs = {**o.attrs, "shape": shape} if "shape" in o.attrs else o.attrs
        return o.kind(b, *operands, hint=hint, **attrs)
