"""The dtype of a literal, and the one in which operators compute ("Triton Semantics")."""

from __future__ import annotations

import numpy as np

from warploom.frontend.refuse import refuse
from warploom.ir.types import DType, bf16, f16, f32, f64, i1, i32, i64, u32, u64

Number = bool | int | float


def literal_dtype(x: Number) -> DType:
    """The dtype that a literal takes when nothing else decides."""
    if isinstance(x, bool):
        return i1
    if isinstance(x, float):
        tiny, huge = 2.0**-126, (2 - 2.0**-23) * 2.0**127
        fits = x != x or x in (0.0, float("inf"), float("-inf")) or tiny <= abs(x) <= huge
        return f32 if fits else f64
    for dtype in (i32, u32, i64, u64):
        if in_range(x, dtype):
            return dtype
    refuse("int-range", f"{x} fits no integer type", "use a value below 2**64")


def width(d: DType) -> int:
    """Bits that count in promotion: an i1 is narrower than any other integer."""
    return 1 if d is i1 else d.bits


def is_unsigned(d: DType) -> bool:
    return d.kind in ("uint", "bool")


def in_range(x: int, d: DType) -> bool:
    low, high = (0, 2 ** width(d)) if is_unsigned(d) else (-(2 ** (d.bits - 1)), 2 ** (d.bits - 1))
    return bool(low <= x < high)


def wrap(x: int, d: DType) -> int:
    """The integer that `d` keeps of x."""
    x %= 2 ** width(d)
    return x if is_unsigned(d) or x < 2 ** (d.bits - 1) else x - 2**d.bits


def rounded(x: Number, d: DType) -> float:
    """What a floating dtype keeps of x."""
    with np.errstate(over="ignore"):
        return float(d.numpy.type(x))


def holds(d: DType, x: Number) -> bool:
    """Is a literal compared in d as it would be in its own dtype?"""
    if d.is_int:
        return in_range(int(x), d)
    own = rounded(x, literal_dtype(x)) if isinstance(x, float) else float(x)
    return own != own or rounded(own, d) == own


def _kind(d: DType) -> int:
    return {"bool": 0, "int": 1, "uint": 1, "float": 2}[d.kind]


def promote(a: DType, a_literal: bool, b: DType, b_literal: bool, division: bool = False) -> DType:
    """The dtype in which a binary operator computes.

    A literal beside a typed value takes that value's dtype unless its kind (bool < int < float) is
    higher.  Otherwise the widest float wins; f16 beats every narrower type and bf16; bf16 with anything
    but bf16 gives f32; integers follow C.  Division of 16-bit floats happens in f32.
    """
    if a_literal != b_literal:
        literal, typed = (a, b) if a_literal else (b, a)
        if _kind(literal) <= _kind(typed):
            return f32 if division and typed in (f16, bf16) else typed
    for wide in (f64, f32):
        if wide in (a, b):
            return wide
    if f16 in (a, b):
        return f32 if division else f16
    if bf16 in (a, b):
        return bf16 if a is b and not division else f32
    if a.is_float and b.is_float:  # fp8
        return a if a == b else f16
    if a.is_float or b.is_float:
        refuse(
            "dtype-mismatch",
            f"{a} and {b} have no common type",
            "cast the fp8 operand first, as in x.to(tl.float32)",
        )
    if division and is_unsigned(a) != is_unsigned(b):
        refuse(
            "mixed-sign-division",
            f"division of {a} by {b}: one is signed, the other not",
            "cast both to the same signedness",
        )
    if is_unsigned(a) == is_unsigned(b):
        return a if width(a) > width(b) else b
    unsigned, signed = (a, b) if is_unsigned(a) else (b, a)
    return unsigned if width(unsigned) >= width(signed) else signed
