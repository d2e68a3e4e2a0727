"""Axes of size 1, simplified: boxes and what is done to them have no more of these than they need.

A descriptor of a batch gives boxes such as 1x128x64, which a program reshapes to 128x64 for its dot.  Here
the box itself becomes 128x64, of a view whose other axes come first (a view may have more axes than its
boxes), and the axis of size 1 moves towards the uses, where it meets the reshape that drops it:

    %x = load_box(%v, %z, %m, %k) {shape=(1, 128, 64)}         %y = load_box(%v, %z, %m, %k) {shape=(128, 64)}
    %y = reshape(%x) {shape=(128, 64)}

Boxes keep two axes.  Each rule drops an axis or moves one past an op in the direction of the uses, so
repeating them ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warploom.ir.core import Builder, Op, Value
from warploom.ir.ops import arith, tile
from warploom.ir.types import Tile, shape_of

Made = Callable[[Value], Op | None]  # the op that defines a value
Replacement = Sequence[Value] | None

_KEPT = 2  # axes that a box keeps


def simplify_units(o: Op, b: Builder, made: Made) -> Replacement:
    """A rule for ir/rewrite.py.  What it refuses it leaves nothing of: simplification ends where nothing is
    made any more."""
    n = len(b.ops)
    found = _simplified(o, b, made)
    if found is None:
        del b.ops[n:]
    return found


def _simplified(o: Op, b: Builder, made: Made) -> Replacement:
    if o.kind is tile.load_box:
        return _load_box(o, b, made)
    if o.kind is tile.store_box:
        return _store_box(o, b, made)
    if o.kind is tile.reduce:
        return _reduce(o, b)
    if o.kind is tile.reshape:
        return _reshape(o, b, made)
    if o.kind is tile.transpose:
        return _transpose(o, b, made)
    if o.kind in arith.ELEMENTWISE:
        return _elementwise(o, b, made)
    return None


def _box(
    view: Value, offsets: tuple[Value, ...], shape: tuple[int, ...], b: Builder, made: Made
) -> tuple[Value, tuple[Value, ...], tuple[int, ...]] | None:
    """The same box with fewer axes, as (view, offsets, shape); None where it has none to spare."""
    spare = len(shape) - _KEPT
    dropped = [i for i, n in enumerate(shape) if n == 1][: max(0, spare)]
    if not dropped:
        return None
    extra = len(offsets) - len(shape)
    kept = [i for i in range(len(shape)) if i not in dropped]
    order = [*range(extra), *(extra + i for i in dropped), *(extra + i for i in kept)]
    if order != sorted(order):
        source = made(view)
        if source is None or source.kind is not tile.make_view:
            return None
        view = _permuted(source, order, b)
    return view, tuple(offsets[i] for i in order), tuple(shape[i] for i in kept)


def _permuted(o: Op, order: Sequence[int], b: Builder) -> Value:
    """The view with its axes in another order."""
    base, *sizes = o.operands
    extents, strides = sizes[: len(order)], sizes[len(order) :]
    moved = [x[i] for x in (extents, strides) for i in order]
    known = o.attrs.get("divisible", ())
    divisible = (known[0], *(known[1 + i] for i in order)) if known else ()
    attrs = {"divisible": divisible}
    if marks := o.attrs.get("narrow"):
        attrs["narrow"] = tuple(x[0] + "".join(x[1 + i] for i in order) for x in marks)
    return tile.make_view(b, base, *moved, **attrs, hint=o.result.hint)


def _load_box(o: Op, b: Builder, made: Made) -> Replacement:
    shape = o.attrs["shape"]
    found = _box(o.operands[0], o.operands[1:], shape, b, made)
    if found is None or o.attrs.get("layout") is not None:
        return None
    view, offsets, smaller = found
    policy = tile.policy_of(o)
    box = tile.load_box(b, view, *offsets, shape=smaller, hint=o.result.hint, **policy)
    b.ops[-1] = b.ops[-1].with_(id=o.id)
    return (tile.reshape(b, box, shape=shape, hint=o.result.hint),)


def _store_box(o: Op, b: Builder, made: Made) -> Replacement:
    view, value, *offsets = o.operands
    found = _box(view, tuple(offsets), shape_of(value.type), b, made)
    if found is None or _layout(value) is not None:
        return None
    view, at, smaller = found
    thin = tile.reshape(b, value, shape=smaller, hint=value.hint)
    tile.store_box(b, view, thin, *at, **tile.policy_of(o))
    b.ops[-1] = b.ops[-1].with_(id=o.id)
    return ()


def _reduce(o: Op, b: Builder) -> Replacement:
    """Along an axis of one element there is nothing to combine."""
    (x,) = o.operands
    if not isinstance(o.result.type, Tile) or _layout(x) is not None:
        return None
    if shape_of(x.type)[o.attrs["axis"]] != 1:
        return None
    return (tile.reshape(b, x, shape=o.result.type.shape, hint=o.result.hint),)


def _reshape(o: Op, b: Builder, made: Made) -> Replacement:
    """expand_dims is a reshape as well."""
    inner = made(o.operands[0])
    if inner is None or inner.kind is not tile.expand_dims or _layout(o.result) is not None:
        return None
    x = inner.operands[0]
    if x.type == o.result.type:
        return (x,)
    return (tile.reshape(b, x, shape=o.attrs["shape"], hint=o.result.hint),)


def _transpose(o: Op, b: Builder, made: Made) -> Replacement:
    x = _smaller(o.operands[0], made)
    if x is None or 1 in shape_of(x.type):
        return None
    # which axis of x each axis of the larger tile is, None for those of size 1
    at = iter(range(len(shape_of(x.type))))
    axes = [next(at) if n != 1 else None for n in shape_of(o.operands[0].type)]
    perm = tuple(a for p in o.attrs["perm"] if (a := axes[p]) is not None)
    transposed = tile.transpose(b, x, perm=perm, hint=o.result.hint)
    return (tile.reshape(b, transposed, shape=shape_of(o.result.type), hint=o.result.hint),)


def _elementwise(o: Op, b: Builder, made: Made) -> Replacement:
    """On tiles that are all the same smaller one with more axes of size 1, or full of one value."""
    small = [_smaller(v, made) for v in o.operands]
    shapes = {shape_of(x.type) for x in small if x is not None}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    operands: list[Value] = []
    for v, x in zip(o.operands, small, strict=True):
        splat = made(v)
        if x is not None:
            operands.append(x)
        elif not isinstance(v.type, Tile):
            operands.append(v)
        elif splat is not None and splat.kind is tile.splat:
            operands.append(tile.splat(b, splat.operands[0], shape=shape, hint=v.hint))
        else:
            return None
    value = o.kind(b, *operands, hint=o.result.hint, **o.attrs)
    return (tile.reshape(b, value, shape=shape_of(o.result.type), hint=o.result.hint),)


def _smaller(v: Value, made: Made) -> Value | None:
    """The tile of two or more axes that v is with more axes, all of size 1.  (Below that, index arithmetic
    stays as it is written: recover_boxes reads it.)"""
    o = made(v)
    if o is None or o.kind not in (tile.reshape, tile.expand_dims) or _layout(v) is not None:
        return None
    x = o.operands[0]
    old, new = shape_of(x.type), shape_of(v.type)
    units = [n for n in old if n != 1] == [n for n in new if n != 1]
    return x if units and _KEPT <= len(old) < len(new) else None


def _layout(v: Value) -> object:
    return v.type.layout if isinstance(v.type, Tile) else None
