"""Matrix product and reductions."""

from __future__ import annotations

from typing import Any

from warploom.frontend.coerce import (
    Operand,
    Tensor,
    current,
    describe,
    static_bool,
    static_dtype,
    static_int,
)
from warploom.frontend.language.core import builtin, method
from warploom.frontend.language.math import exp
from warploom.frontend.language.shape import axis_of, expand_dims, full, places_along, tile_of
from warploom.frontend.refuse import one_of, refuse
from warploom.frontend.targeted import KNOBS
from warploom.ir.core import Value
from warploom.ir.ops import arith, tile
from warploom.ir.types import DType, accumulator, bf16, f8e4b15, f16, f32, i1, i32, u32

__all__ = [
    "argmax", "argmin", "cumprod", "cumsum", "dot", "item", "max", "min", "softmax", "sum", "xor_sum",
]  # fmt: skip

PRECISIONS = (None, "tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


@builtin
def dot(
    input: Operand,
    other: Operand,
    acc: Operand = None,
    input_precision: str | None = None,
    allow_tf32: bool | None = None,
    max_num_imprecise_acc: int | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """input (M×K) @ other (K×N) + acc; or, of three axes each, that of every batch (B×M×K, B×K×N).

    Sums are made in f32, of float64 in f64, of 8-bit integers in i32.  input_precision says how f32 operands
    are multiplied: 'tf32' (the default, unless a knob says another; also allow_tf32=True) ignores their
    lowest 13 bits; 'tf32x3' adds products with what these held, which is nearly as precise as f32; 'bf16x3'
    and 'bf16x6' add 3 (6) products of the 2 (3) bf16 that a number is about the sum of; 'ieee'
    (allow_tf32=False) multiplies all bits, and adds by fma, without tensor cores.  max_num_imprecise_acc:
    FP8 partial sums are added to acc in full f32 at least every so many elements of K (0: as None, not before
    the end).  out_dtype: of the result where there is no acc: f32, of f16 and 8-bit floats also f16; of
    integers i32, of float64 f64.
    """
    emitter = current()
    one_of("dot-precision", "input_precision", input_precision, *PRECISIONS)
    shapes = emitter.shape(input), emitter.shape(other)
    if not len(shapes[0]) == len(shapes[1]) in (2, 3):
        refuse(
            "dot-rank",
            f"dot needs two tiles of 2 axes, or of 3, got {describe(input)} and {describe(other)}",
            "use x[:, None] or tl.reshape to get two axes",
        )
    if f8e4b15 in (emitter.number(input), emitter.number(other)):
        input, other = emitter.cast(input, f16), emitter.cast(other, f16)
    operands = emitter.number(input)
    sums = accumulator(operands)
    unheard = f32 if sums != f32 else f16 if operands in (f32, bf16) else None  # as in Triton
    if out_dtype is None or out_dtype == unheard:
        out_dtype = sums
    allowed = (f32, f16) if sums == f32 else (sums,)
    if static_dtype(out_dtype, "out_dtype") not in allowed:
        refuse(
            "dot-out",
            f"dot into {out_dtype}",
            f"use tl.{sums.numpy.name} and cast the result with .to()",
        )
    result = out_dtype if acc is None else emitter.number(acc)
    if acc is None:
        wide = full((*shapes[0][:-1], shapes[1][-1]), 0, sums)
    else:
        wide = emitter.cast(acc, f32) if result == f16 else emitter.value(acc)
    limit = static_int(max_num_imprecise_acc or 0, "max_num_imprecise_acc")
    # Sums of wider products lose nothing.
    attrs: dict[str, Any] = {"max_imprecise": limit} if limit and operands.is_8bit_float else {}
    precision = ""
    if operands == f32:
        by_flag = {None: KNOBS.get().default_dot_input_precision, False: "ieee"}
        precision = input_precision or by_flag.get(allow_tf32, "tf32")
        if precision == "ieee":
            attrs["ieee"] = True
    for left, right in _terms(input, other, precision):
        wide = emitter.emit(tile.dot, left, right, wide, **attrs)
    return emitter.cast(wide, f16) if result == f16 else wide


# Of how many bf16, the largest first, a number is about the sum; which of their products are added, the
# largest last.
_BF16_TERMS = {
    "bf16x3": (2, ((1, 0), (0, 1), (0, 0))),
    "bf16x6": (3, ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1), (0, 0))),
}


