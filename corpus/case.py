"""What a third-party kernel is launched with, and what it has to compute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

BF16, F16, F32 = ml_dtypes.bfloat16, np.float16, np.float32
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


@dataclass
class Case:
    """A launch.

    wants: argument -> what it has to be afterwards (float64, or the array's own dtype).  off: how far an
    element may be from that, in parts of the largest one; 0: rounded once, bit-equal.
    tasks: whether it has to be specialized when tasks are asked for."""

    name: str
    kernel: Any
    args: tuple[Any, ...]
    grid: Any
    meta: dict[str, Any]
    wants: dict[int, Any]
    off: float = 0.0
    tasks: bool = True
    knobs: dict[str, Any] = field(default_factory=dict)

    def judge(self, found: tuple[Any, ...]) -> str:
        """'' where `found` (the arguments afterwards) are right, else what is wrong."""
        for i, want in self.wants.items():
            got = found[i]
            right = np.asarray(want).astype(got.dtype).astype(np.float64)
            wrong = np.asarray(got).astype(np.float64)
            bad = ~(np.abs(wrong - right) <= self.off * np.abs(right).max(initial=0.0))
            if bad.any():
                at = tuple(int(x[0]) for x in np.nonzero(bad))
                return f"argument {i}: {bad.sum()} of {bad.size} wrong, at {at} {wrong[at]} for {right[at]}"
        return ""


def ints(*shape: int, dtype: Any = BF16, low: int = -2, high: int = 3) -> Any:
    """Small whole numbers: sums of their products are exact in f32."""
    rng = np.random.default_rng(sum(shape) + len(shape))
    return rng.integers(low, high, shape).astype(dtype)


def stored(x: Any, order: str) -> Any:
    """x in row-major ('r') or column-major ('c') memory."""
    return np.ascontiguousarray(x) if order == "r" else np.ascontiguousarray(x.T).T


def nan(*shape: int, dtype: Any = BF16) -> Any:
    """An array to be written: NaN, or for integers 119."""
    return np.full(shape, 119 if np.dtype(dtype).kind in "iu" else np.nan).astype(dtype)


def strides(*arrays: Any) -> tuple[int, ...]:
    """All strides, in elements."""
    return tuple(s // a.itemsize for a in arrays for s in a.strides)


def product(*factors: Any) -> Any:
    """In float64."""
    out = factors[0].astype(np.float64)
    for f in factors[1:]:
        out = out @ f.astype(np.float64)
    return out


def blocks(x: int, size: int) -> int:
    return -(-x // size)
