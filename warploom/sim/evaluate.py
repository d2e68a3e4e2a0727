"""The meaning of every op without effects, on NumPy values.

Scalars are NumPy scalars, tiles arrays of their dtype, pointers int64 (see memory.py).  16- and 8-bit
floats are computed in float32 and rounded once: with at least 2p + 2 bits in between, that rounds as
the narrow operation itself would (Figueroa 1995) for + - · / and square root.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from warploom.ir.core import Op, OpKind
from warploom.ir.ops import arith, combine, scaled, task, tile
from warploom.ir.types import Pointer, Scalar, dtype_of, elem_of, f64, pointee_of
from warploom.sim import ptx, special
from warploom.sim import scaled as scales
from warploom.sim.addresses import address_of, pointer_at
from warploom.sim.report import MemoryFault
from warploom.sim.rounding import round_to

Fn = Callable[..., Any]  # (op, *operands) -> result, or a tuple of them

PURE: dict[OpKind, Fn] = {}
ON_INTEGERS: dict[OpKind, Fn] = {}  # arithmetic where the operands are integers, without the op


def entering(table: dict[OpKind, Fn]) -> Callable[[OpKind], Callable[[Fn], Fn]]:
    """A decorator that enters a function into a table, by the kind of op that it is the meaning of."""

    def of(kind: OpKind) -> Callable[[Fn], Fn]:
        def register(fn: Fn) -> Fn:
            table[kind] = fn
            return fn

        return register

    return of


_pure = entering(PURE)


def _is_narrow(o: Op) -> bool:
    e = elem_of(o.operands[0].type)
    return not isinstance(e, Pointer) and e.is_float and e.bits < 32


def _arithmetic(ints: Fn, floats: Fn | None = None) -> Fn:
    """An op computed in its operands' dtype; `floats` where they are floating-point."""

    def run(o: Op, *xs: Any) -> Any:
        if not dtype_of(o.operands[0].type).is_float:
            return ints(*xs)
        fn = floats or ints
        if _is_narrow(o):
            wide = fn(*(np.asarray(x).astype(np.float32) for x in xs))
            return wide if wide.dtype == np.bool_ else round_to(wide, dtype_of(o.result.type))
        return fn(*xs)

    def quiet(o: Op, *xs: Any) -> Any:
        with np.errstate(all="ignore"):
            return run(o, *xs)

    return quiet


def prepared(o: Op) -> Fn:
    """The meaning of one op, as a function of its operands alone; call it under errstate(all="ignore")."""
    if o.kind in ON_INTEGERS and not dtype_of(o.operands[0].type).is_float:
        return ON_INTEGERS[o.kind]
    if o.kind is arith.const:
        value = _const(o)
        return lambda: value
    if o.kind is arith.cast and isinstance(o.operands[0].type, Scalar):
        between = o.operands[0].type.dtype, o.attrs["dtype"]
        if all(t.is_int and t.kind != "bool" for t in between):
            return operator.methodcaller("astype", between[1].numpy)
    return partial(PURE[o.kind], o)


# By operators, which a NumPy scalar takes a tenth of the time for that a ufunc does.
def _quotient(x: Any, y: Any) -> Any:
    q = x // y
    if not isinstance(q, np.ndarray):
        return q + q.dtype.type(1) if q * y != x and (x < 0) != (y < 0) else q
    rounded = (q * y != x) & ((x < 0) != (y < 0))
    return q + rounded.astype(q.dtype)


def _remainder(x: Any, y: Any) -> Any:
    r = x % y
    return r - y if r and (r < 0) != (x < 0) else r


def _either(arrays: Fn, numbers: Fn) -> Fn:
    """By a ufunc on arrays, otherwise on numbers."""

    def run(x: Any, y: Any) -> Any:
        has_array = isinstance(x, np.ndarray) or isinstance(y, np.ndarray)
        return arrays(x, y) if has_array else numbers(x, y)

    return run


def _one_over(x: Any) -> Any:
    return np.divide(np.asarray(1, np.asarray(x).dtype), x)


