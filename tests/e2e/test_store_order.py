"""Stores of one program happen in its order, also where different threads make them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom import TensorDescriptor
from warploom.analysis.access import Accesses
from warploom.errors import LaunchError
from warploom.sim.report import Race


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


@wl.jit
def placed(x_ptr, out_ptr, n, step, PLACE: tl.constexpr, N: tl.constexpr):
    """Tile after tile at places that follow from the loops' numbers in many ways."""
    out = tl.make_tensor_descriptor(out_ptr, [8 * N, 2 * N], [2 * N, 1], [N, N])
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    row, other = 0, 0
    if PLACE == "step ≥ 16":
        tl.assume(step >= 16)
    for t in range(n):
        inner = t * N
        for _ in range(2):
            inner = inner // 2
        for i in range(2):
            y = (tl.dot(x, x) + 2 * t + i).to(tl.bfloat16)
            if PLACE == "t * step" or PLACE == "t * (step * 2)":
                out.store([t * (step if PLACE == "t * step" else step * 2), i * N], y)
            elif PLACE == "row += step" or PLACE == "row = (row + N) % (2 * N)":
                out.store([row, i * N], y)
            elif PLACE == "t & 1":
                out.store([(t & 1) * N, i * N], y)
            elif PLACE == "t >> 1":
                out.store([(t >> 1) * N, i * N], y)
            elif PLACE == "t >> 1, t & 1":
                out.store([(t >> 1) * N * 2 + i * N, (t & 1) * N], y)
            elif PLACE == "minimum(t, 2)":
                out.store([tl.minimum(t, 2) * N, i * N], y)
            elif PLACE == "where(t > 2)":
                out.store([tl.where(t > 2, N, 0), i * N], y)
            elif PLACE == "where(i == 0)":
                out.store([tl.where(i == 0, 7 * N - t * N, t * N), 0], y)
            elif PLACE == "t + i":
                out.store([(t + i) * N, 0], y)
            elif PLACE == "2 * t + i":
                out.store([(2 * t + i) * N, 0], y)
            elif PLACE == "2 * t + i, of few":
                for j in range(tl.minimum(2, n - 2 * t)):
                    out.store([(2 * t + j) * N, i * N], y + j)
            elif PLACE == "t * step + i":
                out.store([t * step + i * N, 0], y)
            elif PLACE == "t, t + 1":
                out.store([t * N, i * N], y)
                out.store([t * N + N, i * N], y)
            elif PLACE == "t * t":
                out.store([(t - 2) * (t - 2) * N, i * N], y)
            elif PLACE == "t * (n - t)":
                out.store([t * (n - t) * N, i * N], y)
            elif PLACE == "t * step + (n - t) * N":
                out.store([t * step + (n - t) * N, i * N], y)
            elif PLACE == "row - other":
                out.store([row - other, i * N], y)
            elif PLACE == "the row before":
                out.store([other, i * N], y)
            elif PLACE == "halves":
                out.store([inner, i * N], y)
            elif PLACE == "t // 4, t % 2":
                out.store([(t // 4) * N * 2 + i * N, (t % 2) * N], y)
            elif PLACE == "t // 2 + t % 2":
                out.store([(t // 2 + t % 2) * N, i * N], y)
            elif PLACE == "bool(t)":
                out.store([t.to(tl.int1).to(tl.int32) * N, i * N], y)
            elif PLACE == "step ≥ 16":
                out.store([t * (step * 2), i * N], y)
            elif PLACE == "2 * t, 2 * t + 1":
                out.store([2 * t * N, i * N], y)
                out.store([2 * t * N + N, i * N], y)
        if PLACE == "the row before":
            other, row = row, row + N
        elif PLACE == "row - other":
            other, row = other + N, row + N
        elif PLACE == "row += step":
            row += step
        else:
            row = (row + N) % (2 * N)


# Where the place follows from a number of the launch, for two values of that.
PLACES = [
    *[(place, step, step == 64) for step in (16, 64) for place in ("t * step", "row += step")],
    *[("t * (step * 2)", 16, False), ("t * (step * 2)", 32, True), ("t * step", -64, True)],
    *[("row = (row + N) % (2 * N)", 1, False), ("t & 1", 1, False), ("t >> 1", 1, False)],
    *[("t >> 1, t & 1", 1, True), ("minimum(t, 2)", 1, False), ("where(t > 2)", 1, False)],
    *[("where(i == 0)", 1, False), ("t + i", 1, False), ("2 * t + i", 1, True)],
    ("2 * t + i, of few", 1, True),
    *[("t * step + i", 64, False), ("t * step + i", 128, True)],
    *[("t, t + 1", 1, False), ("2 * t, 2 * t + 1", 1, True)],
    *[("t * t", 1, False), ("t * (n - t)", 1, False), ("t * step + (n - t) * N", 64, False)],
    *[("row - other", 1, False), ("the row before", 1, False), ("halves", 1, False)],
    *[("t // 4, t % 2", 1, False), ("t // 2 + t % 2", 1, False), ("bool(t)", 1, False)],
    *[("step ≥ 16", 16, False), ("step ≥ 16", 32, True)],
]


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("place, step, is_apart", PLACES)
def test_stores_by_tma_are_apart(place: str, step: int, is_apart: bool) -> None:
    """They don't go by TMA where another iteration, or the other store, may store a part of the same."""
    x = np.random.default_rng(0).integers(-2, 3, (64, 64)).astype(ml_dtypes.bfloat16)
    n = 4
    meta = {"PLACE": place, "N": 64, "num_warps": 4}
    want, out = (np.zeros((8 * 64, 128), ml_dtypes.bfloat16) for _ in range(2))
    placed[(1,)](x, want, n, step, **meta)
    compiled = placed.compile_for(x, out, n, step, grid=(1,), **meta)
    assert ("tma_store" in compiled.cuda) == is_apart
    for order in ("late", "early", "reverse"):
        out[:] = 0
        compiled.simulate(x, out, n, step, grid=(1,), order=order)
        assert np.array_equal(out.astype(np.float32), want.astype(np.float32)), order


@pytest.mark.usefixtures("without_nvrtc")
def test_a_step_less_than_its_box_takes_another_variant() -> None:
    """A kernel is told of it, where it is launched by hand."""
    x, out = np.zeros((64, 64), ml_dtypes.bfloat16), np.zeros((512, 128), ml_dtypes.bfloat16)
    meta = {"PLACE": "t * step", "N": 64, "num_warps": 4}
    compiled = placed.compile_for(x, out, 4, 64, grid=(1,), **meta)
    assert compiled.plan.spaced
    with pytest.raises(LaunchError, match="step of placed is less than 64"):
        compiled.simulate(x, out, 4, 16, grid=(1,))


@wl.jit
def sliding(a_ptr, b_ptr, out_ptr, n, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    """A tile of 128 rows for two groups, the lower half of which the next step overwrites."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [M, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [N, BK])
    out = tl.make_tensor_descriptor(out_ptr, [4 * M, N], [N, 1], [M, N])
    for t in range(n):
        acc = tl.zeros((M, N), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(a_desc.load([0, k * BK]), b_desc.load([0, k * BK]).T, acc)
        out.store([t * 64, 0], (acc + t).to(tl.bfloat16))


@pytest.mark.usefixtures("without_nvrtc")
def test_groups_wait_for_what_others_store() -> None:
    """Rows of one group are those of the other one a step later; all groups meet, and the check knows it."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, (m, 128)).astype(ml_dtypes.bfloat16) for m in (128, 64))
    meta = {"M": 128, "N": 64, "BK": 64, "num_warps": 4, "num_consumer_groups": 2}
    want, out = (np.zeros((512, 64), ml_dtypes.bfloat16) for _ in range(2))
    sliding[(1,)](a, b, want, 3, 128, M=128, N=64, BK=64)
    compiled = sliding.compile_for(a, b, out, 3, 128, grid=(1,), **meta)
    assert "2 × 4 warps" in str(compiled.explain())
    for order in ("late", "early", "reverse"):
        compiled.simulate(a, b, out, 3, 128, grid=(1,), order=order)
        assert np.array_equal(out.astype(np.float32), want.astype(np.float32))
    assert compiled.check().ok


@wl.jit
def two_arrays(x_ptr, one_ptr, other_ptr, n, KIND: tl.constexpr, N: tl.constexpr):
    one = tl.make_tensor_descriptor(one_ptr, [N, N], [N, 1], [N, N])
    other = tl.make_tensor_descriptor(other_ptr, [N, N], [N, 1], [N, N])
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + at)
    y = tl.dot(x, x).to(tl.bfloat16)
    if KIND == "by TMA":
        one.store([0, 0], y)
        other.store([0, 0], y + 1)
    elif KIND == "by TMA and by threads":
        one.store([0, 0], y)
        tl.store(other_ptr + at, x)
    elif KIND == "by threads":
        tl.store(one_ptr + at, x)
        tl.store(other_ptr + at.trans(), x + 1)
    elif KIND == "again and again":
        for t in range(n):
            tl.store(one_ptr + at, x + t)
            tl.store(other_ptr + at.trans(), x + t)
    elif KIND == "with atomics":
        tl.store(one_ptr + at, x)
        tl.atomic_add(other_ptr + at.trans(), x)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    "kind",
    ["by TMA", "by TMA and by threads", "by threads", "again and again", "with atomics"],
)
def test_stores_to_arrays_that_overlap_keep_their_order(kind: str) -> None:
    """In a variant that launches with such arrays take, also where neither is loaded from."""
    x = np.random.default_rng(0).integers(-2, 3, (64, 64)).astype(ml_dtypes.bfloat16)
    meta = {"KIND": kind, "N": 64, "num_warps": 4}
    apart = two_arrays.compile_for(x, x.copy(), x.copy(), 3, grid=(1,), **meta)
    assert apart.plan.stored == ((1, 2),)
    assert ("tma_store" in apart.cuda) == ("TMA" in kind)
    want, out = (np.zeros((96, 64), ml_dtypes.bfloat16) for _ in range(2))
    two_arrays[(1,)](x, want[:64], want[32:], 3, **meta)
    compiled = two_arrays.compile_for(x, out[:64], out[32:], 3, grid=(1,), **meta)
    assert "tma_store" not in compiled.cuda
    assert "__syncthreads()" in compiled.cuda.split("__global__")[1]
    for order in ("late", "early", "reverse"):
        out[:] = 0
        compiled.simulate(x, out[:64], out[32:], 3, grid=(1,), order=order)
        assert np.array_equal(out.astype(np.float32), want.astype(np.float32))


@wl.jit
def stored_then_added(x_ptr, out_ptr, ADDS_FIRST: tl.constexpr, N: tl.constexpr):
    """Where an element is stored and where it is added to are two threads'."""
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * N + columns)
    if ADDS_FIRST:
        tl.atomic_add(out_ptr + rows + columns * N, x)
    tl.store(out_ptr + rows * N + columns, x)
    if not ADDS_FIRST:
        tl.atomic_add(out_ptr + rows + columns * N, x)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("adds_first", [False, True])
def test_a_barrier_parts_stores_and_atomics(adds_first: bool) -> None:
    x, out = (np.zeros((64, 64), np.float32) for _ in range(2))
    meta = {"ADDS_FIRST": adds_first, "N": 64, "num_warps": 4}
    compiled = stored_then_added.compile_for(x, out, grid=(1,), **meta)
    *before, after = compiled.cuda.split("__global__")[1].split("__syncthreads()")
    first, then = ("red_add", "store_global") if adds_first else ("store_global", "red_add")
    assert first in before[-1] and first not in after
    assert then in after and not any(then in part for part in before)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("place, is_found", [("t & 1", True), ("t + i", True), ("t * step", False)])
def test_stores_by_tma_that_meet_are_seen(
    place: str, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the simulator in any order of events, and by the check where they meet for sure."""
    monkeypatch.setattr(Accesses, "rewrites", lambda *_: False)
    monkeypatch.setattr(Accesses, "spacing", lambda *_: frozenset())
    x, out = np.zeros((64, 64), ml_dtypes.bfloat16), np.zeros((512, 128), ml_dtypes.bfloat16)
    kernel = wl.jit(placed.fn)  # with no variants yet
    compiled = kernel.compile_for(x, out, 4, 16, grid=(1,), PLACE=place, N=64, num_warps=4)
    assert "tma_store" in compiled.cuda
    with pytest.raises(Race, match="stores in no order with it"):
        compiled.simulate(x, out, 4, 16, grid=(1,))
    report = compiled.check()
    assert ("may be overwritten by" in str(report)) == is_found
    assert is_found or "step ≥ " in str(report)


@wl.jit
def by_pointers(x_ptr, out_ptr, n, step, KIND: tl.constexpr, N: tl.constexpr):
    """Tiles, or rows, that begin `step` after those of the iteration before."""
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * N + columns)
    out_ptrs = out_ptr + rows * N + columns
    for t in range(n):
        if KIND == "a row":
            at = tl.arange(0, N)
            tl.store(out_ptr + t * step + at, tl.load(x_ptr + at) + t)
        else:
            y = (tl.dot(x, x) + t).to(tl.bfloat16)
            if KIND == "a tile":
                tl.store(out_ptr + t * step + rows * N + columns, y)
            elif KIND == "rows in i64":
                row = (t * step).to(tl.int64)
                tl.store(out_ptr + row * N + rows * N + columns, y)
            else:
                tl.store(out_ptrs, y)
                out_ptrs += step * N


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    "kind, apart", [("a row", 256), ("a tile", 64 * 64), ("rows in i64", 64), ("pointers", 64)]
)
def test_strides_are_at_least_what_is_stored(kind: str, apart: int) -> None:
    """Where no mask leaves anything out; a launch with less takes the variant in order."""
    n = 256 if kind == "a row" else 64
    x = np.random.default_rng(0).integers(-2, 3, (n, n)).astype(ml_dtypes.bfloat16)
    meta = {"KIND": kind, "N": n, "num_warps": 4}
    for step in (apart, apart // 8):
        want, out = (np.zeros(4 * n * n, ml_dtypes.bfloat16) for _ in range(2))
        by_pointers[(1,)](x, want, 3, step, **meta)
        compiled = by_pointers.compile_for(x, out, 3, step, grid=(1,), **meta)
        assert ("tma_store" in compiled.cuda) == (step == apart and kind != "a row")
        for order in ("late", "early", "reverse"):
            out[:] = 0
            compiled.simulate(x, out, 3, step, grid=(1,), order=order)
            assert np.array_equal(out.astype(np.float32), want.astype(np.float32))


@wl.jit
def pitched(x_ptr, out_ptr, n, KIND: tl.constexpr, STEP: tl.constexpr, N: tl.constexpr):
    """Tiles of rows 8 * N apart that begin `STEP` after those of the iteration before."""
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * N + columns)
    out_ptrs = out_ptr + rows * 8 * N + columns
    for t in range(n):
        y = (tl.dot(x, x) + t).to(tl.bfloat16)
        if KIND == "a place":
            tl.store(out_ptr + t * STEP + rows * 8 * N + columns, y)
        elif KIND == "pointers":
            tl.store(out_ptrs, y)
            out_ptrs += STEP
        elif KIND == "a block pointer":
            block = tl.make_block_ptr(
                out_ptr + t * STEP, (N, N), (8 * N, 1), (0, 0), (N, N), (1, 0)
            )
            tl.store(block, y)
        elif KIND == "two columns":
            for i in range(2):
                tl.store(out_ptr + t * STEP + i * N + rows * 8 * N + columns, y + i)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    "kind, step, is_apart",
    [
        *[(kind, step, False) for kind in ("a place", "pointers") for step in (480, 320, 64)],
        *[("a place", step, True) for step in (64 * 512, 512 * 64 + 64)],
        *[("pointers", 64 * 512, True), ("a block pointer", 32, False)],
        *[("a block pointer", 8 * 512, False), ("two columns", 64 * 512, True)],
    ],
)
def test_steps_lead_into_no_other_row(kind: str, step: int, is_apart: bool) -> None:
    """Where a view has no end along an axis, it goes on into its next row; nine steps do here."""
    x = np.random.default_rng(0).integers(-2, 3, (64, 64)).astype(ml_dtypes.bfloat16)
    meta = {"KIND": kind, "STEP": step, "N": 64, "num_warps": 4}
    want, out = (np.zeros(9 * step + 64 * 512, ml_dtypes.bfloat16) for _ in range(2))
    pitched[(1,)](x, want, 9, **meta)
    compiled = pitched.compile_for(x, out, 9, grid=(1,), **meta)
    assert ("tma_store" in compiled.cuda) == is_apart
    for order in ("late", "early", "reverse"):
        out[:] = 0
        compiled.simulate(x, out, 9, grid=(1,), order=order)
        assert np.array_equal(out.astype(np.float32), want.astype(np.float32))


@wl.jit
def rows_of_parts(x_ptr, out_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    for t in range(n):
        tl.store(out_ptr + t // 2 * N + t % 2 * (N + N // 2) + at, tl.load(x_ptr + at) + t)


@pytest.mark.usefixtures("without_nvrtc")
def test_a_barrier_parts_what_parts_of_a_number_lead_to() -> None:
    x, want, out = np.ones(128, np.float32), *(np.zeros(1024, np.float32) for _ in range(2))
    rows_of_parts[(1,)](x, want, 9, N=128, num_warps=4)
    compiled = rows_of_parts.compile_for(x, out, 9, N=128, grid=(1,), num_warps=4)
    assert "__syncthreads()" in compiled.cuda.split("__global__")[1]
    compiled.simulate(x, out, 9, grid=(1,), order="reverse")
    assert np.array_equal(out, want)


@wl.jit
def pitched_views(x_ptr, out_ptr, n, KIND: tl.constexpr, PITCH: tl.constexpr, N: tl.constexpr):
    """Tiles of descriptors whose rows, or layers, begin within those before."""
    x = tl.load(x_ptr + tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :])
    rows = tl.make_tensor_descriptor(out_ptr, [16 * N, 2 * N], [PITCH, 1], [N, N])
    layers = tl.make_tensor_descriptor(out_ptr, [8, N, N], [PITCH, N, 1], [1, N, N])
    for t in range(n):
        y = (tl.dot(x, x) + t).to(tl.bfloat16)
        if KIND == "rows":
            rows.store([t * N, 0], y)
        else:
            layers.store([t, 0, 0], y[None])


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    "kind, pitch, is_apart",
    [("rows", 128, True), ("rows", 32, False), ("layers", 4096, True), ("layers", 1024, False)],
)
def test_pitches_are_held_against_what_a_box_has(kind: str, pitch: int, is_apart: bool) -> None:
    x = np.random.default_rng(0).integers(-2, 3, (64, 64)).astype(ml_dtypes.bfloat16)
    meta = {"KIND": kind, "PITCH": pitch, "N": 64, "num_warps": 4}
    out = np.zeros(16 * 64 * 128, ml_dtypes.bfloat16)
    compiled = pitched_views.compile_for(x, out, 4, grid=(1,), **meta)
    assert ("tma_store" in compiled.cuda) == is_apart
    compiled.simulate(x, out, 4, grid=(1,), order="reverse")


@wl.jit
def sliding_rows(a_ptr, b_ptr, out_ptr, n, K, STEP: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """A tile of 128 rows, 512 apart, for two groups."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [M, N])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [N, N])
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    for t in range(n):
        acc = tl.zeros((M, N), tl.float32)
        for k in range(tl.cdiv(K, N)):
            acc = tl.dot(a_desc.load([0, k * N]), b_desc.load([0, k * N]).T, acc)
        tl.store(out_ptr + t * STEP + rows * 512 + columns, (acc + t).to(tl.bfloat16))


@pytest.mark.usefixtures("without_nvrtc")
def test_groups_wait_for_rows_that_others_store() -> None:
    """Where a step leads beyond the rows of one group, into the middle of those of the other."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-2, 3, (m, 128)).astype(ml_dtypes.bfloat16) for m in (128, 64))
    step = 64 * 512 + 32
    meta = {"M": 128, "N": 64, "STEP": step}
    want, out = (np.zeros(2 * step + 128 * 512, ml_dtypes.bfloat16) for _ in range(2))
    sliding_rows[(1,)](a, b, want, 3, 128, **meta)
    meta |= {"num_warps": 4, "num_consumer_groups": 2}
    compiled = sliding_rows.compile_for(a, b, out, 3, 128, grid=(1,), **meta)
    assert "2 × 4 warps" in str(compiled.explain())
    compiled.simulate(a, b, out, 3, 128, grid=(1,), order="reverse")
    assert np.array_equal(out.astype(np.float32), want.astype(np.float32))


@wl.jit
def rows_and_halves(x_ptr, out_ptr, n, step, N: tl.constexpr):
    at = tl.arange(0, N)
    for t in range(n):
        tl.store(out_ptr + t * (step * 64) + t % 2 * 64 + at, tl.load(x_ptr + at) + t)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("step, is_apart", [(2, False), (3, True)])
def test_strides_are_at_least_what_moves_along_other_axes(step: int, is_apart: bool) -> None:
    x, want, out = (np.zeros(n, ml_dtypes.bfloat16) for n in (128, 4096, 4096))
    rows_and_halves[(1,)](x, want, 5, step, N=128, num_warps=4)
    compiled = rows_and_halves.compile_for(x, out, 5, step, grid=(1,), N=128, num_warps=4)
    assert ("__syncthreads()" not in compiled.cuda.split("__global__")[1]) == is_apart
    compiled.simulate(x, out, 5, step, grid=(1,), order="reverse")
    assert np.array_equal(out.astype(np.float32), want.astype(np.float32))


@wl.jit
def product_then(a_ptr, b_ptr, c_ptr, d_ptr, e_ptr, K, N: tl.constexpr, AFTER: tl.constexpr):
    """A product, stored by TMA; what is loaded before or after it may be what it stores."""
    at, step = tl.arange(0, N), tl.arange(0, 64)
    tile = at[:, None] * N + at[None, :]
    sums = tl.zeros((N, N), tl.float32)
    for k in range(0, K, 64):
        a = tl.load(a_ptr + at[:, None] * K + (k + step)[None, :])
        b = tl.load(b_ptr + (k + step)[:, None] * N + at[None, :])
        sums = tl.dot(a, b, sums)
    if AFTER:
        tl.store(c_ptr + tile, sums.to(tl.float16))
        found = tl.load(d_ptr + tile)
    else:
        found = tl.load(d_ptr + tile)
        tl.store(c_ptr + tile, sums.to(tl.float16))
    tl.store(e_ptr + tile, found + 1)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("is_after", [True, False])
@pytest.mark.parametrize("order", ["late", "early", "reverse"])
def test_what_a_load_finds_of_a_store_by_tma(is_after: bool, order: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, s).astype(np.float16) for s in ((64, 128), (128, 64)))
    c = rng.integers(-9, 9, (64, 64)).astype(np.float16)
    before, e = c.copy(), np.zeros((64, 64), np.float16)
    apart = product_then.compile_for(a, b, c, c.copy(), e, 128, N=64, AFTER=is_after, grid=(1,))
    assert "tma_store" in apart.cuda
    names = [v.hint for v in apart.placed.params]
    assert ((names.index("c_ptr"), names.index("d_ptr")) in apart.plan.disjoint) == is_after
    # The loads before are over for TMA as well.
    assert ("fence_async_global();" in apart.cuda) != is_after
    args = (a, b, c, c, e, 128)
    same = product_then.compile_for(*args, N=64, AFTER=is_after, grid=(1,))
    same.simulate(*args, grid=(1,), order=order)
    assert (c == a @ b).all()
    assert (e == (c if is_after else before) + 1).all()


@wl.jit
def squares(x_desc, y_desc, z_desc):
    x = x_desc.load([0, 0])
    y = tl.dot(x, x)
    y_desc.store([0, 0], y.to(tl.float16))
    z_desc.store([0, 0], (y + 1).to(tl.float16))


@pytest.mark.usefixtures("without_nvrtc")
def test_columns_of_one_matrix_go_by_tma() -> None:
    """Outputs that are columns of one array lie beside each other, where descriptors say how far they reach."""
    packed = np.zeros((64, 128), np.float16)
    x = np.ones((64, 64), np.float16)
    halves = packed[:, :64], packed[:, 64:]
    outs = [TensorDescriptor(h, (64, 64), (128, 1), (64, 64)) for h in halves]
    args = (TensorDescriptor(x, (64, 64), (64, 1), (64, 64)), *outs)
    kernel = squares.compile_for(*args, grid=(1,))
    assert kernel.cuda.split("__global__")[1].count("tma_store") == 2
    kernel.simulate(*args, grid=(1,))
    assert (packed == np.hstack([x @ x, x @ x + 1])).all()
