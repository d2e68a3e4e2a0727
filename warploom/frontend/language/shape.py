"""Making tiles and changing their shape."""

from __future__ import annotations

from typing import Any, cast

from warploom.frontend.coerce import (
    Operand,
    Tensor,
    calc,
    current,
    describe,
    show,
    static_dtype,
    static_int,
    static_ints,
)
from warploom.frontend.language.core import builtin, method
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.ops import tile
from warploom.ir.types import DType, Tile, dtype_of, spreads

__all__ = [
    "arange",
    "broadcast",
    "broadcast_to",
    "expand_dims",
    "full",
    "interleave",
    "join",
    "num_programs",
    "permute",
    "program_id",
    "ravel",
    "reshape",
    "split",
    "squeeze",
    "swizzle2d",
    "trans",
    "unsqueeze",
    "view",
    "zeros",
    "zeros_like",
]  # fmt: skip


def _dims(dims: tuple[Any, ...], what: str) -> tuple[int, ...]:
    """Sizes given as f(x, 2, 3) or f(x, (2, 3))."""
    if len(dims) == 1 and isinstance(dims[0], tuple | list):
        dims = tuple(dims[0])
    return static_ints(dims, what)


def positive_shape(shape: Any, what: str) -> tuple[int, ...]:
    """A compile-time shape whose sizes are all at least 1."""
    sizes = static_ints(shape, what)
    if any(n < 1 for n in sizes):
        refuse("shape-size", f"{what} {sizes} has a size below 1", "every axis needs an element")
    return sizes


def axis_of(axis: Any, rank: int) -> int:
    """An axis counted from 0, or from -1 backwards."""
    a = static_int(axis, "an axis")
    if not -rank <= a < rank:
        refuse("axis", f"axis {a} of a tile of rank {rank}", f"use {-rank} to {rank - 1}")
    return a % rank


def tile_of(x: Operand, what: str) -> Value:
    """x, which must be a tile."""
    if isinstance(x, Value) and isinstance(x.type, Tile):
        return x
    refuse(
        "not-a-tile",
        f"{what} takes a tile, found {describe(x)}",
        "make a tile with tl.full or tl.arange, or index a scalar's pointer with one",
    )


@builtin
def program_id(axis: int) -> Tensor:
    """This program's index along grid axis 0, 1 or 2 (i32); another axis is the error `program-axis`."""
    return current().emit(tile.program_id, axis=static_int(axis, "axis"))


@builtin
def num_programs(axis: int) -> Tensor:
    """Programs of the grid along axis 0, 1 or 2 (i32); another axis is the error `program-axis`."""
    return current().emit(tile.num_programs, axis=static_int(axis, "axis"))


@builtin
def arange(start: int, end: int) -> Tensor:
    """The integers start … end-1 as a tile of rank 1, i32; bounds are constexprs.  Any length above 0 (no
    power of two needed): an empty one is the error `arange-empty`."""
    lo, hi = static_int(start, "arange's start"), static_int(end, "arange's end")
    return current().emit(tile.arange, start=lo, end=hi)


def places_along(shape: tuple[int, ...], axis: int) -> Tensor:
    """0, 1 … along an axis, as a tile of the shape's rank that is 1 along the others."""
    return expand_dims(arange(0, shape[axis]), tuple(a for a in range(len(shape)) if a != axis))


@builtin
def swizzle2d(i: Operand, j: Operand, size_i: Operand, size_j: Operand, size_g: Operand) -> Any:
    """(row, column) of place i·size_j + j where a size_i × size_j grid is walked in groups of size_g rows,
    column by column inside of each."""

    place = calc("+", calc("*", i, size_j), j)
    in_group = calc("*", size_g, size_j)
    first = calc("*", calc("//", place, in_group), size_g)
    left = calc("-", size_i, first)
    rows = current().select(calc("<", left, size_g), left, size_g)
    place = calc("%", place, in_group)
    return calc("+", first, calc("%", place, rows)), calc("//", place, rows)


@builtin
def full(shape: Any, value: Operand, dtype: DType) -> Tensor:
    """A tile of a compile-time shape that holds `value`, cast to dtype; a size below 1 is the error
    `shape-size`."""
    emitter = current()
    sizes = positive_shape(shape, "the shape")
    return emitter.expand_to(emitter.cast(value, static_dtype(dtype, "full's dtype")), sizes)


@builtin
def zeros(shape: Any, dtype: DType) -> Tensor:
    """A tile of zeros, as full."""
    return full(shape, 0, dtype)


@builtin
def zeros_like(input: Operand) -> Tensor:
    """Zeros of the shape and dtype of a tile."""
    x = tile_of(input, "zeros_like")
    return full(current().shape(x), 0, dtype_of(x.type))


