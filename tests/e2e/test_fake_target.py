"""A chip that there is not, through the whole pipeline into the simulator and the checker.

Its warps have 64 threads and two of them multiply together, its matrix unit takes at most 64 columns, a CTA has
100 KiB of shared memory, nothing copies beside the threads, warps keep their registers, and there are neither
mbarriers nor named barriers: signals between tasks are counters in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.orders import default_orders
from warploom import target as targets
from warploom.check import check
from warploom.codegen.emit import emit
from warploom.compile import Lowered
from warploom.errors import CompileError, InternalError
from warploom.explain import explain
from warploom.ir.core import Op, walk
from warploom.ir.ops import mbarrier, mma, regs, smem, tma
from warploom.ir.ops.task import phases
from warploom.ir.verify import verify
from warploom.kernels.gemm import gemm_pointers
from warploom.sim.machine import simulate
from warploom.sim.oracle import run
from warploom.target import SM_90A, SharedMemory, Sync, Target
from warploom.target.sm_90a import WGMMA
from warploom.tilus import float32, int32

FAKE = Target(
    name="fake",
    chips=("none",),
    capabilities=(),
    multiprocessors=100,
    warp_size=64,
    warp_group=2,
    registers=replace(SM_90A.registers, per_sm=131_072, per_thread=512, unit=4, reallocation=None),
    shared=SharedMemory(per_cta=100 * 1024, per_sm=100 * 1024, reserved=0, stores_matrices=False),
    grid=replace(SM_90A.grid, warps=16),
    matrix_units=(replace(WGMMA, n_max=64),),
    copy_engines=(),
    sync=Sync("counter", barrier_bytes=4, named_barriers=0, cluster_ctas=1, async_proxy=True),
    cost=SM_90A.cost,
    emits=None,
)
ABSENT = (
    *(tma.tma_load, tma.tma_store, smem.cp_async, mbarrier.mbarrier_expect),
    *(mbarrier.cp_async_arrive, smem.named_barrier, regs.setmaxnreg),
)


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(targets.TARGETS, FAKE.name, FAKE)
    yield


@wl.jit
def attend(q, k, v, o, steps, D: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of q against all rows of k and v, without a softmax: two dots an iteration, one needing the other."""
    rows, cols, keys = tl.arange(0, 64), tl.arange(0, D), tl.arange(0, BLOCK)
    left = tl.load(q + rows[:, None] * D + cols[None, :])
    acc = tl.zeros((64, D), tl.float32)
    for i in tl.range(0, steps):
        at = i * BLOCK + keys
        s = tl.dot(left, tl.trans(tl.load(k + at[:, None] * D + cols[None, :])))
        acc += tl.dot(s.to(tl.float16), tl.load(v + at[:, None] * D + cols[None, :]))
    tl.store(o + rows[:, None] * D + cols[None, :], acc)


def lowered(kernel: Any, signature: list[str], constexprs: dict[str, Any], **knobs: Any) -> Lowered:
    """The kernel for the fake chip, down to PLACED."""
    found: Lowered = kernel.requested(
        signature, constexprs, FAKE.name, {"num_warps": 2, **knobs}
    ).lower()
    return found


def small(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-2, 3, shape).astype(np.float16)


GEMM = ["*fp16:16"] * 3 + ["i32:16"] * 3 + ["i32:16", "i32=1", "i32=1", "i32:16", "i32:16", "i32=1"]


def gemm(block_n: int, **knobs: Any) -> tuple[Lowered, list[Any], tuple[int, int, int]]:
    m, n, k = 256, 2 * block_n, 128
    rng = np.random.default_rng(0)
    a, b, c = small(rng, m, k), small(rng, n, k), np.zeros((m, n), np.float16)
    tile = {"BLOCK_M": 128, "BLOCK_N": block_n, "BLOCK_K": 32, "GROUP_M": 2}
    strides = [k, 1, 1, k, n, 1]
    found = lowered(gemm_pointers, GEMM, tile, **knobs)
    return found, [a, b, c, m, n, k, *strides], (4, 1, 1)


def simulated_is_written(found: Lowered, args: list[Any], grid: tuple[int, int, int]) -> None:
    """In each order of events PLACED computes, bit for bit, what was written."""
    expected = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    run(found.written, expected, grid)
    assert any(np.any(x) for x in expected if isinstance(x, np.ndarray))
    for order in default_orders(("late", "early", "seeded")):
        copies = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
        simulate(found.placed, copies, grid, order=order, seed=3)
        road.same(expected, copies, order)


def ops(found: Lowered) -> list[Op]:
    return list(walk(found.placed.body))


