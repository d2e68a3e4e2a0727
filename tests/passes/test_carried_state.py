"""Loops in loops and one after the other, whose tiles are carried as one of equal elements or selected after
them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl


@wl.jit
def masked_twice(x_ptr, y_ptr, n, rows, M: tl.constexpr, N: tl.constexpr):
    """The outer loop passes on what the inner one does: both are selected after them."""
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    is_row = tl.broadcast_to(row < rows, (M, N))
    total = tl.zeros((M, N), tl.float32)
    for _ in range(n):
        part = tl.full((M, N), 1.0, tl.float32)
        for i in range(n):
            x = tl.load(x_ptr + i * N + column)
            part = tl.where(is_row, part + x, part)
        total = tl.where(is_row, part, total)
    tl.store(y_ptr + row * N + column, total)


@wl.jit
def counted_inside(x_ptr, y_ptr, n, rows, M: tl.constexpr, N: tl.constexpr):
    """The inner loop carries two tiles, the outer one follows from them along another axis."""
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    total, counts = tl.zeros((M, N), tl.float32), tl.zeros((M, 1), tl.float32)
    for _ in range(n):
        of_rows, of_all = tl.full((M, 1), 1.0, tl.float32), tl.full((M, N), 1.0, tl.float32)
        for _ in range(n):
            of_rows, of_all = of_rows * 2.0, of_all + 1.0
        counts += of_rows
        total += tl.broadcast_to(of_rows, (M, N)) + of_all
    x = tl.load(x_ptr + row * N + column, mask=row < rows, other=0.0)
    tl.store(y_ptr + row * N + column, x + counts + total)


@wl.jit
def counted_before(x_ptr, y_ptr, n, rows, M: tl.constexpr, N: tl.constexpr):
    """A loop follows from what an earlier one has counted."""
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    of_rows, total = tl.full((M, 1), 1.0, tl.float32), tl.zeros((M, N), tl.float32)
    for _ in range(n):
        of_rows += 2.0
    for _ in range(n):
        total += tl.broadcast_to(of_rows, (M, N))
    x = tl.load(x_ptr + row * N + column, mask=row < rows, other=0.0)
    tl.store(y_ptr + row * N + column, x + total)


@wl.jit
def read_inside(x_ptr, y_ptr, n, rows, M: tl.constexpr, N: tl.constexpr):
    """An inner loop reads what the outer one counts."""
    row, column = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    count, total = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
    for _ in range(n):
        for i in range(n):
            total += count * tl.load(x_ptr + i * N + column)
        count += 1.0
    tl.store(y_ptr + row * N + column, total, mask=row < rows)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("kernel", [masked_twice, counted_inside, counted_before, read_inside])
@pytest.mark.parametrize("n", [0, 3])
def test_loops_that_follow_from_loops(kernel: Any, n: int) -> None:
    x = np.random.default_rng(0).integers(-4, 5, (4, 32)).astype(np.float32)
    want, got = np.full((2, 4, 32), -1, np.float32)
    kernel[(1,)](x, want, n, 3, M=4, N=32)
    compiled = kernel.compile_for(x, got, n, 3, M=4, N=32, grid=(1,), num_warps=1)
    compiled.simulate(x, got, n, 3, grid=(1,))
    np.testing.assert_array_equal(got, want)
