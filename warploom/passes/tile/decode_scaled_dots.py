"""Decodes scaled dots, or keeps their scales.

Order: first, so that all that follows sees dots alone.
Changes: 3 families with `tl.dot_scaled`: products of both operands, or of weights alone, experts.

before:  %d = dot_scaled(%a, %b, %acc, %scale) {scaled="b"}       %b: two e2m1 a byte
after:   %n = select(…, decode(%b), decode(shr(%b, 4)))
         %w = mul(cast(reshape(%n)), reshape(broadcast(cast(decode(%scale)))))
         %d = dot(%a, %w, %acc)                                   %w: bf16

A transposed operand is decoded as it was before, and transposed then: its bytes lie along K.
Where a matrix unit takes scales it is dot(%a, %b, %acc, %sa, %sb) instead.

An element times its scale has at most 6 bits: it is exact in bf16 (and in f16, which is taken where the other
operand is f16) where it lies within the format's range; e2m1 by ue4m3 always does.
A matrix unit that takes 8-bit floats with scales also takes e2m1, as f8e4m3, and operands without
scales, by scales of 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from warploom.ir import build
from warploom.ir.analysis import definitions
from warploom.ir.core import Builder, Func, Op, Value, walk
from warploom.ir.ops import arith, tile
from warploom.ir.ops.scaled import GROUPS, Side, dot_scaled, sides
from warploom.ir.rewrite import rewrite
from warploom.ir.types import DType, bf16, dtype_of, f8e4m3, f16, f32, shape_of, u8
from warploom.target import Target

_ONE = 127  # as ue8m0
# Elements of an operand that are decoded at once, as registers hold them: 64 of K, or 32.
AT_ONCE = 64 * 128


def has_scaled_dots(func: Func) -> bool:
    return any(o.kind is dot_scaled for o in walk(func.body))


def decode_scaled_dots(func: Func, target: Target) -> Func:
    """See the module's docstring."""
    return rewrite(func, partial(_dot, target, definitions(func.body)))


def _dot(target: Target, made: Mapping[Value, Op], o: Op, b: Builder) -> tuple[Value, ...] | None:
    if o.kind is not dot_scaled:
        return None
    found, acc, hint = sides(o), o.operands[2], o.result.hint
    native = _native(target, found)
    if native is not None:
        operands = (_bytes(b, s, native) for s in found)
        scales = (_scale(b, s) for s in found)
        return (tile.dot(b, *operands, acc, *scales, hint=hint),)
    wanted = f16 if any(s.dtype == f16 for s in found) else bf16
    right = made.get(found[1].value)
    turned = found[1].scale is not None and right is not None and right.kind is tile.transpose
    if turned:
        assert right is not None
        found = found[0], _turned(found[1], right.operands[0])
    k = found[0].shape[1]
    at_once = 64 if 64 * max(shape_of(o.result.type)) <= AT_ONCE else 32
    each = at_once if k % at_once == 0 else k
    for first in range(0, k, each):
        part = (s if each == k else _piece(b, s, first, each) for s in found)
        x, y = (_decoded(b, target, s, wanted) for s in part)
        if turned:
            y = tile.transpose(b, y, perm=(1, 0))
        acc = tile.dot(b, x, y, acc, hint=hint)
    return (acc,)


def _turned(s: Side, value: Value) -> Side:
    """A transposed operand as it was before: so its bytes lie as they were loaded."""
    return replace(s, value=value, k=1 - s.k, packed=1 - s.packed)


def _piece(b: Builder, s: Side, first: int, each: int) -> Side:
    """An operand's part along K."""

    def cut(x: Value, axis: int, per: int) -> Value:
        offset, shape = [0, 0], list(shape_of(x.type))
        offset[axis], shape[axis] = first // per, each // per
        return tile.slice_tile(b, x, offset=tuple(offset), shape=tuple(shape), hint=x.hint)

    per = 2 if s.dtype == u8 and s.packed == s.k else 1
    scale = s.scale and cut(s.scale, 1, GROUPS[dtype_of(s.scale.type)])
    return replace(s, value=cut(s.value, s.k, per), scale=scale)


# ---- by a unit that takes scales


