"""Constant folding: the value of an op on Python numbers, exactly as the op's docstring defines it.

Integers wrap at their width; divisions by zero, which PTX leaves undefined, and shifts by the width or more
are not folded.  A constant of a float type is what the type holds of it (of f16: 0.1 is 0.0999755859375).
Floats are folded where one rounding of a double gives the correctly rounded result: f64, and f32 and f16 by
rounding the double (Figueroa 1995: innocuous for + - · / when the wide format has at least 2p + 2 bits).
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from warploom.ir.core import OpKind
from warploom.ir.ops import arith
from warploom.ir.types import DType, f32

Number = int | float | bool

_PACK = {"f32": "<f", "f16": "<e"}


def wrap(value: int, dtype: DType) -> int:
    """An integer reduced to the range of an integer dtype (two's complement)."""
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "int" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def quotient(x: int, y: int) -> int:
    """x / y rounded towards 0, as C divides; y is not 0."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def round_float(value: float, dtype: DType) -> float | None:
    """A double rounded to a float dtype; None where this file can't tell (bf16 inexact, 8-bit floats)."""
    if dtype.name == "f64" or math.isnan(value) or math.isinf(value):
        return None if dtype.bits == 8 else value
    if dtype.name in _PACK:
        try:
            (rounded,) = struct.unpack(_PACK[dtype.name], struct.pack(_PACK[dtype.name], value))
        except OverflowError:
            return math.copysign(math.inf, value)
        return float(rounded)
    if dtype.name == "bf16":  # the upper half of an f32
        single = round_float(value, f32)
        (bits,) = struct.unpack("<I", struct.pack("<f", single))
        return value if single == value and not bits & 0xFFFF else None
    return None


def fold(
    kind: OpKind, values: Sequence[Number], dtype: DType, to: DType | None = None
) -> Number | None:
    """What a scalar op gives on constants, or None where it is not folded.

    dtype: of the operands (of the two values, for `select`); to: the target of a `cast`.
    """
    if kind is arith.select:
        condition, x, y = values
        return x if condition else y
    if dtype.is_float:
        values = [held(v, dtype) for v in values]
    if kind is arith.cast:
        assert to is not None
        return _cast(values[0], dtype, to)
    if kind in _COMPARE:
        return bool(_COMPARE[kind](*values))
    if dtype.is_float:
        return _fold_float(kind, values, dtype)
    ints = [int(v) for v in values]
    if dtype.kind == "bool":
        return bool(_LOGICAL[kind](*ints)) if kind in _LOGICAL else None
    return _fold_int(kind, ints, dtype)


def held(value: Number, dtype: DType) -> float:
    """What a float dtype holds of a constant."""
    with np.errstate(over="ignore"):
        return float(dtype.numpy.type(value))


def _fold_int(kind: OpKind, values: Sequence[int], dtype: DType) -> int | None:
    if kind in (arith.idiv, arith.rem):
        x, y = values
        if y == 0:
            return None
        q = quotient(x, y)
        return wrap(q if kind is arith.idiv else x - q * y, dtype)
    if kind in (arith.shl, arith.shr) and not 0 <= values[1] < dtype.bits:
        return None
    return wrap(_INTEGER[kind](*values), dtype) if kind in _INTEGER else None


def _fold_float(kind: OpKind, values: Sequence[float], dtype: DType) -> float | None:
    if kind in (arith.div, arith.div_rn) and values[1] == 0:
        x, y = values
        finite = x != 0 and math.isfinite(x)
        return math.copysign(math.inf, x) * math.copysign(1.0, y) if finite else None
    if kind not in _FLOAT or any(math.isnan(v) for v in values):
        return None
    try:
        found = _FLOAT[kind](*values)
    except OverflowError:
        return None
    return None if math.isnan(found) else round_float(found, dtype)


def _cast(value: Number, dtype: DType, to: DType) -> Number | None:
    if to.kind == "bool":
        return value != 0
    if to.is_int:
        if not dtype.is_float:
            return wrap(int(value), to)
        if math.isnan(value) or math.isinf(value):
            return None
        whole = math.trunc(value)
        return whole if wrap(whole, to) == whole else None
    if not dtype.is_float and abs(value) > 1 << 53:
        return None  # a double could round before the one rounding that counts
    return round_float(float(value), to)


_COMPARE: dict[OpKind, Callable[..., bool]] = {k: getattr(operator, k.name) for k in arith.COMPARE}
_BITS: dict[OpKind, Callable[..., int]] = {
    arith.and_: operator.and_, arith.or_: operator.or_, arith.xor: operator.xor,
    arith.minimum: min, arith.maximum: max,
}  # fmt: skip
_SUMS: dict[OpKind, Callable[..., Any]] = {
    arith.add: operator.add, arith.sub: operator.sub, arith.mul: operator.mul,
    arith.neg: operator.neg, arith.abs_: abs,
}  # fmt: skip
_LOGICAL = {**_BITS, arith.not_: operator.not_}
_INTEGER: dict[OpKind, Callable[..., int]] = {
    **_BITS, **_SUMS, arith.shl: operator.lshift, arith.shr: operator.rshift,
    arith.not_: operator.invert,
}  # fmt: skip
_FLOAT: dict[OpKind, Callable[..., float]] = {
    **_SUMS, arith.div: operator.truediv, arith.div_rn: operator.truediv,
}  # fmt: skip
