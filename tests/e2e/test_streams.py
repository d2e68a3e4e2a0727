"""Loads that the grid reads once, beside others that it reads again (schedule/streams.py)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16
BATCHES, ROWS, DEPTH = 2, 128, 128


@wl.jit
def batched(
    x_ptr, y_ptr, z_ptr, rows, depth, HEADS: tl.constexpr, SPREAD: tl.constexpr, BLOCK: tl.constexpr
):
    """z[b, h] = x[b, h] · y[b, h]: programs of one (b, h) share all of y.  SPREAD: (b, h) are two axes of the
    grid or the quotient and the remainder of one."""
    if SPREAD:
        b, h, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    else:
        b, h, part = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS, tl.program_id(1)
    at = b * HEADS + h
    rm, rn = part * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, depth, BLOCK):
        rk = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at * rows * depth + rm[:, None] * depth + rk[None, :])
        y = tl.load(y_ptr + at * depth * BLOCK + rk[:, None] * BLOCK + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(z_ptr + at * rows * BLOCK + rm[:, None] * BLOCK + rn[None, :], acc)


@wl.jit
def tiles(x_ptr, y_ptr, z_ptr, rows, depth, across, BLOCK: tl.constexpr):
    """A product whose tiles one axis counts: programs of a row of tiles share x, those of a column y."""
    m, n = tl.program_id(0) // across, tl.program_id(0) % across
    rm, rn = m * BLOCK + tl.arange(0, BLOCK), n * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, depth, BLOCK):
        rk = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + rm[:, None] * depth + rk[None, :])
        y = tl.load(y_ptr + rk[:, None] * (across * BLOCK) + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(z_ptr + rm[:, None] * (across * BLOCK) + rn[None, :], acc)


def arrays(heads: int) -> list[Any]:
    rng = np.random.default_rng(1)
    n = BATCHES * heads
    x = road.filled(rng.integers(-2, 3, (n, ROWS, DEPTH)).astype(np.float32), BF16)
    y = road.filled(rng.integers(-2, 3, (n, DEPTH, 64)).astype(np.float32), BF16)
    return [x, y, road.array((n, ROWS, 64), np.float32)]


@pytest.mark.parametrize("spread", [False, True])
def test_what_no_other_program_reads_goes_first(spread: bool) -> None:
    heads = 3
    x, y, z = arrays(heads)
    parts = ROWS // 64
    grid = (BATCHES, heads, parts) if spread else (BATCHES * heads, parts)
    meta = {"HEADS": heads, "SPREAD": spread, "BLOCK": 64}
    compiled, found = road.check_equal(
        batched, [x, y, z, ROWS, DEPTH], grid, meta, orders=("late",)
    )
    np.testing.assert_array_equal(found[2], x.astype(np.float64) @ y.astype(np.float64))
    assert compiled.schedule.streamed_loads == ("loop0/load0",)
    assert compiled.plan.by_axes and compiled.cuda.count("evict_first") >= 1


def test_nothing_goes_first_where_nothing_is_read_again() -> None:
    """One program each (b, h): both are read once."""
    compiled = batched.compile_for(
        *arrays(3), ROWS, DEPTH, grid=(BATCHES * 3, 1), HEADS=3, SPREAD=False, BLOCK=64
    )
    assert not compiled.schedule.streamed_loads and "evict_first" not in compiled.cuda


def test_a_quotient_alone_tells_no_programs_apart() -> None:
    a, b = (road.array((256, 256), BF16) for _ in range(2))
    c = road.array((256, 256), np.float32)
    compiled = tiles.compile_for(a, b, c, 256, 256, 4, grid=16, BLOCK=64)
    assert not compiled.schedule.streamed_loads and not compiled.plan.by_axes


def test_an_unknown_grid_says_nothing() -> None:
    compiled = batched.compile_for(*arrays(3), ROWS, DEPTH, HEADS=3, SPREAD=False, BLOCK=64)
    assert not compiled.schedule.streamed_loads
