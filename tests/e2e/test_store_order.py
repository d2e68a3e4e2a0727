"""Stores of one program happen in its order, also where different threads make them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl


@wl.jit
def triangle(x_ptr, out_ptr, N: tl.constexpr):
    """Column by column, a row's element from the thread that holds its sum; then zeros above the diagonal,
    from whoever holds the element."""
    at = tl.arange(0, N)
    for j in range(N):
        row = tl.load(x_ptr + at[:, None] * N + at[None, :]) * j
        tl.store(out_ptr + at * N + j, tl.sum(row, 1))
    tl.store(
        out_ptr + at[:, None] * N + at[None, :], tl.zeros((N, N), tl.float32), mask=at[:, None] < at
    )


def test_a_barrier_parts_stores_of_different_threads() -> None:
    x, out = np.ones((16, 16), np.float32), np.empty((16, 16), np.float32)
    compiled = triangle.compile_for(x, out, N=16, grid=(1,), num_warps=4)
    _, *after = compiled.cuda.split("__global__")[1].split("store_global32(")
    assert ["__syncthreads()" in text for text in after] == [True, False, False]
    compiled.simulate(x, out, grid=(1,), seed=1)
    assert (out == np.tril(np.full((16, 16), 16.0) * np.arange(16))).all()


@wl.jit
def shifted_rows(x_ptr, out_ptr, n, N: tl.constexpr):
    """Each step's rows begin one row after those of the step before."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    for i in range(n):
        tl.store(out_ptr + at + i * N, x + i)


@wl.jit
def shifted_row(x_ptr, out_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    for i in range(n):
        tl.store(out_ptr + at + 2 * i, tl.load(x_ptr + at) + i)


@wl.jit
def side_by_side(x_ptr, out_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    for i in range(n):
        tl.store(out_ptr + at + i * N, tl.load(x_ptr + at) + i)


@pytest.mark.parametrize("kernel", [shifted_rows, shifted_row])
@pytest.mark.parametrize("order", ["late", "early", "reverse"])
def test_a_barrier_parts_steps_that_meet(kernel: Any, order: str) -> None:
    n = 64
    x = np.ones((n, n) if kernel is shifted_rows else n, np.float32)
    step = n if kernel is shifted_rows else 2
    out = np.zeros(x.size + 4 * step, np.float32)
    compiled = kernel.compile_for(x, out, 5, N=n, grid=(1,), num_warps=4)
    compiled.simulate(x, out, 5, grid=(1,), order=order)
    assert np.array_equal(out[: 4 * step], np.repeat([1, 2, 3, 4], step))
    assert (out[4 * step :] == 5).all()


def test_none_parts_steps_side_by_side() -> None:
    x, out = np.ones(128, np.float32), np.zeros(5 * 128, np.float32)
    compiled = side_by_side.compile_for(x, out, 5, N=128, grid=(1,), num_warps=4)
    assert "__syncthreads" not in compiled.cuda


@wl.jit
def products(a_ptr, b_ptr, out_ptr, n, PLACE: tl.constexpr, N: tl.constexpr):
    out = tl.make_tensor_descriptor(out_ptr, [4 * N, 2 * N], [2 * N, 1], [N, N])
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    for t in range(n):
        acc = tl.zeros((N, N), tl.float32)
        for k in range(2):
            a, b = tl.load(a_ptr + k * N * N + at), tl.load(b_ptr + k * N * N + at)
            acc = tl.dot(a, b, acc)
        acc = (acc + t).to(tl.bfloat16)
        if PLACE == "half":
            out.store([t // 2 * N, 0], acc)
        elif PLACE == "one row on":
            out.store([t, 0], acc)
        else:
            out.store([t // 2 * N, t % 2 * N], acc)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("place", ["half", "one row on", "its own"])
@pytest.mark.parametrize("groups", [0, 1])
def test_stores_by_tma_keep_no_order(place: str, groups: int) -> None:
    """They don't do what a later step overwrites, be it in part."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, (2, 64, 64)).astype(ml_dtypes.bfloat16) for _ in range(2))
    total = np.sum(a.astype(np.float32) @ b.astype(np.float32), 0)
    want = np.zeros((256, 128), np.float32)
    for t in range(5):
        row, column = {"half": (t // 2 * 64, 0), "one row on": (t, 0)}.get(
            place, (t // 2 * 64, t % 2 * 64)
        )
        want[row : row + 64, column : column + 64] = total + t
    meta = {"N": 64, "PLACE": place, "num_warps": 4, "num_consumer_groups": groups}
    for order in ("late", "early", "reverse"):
        out = np.zeros((256, 128), ml_dtypes.bfloat16)
        compiled = products.compile_for(a, b, out, 5, grid=(1,), **meta)
        assert ("tma_store" in compiled.cuda) == (place == "its own")
        compiled.simulate(a, b, out, 5, grid=(1,), order=order)
        assert np.array_equal(out.astype(np.float32), want.astype(out.dtype).astype(np.float32))


@wl.jit
def growing(x_ptr, out_ptr, n, N: tl.constexpr):
    """Each step stores again what the steps before it stored, and one tile more."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    y = tl.dot(x, x)
    for t in range(1, n):
        for i in range(0, t):
            tl.store(out_ptr + at + i * N * N, (y * t + i).to(tl.float16))


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("order", ["late", "early", "reverse"])
def test_a_bound_tells_no_places_apart(order: str) -> None:
    """Two runs of `range(0, t)` store to the same places, whatever t is."""
    x = np.random.default_rng(0).integers(-2, 3, (64, 64)).astype(np.float16)
    out, y = np.zeros((3, 64, 64), np.float16), x.astype(np.float32) @ x.astype(np.float32)
    compiled = growing.compile_for(x, out, 4, N=64, grid=(1,), num_warps=4)
    compiled.simulate(x, out, 4, grid=(1,), order=order)
    for i in range(3):
        np.testing.assert_array_equal(out[i], (y * 3 + i).astype(np.float16))
