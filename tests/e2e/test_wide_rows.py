"""Rows that no registers hold (passes/tile/strip_mine_rows.py): computed part by part, right on the simulator."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.errors import LaunchError
from warploom.ir.core import Level
from warploom.ir.ops import control
from warploom.ir.types import shape_of
from warploom.runtime.compiled import CompiledKernel

N = 16384  # of one warp, 512 elements a thread
WIDEST = 32 * 32


def simulated(kernel: Any, out: Any, *args: Any, grid: int = 1, **meta: Any) -> CompiledKernel:
    """The kernel, compiled by one warp and simulated on its arguments."""
    arguments = (out, *args)
    compiled: CompiledKernel = kernel.compile_for(*arguments, grid=(grid,), num_warps=1, **meta)
    compiled.simulate(*arguments, grid=(grid,))
    return compiled


def is_mined(lowered: Any) -> bool:
    """Is no tile wider than a part?"""
    sizes = [shape_of(v.type) for o in lowered.at(Level.TILE).body.all_ops for v in o.results]
    return max(int(np.prod(s)) for s in sizes) <= WIDEST


@wl.jit
def standardized(out, x, n, B: tl.constexpr):
    at = tl.arange(0, B)
    mask = at < n
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(v, 0) / n
    apart = tl.where(mask, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, 0) / n)
    tl.store(out + at, apart * scale, mask=mask)


@pytest.mark.parametrize("n", [N, N - 1000, 3])
def test_a_row_is_loaded_as_often_as_it_is_needed(n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(ml_dtypes.bfloat16)
    out = np.full(N, 7, np.float32)
    compiled = simulated(standardized, out, x, n, B=N)
    assert is_mined(compiled.lowered) and compiled.plan.disjoint == (
        (0, 1),
    )  # the launch compares them
    assert "tiles of 16,384 elements are computed in 16 parts" in compiled.explain()
    loops = [o for o in compiled.lowered.at(Level.TILE).body.all_ops if o.kind is control.for_]
    assert len(loops) == 3
    exact = x.astype(float)
    np.testing.assert_allclose(out[:n], (exact - exact.mean()) / exact.std(), rtol=1e-4, atol=1e-4)
    assert (out[n:] == 7).all()


@wl.jit
def in_place(x, out, n, B: tl.constexpr, LATER: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.store(out, tl.max(v, 0))
    tl.store(x + at, v + 1, mask=at < n)
    if LATER:
        tl.store(out + 1, 1)
    tl.store(out + 2, tl.min(v, 0))  # of what was there before


def test_a_row_may_be_stored_where_it_was_loaded() -> None:
    x = np.random.default_rng(1).integers(1, 1 << 30, N, dtype=np.int32)
    was, out = x.copy(), np.zeros(3, np.int32)
    assert is_mined(simulated(in_place, x, out, N, B=N, LATER=False).lowered)
    assert np.array_equal(x, was + 1) and np.array_equal(out, [was.max(), 0, was.min()])


@wl.jit
def copied_then_changed(x, out, B: tl.constexpr):
    """Another thread may still copy what one changes: nothing makes it wait."""
    at = tl.arange(0, B)
    v = tl.load(x + at)
    tl.store(out + 1 + at, v)
    tl.store(out, 1.0)
    tl.store(x + at, v + 1)


@wl.jit
def scanned(x, out, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))


@wl.jit
def passed_on(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for i in range(n):
        total += tl.load(x + i * B + at)
    tl.store(out + at, total)


@wl.jit
def loaded_outside(x, out, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    for i in range(n):
        tl.store(out + i * B + at, v)


@wl.jit
def shifted(x, n, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at + 1, mask=at < n - 1, other=0)
    tl.store(x + at, v)


P = "*fp32:16"


@pytest.mark.parametrize(
    ("kernel", "signature", "meta"),
    [
        (in_place, ["*i32:16", "*i32:16", "i32:16"], {"LATER": True}),  # loaded again: another row
        (copied_then_changed, [P, P], {}),
        (shifted, [P, "i32:16"], {}),
        (scanned, [P, P], {}),
        (passed_on, [P, P, "i32"], {}),
        (loaded_outside, [P, P, "i32"], {}),
    ],
)
def test_where_it_would_not_be_the_same_a_row_stays_whole(
    kernel: Any, signature: list[str], meta: dict[str, Any]
) -> None:
    request = kernel.requested(signature, {"B": N, **meta}, "sm_90a", {"num_warps": 1})
    assert not is_mined(request.lower())


@wl.jit
def rows(out, x, y, n, B: tl.constexpr):
    """Tiles made outside of the loops that use them, stores and reductions in a loop of the user's."""
    row = tl.program_id(0)
    at = tl.arange(0, B)
    total, most, both, any_ = 0.0, float("-inf"), True, False
    for start in range(0, n, B):
        mask = start + at < n
        v = tl.load(x + row * n + start + at, mask=mask, other=0.0)
        total += tl.sum(v, 0).to(tl.float32)  # rounded once
        most = tl.maximum(most, tl.max(tl.where(mask, v, float("-inf")), 0).to(tl.float32))
        both = both & (tl.min((v < 5.0).to(tl.int32), 0) == 1)
        any_ = any_ | (tl.max((v > 3.0).to(tl.int32), 0) == 1)
        tl.store(y + row * n + start + at, v * 2, mask=mask)
    tl.store(out + row * 4, total)
    tl.store(out + row * 4 + 1, most)
    tl.store(out + row * 4 + 2, both.to(tl.float32))
    tl.store(out + row * 4 + 3, any_.to(tl.float32))


