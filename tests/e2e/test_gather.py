"""tl.gather: what the oracle, every level and the CUDA of it are."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.pairwise import diagonals
from warploom.errors import CompileError
from warploom.ir.ops import smem
from warploom.layout.choose import wavefronts
from warploom.runtime.compiled import CompiledKernel
from warploom.sim.report import MemoryFault


@wl.jit
def taken(
    x_ptr: Any, i_ptr: Any, y_ptr: Any, R: tl.constexpr, C: tl.constexpr, M: tl.constexpr,
    N: tl.constexpr, AXIS: tl.constexpr,
) -> None:  # fmt: skip
    """y ← gather(x (R × C), i (M × N), AXIS)."""
    x = tl.load(x_ptr + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y_ptr + at, tl.gather(x, tl.load(i_ptr + at), AXIS))


@wl.jit
def looked_up(
    x_ptr: Any, i_ptr: Any, y_ptr: Any, n: Any, SIZE: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """y ← x[i] block by block, x a table of SIZE numbers."""
    table = tl.load(x_ptr + tl.arange(0, SIZE))
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        index = tl.load(i_ptr + at, mask=at < n, other=0)
        tl.store(y_ptr + at, table.gather(index, 0) * 2, mask=at < n)


@wl.jit
def rows_of_a_product(
    a_ptr: Any, b_ptr: Any, i_ptr: Any, c_ptr: Any, steps: Any, K: tl.constexpr, N: tl.constexpr
) -> None:
    """c ← the columns i of a (128 rows) times b (N columns): a gather of a dot's result."""
    rows, cols, inner = tl.arange(0, 128), tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((128, N), tl.float32)
    for s in tl.range(0, steps):
        at = s * K + inner
        a = tl.load(a_ptr + rows[:, None] * (steps * K) + at[None, :])
        acc += tl.dot(a, tl.load(b_ptr + at[:, None] * N + cols[None, :]))
    where = rows[:, None] * N + cols[None, :]
    tl.store(c_ptr + where, tl.gather(acc, tl.load(i_ptr + where), 1))


@wl.jit
def solved(a_ptr: Any, x_ptr: Any, n: Any, N: tl.constexpr) -> None:
    """x ← the inverse of I - a (N × N, below the diagonal, of which n rows count), a row of it after the other."""
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    a = tl.load(a_ptr + at)
    x = a
    for j in range(1, min(N, n)):
        row = tl.sum(tl.where((i == j)[:, None], a, 0.0), 0)
        row += tl.sum(row[:, None] * x, 0)
        x = tl.where((i == j)[:, None], row, x)
    tl.store(x_ptr + at, x + (i[:, None] == i[None, :]))


