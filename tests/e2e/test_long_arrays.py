"""Arrays with more elements than 32 bits count, and index arithmetic that wraps: places are where the program
says.  (Zeros that nobody touches take no memory.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road

pytestmark = pytest.mark.usefixtures("without_nvrtc")
LONG = 1 << 31
BLOCK, LEFT = 1024, 1000


@wl.jit
def block(x_ptr: Any, y_ptr: Any, n: Any, first: Any, BLOCK: tl.constexpr) -> None:
    at = (first + tl.program_id(0)).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(y_ptr + at % BLOCK, tl.load(x_ptr + at, mask=inside) + 1, mask=inside)


@wl.jit
def row(x_ptr: Any, y_ptr: Any, n: Any, first: Any, BLOCK: tl.constexpr) -> None:
    columns = tl.arange(0, BLOCK)
    rows = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + rows * (1 << 31) + columns, mask=columns < 1000)
    tl.store(y_ptr + rows * BLOCK + columns, x + 1, mask=columns < 1000)


@wl.jit
def strided(x_ptr: Any, y_ptr: Any, n: Any, first: Any, BLOCK: tl.constexpr) -> None:
    columns = tl.arange(0, BLOCK)
    for start in range(first.to(tl.int64) * BLOCK, n, BLOCK):
        x = tl.load(x_ptr + start + columns, mask=start + columns < n)
        tl.store(y_ptr + columns, x + 1, mask=columns < 1000)


@pytest.mark.parametrize(("kernel", "programs"), [(block, 1), (row, 2), (strided, 1)])
def test_places_behind_two_to_the_31(kernel: Any, programs: int) -> None:
    x, y = np.zeros(LONG + LEFT, np.int8), np.zeros((programs, BLOCK), np.int8)
    x[LONG:] = np.arange(LEFT) % 100
    args = (x, y, x.size, LONG // BLOCK)
    compiled = road.compile_for(kernel, args, programs, {"BLOCK": BLOCK})
    compiled.simulate(*args, grid=programs)
    np.testing.assert_array_equal(y[-1, :LEFT], x[LONG:] + 1)
    assert not y[:, LEFT:].any()


@wl.jit
def narrow(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + BLOCK // 2 + i.to(tl.int8)))


def test_a_narrow_index_wraps_around() -> None:
    """Of 256 bytes from 0 on the upper half are negative."""
    x = road.filled(np.arange(256)[None], np.int32)[0]
    y = road.filled(np.zeros((1, 256)), np.int32)[0]
    _, found = road.check_equal(narrow, [x, y], 1, {"BLOCK": 256})
    np.testing.assert_array_equal(found[1], np.roll(np.arange(256), 128))
