"""Cumulative sums and products: what the oracle, every level and the CUDA of them are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from warploom.layout import blocked, wgmma_acc
from warploom.layout.choose import scan_cost, scan_form, scan_layout


@wl.jit
def sums(
    x_ptr: Any, y_ptr: Any, rows: Any, columns: Any, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    AXIS: tl.constexpr, BACK: tl.constexpr, PRODUCT: tl.constexpr,
) -> None:  # fmt: skip
    r, c = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (r < rows) & (c < columns)
    x = tl.load(x_ptr + r * columns + c, mask=inside, other=0)
    y = tl.cumprod(x, AXIS, reverse=BACK) if PRODUCT else tl.cumsum(x, AXIS, reverse=BACK)
    tl.store(y_ptr + r * columns + c, y, mask=inside)


@wl.jit
def running(x_ptr: Any, y_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    """A vector of any length, block by block."""
    total = 0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0)
        tl.store(y_ptr + at, total + tl.cumsum(x), mask=at < n)
        total += tl.sum(x)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("rows, columns", [(8, 64), (5, 61), (1, 256), (64, 1)])
@pytest.mark.each(5)
def test_along_both_axes(axis: int, back: bool, rows: int, columns: int) -> None:
    x = np.random.default_rng(rows).integers(-9, 10, (rows, columns)).astype(np.int32)
    block = {"ROWS": max(8, 1 << (rows - 1).bit_length()), "BLOCK": max(64, columns)}
    meta = {**block, "AXIS": axis, "BACK": back, "PRODUCT": False}
    flat = road.filled(x.reshape(1, -1), np.int32)[0]
    args = [flat, road.array((1, x.size), np.int32)[0], rows, columns]
    _, found = road.check_equal(sums, args, 1, meta, ("late",), levels=True)
    wanted = np.flip(np.cumsum(np.flip(x, axis), axis), axis) if back else np.cumsum(x, axis)
    np.testing.assert_array_equal(found[1].reshape(x.shape), wanted)


def test_products() -> None:
    x = road.filled(np.random.default_rng(1).integers(-2, 3, (8, 64)), np.float32)
    x[:, ::3] = 1
    meta = {"ROWS": 8, "BLOCK": 64, "AXIS": 1, "BACK": False, "PRODUCT": True}
    _, found = road.check_equal(sums, [x, road.array((8, 64), np.float32), 8, 64], 1, meta)
    np.testing.assert_array_equal(found[1], np.cumprod(x, 1))


@pytest.mark.parametrize("n", [0, 100, 256, 1000])
def test_a_vector_block_by_block(n: int) -> None:
    x = road.filled(np.arange(1024) % 7, np.int32)
    args = [x, road.array((1024,), np.int32), n]
    _, found = road.check_equal(running, args, 1, {"BLOCK": 256})
    np.testing.assert_array_equal(found[1][:n], np.cumsum(x[:n]))


def test_layouts_that_have_a_form() -> None:
    """Those of memory have; the matrix unit's along rows, whose columns have 8 rows of a warp between."""
    for shape in ((1024,), (8, 64), (5, 61), (64, 1), (3, 1000), (96, 24)):
        for axis in range(len(shape)):
            for warps in (1, 4, 8):
                assert scan_form(scan_layout(shape, axis, warps), axis) is not None
    form = scan_form(blocked((1024,), 0, 4, 4), 0)
    assert form is not None and form.lanes == 5 and form.warps == (0, 1)
    assert form.runs == (((0, 1, 2, 3), (4, 5, 6, 7)),)
    assert scan_form(wgmma_acc((64, 64)), 1) is not None
    assert scan_form(wgmma_acc((64, 64)), 0) is None


def test_the_layout_of_a_scan_keeps_what_is_scanned_in_a_thread() -> None:
    """Of a tile's columns each thread gets a part of one: no shuffles, one exchange between warps."""
    assert scan_cost(scan_layout((64, 32), 0, 4), 0) < scan_cost(blocked((64, 32), 0, 2, 4), 0) / 3
    assert scan_form(scan_layout((64, 32), 0, 4), 0).lanes == 0  # type: ignore[union-attr]


@wl.jit
def _add_both(a: Any, b: Any, c: Any, d: Any) -> Any:
    return a + c, b + d


@wl.jit
def below_products(x_ptr: Any, y_ptr: Any, N: tl.constexpr) -> None:
    """Sums down the columns of a product, with one of zeros beside them."""
    r, c = tl.arange(0, 64)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + r * 64 + tl.arange(0, 64)[None, :])
    w = tl.load(x_ptr + r * 64 + c)
    zero = tl.zeros((64, N), tl.float32)
    _, y = tl.associative_scan((zero, tl.dot(x, w)), 0, _add_both)
    tl.store(y_ptr + r * N + c, y)


def test_what_is_scanned_lies_as_the_tile_that_is_computed() -> None:
    """The zeros have no layout of their own: both follow the scan's."""
    x = np.random.default_rng(3).integers(-3, 4, (64, 64)).astype(ml_dtypes.bfloat16)
    args = [road.filled(x, ml_dtypes.bfloat16), road.array((64, 32), np.float32)]
    compiled, found = road.check_equal(below_products, args, 1, {"N": 32})
    exact = np.cumsum(x.astype(float) @ x[:, :32].astype(float), 0)
    np.testing.assert_array_equal(found[1], exact)
    assert "shfl" not in compiled.cuda[compiled.cuda.index("the kernel") :]


def test_narrow_numbers_are_widened() -> None:
    @wl.jit
    def widened(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
        at = tl.arange(0, BLOCK)
        y = tl.cumsum(tl.load(x_ptr + at))
        tl.static_assert(y.dtype == tl.int32)
        tl.store(y_ptr + at, y)

    x = road.filled(np.full(128, 100), np.int8)
    _, found = road.check_equal(widened, [x, road.array((128,), np.int32)], 1, {"BLOCK": 128})
    np.testing.assert_array_equal(found[1], 100 * np.arange(1, 129))


@wl.jit
def larger(a: Any, b: Any) -> Any:
    return tl.maximum(a, b)


@wl.jit
def times(a: Any, b: Any) -> Any:
    return b * a


@wl.jit
def halved(a: Any, b: Any) -> Any:
    return (a + b) // 2


@wl.jit
def combined(
    x_ptr: Any, y_ptr: Any, out_ptr: Any, BLOCK: tl.constexpr, HALVED: tl.constexpr
) -> None:
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.associative_scan(x, 0, larger, reverse=True))
    tl.store(out_ptr, tl.reduce(x, 0, times))
    if HALVED:
        tl.store(out_ptr, tl.reduce(x, 0, halved))


def test_functions_that_combine() -> None:
    x = road.filled(np.random.default_rng(2).integers(1, 3, 64), np.int32)
    x[::2] = 1
    args = [x, road.array((64,), np.int32), road.array((1,), np.int32)]
    _, found = road.check_equal(combined, args, 1, {"BLOCK": 64, "HALVED": False})
    np.testing.assert_array_equal(found[1], np.maximum.accumulate(x[::-1])[::-1])
    assert found[2][0] == np.prod(x, dtype=np.int32)
    args[0][:] = 8  # a mean of equal numbers, in whatever order they are combined
    _, found = road.check_equal(combined, args, 1, {"BLOCK": 64, "HALVED": True})
    assert found[2][0] == 8