def test_in_loops_and_for_every_program() -> None:
    n = N + 5000
    x = np.random.default_rng(2).integers(-3, 5, (2, n)).astype(ml_dtypes.bfloat16)
    y, out = np.zeros_like(x), np.zeros((2, 4), np.float32)
    assert is_mined(simulated(rows, out, x, y, n, grid=2, B=N).lowered)
    exact = x.astype(np.float32)
    assert np.array_equal(y.astype(np.float32), exact * 2)
    parts = np.stack([exact[:, :N].sum(1), exact[:, N:].sum(1)]).astype(ml_dtypes.bfloat16)
    want = [parts.astype(np.float32).sum(0), exact.max(1), (exact < 5).all(1), (exact > 3).any(1)]
    assert np.array_equal(out, np.stack(want, 1).astype(np.float32))


@wl.jit
def folded(out, x, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.store(out, tl.xor_sum(v, 0))
    tl.store(out + 1, tl.reduce_or(v, 0))
    tl.store(out + 2, tl.sum(v, 0))
    tl.store(out + 3, tl.min(v, 0))
    tl.store(out + 4, tl.max(v, 0))


def test_integers() -> None:
    x = -np.random.default_rng(3).integers(1, 1 << 31, N).astype(np.int32)
    out = np.zeros(5, np.int32)
    assert is_mined(simulated(folded, out, x, B=N).lowered)
    total = x.sum(dtype=np.int32)
    want = [np.bitwise_xor.reduce(x), np.bitwise_or.reduce(x), total, x.min(), x.max()]
    assert np.array_equal(out, want)


def test_arguments_that_overlap_keep_the_order() -> None:
    memory = np.arange(N + 1, dtype=np.float32)
    standardized[(1,)](memory[1:], memory[:-1], N, B=N, num_warps=1)
    exact = np.arange(N, dtype=float)
    np.testing.assert_allclose(
        memory[1:], (exact - exact.mean()) / exact.std(), rtol=1e-4, atol=1e-4
    )


def test_a_row_that_two_arguments_name_is_one_array() -> None:
    """x = standardized(x), by two pointers to it, is done part by part as well."""
    x = np.random.default_rng(4).standard_normal(N).astype(np.float32)
    exact, other = x.astype(float), np.zeros_like(x)
    made = standardized.compile_for(x, x, N, B=N, grid=(1,), num_warps=1)
    assert made.request.one_array == ((0, 1),) and is_mined(made.lowered)
    assert not made.resources.spill_bytes and "out and x are one array" in made.explain()
    made.simulate(x, x, N, grid=(1,))
    np.testing.assert_allclose(x, (exact - exact.mean()) / exact.std(), rtol=1e-4, atol=1e-4)
    for ask in (made.simulate, made.check):
        with pytest.raises(LaunchError, match="out and x of standardized are two arrays"):
            ask(other, x, N, grid=(1,))
    apart = standardized.compile_for(other, x, N, B=N, grid=(1,), num_warps=1)
    assert not apart.request.one_array
    assert made.check(x, x, N, grid=(1,)).ok


@wl.jit
def gradients(da, db, a, b, B: tl.constexpr):
    at = tl.arange(0, B)
    x, y = tl.load(a + at), tl.load(b + at)
    total = tl.sum(x * y, 0)
    tl.store(da + at, y + total)
    tl.store(db + at, x - total)


@pytest.mark.parametrize("swapped", [False, True])
def test_pairs_of_arguments_that_are_one_array_each(swapped: bool) -> None:
    """Swapped, da is b: a part of it is stored before the same part of x is needed, and no later one is."""
    a, b = np.random.default_rng(5).integers(-3, 4, (2, N)).astype(np.float32)
    total = np.sum(a * b)
    into = (b, a) if swapped else (a, b)
    want = {id(into[0]): b + total, id(into[1]): a - total}
    made = gradients.compile_for(*into, a, b, B=N, grid=(1,), num_warps=1)
    assert len(made.request.one_array) == 2
    made.simulate(*into, a, b, grid=(1,))
    for x in (a, b):
        assert np.array_equal(x, want[id(x)])


@pytest.mark.usefixtures("without_nvrtc")  # which takes nine seconds for 512 elements a thread
def test_a_row_and_one_beside_it_are_two_arrays() -> None:
    memory = np.zeros(N + 1, np.float32)
    made = standardized.compile_for(memory[1:], memory[:-1], N, B=N, grid=(1,), num_warps=1)
    assert made.request.overlap and not is_mined(made.lowered)


@wl.jit
def masked(out, x, scale, shift, stride, n, B: tl.constexpr):
    """A tile of scores on and below the diagonal, with a factor a row and a term a column."""
    row = tl.program_id(0) * B + tl.arange(0, B)
    column = tl.program_id(1) * B + tl.arange(0, B)
    inside = (row[:, None] < n) & (column[None, :] < n)
    at = row[:, None] * stride + column[None, :]
    future = column[None, :] > row[:, None]
    v = tl.load(x + at, mask=inside & ~future, other=-1.0)
    v = v * tl.load(scale + row, mask=row < n)[:, None] + tl.load(shift + column, mask=column < n)
    tl.store(out + at, tl.where(future, 0.0, v), mask=inside)


def test_tiles_of_two_axes_are_computed_by_their_rows() -> None:
    n, block = 200, 128
    rng = np.random.default_rng(0)
    x, scale, shift = (rng.standard_normal(s).astype(np.float32) for s in ((n, n), n, n))
    out = np.full((n, n), 7, np.float32)
    grid, args = (2, 2), (out, x, scale, shift, n, n)
    compiled = masked.compile_for(*args, grid=grid, B=block, num_warps=1)
    assert is_mined(compiled.lowered)
    assert "tiles of 16,384 elements are computed in 16 parts" in compiled.explain()
    assert compiled.plan.disjoint == (
        (0, 1),
        (0, 2),
    )  # what each part loads, where a row's factor is one
    compiled.simulate(*args, grid=grid)
    np.testing.assert_allclose(out, np.tril(x * scale[:, None] + shift), rtol=1e-6)
    assert compiled.check(*args, grid=grid).ok


def test_tiles_that_are_stored_where_they_were_loaded_stay_whole() -> None:
    """A part might store what a later one loads: places along two axes are not told apart."""

    @wl.jit
    def transposed(x, B: tl.constexpr):
        i, j = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
        tl.store(x + j * B + i, tl.load(x + i * B + j))

    @wl.jit
    def overlapping(x, B: tl.constexpr):
        """A part's places are those of parts after it."""
        at = tl.arange(0, B)[:, None] + tl.arange(0, B)[None, :]
        tl.store(x + at, 2 * tl.load(x + at))

    x = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    for kernel, want in ((transposed, x.T), (overlapping, None)):
        y = x.copy()
        compiled = kernel.compile_for(y, grid=(1,), B=128, num_warps=1)
        assert not is_mined(compiled.lowered)
        if want is not None:
            compiled.simulate(y, grid=(1,))
            assert np.array_equal(y, want)


@wl.jit
def stored_twice(out, x, B: tl.constexpr, SECOND: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    tl.store(out + at, v)
    tl.store(out + (at + 1 if SECOND == "shifted" else B - 1 - at), -v)


@wl.jit
def rows_stored_twice(out, x, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    v = tl.load(x + at)
    tl.store(out + at, v)
    tl.store(out + at + B, -v)


def test_what_is_stored_twice_is_what_was_stored_last() -> None:
    """No part of the first store comes after the second one's."""
    x = np.random.default_rng(6).integers(1, 9, N).astype(np.float32)
    for second, want in (("shifted", [x[0], *-x]), ("reversed", [*-x[::-1], 0])):
        out = np.zeros(N + 1, np.float32)
        compiled = simulated(stored_twice, out, x, B=N, SECOND=second)
        assert is_mined(compiled.lowered)
        assert np.array_equal(out, want), second
    out = np.zeros(N + 128, np.float32)
    assert is_mined(simulated(rows_stored_twice, out, x, B=128).lowered)
    assert np.array_equal(out, [*x[:128], *-x])


@wl.jit
def stored_to_two(out, other, x, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    tl.store(out + at, v)
    tl.store(other + at, -v)


@pytest.mark.usefixtures("without_nvrtc")
def test_two_arrays_that_are_stored_together_are_compared() -> None:
    x = np.random.default_rng(7).integers(1, 9, N).astype(np.float32)
    memory = np.zeros(2 * N, np.float32)
    apart = stored_to_two.compile_for(memory[:N], memory[N:], x, B=N, grid=(1,), num_warps=1)
    assert is_mined(apart.lowered) and (0, 1) in apart.plan.disjoint
    into = memory[:N], memory[1 : N + 1]
    compiled = stored_to_two.compile_for(*into, x, B=N, grid=(1,), num_warps=1)
    assert compiled.request.overlap and not is_mined(compiled.lowered)
    compiled.simulate(*into, x, grid=(1,))
    assert np.array_equal(memory[: N + 1], [x[0], *-x])