def _by_math(
    fn: Callable[[float], float], pole: Callable[[float], float] = lambda _: math.inf
) -> Fn:
    """A function of Python's math on arrays, in float64; pole: what it is where that has no result."""

    def one(x: float) -> float:
        try:
            return fn(x)
        except OverflowError:
            return math.copysign(math.inf, x)
        except ValueError:
            return pole(x)

    def run(x: Any) -> Any:
        out = np.frompyfunc(one, 1, 1)(np.asarray(x, np.float64))
        return np.asarray(out, np.float64).astype(np.asarray(x).dtype)[()]

    return run


def _of_order(fn: Callable[[int, float], float]) -> Fn:
    """A function of a whole number and another one on arrays, in float64."""

    def run(n: Any, x: Any) -> Any:
        found = np.frompyfunc(lambda n, x: fn(int(n), float(x)), 2, 1)(n, x)
        return np.asarray(found, np.float64).astype(np.asarray(x).dtype)[()]

    return run


def _round(x: Any) -> Any:
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1, x), 0).astype(whole.dtype)


_OWN: dict[OpKind, Fn] = {
    arith.erf: _by_math(math.erf),
    arith.erfc: _by_math(math.erfc),
    arith.lgamma: _by_math(math.lgamma),
    arith.tgamma: _by_math(math.gamma, lambda x: math.nan if x else math.copysign(math.inf, x)),
    arith.erfinv: _by_math(special.erfinv),
    arith.erfcinv: _by_math(special.erfcinv),
    arith.erfcx: _by_math(special.erfcx),
    **{getattr(arith, f"j{n}"): _by_math(partial(special.bessel_j, n)) for n in (0, 1)},
    **{getattr(arith, f"y{n}"): _by_math(partial(special.bessel_y, n)) for n in (0, 1)},
    **{getattr(arith, f"cyl_bessel_i{n}"): _by_math(partial(special.bessel_i, n)) for n in (0, 1)},
    arith.rsqrt: lambda x: _one_over(np.sqrt(x)),
    arith.sqrt_rn: np.sqrt,
    arith.rcp: _one_over,
    arith.exp10: lambda x: np.power(np.asarray(10, np.asarray(x).dtype), x),
    arith.round_: _round,
    **{
        getattr(arith, f"a{name}"): getattr(np, f"arc{name}")
        for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")
    },
}
# Of one floating-point number; NumPy's where it has them.
FUNCTIONS: dict[OpKind, Fn] = {k: _OWN.get(k) or getattr(np, k.name) for k in arith.MATH}

for _kind, _ints, _floats in (
    (arith.add, operator.add, None),
    (arith.sub, operator.sub, None),
    (arith.mul, operator.mul, None),
    (arith.div, operator.truediv, None),
    (arith.div_rn, operator.truediv, None),
    (arith.idiv, _quotient, None),
    (arith.pow_, np.power, None),
    (arith.atan2, np.arctan2, None),
    (arith.jn, _of_order(special.bessel_jn), None),
    (arith.yn, _of_order(special.bessel_yn), None),
    (arith.rem, _either(np.fmod, _remainder), np.fmod),
    (arith.minimum, _either(np.minimum, min), np.fmin),
    (arith.maximum, _either(np.maximum, max), np.fmax),
    (arith.and_, operator.and_, None),
    (arith.or_, operator.or_, None),
    (arith.xor, operator.xor, None),
    (arith.shl, operator.lshift, None),
    (arith.shr, operator.rshift, None),
    (arith.lt, operator.lt, None),
    (arith.le, operator.le, None),
    (arith.gt, operator.gt, None),
    (arith.ge, operator.ge, None),
    (arith.eq, operator.eq, None),
    (arith.ne, operator.ne, None),
    (arith.neg, operator.neg, None),
    (arith.abs_, operator.abs, None),
    (arith.not_, operator.invert, None),
):
    PURE[_kind] = _arithmetic(_ints, _floats)
    ON_INTEGERS[_kind] = _ints
PURE.update((kind, _arithmetic(fn)) for kind, fn in FUNCTIONS.items())


@_pure(arith.const)
def _const(o: Op) -> Any:
    return np.asarray(o.attrs["value"]).astype(o.attrs["dtype"].numpy)[()]


@_pure(arith.select)
def _select(o: Op, c: Any, x: Any, y: Any) -> Any:
    return np.where(c, x, y) if isinstance(c, np.ndarray) and c.ndim else (x if c else y)