@method
def expand_dims(input: Operand, axis: Any) -> Tensor:
    """Inserts axes of size 1; `axis` (one or several) counts in the result."""
    emitter = current()
    x = emitter.value(input)
    axes = static_ints(axis, "an axis")
    rank = len(emitter.shape(x)) + len(axes)
    for a in sorted(axis_of(a, rank) for a in axes):
        x = (
            emitter.emit(tile.expand_dims, x, axis=a)
            if emitter.shape(x)
            else emitter.expand_to(x, (1,))
        )
    return x


@method
def unsqueeze(x: Operand, dim: int) -> Tensor:
    """An axis of size 1 more, at `dim` of the result."""
    return expand_dims(x, dim)


@method
def squeeze(x: Operand, dim: int) -> Tensor:
    """Without the axis `dim`, whose size is 1."""
    t = tile_of(x, "squeeze")
    sizes = current().shape(t)
    a = axis_of(dim, len(sizes))
    if sizes[a] != 1 or len(sizes) == 1:
        refuse("reshape", f"squeeze of axis {a} of {describe(t)}", "only axes of size 1 can go")
    return reshape(t, sizes[:a] + sizes[a + 1 :])


@method
def broadcast_to(input: Operand, *shape: Any) -> Tensor:
    """Repeats axes of size 1 (and adds leading axes) to `shape`."""
    emitter = current()
    sizes = _dims(shape, "a size")
    have = emitter.shape(input)
    if not spreads(have, sizes):
        refuse(
            "broadcast",
            f"a tile of {show(have)} can't be broadcast to {show(sizes)}",
            "only axes of size 1 are repeated",
        )
    return emitter.expand_to(input, sizes)


@builtin
def broadcast(input: Operand, other: Operand) -> Tensor:
    """Both operands at their common shape."""
    return current().broadcast(input, other)


@method
def reshape(input: Operand, *shape: Any, can_reorder: bool = False) -> Tensor:
    """The same elements, in row-major order, under another shape."""
    x = tile_of(input, "reshape")
    sizes = positive_shape(_dims(shape, "a size"), "the new shape")
    return current().emit(tile.reshape, x, shape=sizes)


@method
def view(input: Operand, *shape: Any) -> Tensor:
    """The same as reshape."""
    return reshape(input, *shape)


@method
def ravel(x: Operand, can_reorder: bool = False) -> Tensor:
    """The elements as a tile of rank 1."""
    t = tile_of(x, "ravel")
    return reshape(t, cast(Tile, t.type).size)


@method
def permute(input: Operand, *dims: Any) -> Tensor:
    """Axis i of the result is axis dims[i] of the input."""
    x = tile_of(input, "permute")
    rank = len(current().shape(x))
    perm = tuple(axis_of(d, rank) for d in _dims(dims, "an axis"))
    return current().emit(tile.transpose, x, perm=perm)


@method
def split(input: Operand) -> tuple[Tensor, Tensor]:
    """The two halves of a tile whose last axis has size 2: [..., 0] and [..., 1]."""
    x = tile_of(input, "split")
    shape = current().shape(x)
    if len(shape) < 2 or shape[-1] != 2:
        refuse(
            "split",
            f"split of a tile of shape {show(shape)}",
            "its last axis has to have size 2: reshape and permute it to the end",
        )

    def half(i: int) -> Tensor:
        part = (0,) * (len(shape) - 1)
        cut = current().emit(tile.slice_tile, x, offset=(*part, i), shape=(*shape[:-1], 1))
        return current().emit(tile.reshape, cut, shape=shape[:-1])

    return half(0), half(1)


@builtin
def join(a: Operand, b: Operand) -> Tensor:
    """Both (broadcast to one shape, promoted to one type) along a new last axis of size 2: [..., 0] is a,
    [..., 1] is b."""
    emitter = current()
    shape = emitter.common_shape(a, b)
    first = emitter.binary("==", arange(0, 2), 0)
    pair = (expand_dims(emitter.expand_to(x, shape), len(shape)) for x in emitter.unify(a, b))
    return emitter.select(first, *pair)


@builtin
def interleave(a: Operand, b: Operand) -> Tensor:
    """Both along the last axis, elements taking turns, those of a first."""
    pair = join(a, b)
    if len(current().shape(pair)) < 2:
        refuse("not-a-tile", "interleave of two scalars", "tl.join makes a tile of two scalars")
    *lead, n, _ = current().shape(pair)
    return reshape(pair, (*lead, 2 * n))


@method
def trans(input: Operand, *dims: Any) -> Tensor:
    """Swaps the last two axes, or permutes by dims."""
    x = tile_of(input, "trans")
    rank = len(current().shape(x))
    if not dims and rank < 2:
        refuse("axis", f"trans of a tile of rank {rank}", "a tile of rank 1 has no second axis")
    return permute(x, *(dims or (*range(rank - 2), rank - 1, rank - 2)))
