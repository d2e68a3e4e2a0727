"""What a number becomes as another dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.ir.types import DType


def round_to(x: Any, dtype: DType) -> Any:
    """A value converted as `cast` converts it."""
    if isinstance(x, np.integer) and dtype.is_int and dtype.kind != "bool":
        return x.astype(dtype.numpy)
    a = np.asarray(x)
    source = a.dtype
    with np.errstate(all="ignore"):
        if source == np.float64 and dtype.is_float and dtype.bits < 32:
            a = _to_odd(a)
        if dtype.kind == "bool":
            out = a != 0
        elif dtype.is_8bit_float:
            limit = _largest(dtype)
            out = np.clip(a.astype(np.float32), -limit, limit).astype(dtype.numpy)
        elif dtype.is_int and not np.issubdtype(source, np.integer) and source != np.bool_:
            out = _truncate(a, dtype)
        else:
            out = a.astype(dtype.numpy)
    return out if out.ndim else out[()]


def _largest(dtype: DType) -> float:
    return 448.0 if dtype.name == "f8e4m3" else 57344.0


def _to_odd(x: Any) -> Any:
    """Float64 as float32, cut, and odd where something was cut off: rounded once more, to fewer bits, it is
    what rounding x once gives."""
    near = x.astype(np.float32)
    cut = np.where(np.abs(near) > np.abs(x), np.nextafter(near, np.float32(0)), near)
    return np.where(cut == x, cut, (cut.view(np.uint32) | 1).view(np.float32))


def _truncate(x: Any, dtype: DType) -> Any:
    """Float to integer towards zero, of 32 bits first where it has fewer.  As PTX's cvt has it, out of range
    clamps; NaN gives 0 where neither type has 64 bits, else the highest bit (PTX ISA, "cvt")."""
    info, number = np.iinfo(dtype.numpy), dtype.numpy.type
    nan = 0
    if x.dtype == np.float64 or dtype.bits == 64:
        nan = info.min or min(info.max, 1 << (max(dtype.bits, 32) - 1))
    whole = np.trunc(x.astype(np.float64))
    low, high = whole <= float(info.min), whole >= float(info.max)
    middle = np.where(low | high | np.isnan(whole), 0.0, whole).astype(dtype.numpy)
    out = np.where(low, number(info.min), np.where(high, number(info.max), middle))
    return np.where(np.isnan(whole), number(nan), out)
