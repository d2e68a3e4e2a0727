"""Elements that neighbours share are loaded once: what is shared, what isn't, and that all of them arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from warploom.ir.core import walk
from warploom.ir.ops import tile
from warploom.ir.types import shape_of
from warploom.runtime.compiled import CompiledKernel


def loaded(compiled: CompiledKernel) -> list[tuple[int, ...]]:
    """Shapes of what loads by pointers bring."""
    ops = [o for o in walk(compiled.placed.body) if o.kind is tile.load]
    return [shape_of(o.result.type) for o in ops]


@wl.jit
def weighed(
    x_ptr: Any, w_ptr: Any, y_ptr: Any, size: Any, pixels: Any, start: Any, BLOCK: tl.constexpr
) -> None:
    """A weight of each channel for all of its pixels."""
    at = start + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size, other=0)
    w = tl.load(w_ptr + at // pixels, mask=at < size, other=0)
    tl.store(y_ptr + at, x * w, mask=at < size)


@pytest.mark.parametrize(
    "pixels, few", [(16, 16), (48, 16), (24, 32), (20, 64), (7, 256), (512, 16)]
)
@pytest.mark.parametrize("size", [512, 400])
@pytest.mark.each(2)
def test_a_weight_of_every_channel(pixels: int, few: int, size: int) -> None:
    """As many elements are loaded as the divisor's power of two lets differ, at most 16 are known of it."""
    rng = np.random.default_rng(pixels)
    x = road.filled(rng.integers(-9, 9, 512), np.int32)
    w = road.filled(rng.integers(-9, 9, -(-512 // pixels)), np.int32)
    args = [x, w, road.array((512,), np.int32), size, pixels, 0]
    compiled, after = road.check_equal(weighed, args, 2, {"BLOCK": 256}, levels=size == 400)
    np.testing.assert_array_equal(after[2][:size], (x * w[np.arange(512) // pixels])[:size])
    if size == 512:  # else the mask changes inside of groups of more than 16
        assert loaded(compiled) == [(few,)]


def test_places_that_may_be_negative_share_nothing() -> None:
    """Division truncates: -16 // 16 is -1, -15 // 16 is 0."""

    @wl.jit
    def around(w_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        tl.store(y_ptr + at, tl.load(w_ptr + 2 + (at - 32) // 16))

    w = road.filled(np.arange(4), np.int32)
    compiled, after = road.check_equal(around, [w, road.array((64,), np.int32)], 1, {"BLOCK": 64})
    assert loaded(compiled) == [(64,)]
    np.testing.assert_array_equal(after[1], 2 + np.trunc((np.arange(64) - 32) / 16))


@wl.jit
def looked_up(
    index_ptr: Any, w_ptr: Any, y_ptr: Any, rows: Any, ROWS: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """A number of every row, and one of every two columns, by places that an index names."""
    r, c = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    at = tl.load(index_ptr + r, mask=r < rows, other=0)[:, None] + (c // 2 * 3)[None, :]
    inside = (r < rows)[:, None] & (c[None, :] < BLOCK)
    one = tl.load(w_ptr + r[:, None] * 2 + 0 * c[None, :], mask=inside, other=0)
    pair = tl.load(w_ptr + at, mask=inside, other=0)
    tl.store(y_ptr + r[:, None] * BLOCK + c[None, :], one + pair, mask=inside)


def test_tiles_of_two_axes() -> None:
    index = road.filled(np.array([4, 0, 2, 9]), np.int32)
    w = road.filled(np.arange(100), np.int32)
    args = [index, w, road.array((4, 32), np.int32), 3]
    compiled, after = road.check_equal(looked_up, args, 1, {"ROWS": 4, "BLOCK": 32})
    wanted = w[(2 * np.arange(4))[:, None]] + w[index[:, None] + (np.arange(32) // 2 * 3)[None, :]]
    np.testing.assert_array_equal(after[2][:3], wanted[:3])
    assert loaded(compiled) == [(4, 1), (4, 16)]