@_pure(arith.bitcast)
def _bitcast(o: Op, x: Any) -> Any:
    return np.ascontiguousarray(x).view(o.attrs["dtype"].numpy).reshape(np.shape(x))[()]


PURE |= {
    arith.cast: lambda o, x: round_to(x, o.attrs["dtype"]),
    arith.decode: scales.FLOATS.number,
    arith.addptr: lambda o, p, offset: p + offset.astype(np.int64),
    arith.int_to_ptr: lambda o, x: pointer_at(x, o.attrs["dtype"].bytes),
    arith.ptr_to_int: lambda o, p: address_of(p, pointee_of(o.operands[0].type).bytes),
    arith.inline_asm: ptx.elementwise,
    tile.splat: lambda o, x: np.full(o.attrs["shape"], x),
    tile.arange: lambda o: np.arange(o.attrs["start"], o.attrs["end"], dtype=np.int32),
    tile.expand_dims: lambda o, x: np.expand_dims(x, o.attrs["axis"]),
    tile.broadcast: lambda o, x: np.broadcast_to(x, o.attrs["shape"]),
    tile.transpose: lambda o, x: np.transpose(x, o.attrs["perm"]),
    tile.reshape: lambda o, x: np.reshape(x, o.attrs["shape"]),
    tile.concat: lambda o, *parts: np.concatenate(parts, o.attrs["axis"]),
    tile.convert_layout: lambda o, x: x,
    tile.agree: lambda o, x: x,
    task.forward: lambda o, x: x,
}


@_pure(task.slice_block)
def _slice_block(o: Op, x: Any, *block: Any) -> Any:
    shape = o.attrs["shape"]
    return x[tuple(slice(int(i) * n, (int(i) + 1) * n) for i, n in zip(block, shape, strict=True))]


@_pure(tile.slice_tile)
def _slice_tile(o: Op, x: Any) -> Any:
    offset, shape = o.attrs["offset"], o.attrs["shape"]
    return x[tuple(slice(a, a + n) for a, n in zip(offset, shape, strict=True))]


_REDUCE: dict[str, tuple[Any, Any]] = {  # on integers, on floats
    "add": (np.add, np.add),
    "mul": (np.multiply, np.multiply),
    "max": (np.maximum, np.fmax),
    "min": (np.minimum, np.fmin),
    "and": (np.bitwise_and, np.bitwise_and),
    "or": (np.bitwise_or, np.bitwise_or),
    "xor": (np.bitwise_xor, np.bitwise_xor),
}


@_pure(tile.reduce)
def _reduce(o: Op, x: Any) -> Any:
    ints, floats = _REDUCE[o.attrs["fn"]]
    dtype = dtype_of(o.result.type)
    if not dtype.is_float:
        return ints.reduce(x, axis=o.attrs["axis"], dtype=dtype.numpy)
    wide = x if dtype == f64 else x.astype(np.float32)
    with np.errstate(all="ignore"):
        return round_to(floats.reduce(wide, axis=o.attrs["axis"]), dtype)


@_pure(tile.scan)
def _scan(o: Op, x: Any) -> Any:
    ints, floats = _REDUCE[o.attrs["fn"]]
    dtype = dtype_of(o.result.type)
    axis = o.attrs["axis"]
    x = np.flip(x, axis) if o.attrs["reverse"] else x
    if not dtype.is_float:
        found = ints.accumulate(x, axis=axis, dtype=dtype.numpy)
    else:
        wide = x if dtype == f64 else x.astype(np.float32)
        with np.errstate(all="ignore"):
            found = round_to(floats.accumulate(wide, axis=axis), dtype)
    return np.flip(found, axis) if o.attrs["reverse"] else found


def combination_of(o: Op) -> combine.Combination:
    """The function by which an op combines several tiles."""
    return combine.combination(o.attrs["combine"], tuple(dtype_of(v.type) for v in o.operands))