def _terms(a: Operand, b: Operand, precision: str) -> list[tuple[Operand, Operand]]:
    """The products of tensor cores that a product of f32 in some precision is the sum of."""
    if precision == "tf32x3":
        return [(_low_bits(a), b), (a, _low_bits(b)), (a, b)]
    if precision not in _BF16_TERMS:
        return [(a, b)]
    count, terms = _BF16_TERMS[precision]
    left, right = (_bf16_parts(x, count) for x in (a, b))
    return [(left[i], right[j]) for i, j in terms]


def _bf16_parts(x: Operand, count: int) -> list[Value]:
    """bf16 whose sum is about x, each rounded to nearest: what is left is the next one."""
    emitter = current()
    parts = [emitter.cast(x, bf16)]
    for _ in range(count - 1):
        x = _or_zero(emitter.binary("-", x, emitter.cast(parts[-1], f32)))
        parts.append(emitter.cast(x, bf16))
    return parts


def _low_bits(x: Operand) -> Value:
    """x without what the tensor core takes it for: exact, and with its 13 bits itself (nearly) a tf32."""
    emitter = current()
    kept = emitter.value(emitter.binary("&", emitter.emit(arith.bitcast, x, dtype=u32), 0xFFFFE000))
    return _or_zero(emitter.binary("-", x, emitter.emit(arith.bitcast, kept, dtype=f32)))


def _or_zero(low: Operand) -> Value:
    """What is left of a number; 0 for infinities, which the product has already."""
    return current().select(current().binary("==", low, low), low, 0.0)


@method
def item(input: Operand) -> Tensor:
    """The only element of a tile, as a scalar."""
    shape = current().shape(input)
    if any(n != 1 for n in shape):
        what = f"item of {describe(input)}, which has more than one element"
        refuse("item", what, "combine them, as by tl.sum, or load the one that you need")
    x = current().value(input)
    return reduced(x, None, False, "or" if current().number(x) == i1 else "max") if shape else x


def reduced(x: Value, axis: Any, keep_dims: Any, fn: str) -> Value:
    """Elements combined by fn along one axis, or (axis None) along all of them."""
    emitter = current()
    rank = len(emitter.shape(x))
    axes = [axis_of(axis, rank)] if axis is not None else list(range(rank))
    for a in reversed(axes):
        x = emitter.emit(tile.reduce, x, axis=a, fn=fn)
    if static_bool(keep_dims, "keep_dims"):
        x = expand_dims(x, tuple(axes))
    return x


@method
def sum(
    input: Operand, axis: int | None = None, keep_dims: bool = False, dtype: DType | None = None
) -> Tensor:
    """The sum along an axis (all axes without one).  Integers narrower than 32 bits sum in 32."""
    emitter = current()
    x = tile_of(input, "sum")
    d = emitter.number(x)
    if dtype is not None:
        d = static_dtype(dtype, "sum's dtype")
    elif d.is_int and d.bits < 32:
        d = i32 if d.kind == "int" else u32
    return reduced(emitter.cast(x, d), axis, keep_dims, "add")


@method
def xor_sum(input: Operand, axis: int | None = None, keep_dims: bool = False) -> Tensor:
    """The exclusive or along an axis."""
    return of_bits(input, axis, keep_dims, "xor_sum", "xor")


def of_bits(input: Operand, axis: int | None, keep_dims: bool, name: str, fn: str) -> Tensor:
    """A bitwise reduction, of the function called so."""
    x = tile_of(input, name)
    if not current().number(x).is_int:
        refuse("bitwise-float", f"{name} of {describe(x)}", "bitwise operators take integers")
    return reduced(x, axis, keep_dims, fn)


@method
def cumsum(
    input: Operand, axis: int = 0, reverse: bool = False, dtype: DType | None = None
) -> Tensor:
    """Sums of all elements up to each one along an axis, itself included; reverse: from it to the end.

    bf16 sums in f32, integers narrower than 32 bits in 32."""
    emitter = current()
    x = tile_of(input, "cumsum")
    d = emitter.number(x)
    if dtype is not None:
        d = static_dtype(dtype, "cumsum's dtype")
    elif d == bf16:
        d = f32
    elif d.is_int and d.bits < 32:
        d = i32 if d.kind == "int" else u32
    return scanned(emitter.cast(x, d), axis, reverse, "add")


