"""Persistent and plain GEMMs at every level: bit-equal to TILE on integers, whatever sizes and producers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.passes import kernels, road
from tests.passes.kernels import View
from warploom.schedule.model import Knobs

BF16 = ml_dtypes.bfloat16


def arguments(
    m: int,
    n: int,
    k: int,
    pad: tuple[int, int] = (0, 0),
    dtype: Any = BF16,
    out: Any = BF16,
) -> list[Any]:
    """a, b, c and M, N, K, la, lb, lc for row-major matrices; a's and b's rows are `pad` elements longer
    than a multiple of 16."""
    rng = np.random.default_rng(m * 10000 + n * 100 + k)

    def up(x: int) -> int:
        return max(16, -(-x // 16) * 16)

    la, lb, lc = up(k) + pad[0], up(n) + pad[1], up(n)
    a = road.integers(rng, (m, la), dtype)
    b = road.integers(rng, (max(k, 1), lb), dtype)
    c = np.full((m, lc), 7, np.float32).astype(out)
    return [a, b, c, m, n, k, la, lb, lc]


SPECIALIZED = Knobs(num_consumer_groups=2, num_buffers_warp_spec=3)
UNIFORM = Knobs(num_consumer_groups=0, num_warps=8, num_stages=3)


@pytest.mark.parametrize("knobs", [SPECIALIZED, UNIFORM], ids=["specialized", "uniform"])
@pytest.mark.parametrize("k", [0, 20, 64, 128, 192, 256, 448])
@pytest.mark.each(2)
def test_trip_counts_around_the_depth(knobs: Knobs, k: int) -> None:
    func = road.tile(kernels.gemm(128, 64, 64))
    road.check_equal(
        func, arguments(128, 64, k), 1, knobs, orders=("late", "early", "seeded", "timed")
    )


@pytest.mark.parametrize("knobs", [SPECIALIZED, UNIFORM], ids=["specialized", "uniform"])
@pytest.mark.parametrize("programs", [1, 2, 8])
def test_several_tiles_a_program_and_odd_sizes(knobs: Knobs, programs: int) -> None:
    func = road.tile(kernels.gemm(128, 64, 64))
    road.check_equal(func, arguments(200, 100, 150), programs, knobs)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("uniform", [False, True])
def test_depths(depth: int, uniform: bool) -> None:
    knobs = (
        Knobs(num_consumer_groups=0, num_warps=8, num_stages=depth)
        if uniform
        else Knobs(num_consumer_groups=2, num_buffers_warp_spec=depth)
    )
    func = road.tile(kernels.gemm(128, 64, 64))
    schedule, _ = road.check_equal(func, arguments(128, 128, 200), 1, knobs)
    assert schedule.channels[0].depth == depth
    assert schedule.dots_in_flight == int(depth > 1)


def test_not_persistent() -> None:
    func = road.tile(kernels.gemm(128, 64, 64, persistent=False))
    road.check_equal(func, arguments(256, 128, 200), 4, SPECIALIZED)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_small_m_splits_n(groups: int) -> None:
    func = road.tile(kernels.gemm(64, 192, 64))
    knobs = Knobs(num_consumer_groups=groups)
    schedule, _ = road.check_equal(func, arguments(64, 192, 130), 1, knobs)
    assert schedule.split.count == groups
    assert schedule.split.axis == (None if groups == 1 else "N")


@pytest.mark.parametrize("knobs", [SPECIALIZED, UNIFORM], ids=["specialized", "uniform"])
@pytest.mark.parametrize(
    ("by_a", "by_b", "via"),
    [
        (kernels.EIGHT, kernels.EIGHT, ("cp_async", "cp_async")),
        (kernels.ODD, kernels.ODD, ("registers", "registers")),
        (kernels.ALIGNED, kernels.EIGHT, ("tma", "cp_async")),
        (kernels.ODD, kernels.ALIGNED, ("registers", "tma")),
    ],
)
@pytest.mark.each(3)
def test_producers(knobs: Knobs, by_a: int, by_b: int, via: tuple[str, str]) -> None:
    a, b = View("a", "M", "K", "la", by_a), View("b", "K", "N", "lb", by_b)
    func = road.tile(kernels.gemm(128, 64, 64, a, b))
    args = arguments(150, 100, 200, (by_a % 16, by_b % 16))
    schedule, _ = road.check_equal(func, args, 1, knobs)
    assert schedule.channels[0].via == via


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_operand_orders(ta: bool, tb: bool) -> None:
    a = View("a", "M", "K", "la", transposed=ta)
    b = View("b", "K", "N", "lb", transposed=tb)
    func = road.tile(kernels.gemm(128, 96, 64, a, b))
    m, n, k = 144, 96, 160
    args = arguments(m, n, k)
    rng = np.random.default_rng(1)
    if ta:
        args[0], args[6] = road.integers(rng, (k, m), BF16), m
    if tb:
        args[1], args[7] = road.integers(rng, (n, k), BF16), k
    road.check_equal(func, args, 1, SPECIALIZED)


def test_fp8_and_f32_out() -> None:
    fp8 = ml_dtypes.float8_e4m3fn
    a = View("a", "M", "K", "la", dtype="f8e4m3")
    b = View("b", "K", "N", "lb", dtype="f8e4m3", transposed=True)
    c = View("c", "M", "N", "lc", dtype="f32")
    func = road.tile(kernels.gemm(128, 64, 64, a, b, c))
    args = arguments(128, 64, 144, dtype=fp8, out=np.float32)
    args[1], args[7] = road.integers(np.random.default_rng(2), (64, 144), fp8), 144
    road.check_equal(func, args, 1, SPECIALIZED)
