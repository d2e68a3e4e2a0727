"""How results of dots leave through shared memory: chunks and their buffers.  Every
form is bit-equal to the oracle at every level and in every order, and proved."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.e2e.gemms import Gemm
from tests.pairwise import every
from warploom.check import check
from warploom.errors import CompileError, WarploomWarning
from warploom.ir.core import Level, Region
from warploom.ir.ops import mbarrier
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16
WIDE = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_consumer_groups": 2}
FULL = {"BLOCK_N": 128, "num_buffers_warp_spec": 7}  # rings that leave no room for staging


@wl.jit
def one_tile(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·Bᵀ, a program a tile."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        acc = tl.dot(a.load([m, k]), b.load([n, k]).T, acc)
    c.store([m, n], acc.to(tl.bfloat16))


def arguments(m: int, n: int, k: int) -> list[Any]:
    rng = np.random.default_rng(m)
    a, b = (road.filled(rng.integers(-3, 4, s), BF16) for s in ((m, k), (n, k)))
    return [a, b, road.filled(np.full((m, n), np.nan), BF16), m, n, k]


@pytest.mark.parametrize(
    ("knobs", "via", "depth"),
    [
        ({}, "tma", 3),
        (FULL, "direct", 7),
        ({**FULL, "num_buffers_warp_spec": 6}, "tma", 6),
        ({**FULL, "store_buffers": 0}, "direct", 7),
        ({**FULL, "num_ctas": 2, "BLOCK_M": 256}, "direct", 7),
    ],
)
@pytest.mark.each(2)
def test_staging_takes_the_room_that_rings_leave(
    knobs: dict[str, Any], via: str, depth: int
) -> None:
    args = arguments(200, 520, 200)
    meta = {**WIDE, **knobs}
    grid = (-(-200 // meta["BLOCK_M"]), -(-520 // meta["BLOCK_N"]))
    kernel, expected = road.check_equal(one_tile, args, grid, meta, levels="num_ctas" not in knobs)
    np.testing.assert_array_equal(
        expected[2], (args[0].astype(float) @ args[1].astype(float).T).astype(BF16)
    )
    (store,) = kernel.schedule.stores
    assert store.via == via and kernel.schedule.channels[0].depth == depth
    assert kernel.check().ok


def persistent(**knobs: Any) -> CompiledKernel:
    case = Gemm(300, 520, 100, blocks=(128, 256, 64))
    args = case.args(*case.arrays(np.random.default_rng(0)))
    meta = {**case.meta, "num_consumer_groups": 2, "num_buffers_warp_spec": 2, **knobs}
    kernel, _ = road.check_equal(case.jit, args, 2, meta)
    return kernel


@pytest.mark.parametrize("buffers", [1, 2, 4])
def test_buffers_as_asked(buffers: int) -> None:
    (store,) = persistent(store_buffers=buffers).schedule.stores
    assert (store.via, store.buffers) == ("tma", buffers)


def test_no_staging() -> None:
    kernel = persistent(store_buffers=0)
    assert kernel.schedule.stores[0].via == "direct"
    assert any(r.because == "store_buffers=0" for r in kernel.schedule.reasons)


@pytest.mark.parametrize("task", [False, True])
@pytest.mark.each(2)
def test_a_tile_leaves_whole(task: bool) -> None:
    kernel = persistent(store_whole=True, store_task=task, num_buffers_warp_spec=3)
    (store,) = kernel.schedule.stores
    assert (store.chunk, store.buffers, store.by_task) == ((64, 256), 1, task)
    assert kernel.check().ok


def test_no_room_for_a_whole_tile() -> None:
    with pytest.warns(WarploomWarning, match="against store_whole, because .* 2 of its 4 chunks"):
        kernel = persistent(store_whole=True, num_buffers_warp_spec=4)
    assert kernel.schedule.stores[0].buffers == 2


def test_buffers_that_do_not_divide_the_chunks() -> None:
    with pytest.warns(WarploomWarning, match="2 buffers of staging instead of 3"):
        kernel = persistent(store_buffers=3)
    assert kernel.schedule.stores[0].buffers == 2
    with pytest.raises(CompileError, match="as many buffers as divide them"):
        persistent(store_buffers=3, strict=True)


# ---- a task of its own


@pytest.mark.parametrize(
    ("blocks", "knobs"),
    every(
        3,
        [
            ((128, 256, 64), {}),
            ((128, 256, 64), {"store_buffers": 1}),
            ((192, 64, 64), {"num_consumer_groups": 3, "store_buffers": 1}),
            ((64, 192, 64), {"num_consumer_groups": 1}),
            ((128, 128, 64), {"ping_pong": "tiles"}),
        ],
    ),
)
@pytest.mark.each(2)
def test_a_task_stores(blocks: tuple[int, int, int], knobs: dict[str, Any]) -> None:
    case = Gemm(300, 520, 100, blocks=blocks)
    args = case.args(*case.arrays(np.random.default_rng(0)))
    asked = {"num_consumer_groups": 2, "num_buffers_warp_spec": 2, "store_task": True, **knobs}
    kernel, _ = road.check_equal(case.jit, args, 2, {**case.meta, **asked}, levels=True)
    assert all(s.by_task for s in kernel.schedule.stores)
    groups = asked["num_consumer_groups"]
    assert sum(t.role == "store" for t in kernel.schedule.tasks) == groups
    assert bool(kernel.schedule.ping_pong_loop) == ("ping_pong" in knobs)
    report = kernel.check()
    assert report.ok and not report.explored, str(report)
    assert "issued by a task of its own" in kernel.explain()
    if groups == 2:  # the consumer has all the registers that the others leave
        assert [t.registers for t in kernel.schedule.tasks][:2] == [240, 24]


def test_a_buffer_is_waited_for() -> None:
    """Without the wait for its buffer a group writes over what is still being stored."""
    case = Gemm(300, 520, 100, blocks=(64, 64, 64), programs=1)
    args = case.args(*case.arrays(np.random.default_rng(0)))
    meta = {**case.meta, "num_consumer_groups": 1, "store_task": True}
    placed = road.compile_for(case.jit, args, 1, meta).lowered.at(Level.PLACED)
    free = next(o.result for o in placed.body.ops if o.attrs.get("name") == "out_free")

    def region(r: Region) -> Region:
        ops = (o for o in r.ops if not (o.kind is mbarrier.mbarrier_wait and o.operands[0] is free))
        return Region(r.params, tuple(o.with_(regions=tuple(map(region, o.regions))) for o in ops))

    assert not check(placed.with_(body=region(placed.body)), [(args, (1,))]).ok


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"num_consumer_groups": 0}, "the kernel is uniform"),
        ({"store_buffers": 0}, "no loop over tiles|no store goes through TMA"),
        ({"pads": (4, 4, 4)}, "are not free"),
    ],
)
def test_no_task_to_store(knobs: dict[str, Any], why: str) -> None:
    pads = knobs.get("pads", (0, 0, 0))
    case = Gemm(300, 520, 100, blocks=(128, 128, 64), pads=pads)
    args = case.args(*case.arrays(np.random.default_rng(0)))
    asked = {k: v for k, v in knobs.items() if k != "pads"}
    meta = {**case.meta, "num_consumer_groups": 2, "store_task": True, **asked}
    with pytest.warns(WarploomWarning, match=why):
        kernel = road.compile_for(case.jit, args, 2, meta)
    assert not any(s.by_task for s in kernel.schedule.stores)


@wl.jit
def tasked(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·Bᵀ, persistent over rows of tiles; the source says which task does what."""
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BLOCK_N, BLOCK_K])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    for t in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.num_programs(0)):
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            with tl.async_task([0]):
                x = a.load([t * BLOCK_M, k])
                y = b.load([0, k])
            with tl.async_task([1, 2]):
                acc = tl.dot(x, y.T, acc)
        with tl.async_task([3]):
            c.store([t * BLOCK_M, 0], acc.to(tl.bfloat16))


def test_the_source_asks_for_the_task() -> None:
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    args = arguments(700, 128, 200)
    kernel, _ = road.check_equal(tasked, args, 2, {**blocks, "strict": True}, levels=True)
    assert kernel.schedule.stores[0].by_task and kernel.check().ok
    assert any(r.because == "tl.async_task([3])" for r in kernel.schedule.reasons)
    with pytest.warns(WarploomWarning, match="run by the consumers"):
        kernel = road.compile_for(tasked, args, 2, {**blocks, "store_task": False})
    assert not kernel.schedule.stores[0].by_task
