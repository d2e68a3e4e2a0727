"""Kernels on rows, without dots: which accesses, tests and barriers their text has, and that they are right on the
simulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.check import Verdict
from warploom.runtime.compiled import CompiledKernel

bf16 = ml_dtypes.bfloat16


def simulated(kernel: Any, *args: Any, grid: int = 1, **meta: Any) -> CompiledKernel:
    """The kernel, compiled for its arguments and simulated on them."""
    compiled: CompiledKernel = kernel.compile_for(*args, grid=(grid,), **meta)
    compiled.simulate(*args, grid=(grid,), seed=1)
    return compiled


def body(compiled: CompiledKernel) -> str:
    return compiled.cuda.partition("// ---- the kernel")[2]


@wl.jit
def scaled(x, n, stride, B: tl.constexpr, SHIFT: tl.constexpr):
    row = x + tl.program_id(0) * stride
    for at in range(0, n, B):
        c = at + tl.arange(0, B)
        v = tl.load(row + c + SHIFT, mask=c < n, other=0.0)
        tl.store(row + c, v * 2, mask=c < n)


@pytest.mark.parametrize("shift", [0, 1])
def test_what_each_thread_computes_in_place_needs_no_barrier(shift: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 640)).astype(np.float32)
    expected = x.copy()
    expected[:, :600] = 2 * x[:, shift : 600 + shift]
    compiled = simulated(scaled, x, 600, 640, B=256, SHIFT=shift, grid=2)
    np.testing.assert_array_equal(x, expected)
    assert body(compiled).count("__syncthreads") == 2 * shift


@wl.jit
def doubled(x, n, stride, B: tl.constexpr):
    rows, c = tl.arange(0, 2)[:, None], tl.arange(0, B)[None, :]
    v = tl.load(x + rows * stride + c)
    tl.store(x + rows * stride + c, v * 2)


def test_rows_that_may_overlap_keep_their_barrier() -> None:
    """One place is two threads' element where a row is longer than the stride."""
    x = np.zeros((2, 128), np.float32)
    assert "__syncthreads" in body(simulated(doubled, x, 128, 128, B=128))


@wl.jit
def normed(x, w, dy, dx, dw, n, T, COLUMNS: tl.constexpr, B: tl.constexpr):
    c = tl.arange(0, B)
    mask = c < COLUMNS
    weight = tl.load(w + c, mask=mask).to(tl.float32)
    total = tl.zeros((B,), tl.float32)
    start = tl.program_id(0) * T
    for row in range(start, tl.minimum(start + T, n)):
        v = tl.load(x + row * COLUMNS + c, mask=mask, other=0).to(tl.float32)
        d = tl.load(dy + row * COLUMNS + c, mask=mask, other=0).to(tl.float32)
        total += v * d
        mean = tl.sum(v * d * weight, 0) / COLUMNS
        tl.store(dx + row * COLUMNS + c, (d * weight - v * mean).to(tl.bfloat16), mask=mask)
    tl.store(dw + tl.program_id(0) * COLUMNS + c, total, mask=mask)


def test_a_loop_s_accesses_choose_their_width_and_full_rows_ask_nothing() -> None:
    """What is stored once, as f32, does not halve the loads of each row; nor is there a test of what is inside."""
    rng = np.random.default_rng(1)
    n, columns, rows_each = 5, 2048, 3
    x, dy = (rng.integers(-3, 4, (n, columns)).astype(bf16) for _ in range(2))
    w = np.ones(columns, bf16)
    dx, dw = np.zeros_like(x), np.zeros((2, columns), np.float32)
    compiled = simulated(
        normed, x, w, dy, dx, dw, n, rows_each, COLUMNS=columns, B=columns, grid=2, num_warps=8
    )
    product = x.astype(np.float32) * dy.astype(np.float32)
    np.testing.assert_array_equal(dw, [product[:3].sum(0), product[3:].sum(0)])
    mean = product.sum(1, keepdims=True) / columns
    exact = dy.astype(np.float32) - x.astype(np.float32) * mean
    np.testing.assert_allclose(dx.astype(np.float32), exact, rtol=2e-2, atol=2e-2)
    text = body(compiled)
    assert "load_global128(" in text and "load_global64" not in text
    assert f"{columns} - " not in text and "_if(" not in text