@wl.jit
def one_by_one(
    x_ptr: Any, y_ptr: Any, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, OTHER: tl.constexpr,
    LARGEST: tl.constexpr,
) -> None:  # fmt: skip
    """y ← (n + 1) · slice n of x along the axis, for all n, added up; taken by the largest or by a sum."""
    x = tl.load(x_ptr + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    n, out = (R if AXIS == 0 else C), (C if AXIS == 0 else R)
    acc = tl.zeros((out,), x.dtype)
    for j in range(n):
        here = tl.expand_dims(tl.arange(0, n), 1 - AXIS) == j
        kept = tl.where(here, x, OTHER)
        acc += (tl.max(kept, AXIS) if LARGEST else tl.sum(kept, AXIS)).to(x.dtype) * (j + 1).to(
            x.dtype
        )
    tl.store(y_ptr + tl.arange(0, out), acc)


def places(compiled: CompiledKernel) -> set[str]:
    """What lies in shared memory."""
    return {o.attrs["name"] for o in compiled.placed.body.ops if o.kind is smem.shared_alloc}


@pytest.mark.parametrize(("warps", "rows"), [(1, 16), (1, 9), (4, 16)])
def test_a_triangular_solve_takes_rows_from_shared_memory(warps: int, rows: int) -> None:
    a = np.tril(np.random.default_rng(rows).integers(-2, 3, (16, 16)), -1)
    args = [road.filled(a, np.float32), road.array((16, 16), np.float32), rows]
    compiled, found = road.check_equal(solved, args, 1, {"N": 16, "num_warps": warps})
    inverse = np.linalg.inv(np.eye(16) - a)
    np.testing.assert_array_equal(found[1][:rows], inverse[:rows].round())
    assert "a" in places(compiled)
    assert compiled.check().ok


@pytest.mark.parametrize(
    ("axis", "dtype", "largest"),
    diagonals(2, [0, 1], [np.float32, np.int32, np.int64, np.float64], [False, True]),
)
def test_a_sum_of_one_slice(axis: int, dtype: Any, largest: bool) -> None:
    rng = np.random.default_rng(axis)
    x = rng.integers(-2, 3, (16, 32)).astype(dtype)
    least = -np.inf if np.dtype(dtype).kind == "f" else int(np.iinfo(dtype).min)
    meta = {"R": 16, "C": 32, "AXIS": axis, "LARGEST": largest, "OTHER": least if largest else 0}
    args = [road.filled(x, dtype), road.array((32 - 16 * axis,), dtype)]
    compiled, found = road.check_equal(one_by_one, args, 1, meta, ("late",), levels=True)
    weights = np.arange(1, x.shape[axis] + 1)
    wanted = np.moveaxis(x.astype(np.int64), axis, -1) @ weights
    np.testing.assert_array_equal(found[1].astype(np.int64), wanted.astype(dtype).astype(np.int64))
    assert "x" in places(compiled)


@pytest.mark.parametrize(
    ("axis", "dtype"),
    diagonals(2, [0, 1], [np.float32, np.float16, np.int8, np.int64, np.float64, np.uint16]),
)
def test_along_both_axes(axis: int, dtype: Any) -> None:
    rng = np.random.default_rng(axis)
    shape, wanted = ((16, 32), (64, 32)) if axis == 0 else ((16, 32), (16, 128))
    x = rng.integers(-90 if np.dtype(dtype).kind != "u" else 0, 90, shape).astype(dtype)
    index = rng.integers(0, shape[axis], wanted).astype(np.int32)
    meta = {"R": 16, "C": 32, "M": wanted[0], "N": wanted[1], "AXIS": axis}
    args = [road.filled(x, dtype), road.filled(index, np.int32), road.array(wanted, dtype)]
    _, found = road.check_equal(taken, args, 1, meta, ("late",), levels=True)
    np.testing.assert_array_equal(found[2], np.take_along_axis(x, index, axis))


@pytest.mark.parametrize("n", [1, 256, 1000])
def test_a_table(n: int) -> None:
    """Of a number of elements that is no power of two, by indices of bytes."""
    rng = np.random.default_rng(n)
    x, index = rng.random(96), rng.integers(0, 96, 1024)
    args = [
        road.filled(x[None], np.float32)[0], road.filled(index[None], np.uint8)[0],
        road.array((1024,), np.float32), n,
    ]  # fmt: skip
    _, found = road.check_equal(looked_up, args, 1, {"SIZE": 96, "BLOCK": 256})
    wanted = 2 * x.astype(np.float64)[index[:n]]
    np.testing.assert_allclose(found[2][:n], wanted, rtol=1e-6)


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_of_what_a_dot_gives(groups: int) -> None:
    """Cut among groups along M the indices are cut with it, and no group needs another's part."""
    rng = np.random.default_rng(groups)
    a, b = rng.integers(-2, 3, (128, 64)), rng.integers(-2, 3, (64, 64))
    index = rng.integers(0, 64, (128, 64))
    args = [
        road.filled(a, np.float16), road.filled(b, np.float16), road.filled(index, np.int32),
        road.array((128, 64), np.float32), 2,
    ]  # fmt: skip
    meta = {"K": 32, "N": 64, "num_consumer_groups": groups}
    _, found = road.check_equal(rows_of_a_product, args, 1, meta)
    product = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(found[3], np.take_along_axis(product, index, 1))


def test_an_index_outside_is_found() -> None:
    x, index = road.filled(np.ones((1, 96)), np.float32)[0], np.full(1024, 96, np.uint8)
    args = [x, road.filled(index[None], np.uint8)[0], road.array((1024,), np.float32), 8]
    with pytest.raises(MemoryFault, match="gather by index 96 along an axis of 96"):
        road.check_equal(looked_up, args, 1, {"SIZE": 96, "BLOCK": 256})


@wl.jit
def misfit(x_ptr: Any, AXIS: tl.constexpr) -> None:
    x = tl.load(x_ptr + tl.arange(0, 32))
    index = tl.zeros((16,), tl.float32) if AXIS else tl.zeros((4, 8), tl.int32)
    tl.store(x_ptr + tl.arange(0, 16), tl.gather(x, index, 0))


@pytest.mark.parametrize("axis, code", [(0, "shape-mismatch"), (1, "gather-index")])
def test_what_is_refused(axis: int, code: str) -> None:
    with pytest.raises(CompileError) as caught:
        misfit.requested(["*fp32:16"], {"AXIS": axis}, "sm_90a", {}).lower()
    assert caught.value.code == code


def test_vectors_of_lanes_spread_over_the_banks() -> None:
    """Each word is put where the prelude's `spread` looks for it, and lanes a vector apart meet in no bank."""
    args = [np.zeros(1024, np.float32), np.zeros(1024, np.int32), np.zeros(1024, np.float32), 1024]
    cuda = looked_up.compile_for(*args, grid=1, SIZE=1024, BLOCK=1024).cuda
    assert "return at ^ (at >> 5 & 3);" in cuda and "spread((u32)" in cuda
    (text,) = re.findall(r"const int put_at = (.*);", cuda)
    lane, warp = np.arange(32), np.arange(4)[:, None]
    at = eval(text.replace("/", "//"), {"lane": lane, "warp": warp})
    puts = re.findall(r"store_shared32\(scratch \+ (.*?), ", cuda)
    for r, put in enumerate(puts):
        number = 128 * warp + 4 * lane + 512 * (r // 4) + r % 4
        where = eval(put, {"put_at": at})
        np.testing.assert_array_equal(where, 4 * (number ^ number >> 5 & 3))
        assert {wavefronts(w, 4) for w in where} == {1}


@wl.jit
def rows_by_number(x_ptr: Any, y_ptr: Any, steps: Any, BY: tl.constexpr, N: tl.constexpr) -> None:
    """y[j] ← row min(j · BY, N - 1) of x; zeros where there is no such row."""
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + i[None, :])
    for j in range(steps):
        here = i == tl.minimum(j * BY, N - 1)
        tl.store(y_ptr + j * N + i, tl.sum(tl.where(here[:, None], x, 0.0), 0))


def test_a_sum_of_no_slice_where_a_number_wraps() -> None:
    args = [road.filled(np.ones((16, 16)), np.float32), road.array((8, 16), np.float32), 8]
    _, found = road.check_equal(rows_by_number, args, 1, {"BY": 1 << 29, "N": 16}, ("late",))
    assert [row.max() for row in found[1]] == [1, 1, 1, 1, 0, 0, 0, 0]


@wl.jit
def before_a_number(y_ptr: Any, steps: Any, BY: tl.constexpr, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    for j in range(steps):
        first = tl.minimum(j * BY, N - 1).to(tl.int64)
        less = (i - 8).to(tl.int64) < first + (i // 2 - 5).to(tl.int64)
        tl.store(y_ptr + j * N + i, less.to(tl.int32))


def test_wide_comparisons_where_a_number_wraps() -> None:
    """Sums of 32 bits of what may be far away would wrap."""
    args = [road.array((8, 16), np.int32), 8]
    road.check_equal(before_a_number, args, 1, {"BY": 1 << 29, "N": 16}, ("late",))
