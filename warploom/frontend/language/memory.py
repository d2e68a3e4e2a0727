"""Loads, stores and atomics; by pointers, block pointers and tensor descriptors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from warploom.analysis.access import BOX_ALIGNMENT
from warploom.frontend.coerce import (
    Const,
    Operand,
    Tensor,
    current,
    describe,
    known,
    show,
    static_bool,
    static_ints,
)
from warploom.frontend.language.core import BlockPointer, Descriptor, builtin, method
from warploom.frontend.language.shape import axis_of, full, places_along, positive_shape
from warploom.frontend.refuse import one_of, refuse
from warploom.ir.core import Value
from warploom.ir.ops import tile
from warploom.ir.types import DType, Pointer, i1, i32, i64, spreads

__all__ = [
    "advance", "load", "load_tensor_descriptor", "make_block_ptr", "make_tensor_descriptor", "store",
    "store_tensor_descriptor",
]  # fmt: skip

CACHE_MODIFIERS = ("", ".ca", ".cg", ".cv", ".cs", ".wb", ".wt")
EVICTION_POLICIES = ("", "evict_first", "evict_last", "evict_normal")
PADDINGS = ("", "zero", "nan")


def _check_hints(cache_modifier: Any, eviction_policy: Any) -> None:
    """The cache hints are accepted as Triton spells them; they change no result."""
    one_of("cache-hint", "cache_modifier", cache_modifier, *CACHE_MODIFIERS)
    one_of("cache-hint", "eviction_policy", eviction_policy, *EVICTION_POLICIES)


def _policy(eviction_policy: Any) -> dict[str, Any]:
    """The hint as an access carries it."""
    return {"cache_policy": eviction_policy} if eviction_policy else {}


def pointer_of(x: Operand, what: str) -> DType:
    """The dtype that a pointer operand points at."""
    d = current().dtype(x) if isinstance(x, Value) else None
    if isinstance(d, Pointer):
        return d.dtype
    refuse(
        "not-a-pointer",
        f"{what} needs a pointer, found {describe(x)}",
        "pass a pointer argument plus offsets, such as ptr + tl.arange(0, N)",
    )


def mask_for(mask: Operand, shape: tuple[int, ...], what: str) -> Value:
    """The mask as i1 at the pointer's shape."""
    emitter = current()
    if emitter.dtype(mask) != i1:
        refuse(
            "mask-dtype",
            f"{what}'s mask is {describe(mask)}, not a tile of truth values",
            "make it by comparison, as in offs < n",
        )
    return fitted(mask, shape, "mask-shape", f"{what}'s mask")


def fitted(x: Operand, shape: tuple[int, ...], code: str, what: str) -> Value:
    """x broadcast to the pointer's shape, refused where it is no part of it."""
    emitter = current()
    have = emitter.shape(x)
    if not spreads(have, shape):
        refuse(
            code,
            f"{what} of shape {show(have)} does not fit pointers of shape {show(shape)}",
            "build both from the same offsets; insert axes with x[:, None]",
        )
    return emitter.expand_to(x, shape)


