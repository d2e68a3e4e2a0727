"""Loops of tl.static_range whose steps multiply are loops, where no step needs its index while compiling."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.road import array, check_equal, filled
from warploom.frontend.rolled import MOST_WRITTEN
from warploom.ir.ops import control, tile

pytestmark = pytest.mark.usefixtures("without_nvrtc")


@wl.jit
def product(a, b, out, K: tl.constexpr, KIND: tl.constexpr):
    row, col, k = tl.arange(0, 16), tl.arange(0, 32), tl.arange(0, 32)
    acc = tl.zeros((16, 32), dtype=tl.float32)
    squares = tl.zeros((16,), dtype=tl.float32)
    for at in tl.static_range(0, K, 32):
        x = tl.load(a + row[:, None] * K + (at + k)[None, :])
        y = tl.load(b + (at + k)[:, None] * 32 + col[None, :])
        if KIND == "asserted":
            tl.static_assert(at < K)
        acc += tl.dot(x, y)
        squares += tl.sum(x.to(tl.float32) * x.to(tl.float32), 1)
    tl.store(out + row[:, None] * 32 + col[None, :], acc + squares[:, None])


@wl.jit
def last_read(a, b, out, K: tl.constexpr, KIND: tl.constexpr):
    """What a step assigns is read after the loop, or counted in a number that is known."""
    row, col, k = tl.arange(0, 16), tl.arange(0, 32), tl.arange(0, 32)
    acc = tl.zeros((16, 32), dtype=tl.float32)
    steps = 0
    for at in tl.static_range(0, K, 32):
        x = tl.load(a + row[:, None] * K + (at + k)[None, :])
        y = tl.load(b + (at + k)[:, None] * 32 + col[None, :])
        acc += tl.dot(x, y)
        if KIND == "counted":
            steps += 1
    if KIND == "read":
        acc += x.to(tl.float32) + at
    tl.store(out + row[:, None] * 32 + col[None, :], acc + tl.full((16, 32), steps, tl.float32))


@pytest.mark.parametrize(
    ("kernel", "kind", "more", "rolled"),
    [
        (product, "", 1, True),
        (product, "", 0, False),
        (product, "asserted", 1, False),
        (last_read, "read", 1, False),
        (last_read, "counted", 1, False),
    ],
)
def test_a_long_loop_of_dots_is_one(kernel: Any, kind: str, more: int, rolled: bool) -> None:
    steps = MOST_WRITTEN + more
    K = 32 * steps
    a, b = (filled(np.arange(n * K) % 7 - 3, ml_dtypes.bfloat16) for n in (16, 32))
    args = (a, b, array((16 * 32,), np.float32))
    compiled, (_, _, out) = check_equal(kernel, args, (1,), {"K": K, "KIND": kind})
    found = compiled.lowered.tile.body.by_kind
    loops, dots = (len(found.get(x, ())) for x in (control.for_, tile.dot))
    assert (loops, dots) == ((1, 1) if rolled else (0, steps))
    x, y = a.reshape(16, K).astype(np.float32), b.reshape(K, 32).astype(np.float32)
    wanted = x @ y
    if kernel is product:
        wanted += np.square(x).sum(1, keepdims=True)
    elif kind == "read":
        wanted += x[:, -32:] + K - 32
    else:
        wanted += steps
    assert np.array_equal(out.reshape(16, 32), wanted)
