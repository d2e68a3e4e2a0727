"""Kernels that are no GEMM go the same road: the chooser is an analysis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.pairwise import diagonals
from tests.passes import kernels, road
from warploom.ir.core import walk
from warploom.ir.ops import mbarrier, mma
from warploom.schedule.model import ChannelPlan, Knobs, Schedule, TaskPlan

BF16 = ml_dtypes.bfloat16
KNOBS = {
    "two-groups": Knobs(num_consumer_groups=2, num_buffers_warp_spec=3),
    "depth-1": Knobs(num_consumer_groups=2, num_buffers_warp_spec=1),
    "one-group": Knobs(num_consumer_groups=1),
    "uniform": Knobs(num_consumer_groups=0, num_warps=8, num_stages=3),
    "uniform-depth-1": Knobs(num_consumer_groups=0, num_warps=4, num_stages=1),
}


def matrices(m: int, k: int, more: int) -> list[Any]:
    """a (m, k), b (k, 64), `more` matrices like b, c (m, 64) f32, then M, N, K, la, lb, lc."""
    rng = np.random.default_rng(k)
    la = max(16, -(-k // 16) * 16)
    a = road.integers(rng, (m, la), BF16)
    rights = [road.integers(rng, (max(k, 1), 64), BF16) for _ in range(1 + more)]
    c = np.full((m, 64), 7, np.float32)
    return [a, *rights, c, m, 64, k, la, 64, 64]


@pytest.mark.parametrize(("name", "k"), diagonals(2, [*KNOBS], [0, 64, 192, 300]))
@pytest.mark.each(2)
def test_two_dots_that_share_a(name: str, k: int) -> None:
    func = road.tile(kernels.TWO_DOTS)
    schedule, _ = road.check_equal(func, matrices(256, k, 1), 2, KNOBS[name])
    (ring,) = schedule.channels
    assert len(ring.items) == 3 and schedule.fused_dots == (("loop0/dot0", "loop0/dot1"),)


@pytest.mark.parametrize(
    ("name", "k", "where"), diagonals(3, [*KNOBS], [0, 64, 128, 320], ["outside", "inside"])
)
@pytest.mark.each(2)
def test_a_dot_under_an_if(name: str, k: int, where: str) -> None:
    func = road.tile(kernels.guarded(where == "inside"))
    road.check_equal(func, matrices(128, k, 0), 2, KNOBS[name])


@pytest.mark.parametrize(("name", "k"), diagonals(2, [*KNOBS], [0, 64, 192, 300]))
@pytest.mark.each(2)
def test_a_load_that_a_dot_and_elementwise_code_use(name: str, k: int) -> None:
    func = road.tile(kernels.ROW_SUMS)
    road.check_equal(func, matrices(256, k, 0), 2, KNOBS[name])


def two_consumers(schedule: Schedule) -> Schedule:
    """A user's schedule of `gated`: each dot in a consumer task of its own would leave the product of
    both to cross; here both tasks hold everything, and each stores its part."""
    consumer, producer = schedule.tasks
    other = TaskPlan("second", "consumer", 4, 1, consumer.registers)
    assign = {
        k: (*v, "second") if "consumer" in v and not k.startswith("store_box1") else v
        for k, v in schedule.assign.items()
    }
    assign |= {k: ("second",) for k in assign if k.startswith("store_box1")}
    channels: tuple[ChannelPlan, ...] = tuple(
        replace(c, consumers=("consumer", "second")) for c in schedule.channels
    )
    assign |= {k: ("consumer",) for k in assign if k.startswith("store_box0")}
    return replace(schedule, tasks=(consumer, other, producer), assign=assign, channels=channels)


@pytest.mark.parametrize("k", [0, 64, 300])
def test_a_load_that_two_tasks_use(k: int) -> None:
    text = kernels.TWO_DOTS.replace(
        "  store_box(%c_view, %out, %row, %c0)\n",
        "  store_box(%c_view, %s, %row, %c0)\n  store_box(%c_view, %r, %row, %c64)\n",
    )
    args = matrices(128, k, 1)
    args[3] = np.full((128, 128), 7, np.float32)
    args[5], args[9] = 128, 128
    args[1], args[2] = (np.hstack([x, x]) for x in args[1:3])
    args[8] = 128
    func = road.tile(text)
    knobs = Knobs(num_consumer_groups=1, num_buffers_warp_spec=2)
    _, steps = road.check_equal(func, args, 1, knobs, two_consumers)
    counts = [
        o.attrs["count"]
        for o in walk(steps[-1][1].body)
        if o.kind is mbarrier.mbarrier_alloc and o.attrs["name"].startswith("empty")
    ]
    assert counts == [8]  # two tasks of four warps release each slot


@pytest.mark.parametrize("outer", ["for", "while"])
@pytest.mark.parametrize("knobs", KNOBS.values(), ids=KNOBS)
@pytest.mark.each(3)
def test_two_dots_in_a_row(knobs: Knobs, outer: str) -> None:
    """One result feeds the next dot from registers; q's ring turns in the outer loop."""
    func = road.tile(kernels.attention(outer))
    rng = np.random.default_rng(3)
    q, v = (road.integers(rng, (n, 64), BF16) for n in (300, 200))
    k = road.integers(rng, (200, 64), BF16)
    c = np.full((300, 64), 7, np.float32)
    schedule, _ = road.check_equal(func, [q, k, v, c, 300, 200, 64, 64], 2, knobs)
    assert len(schedule.channels) == 3