@wl.jit
def decayed(g, o, d, dg, T, COLUMNS: tl.constexpr, B: tl.constexpr):
    c = tl.program_id(0) * B + tl.arange(0, B)
    mask = c < COLUMNS
    at = (T - 1) * COLUMNS + c
    h = tl.zeros((B,), tl.float32)
    for i in range(T - 1, -1, -1):
        decay = tl.load(g + at, mask=mask, other=0)
        if i > 0:
            before = tl.load(o + at - COLUMNS, mask=mask, other=0).to(tl.float32)
        else:
            before = tl.zeros((B,), tl.float32)
        h = (h + tl.load(d + at, mask=mask, other=0)) * decay
        tl.store(dg + at, h * before, mask=mask)
        at -= COLUMNS


def test_a_load_under_an_if_of_a_recurrence_is_masked() -> None:
    """The first step has nothing before it, nor is anything loaded for it: the array begins there."""
    rng = np.random.default_rng(2)
    T, columns = 5, 100
    g, d = (rng.integers(1, 3, (T, columns)).astype(np.float32) for _ in range(2))
    o = rng.integers(-3, 4, (T, columns)).astype(bf16)
    dg = np.full((T, columns), 7, np.float32)
    compiled = simulated(decayed, g, o, d, dg, T, COLUMNS=columns, B=64, grid=2)
    h, expected = np.zeros(columns, np.float32), np.zeros((T, columns), np.float32)
    for i in reversed(range(T)):
        h = (h + d[i]) * g[i]
        expected[i] = h * (o[i - 1].astype(np.float32) if i else 0)
    np.testing.assert_array_equal(dg, expected)
    loop = body(compiled).partition("for (int")[2]
    assert loop.count("load_global") == 3 and "} else {" not in loop


@wl.jit
def _logsum(a, b):
    most = tl.maximum(a, b)
    return most + tl.log(tl.exp(a - most) + tl.exp(b - most))


@wl.jit
def summed(x, out, places, B: tl.constexpr):
    c = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * B + c)
    tl.store(out + tl.program_id(0) * B + c, tl.associative_scan(v, 0, _logsum))
    tl.store(places + tl.program_id(0) * B + c, (v + c).to(tl.int64))


def test_a_scan_is_one_run_a_thread_and_no_branch() -> None:
    """A store of i64 does not cut what a thread scans in two, and a long function stands under no condition."""
    x = np.random.default_rng(3).standard_normal((2, 512)).astype(np.float32)
    out, places = np.zeros_like(x), np.zeros(x.shape, np.int64)
    compiled = simulated(summed, x, out, places, B=512, grid=2, num_warps=4)
    np.testing.assert_allclose(out, np.log(np.exp(x).cumsum(1)), rtol=1e-4, atol=1e-5)
    text = body(compiled)
    assert text.count("__shfl_up_sync(~0u, upto") == 6  # 32 lanes, and one to the next
    assert not [line for line in text.splitlines() if "if (" in line and "combine" in line]


@wl.jit(do_not_specialize=["n"])
def halved(x, y, stride_x, stride_y, n, COLUMNS: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    row, column = at // COLUMNS, at % COLUMNS
    v = tl.load(x + row * stride_x + column, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y + row * stride_y + column, (v / 2).to(tl.bfloat16), mask=at < n)


@pytest.mark.parametrize("n", [1536, 1531, 1027])
def test_a_block_of_a_matrix_s_elements_moves_in_vectors_whatever_it_ends_at(n: int) -> None:
    """One division a block, and its elements are adjacent: but for the last, eight move at once."""
    x = np.random.default_rng(4).standard_normal((3, 768)).astype(bf16)
    y = np.full((3, 512), 7, bf16)
    compiled = simulated(halved, x, y, 768, 512, n, COLUMNS=512, B=256, grid=6, num_warps=1)
    expected = np.full((3, 512), 7, bf16)
    expected.reshape(-1)[:n] = (x[:, :512].reshape(-1).astype(np.float32) / 2).astype(bf16)[:n]
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
    text = body(compiled)
    assert "load_part128" in text and text.count("/ 512") == 1


@wl.jit
def stepped(q, d, out, n, BT: tl.constexpr, COLUMNS: tl.constexpr):
    t, c = tl.arange(0, BT), tl.arange(0, COLUMNS)
    rows = tl.load(q + t[:, None] * COLUMNS + c[None, :])
    weights = tl.load(d + t[:, None] * BT + t[None, :])
    total = tl.zeros((BT, COLUMNS), tl.float32)
    for j in range(0, tl.minimum(BT, n)):
        row = tl.gather(rows, tl.full((1, COLUMNS), j, tl.int16), 0)
        weight = tl.gather(weights, tl.full((BT, 1), j, tl.int16), 1)
        total += tl.where(t[:, None] >= j, weight * row, 0.0)
    tl.store(out + t[:, None] * COLUMNS + c[None, :], total)


def test_what_a_loop_gathers_rows_of_is_stored_once() -> None:
    rng = np.random.default_rng(5)
    q = rng.standard_normal((16, 64)).astype(np.float32)
    d = rng.standard_normal((16, 16)).astype(np.float32)
    out = np.zeros((16, 64), np.float32)
    compiled = simulated(stepped, q, d, out, 11, BT=16, COLUMNS=64, num_warps=8)
    exact = np.tril(d)[:, :11] @ q[:11]
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-5)
    assert body(compiled).count("__syncthreads") == 1
    assert compiled.check().verdict is Verdict.PROVED