@method
def cumprod(
    input: Operand, axis: int = 0, reverse: bool = False, dtype: DType | None = None
) -> Tensor:
    """Products of all elements up to each one along an axis, itself included; reverse: from it to the end.

    bf16 multiplies in f32."""
    emitter = current()
    x = tile_of(input, "cumprod")
    d = emitter.number(x)
    if dtype is not None:
        d = static_dtype(dtype, "cumprod's dtype")
    return scanned(emitter.cast(x, f32 if d == bf16 else d), axis, reverse, "mul")


def scanned(x: Value, axis: Any, reverse: Any, fn: str) -> Value:
    """Each element combined by fn with all before it along an axis; reverse: after it."""
    emitter = current()
    a = axis_of(axis, len(emitter.shape(x)))
    back = static_bool(reverse, "reverse")
    return emitter.emit(tile.scan, x, axis=a, fn=fn, reverse=back)


def _extreme(
    input: Operand, axis: Any, return_indices: Any, keep_dims: Any, fn: str, tie_break_left: Any
) -> Any:
    emitter = current()
    x = tile_of(input, fn)
    d = emitter.number(x)
    if static_bool(return_indices, "return_indices"):
        value = x if d != bf16 else emitter.cast(x, f32)
        return _extreme_with_index(value, axis, keep_dims, fn, tie_break_left)
    return reduced(widened(x), axis, keep_dims, fn)


def widened(x: Value) -> Value:
    """Types narrower than 32 bits as f32 or i32: what Triton does before max and min."""
    d = current().number(x)
    return x if d.bits >= 32 else current().cast(x, f32 if d.is_float else i32)


def _extreme_with_index(
    x: Value, axis: Any, keep_dims: Any, fn: str, left: Any
) -> tuple[Value, Value]:
    """(extreme, its first index, or its last where ties need not break to the left)."""
    emitter = current()
    shape = emitter.shape(x)
    if axis is None:
        refuse("axis", f"{fn} with indices over all axes", "say which axis, as in axis=0")
    a = axis_of(axis, len(shape))
    best = reduced(x, a, True, fn)
    index = places_along(shape, a)
    is_best = emitter.binary("==", x, best)
    # Among NaNs alone nothing is best; what is found is a place of the tile even so.
    other, first = (shape[a] - 1, "min") if static_bool(left, "tie_break_left") else (0, "max")
    found = reduced(emitter.select(is_best, index, other), a, keep_dims, first)
    return (best if static_bool(keep_dims, "keep_dims") else reduced(x, a, False, fn)), found


@method
def max(
    input: Operand,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """The maximum along an axis (all axes without one); with return_indices also where it is.

    Types narrower than 32 bits are widened first (f16 and bf16 to f32, integers to i32)."""
    return _extreme(input, axis, return_indices, keep_dims, "max", return_indices_tie_break_left)


@method
def min(
    input: Operand,
    axis: int | None = None,
    return_indices: bool = False,
    return_indices_tie_break_left: bool = True,
    keep_dims: bool = False,
) -> Any:
    """The minimum along an axis (all axes without one); with return_indices also where it is.

    Types narrower than 32 bits are widened first (f16 and bf16 to f32, integers to i32)."""
    return _extreme(input, axis, return_indices, keep_dims, "min", return_indices_tie_break_left)


@method
def argmax(
    input: Operand, axis: int, tie_break_left: bool = True, keep_dims: bool = False
) -> Tensor:
    """Where along the axis the maximum is (i32): the first place of several, or the last without
    tie_break_left."""
    return max(input, axis, True, tie_break_left, keep_dims)[1]


@method
def argmin(
    input: Operand, axis: int, tie_break_left: bool = True, keep_dims: bool = False
) -> Tensor:
    """Where along the axis the minimum is (i32); of several places as argmax."""
    return min(input, axis, True, tie_break_left, keep_dims)[1]


@method
def softmax(
    x: Operand, dim: int | None = None, keep_dims: bool = False, ieee_rounding: bool = False
) -> Tensor:
    """e^(x - max) / Σ e^(x - max) along an axis (the first without `dim`)."""
    emitter = current()
    a = axis_of(0 if dim is None else dim, len(emitter.shape(tile_of(x, "softmax"))))
    top = max(x, a, keep_dims=True)
    e = exp(emitter.binary("-", x, top))
    return emitter.binary("/", e, sum(e, a, keep_dims=True))