@builtin
def load(
    pointer: Operand,
    mask: Operand = None,
    other: Operand = None,
    boundary_check: Any = (),
    padding_option: str = "",
    cache_modifier: str = "",
    eviction_policy: str = "",
    volatile: bool = False,
) -> Tensor:
    """Reads through a pointer, a tile of pointers or a block pointer.

    mask: where it is false nothing is read and the result is `other` (0 without it).  Block pointers take
    boundary_check (the axes that may leave the parent's shape) and padding_option ("zero", "nan")
    instead.  eviction_policy says which lines the L2 gives up first, whatever copies the tile (but cp.async);
    cache_modifier is accepted; volatile reads are made once, in order.
    """
    _check_hints(cache_modifier, eviction_policy)
    emitter = current()
    if isinstance(pointer, BlockPointer):
        _no_mask(mask, other)
        checked = _checked_axes(boundary_check, pointer)
        policy = _policy(eviction_policy)
        if _may_leave(pointer, checked):
            box = emitter.emit(tile.load, _places(pointer), *_inside(pointer, checked), **policy)
        else:
            box = _load_box(_view(pointer), pointer.offsets, pointer.block_shape, **policy)
        return _pad(box, pointer, padding_option, checked)
    _no_block_options(boundary_check, padding_option)
    d = pointer_of(pointer, "load")
    shape = emitter.shape(pointer)
    rest: list[Value] = []
    if mask is not None and shape and len(emitter.shape(mask)) >= len(shape):
        # As in Triton a larger mask enlarges the pointer tile.
        shape = emitter.common_shape(pointer, mask, code="mask-shape")
    p = emitter.expand_to(pointer, shape)
    if mask is not None:
        rest.append(mask_for(mask, shape, "load"))
    if other is not None:
        if mask is None:
            refuse("other-without-mask", "load's other has no mask to stand in for", "pass mask=")
        rest.append(fitted(emitter.stored(other, d), shape, "other-shape", "load's other"))
    is_volatile = static_bool(volatile, "volatile")
    attrs = {"volatile": True} if is_volatile else _policy(eviction_policy)
    return emitter.emit(tile.load, p, *rest, **attrs)


