"""The number formats in NumPy, written apart from the compiler: conversion, and what is exact in which."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Format:
    """A dtype.  tl: its name in a kernel.  digits: bits of a float's significand.  bits: of storage."""

    name: str
    tl: str
    numpy: Any
    kind: str  # "f", "i", "u" or "b"
    bits: int
    digits: int = 0
    largest: float = 0.0

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def range(self) -> tuple[float, float]:
        """The integers of the format (of a float: its finite numbers)."""
        if self.kind == "f":
            return -self.largest, self.largest
        if self.kind == "b":
            return 0, 1
        return (
            (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1)
            if self.kind == "i"
            else (0, 2**self.bits - 1)
        )


FORMATS = {
    f.name: f
    for f in (
        Format("f64", "tl.float64", np.float64, "f", 64, 53, 1e300),
        Format("f32", "tl.float32", np.float32, "f", 32, 24, 3e38),
        Format("f16", "tl.float16", np.float16, "f", 16, 11, 65504.0),
        Format("bf16", "tl.bfloat16", ml_dtypes.bfloat16, "f", 16, 8, 3e38),
        Format("e4m3", "tl.float8e4nv", ml_dtypes.float8_e4m3fn, "f", 8, 4, 448.0),
        Format("e5m2", "tl.float8e5", ml_dtypes.float8_e5m2, "f", 8, 3, 57344.0),
        *(Format(f"i{n}", f"tl.int{n}", np.dtype(f"i{n // 8}").type, "i", n) for n in (8, 16, 32, 64)),
        *(Format(f"u{n}", f"tl.uint{n}", np.dtype(f"u{n // 8}").type, "u", n) for n in (8, 16, 32, 64)),
        Format("i1", "tl.int1", np.bool_, "b", 1),
    )
}  # fmt: skip


def holds(dtype: str, lo: float, hi: float, grain: int) -> bool:
    """Is every multiple of 2^-grain from lo to hi a number of the format?"""
    f = FORMATS[dtype]
    top = max(abs(lo), abs(hi))
    if not f.is_float:
        return grain == 0 and f.range[0] <= lo and hi <= f.range[1]
    # Of 8 bits only what needs no subnormal numbers.
    return (
        top * 2.0**grain <= 2.0**f.digits
        and top <= f.largest
        and grain <= (5 if f.bits == 8 else 12)
    )


def ulp(dtype: str, top: float) -> float:
    """The distance of neighbours at `top`, an upper bound of a rounding's error."""
    f = FORMATS[dtype]
    if not f.is_float or top == 0:
        return 0.0
    return max(
        2.0 ** (math.floor(math.log2(top)) + 1 - f.digits), 2.0**-14 if f.bits <= 16 else 0.0
    )


def convert(x: Any, source: str, target: str) -> Any:
    """x as a cast converts it: floats round to nearest even (8 bits: to finite), float to integer truncates."""
    a = np.asarray(x)
    f, g = FORMATS[source], FORMATS[target]
    with np.errstate(all="ignore"):
        if g.kind == "b":
            out = a != 0
        elif g.is_float and g.bits == 8:
            wide = a.astype(np.float32)
            out = np.clip(wide, -g.largest, g.largest).astype(g.numpy)
        elif g.is_int and f.is_float:
            low, high = g.range
            out = np.clip(np.trunc(np.nan_to_num(a.astype(np.float64))), low, high).astype(g.numpy)
        elif g.is_float and g.bits < 32:
            out = a.astype(np.float32).astype(g.numpy)
        else:
            out = a.astype(g.numpy)
    return out if out.ndim else out[()]


def wide(x: Any, dtype: str) -> Any:
    """A float in the format in which it is computed with."""
    f = FORMATS[dtype]
    return np.asarray(x).astype(np.float32) if f.is_float and f.bits < 32 else x
