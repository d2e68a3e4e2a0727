"""Kernels that are no GEMM, from Triton-style source to PLACED: specialized where they have a dot, and
uniform; equal to the oracle at every level, and proved free of deadlocks and races."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.e2e import kernels, road
from tests.e2e.gemms import KNOBS
from tests.pairwise import diagonals, every
from warploom.ir.core import walk
from warploom.ir.ops import smem
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16
PLAIN = {"num_consumer_groups": 0, "num_warps": 4}
TILES = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}
RUNS = ["two-groups", "depth-1", "uniform"]


def integers(*shape: int, dtype: Any = BF16, low: int = -2, high: int = 3, pad: int = 0) -> Any:
    rng = np.random.default_rng(sum(shape))
    return road.filled(rng.integers(low, high, shape).astype(np.float32), dtype, pad=pad)


def lead(a: Any) -> int:
    """Elements from row to row."""
    return int(a.strides[0]) // int(a.itemsize)


def check(
    kernel: Any, args: list[Any], grid: Any, meta: dict[str, Any], prove: bool = True
) -> tuple[CompiledKernel, list[Any]]:
    """All levels and orders equal the oracle; check() is clean."""
    compiled, expected = road.check_equal(kernel, args, grid, meta, levels=True)
    if prove:
        report = compiled.check()
        assert report.ok, str(report)
    return compiled, expected


def matrices(m: int, n: int, k: int, pad: int, rights: int = 1) -> tuple[list[Any], list[Any]]:
    """A, B …, C of float32; then M, N, K and the row strides of A, B and C."""
    a = integers(m, k, pad=pad)
    bs = [integers(k, n + i, pad=pad)[:, :n] for i in range(rights)]
    c = road.array((m, n), np.float32)
    return [a, *bs, c], [m, n, k, lead(a), lead(bs[0]), lead(c)]


@pytest.mark.parametrize(("name", "pad"), [("two-groups", 0), ("depth-1", 1), ("uniform", 4)])
@pytest.mark.each(2)
def test_two_dots_that_share_a(name: str, pad: int) -> None:
    (a, b, g, c), sizes = matrices(150, 100, 136, pad, rights=2)
    compiled, found = check(kernels.gated, [a, b, g, c, *sizes], (2, 2), {**TILES, **KNOBS[name]})
    a, b, g = (x.astype(np.float64) for x in (a, b, g))
    np.testing.assert_array_equal(found[3], (a @ b) * np.maximum(a @ g, 0))
    assert sum(len(ch.items) for ch in compiled.schedule.channels) == 3
    assert compiled.schedule.specialized == (name != "uniform")


@pytest.mark.parametrize(("name", "by_data"), diagonals(2, RUNS, [False, True]))
def test_a_dot_under_an_if(name: str, by_data: bool) -> None:
    (a, b, c), sizes = matrices(130, 70, 250, 0)
    keep = np.array([1, 0, 0, 1, 1, 0, 1, 1], np.int32)
    keep = road.filled(keep, np.int32)
    meta = {**TILES, **KNOBS[name], "BY_DATA": by_data}
    compiled, found = check(
        kernels.block_sparse, [a, b, c, keep, *sizes], (2, 2), meta, prove=not by_data
    )
    steps = np.arange(250) // 32
    kept = keep[steps] != 0 if by_data else steps % 3 != 1
    wanted = a.astype(np.float64)[:, kept] @ b.astype(np.float64)[kept]
    np.testing.assert_array_equal(found[2], wanted)
    assert compiled.schedule.specialized == (name != "uniform")


@pytest.mark.parametrize(("name", "pad"), [("two-groups", 0), ("one-group", 1), ("uniform", 0)])
@pytest.mark.each(2)
def test_a_load_that_a_dot_and_a_sum_use(name: str, pad: int) -> None:
    (a, b, c), sizes = matrices(300, 60, 100, pad)
    sums = road.array((300,), np.float32)
    meta = {**TILES, **KNOBS[name]}
    compiled, found = check(kernels.product_and_sums, [a, b, c, sums, *sizes], 2, meta)
    a, b = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_array_equal(found[2], a @ b)
    np.testing.assert_array_equal(found[3], a.sum(1))
    assert compiled.schedule.specialized == (name != "uniform")


@pytest.mark.parametrize(
    ("name", "pad", "k", "pieces"),
    every(
        2,
        [
            ("two-groups", 0, 136, 16),
            ("two-groups", 4, 132, 8),
            ("depth-1", 2, 130, 4),
            ("depth-1", 1, 70, 0),
            ("uniform", 0, 40, 16),
            ("one-group", 8, 24, 16),
        ],
    ),
)
def test_rows_that_an_index_names(name: str, pad: int, k: int, pieces: int) -> None:
    """Copied by cp.async as far as the rows' alignment allows, through registers where it does not; the
    producer runs ahead of the consumers in either case."""
    a, b, c = integers(50, k, pad=pad), integers(k, 70), road.array((150, 70), np.float32)
    rows = road.filled(np.random.default_rng(k).integers(0, 50, 150), np.int32)
    args = [a, rows, b, c, 150, 70, k, lead(a), lead(b), lead(c)]
    compiled, found = check(kernels.gathered, args, 3, {**TILES, **KNOBS[name]})
    np.testing.assert_array_equal(found[3], a.astype(np.float64)[rows] @ b.astype(np.float64))
    assert compiled.schedule.specialized == (name != "uniform")
    assert compiled.schedule.channels[0].via[0] == ("cp_async" if pieces else "registers")
    copies = [o for o in walk(compiled.lowered.placed.body) if o.kind is smem.cp_async]
    assert {o.attrs["bytes"] for o in copies} == ({pieces} if pieces else set())
    assert compiled.resources.problems() == ()


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.each(2)
def test_batches(name: str) -> None:
    a, b, c = integers(3, 140, 64), integers(3, 64, 72), road.array((3, 140, 72), np.float32)
    meta = {**TILES, **KNOBS[name]}
    _, found = check(kernels.batched, [a, b, c, 140, 72, 64], (2, 2, 3), meta)
    np.testing.assert_array_equal(found[2], a.astype(np.float64) @ b.astype(np.float64) + 1)


@pytest.mark.parametrize("name", [*RUNS, "one-group"])
@pytest.mark.each(2)
def test_attention_without_softmax_is_exact(name: str) -> None:
    q, k, v = integers(200, 64), integers(150, 64, high=2), integers(150, 64)
    out = road.array((200, 64), np.float32)
    meta = {"BLOCK_Q": 128, "BLOCK_K": 64, "HEAD": 64, "SOFTMAX": False, **KNOBS[name]}
    _, found = check(kernels.attention, [q, k, v, out, 1.0, 200, 150], 2, meta)
    scores = q.astype(np.float64) @ k.astype(np.float64).T
    p = np.maximum(scores, 0).astype(np.float32).astype(BF16).astype(np.float64)
    np.testing.assert_array_equal(found[3], p @ v.astype(np.float64))


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.each(2)
def test_attention(name: str) -> None:
    rng = np.random.default_rng(4)
    q, k, v = (road.filled(rng.standard_normal((n, 64)), BF16) for n in (200, 150, 150))
    out = road.array((200, 64), np.float32)
    meta = {"BLOCK_Q": 128, "BLOCK_K": 64, "HEAD": 64, "SOFTMAX": True, **KNOBS[name]}
    args = [q, k, v, out, 0.125, 200, 150]
    compiled = road.compile_for(kernels.attention, args, 2, meta)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.T / 8
    p = np.exp(scores - scores.max(1, keepdims=True))
    wanted = p / p.sum(1, keepdims=True) @ v
    results = [road.expected_of(compiled, args, 2)]
    results += [road.simulated(compiled, args, 2, order) for order in road.default_orders()]
    for found in results:
        np.testing.assert_allclose(found[3], wanted, rtol=0, atol=0.01)
        assert np.linalg.norm(found[3] - wanted) < 0.004 * np.linalg.norm(wanted)
    report = compiled.check()
    assert report.ok, str(report)


@pytest.mark.parametrize(("n", "dtype"), [(1000, np.float32), (512, BF16), (7, np.int32)])
def test_vector_add(n: int, dtype: Any) -> None:
    x, y, out = integers(n, dtype=dtype), integers(n, dtype=dtype, low=-5), road.array((n,), dtype)
    compiled, found = check(kernels.add, [x, y, out, n], 4, {"BLOCK": 256, **PLAIN})
    np.testing.assert_array_equal(found[2], x + y)
    assert not compiled.schedule.specialized


@pytest.mark.parametrize("columns", [64, 100, 1])
@pytest.mark.each(2)
def test_softmax_of_rows(columns: int) -> None:
    x = np.random.default_rng(1).standard_normal((5, columns), np.float32)
    x = road.filled(x, np.float32, pad=-(-columns % 4))
    out = clone_of(x)
    _, found = check(kernels.softmax_rows, [x, out, 5, columns], 2, {"BLOCK": 128, **PLAIN})
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found[1], e / e.sum(1, keepdims=True), rtol=1e-6)


def clone_of(x: Any) -> Any:
    found = road.clone(x)
    found[...] = np.nan
    return found


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_reductions_and_atomics(warps: int) -> None:
    x = integers(50, 40, dtype=np.int32, low=-100, high=100)
    sums = road.filled(np.zeros(90), np.int32)
    most, where = (road.array((50,), np.int32) for _ in range(2))
    meta = {"BLOCK_M": 16, "BLOCK_N": 64, **PLAIN, "num_warps": warps}
    _, found = check(kernels.statistics, [x, sums, most, where, 50, 40], 4, meta)
    np.testing.assert_array_equal(found[1], [*x.sum(1), *x.sum(0)])
    np.testing.assert_array_equal(found[2], x.max(1))
    np.testing.assert_array_equal(found[3], x.argmax(1))


def test_elementwise_atomics() -> None:
    x = integers(1000, dtype=np.int32, low=0, high=500)
    counts = road.filled(np.zeros(17), np.int32)
    meta = {"BINS": 16, "BLOCK": 256, **PLAIN}
    _, found = check(kernels.histogram, [x, counts, 1000], 4, meta)
    np.testing.assert_array_equal(found[1], [*np.bincount(x % 16, minlength=16), x.max()])