@method
def store(
    pointer: Operand,
    value: Operand,
    mask: Operand = None,
    boundary_check: Any = (),
    cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:
    """Writes value, broadcast to the pointers' shape and cast to their dtype, where mask is true.  Block
    pointers take boundary_check (the axes that may leave the parent's shape) instead of a mask.

    eviction_policy: as load's; cache_modifier is accepted."""
    _check_hints(cache_modifier, eviction_policy)
    emitter = current()
    if isinstance(pointer, BlockPointer):
        _no_mask(mask, None)
        checked = _checked_axes(boundary_check, pointer)
        policy = _policy(eviction_policy)
        if _may_leave(pointer, checked):
            what = emitter.stored(value, pointer.dtype)
            written = fitted(what, pointer.block_shape, "store-shape", "the stored value")
            inside = _inside(pointer, checked)
            emitter.emit(tile.store, _places(pointer), written, *inside, **policy)
        else:
            where = (_view(pointer), pointer.offsets)
            _store_box(*where, value, pointer.block_shape, pointer.dtype, **policy)
        return
    _no_block_options(boundary_check, "")
    d = pointer_of(pointer, "store")
    shape = emitter.shape(pointer)
    written = fitted(emitter.stored(value, d), shape, "store-shape", "the stored value")
    masks = () if mask is None else (mask_for(mask, shape, "store"),)
    emitter.emit(tile.store, emitter.value(pointer), written, *masks, **_policy(eviction_policy))


def _no_mask(mask: Operand, other: Operand) -> None:
    if mask is not None or other is not None:
        refuse(
            "block-pointer-mask",
            "a block pointer takes no mask or other",
            "use boundary_check=(0, 1) and padding_option=",
        )


def _checked_axes(boundary_check: Any, pointer: BlockPointer) -> tuple[int, ...]:
    rank = len(pointer.block_shape)
    if known(boundary_check) == 0:  # no axis, as in Triton
        return ()
    return tuple(axis_of(a, rank) for a in static_ints(boundary_check, "boundary_check"))


def _no_block_options(boundary_check: Any, padding_option: Any) -> None:
    if boundary_check or padding_option:
        refuse(
            "boundary-check",
            "boundary_check and padding_option need a block pointer",
            "use mask= and other= with pointers",
        )


def _load_box(
    view: Value, offsets: tuple[Any, ...], shape: tuple[int, ...], **policy: Any
) -> Tensor:
    emitter = current()
    at = tuple(emitter.cast(o, i32) for o in offsets)
    return emitter.emit(tile.load_box, view, *at, shape=shape, **policy)


def _store_box(
    view: Value,
    offsets: tuple[Any, ...],
    value: Operand,
    shape: tuple[int, ...],
    dtype: DType,
    **policy: Any,
) -> None:
    emitter = current()
    written = fitted(emitter.stored(value, dtype), shape, "store-shape", "the stored value")
    at = tuple(emitter.cast(o, i32) for o in offsets)
    emitter.emit(tile.store_box, view, written, *at, **policy)


def _pad(box: Value, pointer: BlockPointer, padding: Any, checked: tuple[int, ...]) -> Value:
    """What a load by block pointer reads outside the checked axes."""
    one_of("padding", "padding_option", padding, *PADDINGS)
    if padding != "nan":
        return box
    return _nan_outside(box, pointer.shape, pointer.offsets, checked)


def _may_leave(pointer: BlockPointer, checked: tuple[int, ...]) -> bool:
    """Whether the block may leave the parent's shape along an axis that is not checked: what lies there is
    read and written then, as in Triton, and boxes would leave it out."""
    return len({*checked}) < len(pointer.block_shape)


def _view(pointer: BlockPointer) -> Value:
    """The parent."""
    return current().emit(tile.make_view, pointer.base, *pointer.shape, *pointer.strides)


def _places(pointer: BlockPointer) -> Value:
    """A pointer to each element of the block."""
    emitter = current()
    at: Operand = pointer.base
    for a, stride in enumerate(pointer.strides):
        index = _indices(pointer.block_shape, pointer.offsets, a)
        at = emitter.binary("+", at, emitter.binary("*", index, stride))
    return emitter.expand_to(at, pointer.block_shape)


def _indices(shape: tuple[int, ...], offsets: tuple[Any, ...], axis: int) -> Operand:
    """The block's indices along an axis of the parent (i64)."""
    emitter = current()
    index = emitter.cast(places_along(shape, axis), i64)
    return emitter.binary("+", emitter.cast(offsets[axis], i64), index)


def _inside(pointer: BlockPointer, axes: tuple[int, ...]) -> tuple[Value, ...]:
    """A mask of what lies in the parent's shape along `axes`, where there are any."""
    mask = _within(pointer.block_shape, pointer.shape, pointer.offsets, axes)
    return (mask_for(mask, pointer.block_shape, "boundary_check"),) if axes else ()


def _within(
    shape: tuple[int, ...],
    extents: tuple[Any, ...],
    offsets: tuple[Any, ...],
    axes: tuple[int, ...],
) -> Operand:
    emitter = current()
    inside: Operand = True
    for a in axes:
        at = _indices(shape, offsets, a)
        low, high = emitter.binary(">=", at, 0), emitter.binary("<", at, extents[a])
        inside = emitter.binary("&", inside, emitter.binary("&", low, high))
    return inside


def _nan_outside(
    box: Value, extents: tuple[Any, ...], offsets: tuple[Any, ...], axes: tuple[int, ...]
) -> Value:
    """The box with NaN in place of the zeros beyond the extents along `axes`."""
    emitter = current()
    shape = emitter.shape(box)
    inside = _within(shape, extents, offsets, axes)
    nan = full(shape, float("nan"), emitter.number(box))
    return emitter.select(inside, box, nan)


@builtin
def make_block_ptr(
    base: Operand, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any
) -> Tensor:
    """A block of a parent array: `shape` and `strides` (in elements) of the parent, where the block
    starts, its compile-time `block_shape`; `order` lists the axes from the fastest in memory.

    Along axes that boundary_check names elements outside the parent are zero and are not written; along
    others the kernel says that there are none, and what lies there in memory is read and written."""
    emitter = current()
    d = pointer_of(base, "make_block_ptr")
    sizes = positive_shape(block_shape, "block_shape")
    rank = len(sizes)
    for name, given in (("shape", shape), ("strides", strides), ("offsets", offsets)):
        _check_integers(name, given, rank)
    if sorted(static_ints(order, "order")) != list(range(rank)):
        refuse("block-order", f"order {order} is no permutation of the {rank} axes", "use (1, 0)")
    extents, steps = _i64s(shape), _i64s(strides)
    starts = tuple(emitter.cast(o, i32) for o in offsets)
    return BlockPointer(emitter.value(base), extents, steps, starts, sizes, d)


@builtin
def advance(base: Operand, offsets: Any) -> Tensor:
    """The block pointer moved by `offsets`, one an axis."""
    emitter = current()
    if not isinstance(base, BlockPointer):
        refuse(
            "not-a-block-pointer",
            f"advance takes a block pointer, found {describe(base)}",
            "make one with tl.make_block_ptr; ordinary pointers move by ptr + i",
        )
    _check_integers("offsets", offsets, len(base.block_shape))
    moved = (
        o if d == 0 and isinstance(d, int) else emitter.binary("+", o, emitter.cast(d, i32))
        for o, d in zip(base.offsets, offsets, strict=True)
    )
    return replace(base, offsets=tuple(moved))


def _check_integers(name: str, given: Any, rank: int) -> None:
    """Refuses anything but an integer, or a tile of integers, for each axis."""
    if not isinstance(given, tuple | list):
        refuse("block-rank", f"{name} is {describe(given)}", f"give {rank} entries as a list")
    if len(given) != rank:
        what = f"{name} has {len(given)} entries, the block {rank} axes"
        refuse("block-rank", what, "give one entry for each axis of the block")
    for x in given:
        if not current().number(x).is_int:
            what = f"expected integers as {name}, found {describe(x)}"
            refuse("block-integer", what, "divide integers by //, or cast with .to(tl.int32)")


def _i64s(values: Any) -> tuple[Value, ...]:
    return tuple(current().cast(v, i64) for v in values)


@builtin
def make_tensor_descriptor(
    base: Operand, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> Tensor:
    """A descriptor of a strided array that moves boxes of `block_shape`.

    The last stride is the constant 1; TMA moves the boxes where base and the other strides are multiples
    of 16 bytes (PTX ISA, cp.async.bulk.tensor), other producers where they are not.  Of a base or strides
    that are read from memory this is taken for granted, as in Triton, and that strides are positive.
    """
    emitter = current()
    d = pointer_of(base, "make_tensor_descriptor")
    sizes = positive_shape(block_shape, "block_shape")
    for name, given in (("shape", shape), ("strides", strides)):
        _check_integers(name, given, len(sizes))
    if not 1 <= len(sizes) <= 5:
        refuse("view-rank", f"a descriptor of {len(sizes)} axes", "use 1 to 5 axes")
    if not (isinstance(last := strides[-1], int | Const) and known(last) == 1):
        refuse(
            "descriptor-stride",
            f"the last stride of a descriptor is 1, found {describe(last)}",
            "write the constant 1; transpose the block after loading where memory is the other way",
        )
    one_of("padding", "padding_option", padding_option, *PADDINGS)
    extents, steps = _i64s(shape), _i64s(strides)
    rows = max(1, BOX_ALIGNMENT // d.bytes)
    promised = (BOX_ALIGNMENT, *(rows,) * (len(steps) - 1), 1)
    view = emitter.emit(tile.make_view, base, *extents, *steps, promised=promised)
    return Descriptor(base, view, extents, steps, sizes, d, padding_option or "zero")


def descriptor_of(desc: Any, offsets: Any, what: str) -> Descriptor:
    if not isinstance(desc, Descriptor):
        refuse(
            "not-a-descriptor",
            f"{what} takes a tensor descriptor, found {describe(desc)}",
            "make one with tl.make_tensor_descriptor, or pass a TensorDescriptor",
        )
    _check_integers("offsets", offsets, len(desc.block_shape))
    return desc


@builtin
def load_tensor_descriptor(desc: Any, offsets: Any) -> Tensor:
    """The box at `offsets` (elements, one an axis); elements outside the array are zero, or NaN where the
    descriptor pads so.  Also desc.load(offsets)."""
    d = descriptor_of(desc, offsets, "load_tensor_descriptor")
    box = _load_box(d.view, tuple(offsets), d.block_shape)
    if d.padding != "nan":
        return box
    return _nan_outside(box, d.shape, tuple(offsets), tuple(range(len(d.block_shape))))


@builtin
def store_tensor_descriptor(desc: Any, offsets: Any, value: Operand) -> None:
    """Writes a box of the descriptor's block shape at `offsets` (elements, one an axis), cast to its dtype;
    elements outside the array are dropped.  Also desc.store(offsets, value)."""
    d = descriptor_of(desc, offsets, "store_tensor_descriptor")
    _store_box(d.view, tuple(offsets), value, d.block_shape, d.dtype)