def _combined(meaning: Fn, o: Op, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """Elements a before elements b."""
    how = combination_of(o)
    known = dict(zip(how.params, (*a, *b), strict=True))
    with np.errstate(all="ignore"):
        for step in how.ops:
            known[step.result] = meaning(step)(*(known[v] for v in step.operands))
    return [np.broadcast_to(known[v], x.shape) for v, x in zip(how.results, a, strict=True)]


def combined(plain: Fn, o: Op, *parts: Any, wrap: Fn = lambda step, run: run) -> Any:
    """A reduction or scan by a function.  plain: what a step of it does; wrap: of a step and that, what it
    does here."""

    def meaning(step: Op) -> Fn:
        done: Fn = wrap(step, plain(step))
        return done

    axis, way, step = o.attrs["axis"], np.s_[:: -1 if o.attrs.get("reverse") else 1], 1
    found = [np.moveaxis(x, axis, 0)[way] for x in parts]
    if o.kind is combine.reduce_by:
        while found[0].shape[0] > 1:
            found = _combined(meaning, o, [x[::2] for x in found], [x[1::2] for x in found])
        found = [x[0] for x in found]
    else:
        while step < found[0].shape[0]:
            more = _combined(meaning, o, [x[:-step] for x in found], [x[step:] for x in found])
            found = [np.concatenate([x[:step], y]) for x, y in zip(found, more, strict=True)]
            step *= 2
        found = [np.moveaxis(x[way], 0, axis) for x in found]
    return found[0] if len(found) == 1 else tuple(found)


PURE |= {kind: partial(combined, prepared) for kind in combine.SEVERAL}


@_pure(tile.gather)
def _gather(o: Op, x: Any, index: Any) -> Any:
    axis = o.attrs["axis"]
    if flips := o.attrs.get("flips"):
        return np.take(x, np.arange(x.shape[axis]) ^ flips, axis)
    outside = (index < 0) | (index >= x.shape[axis])
    if outside.any():
        what = f"gather by index {index[outside][0]} along an axis of {x.shape[axis]}"
        advice = "clamp the indices; where a mask drops the element, any index inside will do"
        raise MemoryFault("gather-index", what, o.loc, help=advice)
    return np.take_along_axis(x, index.astype(np.int64), axis)


@_pure(tile.dot)
def _dot(o: Op, a: Any, b: Any, acc: Any, *more: Any) -> Any:
    if o.attrs.get("ieee"):
        return fused(a, b, acc)
    return _dot_scaled(o, a, b, acc, *more) if more else added(multiply(a, b), acc)


@_pure(scaled.dot_scaled)
def _dot_scaled(o: Op, *values: Any) -> Any:
    with np.errstate(all="ignore"):
        left, right = scales.FLOATS.operands(o, values)
        return values[2] + left @ right


def multiply(a: Any, b: Any) -> Any:
    """a @ b as the tensor core has it: of float64 in float64, of other floats in float32 (exact products,
    float32 sums), f32 operands cut to tf32; of integers in int32, which wraps (PTX ISA, "wgmma.mma_async",
    precision and rounding)."""
    if a.dtype.kind in "iu":  # exact in float64: fewer than 2^37 products of 16 bits
        exact = a.astype(np.float64) @ b.astype(np.float64)
        return exact.astype(np.int64).astype(np.int32)
    with np.errstate(all="ignore"):
        if a.dtype == np.float64:
            return a @ b
        return _multiplied(a) @ _multiplied(b)


def added(product: Any, acc: Any) -> Any:
    """acc + product in acc's dtype: a sum in float16 is rounded once."""
    return (acc + product).astype(acc.dtype, copy=False)


def fused(a: Any, b: Any, acc: Any) -> Any:
    """acc + a @ b of float32 in float32, in the order that BLAS likes."""
    with np.errstate(all="ignore"):
        return acc + a @ b


_TF32 = np.uint32(0xFFFFE000)  # sign, 8 bits of exponent, 10 of mantissa


def _multiplied(x: Any) -> Any:
    """The float32 that the tensor core takes an element for."""
    if x.dtype != np.float32:
        return x.astype(np.float32)
    return (np.ascontiguousarray(x).view(np.uint32) & _TF32).view(np.float32)


@_pure(task.ring_next)
def _ring_next(o: Op, slot: Any, phase: Any) -> Any:
    following = int(slot) + 1
    if following == o.attrs["depth"]:
        return np.int32(0), np.int32(int(phase) ^ 1)
    return np.int32(following), phase