def _native(target: Target, found: tuple[Side, Side]) -> DType | None:
    """The dtype as which e2m1 go into a matrix unit that takes the scales; None where none does."""
    given = {dtype_of(s.scale.type) for s in found if s.scale is not None}
    if any(s.dtype.bits != 8 for s in found) or len(given) != 1:
        return None
    (scale,) = given
    if scale != u8 and any(s.scale is None for s in found):  # ue4m3 have groups of another size
        return None
    in_pairs = all(s.dtype == u8 and s.packed == s.k for s in found)
    for e2m1 in (u8, f8e4m3) if in_pairs else (f8e4m3,):
        left, right = (e2m1 if s.dtype == u8 else s.dtype for s in found)
        each = 2 if e2m1 == u8 else 1
        for unit in target.matrix_units:
            takes = unit.product(left.name, right.name, f32.name, scale.name)
            if takes and found[0].shape[1] % (each * unit.k_step(8)) == 0:
                return e2m1
    return None


def _bytes(b: Builder, s: Side, e2m1: DType) -> Value:
    """An operand as the unit takes it."""
    if s.dtype != u8 or e2m1 == u8:
        return s.value
    return arith.cast(b, _elements(b, s), dtype=e2m1, hint=s.value.hint)


def _scale(b: Builder, s: Side) -> Value:
    if s.scale is not None:
        return s.scale
    rows, k = s.shape[1 - s.k], s.shape[s.k]
    return tile.splat(b, build.const(b, _ONE, u8), shape=(rows, k // GROUPS[u8]))


# ---- by ordinary products


def _decoded(b: Builder, target: Target, s: Side, dtype: DType) -> Value:
    """An operand's elements times their scales; of bf16 two at a time, as both are exact in it."""
    if s.dtype == dtype and s.scale is None:
        return s.value
    x = _elements(b, s) if s.dtype == u8 else _f32(b, target, s.value)
    factor = None if s.scale is None else _scales(b, target, s.scale)
    if dtype == bf16:
        x, *factors = (arith.cast(b, v, dtype=bf16) for v in (x, factor) if v is not None)
        factor = factors[0] if factors else None
    if factor is not None:
        x = arith.mul(b, x, _spread(b, factor, s))
    return x if dtype == bf16 else arith.cast(b, x, dtype=dtype)


def _f32(b: Builder, target: Target, x: Value) -> Value:
    """Floats as f32; 8-bit ones from their bits where no instruction converts them."""
    dtype = dtype_of(x.type)
    found: Value
    if dtype.is_8bit_float and dtype.name not in target.converts:
        found = arith.decode(b, x, encoding=dtype.name.removeprefix("f8"))
    else:
        found = arith.cast(b, x, dtype=f32)
    return found


def _elements(b: Builder, s: Side) -> Value:
    """Pairs of e2m1 as f32, the first of a byte in its lower bits."""
    pairs, axis = s.value, s.packed + 1
    shape = (*shape_of(pairs.type)[:axis], 2, *shape_of(pairs.type)[axis:])
    four = tile.splat(b, build.const(b, 4, u8), shape=shape_of(pairs.type))
    low, high = (
        _repeated(b, arith.decode(b, x, encoding="e2m1"), axis, shape)
        for x in (pairs, arith.shr(b, pairs, four))
    )
    first = arith.eq(
        b, tile.arange(b, start=0, end=2), tile.splat(b, build.const(b, 0), shape=(2,))
    )
    for at in (a for a in range(3) if a != axis):
        first = tile.expand_dims(b, first, axis=at)
    first = tile.broadcast(b, first, shape=shape)
    return tile.reshape(b, arith.select(b, first, low, high), shape=s.shape)


def _scales(b: Builder, target: Target, scale: Value) -> Value:
    """Scales as f32."""
    if dtype_of(scale.type) != u8:
        return _f32(b, target, scale)
    return arith.decode(b, scale, encoding="ue8m0")


def _spread(b: Builder, scale: Value, s: Side) -> Value:
    """An operand's scales, one for each of its elements."""
    assert s.scale is not None
    group = GROUPS[dtype_of(s.scale.type)]
    if s.k == 0:
        scale = tile.transpose(b, scale, perm=(1, 0))
    groups = list(s.shape)
    groups[s.k : s.k + 1] = [s.shape[s.k] // group, group]
    return tile.reshape(b, _repeated(b, scale, s.k + 1, tuple(groups)), shape=s.shape)


def _repeated(b: Builder, x: Value, axis: int, shape: tuple[int, ...]) -> Value:
    return tile.broadcast(b, tile.expand_dims(b, x, axis=axis), shape=shape)
