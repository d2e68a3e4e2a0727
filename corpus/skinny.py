"""Products with few rows: their dots are made as their transposes (warploom/passes/tile/canonicalize/transpose_dots.py)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from corpus.case import BF16, E4M3, E5M2, F16, F32, Case
from corpus.plain import matmul, of


def product(m: int, n: int, k: int, tile: tuple[int, int, int], dtype: Any, orders: str) -> Case:
    """C = A·B in f32; orders: of A and B in memory."""
    return of("", matmul, m, n, k, tile, dtype, F32, orders)


# Nothing divides anything where it need not.
SHAPES = {
    "16x64": (70, 200, 150, (16, 64, 32), BF16, "rc"),
    "32x64": (37, 200, 152, (32, 64, 64), F16, "rr"),
    "8x128": (64, 130, 40, (8, 128, 64), BF16, "cr"),
    "80x64": (130, 70, 72, (80, 64, 32), BF16, "cc"),
    "16x256": (20, 500, 96, (16, 256, 64), F16, "rc"),
    "200x64": (230, 66, 64, (200, 64, 64), BF16, "rr"),
    "e5m2": (16, 130, 150, (16, 64, 64), E5M2, "rc"),
    "e4m3": (48, 144, 160, (16, 64, 64), E4M3, "rr"),
    "e4m3-columns": (48, 64, 160, (32, 64, 64), E4M3, "cc"),
}

CASES: dict[str, Callable[[], Case]] = {
    name: functools.partial(product, *shape) for name, shape in SHAPES.items()
}