FORMS: dict[str, dict[str, Any]] = {
    "two-groups": {"num_consumer_groups": 2, "num_buffers_warp_spec": 2},
    "one-group": {"num_consumer_groups": 1, "num_buffers_warp_spec": 3},
    "uniform": {"num_consumer_groups": 0, "num_stages": 2},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_product_runs_on_it(form: str) -> None:
    found, args, grid = gemm(64, **FORMS[form])
    assert found.schedule.specialized == (form != "uniform")
    assert found.placed.target is FAKE
    kinds = {o.kind for o in ops(found)}
    assert mma.wgmma in kinds and not kinds & set(ABSENT)
    simulated_is_written(found, args, grid)


def test_the_protocol_of_its_rings_is_proved() -> None:
    found, _, _ = gemm(64, **FORMS["two-groups"])
    report = check(found.placed)
    assert report.ok, str(report)


def test_dots_in_a_row_run_on_it() -> None:
    signature = ["*fp16:16"] * 3 + ["*fp32:16", "i32"]
    found = lowered(attend, signature, {"D": 64, "BLOCK": 64}, num_consumer_groups=1)
    rng = np.random.default_rng(1)
    q, k, v = small(rng, 64, 64), small(rng, 256, 64), small(rng, 256, 64)
    simulated_is_written(found, [q, k, v, np.zeros((64, 64), np.float32), 4], (1, 1, 1))


def test_warps_are_its_own() -> None:
    """128 threads multiply: two warps of it, and those of a CTA are twice as many threads."""
    found, _, _ = gemm(64, **FORMS["two-groups"])
    tasks = phases(found.placed)[-1].attrs
    assert tasks["names"][:2] == ("consumer", "producer")
    assert tasks["warps"] == (2, 2) and tasks["replicas"] == (2, 1)
    assert tasks["registers"] == (None, None)  # nothing reallocates
    assert found.placed.attrs["threads"] == 3 * FAKE.group_threads


def test_barriers_are_words_of_shared_memory() -> None:
    found, _, _ = gemm(64, **FORMS["two-groups"])
    at = [
        (o.attrs["offset"], 4 * o.attrs["n"])
        for o in ops(found)
        if o.kind is mbarrier.mbarrier_alloc
    ]
    at.sort()
    assert len(at) == 2 and at[0][0] + at[0][1] == at[1][0]


def test_wide_dots_are_split_or_refused_by_its_columns() -> None:
    found, args, grid = gemm(128, num_consumer_groups=2, num_buffers_warp_spec=2)
    assert found.schedule.split.axis == "N" and found.schedule.split.count == 2
    simulated_is_written(found, args, grid)
    with pytest.raises(
        CompileError, match=r"dot of 512 columns: wgmma takes multiples of 8 up to 64"
    ):
        gemm(512, num_consumer_groups=1)


def test_rings_fit_its_memory() -> None:
    found, _, _ = gemm(64, num_consumer_groups=2)
    assert found.placed.attrs["shared_bytes"] <= 100 * 1024
    with pytest.raises(CompileError, match="shared memory"):
        gemm(64, num_consumer_groups=2, num_buffers_warp_spec=20, strict=True)


def test_what_it_lacks_is_refused() -> None:
    for knobs in ({"ping_pong": "tiles"}, {"reg_inc_consumer": 240}):
        with pytest.raises(CompileError, match=r"named barriers|keep those that"):
            gemm(64, num_consumer_groups=2, strict=True, **knobs)
    found, _, _ = gemm(64, **FORMS["two-groups"])
    with pytest.raises(CompileError, match="no code is emitted"):
        emit(found.placed, FAKE)


class Handed(wl.Script):
    """y ← 2 x in tiles that one group hands to another through a ring of two slots."""

    def __init__(self, expects: bool = False) -> None:
        super().__init__()
        self.expects = expects

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n, 32])
        slots = self.shared_tensor(dtype=float32, shape=[2, 32, 32])
        full, empty = self.mbarrier.alloc([128, 128]), self.mbarrier.alloc([128, 128])
        with self.warp_group(0, 2):
            slot: int32 = 0
            phase: int32 = 0
            for i in range(n // 32):
                self.mbarrier.wait(empty[slot], phase ^ 1)
                self.store_shared(
                    slots[slot], self.load_global(g_x, offsets=[i * 32, 0], shape=[32, 32])
                )
                if self.expects:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full[slot], 128)
                self.mbarrier.arrive(full[slot])
                slot, phase = self.ring_next(slot, phase, 2)
        with self.thread_group(128, 128):
            slot: int32 = 0
            phase: int32 = 0
            for i in range(n // 32):
                self.mbarrier.wait(full[slot], phase)
                tile = self.load_shared(slots[slot])
                self.mbarrier.arrive(empty[slot])
                self.store_global(g_y, tile + tile, offsets=[i * 32, 0])
                slot, phase = self.ring_next(slot, phase, 2)


def script(kernel: Any, *args: Any) -> Lowered:
    found: Lowered = kernel._lowered(kernel._request(kernel.bind(args, {}), FAKE.name))
    return found


def test_an_explicit_kernel_runs_on_it() -> None:
    x, y = np.arange(160 * 32, dtype=np.float32).reshape(160, 32), np.zeros((160, 32), np.float32)
    found = script(Handed(), 160, x, y)
    assert phases(found.placed)[-1].attrs["warps"] == (2, 2)
    for order in default_orders(("late", "early", "seeded")):
        y[...] = 0
        simulate(found.placed, [160, x, y], (1, 1, 1), order=order, seed=2)
        np.testing.assert_array_equal(y, 2 * x)
    report = check(found.placed)
    assert report.ok, str(report)


def test_what_a_script_asks_of_it_in_vain() -> None:
    x = np.zeros((64, 32), np.float32)
    with pytest.raises(CompileError, match="fake has no barriers that engines complete") as caught:
        script(Handed(expects=True), 64, x, x.copy())
    assert caught.value.loc is not None and caught.value.loc.file == __file__
    assert "sm_90a" in (caught.value.help or "")


def test_a_program_for_another_chip_breaks_its_rules() -> None:
    request = gemm_pointers.requested(
        GEMM, {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2}, SM_90A.name, {}
    )
    placed = request.lower().placed
    verify(placed)
    with pytest.raises(InternalError, match="fake has no engine that moves boxes"):
        verify(placed, FAKE)


def test_it_is_explained_by_its_own_figures() -> None:
    found, _, _ = gemm(64, **FORMS["two-groups"])
    text = str(explain(found.source, found.schedule, found.placed))
    assert "for fake, specialized" in text and "2 × 2 warps" in text
    assert "× wgmma m64n64k16 a group and step" in text and "of 102,400 bytes" in text