@pytest.mark.parametrize("knobs", KNOBS.values(), ids=KNOBS)
def test_operands_computed_in_registers(knobs: Knobs) -> None:
    func = road.tile(kernels.SCALED)
    args = matrices(256, 200, 0)
    args[1] = np.random.default_rng(4).integers(-4, 5, (200, 64)).astype(np.int8)
    road.check_equal(func, args, 2, knobs)


@pytest.mark.parametrize("knobs", KNOBS.values(), ids=KNOBS)
def test_gathered_rows_and_atomics(knobs: Knobs) -> None:
    func = road.tile(kernels.GATHERED)
    rng = np.random.default_rng(5)
    a, b = road.integers(rng, (200, 150), BF16), road.integers(rng, (150, 64), BF16)
    rows = rng.permutation(200)[:128].astype(np.int32)
    c = np.full((128, 64), 7, np.float32)
    schedule, _ = road.check_equal(func, [a, rows, b, c, 150], 1, knobs)
    assert schedule.channels[0].via == ("registers", "registers")


def waits(steps: list[tuple[str, Any]]) -> list[int]:
    return [o.attrs["pending"] for o in walk(steps[-1][1].body) if o.kind is mma.wgmma_wait]


def apart(schedule: Schedule) -> Schedule:
    """No dots are fused."""
    return replace(schedule, fused_dots=())


def test_what_stays_in_flight() -> None:
    """Late release where a dot's result is only carried; drained in the iteration that needs it, under
    an `if`, and where the ring has one slot."""
    two = Knobs(num_consumer_groups=2, num_buffers_warp_spec=2)
    one = Knobs(num_consumer_groups=2, num_buffers_warp_spec=1)
    assert waits(road.lower(road.tile(kernels.TWO_DOTS), two)[1]) == [1, 0]  # they are one
    assert waits(road.lower(road.tile(kernels.TWO_DOTS), two, apart)[1]) == [2, 0]
    assert waits(road.lower(road.tile(kernels.TWO_DOTS), one, apart)[1]) == [0, 0]
    flat = Knobs(num_consumer_groups=2, num_buffers_warp_spec=2, consumer_stages=1)
    assert waits(road.lower(road.tile(kernels.attention()), flat)[1]) == [0, 0]
    # Scores of the first block; of the next, then the product of the one before; the last product.
    assert waits(road.lower(road.tile(kernels.attention()), two)[1]) == [0, 1, 0, 0]
    assert waits(road.lower(road.tile(kernels.guarded(False)), two)[1]) == [0]
    assert waits(road.lower(road.tile(kernels.SCALED), two)[1]) == [0]


def test_an_accumulator_that_does_not_start_at_zero() -> None:
    text = kernels.TWO_DOTS.replace("%zeros, %zeros)", "%threes, %zeros)").replace(
        "  %s, %r = for",
        "  %three = const() {value=3.0, dtype=f32} : f32\n"
        "  %threes = splat(%three) {shape=(128, 64)} : tile<128x64xf32>\n  %s, %r = for",
    )
    for k in (0, 64, 200):
        road.check_equal(road.tile(text), matrices(128, k, 1), 1, KNOBS["two-groups"])


def test_fp8_partial_sums() -> None:
    fp8 = ml_dtypes.float8_e4m3fn
    a = kernels.View("a", "M", "K", "la", dtype="f8e4m3")
    b = kernels.View("b", "K", "N", "lb", dtype="f8e4m3", transposed=True)
    c = kernels.View("c", "M", "N", "lc", dtype="f32")
    text = kernels.gemm(128, 64, 256, a, b, c, persistent=False)
    text = text.replace("dot(%x, %y, %acc)", "dot(%x, %y, %acc) {max_imprecise=128}")
    rng = np.random.default_rng(9)
    left, right = road.integers(rng, (128, 512), fp8), road.integers(rng, (64, 512), fp8)
    args = [left, right, np.full((128, 64), 7, np.float32), 128, 64, 500, 512, 512, 64]
    _, steps = road.check_equal(road.tile(text), args, 1, KNOBS["two-groups"])
    shapes = [o.operands[0].type for o in walk(steps[-1][1].body) if o.kind is mma.wgmma]
    assert [t.shape for t in shapes] == [(64, 128), (64, 128)]  # type: ignore[attr-defined]