@wl.jit
def accumulated(x, out, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    at, mask = r[:, None] * COLUMNS + c[None, :], (r < n)[:, None]
    v = tl.load(x + at, mask=mask, other=0).to(tl.float32)
    tl.store(out + at, tl.cumsum(v, 0, reverse=True), mask=mask)


@pytest.mark.parametrize("columns", [32, 64])
def test_a_scan_along_rows_crosses_few_lanes(columns: int) -> None:
    x = np.random.default_rng(6).standard_normal((64, columns)).astype(bf16)
    out = np.zeros((64, columns), np.float32)
    compiled = simulated(accumulated, x, out, 59, ROWS=64, COLUMNS=columns, num_warps=2)
    exact = np.cumsum(x[:59].astype(float)[::-1], 0)[::-1]
    np.testing.assert_allclose(out[:59], exact, rtol=1e-4, atol=1e-4)
    assert body(compiled).count("__shfl") < 16


@wl.jit
def found(x, table, out, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + at)
    low, high = tl.zeros((B,), tl.int32), tl.full((B,), N, tl.int32)
    left = N + 1
    while left > 1:
        middle = (low + high) // 2
        above = v > tl.load(table + middle, mask=middle < N, other=0.0)
        low = tl.where(above & (middle < N), middle + 1, low)
        high = tl.where(above, high, middle)
        left = (left + 1) // 2
    tl.store(out + at, low)


def test_a_binary_search_over_a_known_table_is_no_loop() -> None:
    rng = np.random.default_rng(7)
    x, table = (
        rng.standard_normal(256).astype(np.float32),
        np.linspace(-2, 2, 100, dtype=np.float32),
    )
    out = np.zeros(256, np.int32)
    compiled = simulated(found, x, table, out, N=100, B=128, grid=2)
    np.testing.assert_array_equal(out, np.searchsorted(table, x))
    assert "while" not in body(compiled)


@wl.jit
def smallest(x, out, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + tl.program_id(0), tl.min(tl.load(x + at), 0))


def test_warps_parts_of_a_number_are_combined_by_lanes() -> None:
    x = np.random.default_rng(8).integers(-1000, 1000, (2, 2048)).astype(np.int32)
    out = np.zeros(2, np.int32)
    compiled = simulated(smallest, x, out, B=2048, grid=2, num_warps=16)
    np.testing.assert_array_equal(out, x.min(1))
    assert body(compiled).count("__shfl") == 9


@wl.jit
def of_columns(x, sums, largest, N, ROWS: tl.constexpr, B: tl.constexpr):
    rows, c = tl.arange(0, ROWS)[:, None], tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + rows * N + c[None, :], mask=c[None, :] < N, other=0)
    tl.store(sums + c, tl.sum(v, 0), mask=c < N)
    tl.store(largest + c, tl.max(v, 0), mask=c < N)


def test_few_threads_combine_the_parts_of_a_column() -> None:
    """Not every thread all of what it holds: 8 columns of 16 warps are 128 loads."""
    x = np.random.default_rng(9).integers(-1000, 1000, (64, 120)).astype(np.int32)
    sums, largest = np.zeros((2, 120), np.int32)
    compiled = simulated(of_columns, x, sums, largest, 120, ROWS=64, B=64, grid=2, num_warps=16)
    np.testing.assert_array_equal(sums, x.sum(0))
    np.testing.assert_array_equal(largest, x.max(0))
    text = body(compiled)
    assert text.count("load_shared32") <= 2 * (8 + 16) and text.count("__syncthreads") == 5
