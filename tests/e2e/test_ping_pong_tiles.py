"""ping_pong="tiles": consumer groups take the tiles of a persistent loop in turn.  Equal to the oracle at
every level and in every order; proved; refused, with the reason, where iterations depend on each other."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.e2e.gemms import PING_PONG, Gemm
from tests.pairwise import diagonals
from warploom.check import check
from warploom.errors import CompileError, WarploomWarning
from warploom.ir.core import Func, Level, Op, Region, walk
from warploom.ir.ops import smem
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@wl.jit
def tiles(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, s_ptr: Any, M: Any, N: Any, K: Any, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WAY: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B, persistent, as WAY says: "ragged", tiles differ in how much of K they add up; "scaled", times
    a matrix that the producer brings for each tile; "once", B is loaded before all tiles; the others, what
    makes tiles depend on each other."""
    n = tl.arange(0, BLOCK_N)[None, :]
    whole = tl.load(b_ptr + tl.arange(0, BLOCK_K)[:, None] * N + n)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for t in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.num_programs(0)):
        m = t * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        end = tl.minimum(K, t % 4 * BLOCK_K) if WAY == "ragged" else K
        if WAY == "told":
            end = tl.minimum(K, tl.atomic_add(s_ptr, 0.0).to(tl.int32))
        for k in tl.range(0, end, BLOCK_K):
            ka = k + tl.arange(0, BLOCK_K)[None, :]
            kb = k + tl.arange(0, BLOCK_K)[:, None]
            a = tl.load(a_ptr + m * K + ka, mask=(m < M) & (ka < K), other=0.0)
            if WAY == "once":
                acc = tl.dot(a, whole, acc)
            else:
                acc = tl.dot(a, tl.load(b_ptr + kb * N + n, mask=kb < K, other=0.0), acc)
        if WAY == "scaled":
            with tl.async_task([0]):
                s = tl.load(s_ptr + m * N + n, mask=m < M, other=0.0)
            acc = acc * s.to(tl.float32)
        if WAY == "carried":
            total += acc
            acc = total
        if WAY == "counted":
            tl.atomic_xchg(s_ptr, t.to(tl.float32))
        row = tl.arange(0, BLOCK_M)[:, None] if WAY == "same" else m
        tl.store(c_ptr + row * N + n, acc, mask=row < M)
    if WAY == "after":
        tl.store(s_ptr + n, n.to(tl.float32))


def arguments(m: int, k: int, n: int = 64) -> list[Any]:
    rng = np.random.default_rng(m)
    a, b = (road.filled(rng.integers(-3, 4, s), BF16) for s in ((m, k), (k, n)))
    s = road.filled(rng.integers(-2, 3, (m, n)), np.float32)
    return [a, b, road.filled(np.full((m, n), np.nan), np.float32), s, m, n, k]


def meta(way: str, **knobs: Any) -> dict[str, Any]:
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    return {**blocks, "WAY": way, **PING_PONG, **knobs}


@pytest.mark.parametrize(
    ("case", "groups"),
    diagonals(
        2,
        [("", 700, 80, 2), ("ragged", 900, 120, 1), ("scaled", 520, 40, 1), ("once", 450, 32, 2)],
        [2, 3],
    ),
    ids=str,
)
@pytest.mark.each(3)
def test_every_level_and_order(case: tuple[str, int, int, int], groups: int) -> None:
    way, m, k, programs = case
    args = arguments(m, k)
    knobs = meta(way, num_consumer_groups=groups)
    kernel, expected = road.check_equal(tiles, args, programs, knobs, levels=True)
    assert kernel.schedule.ping_pong_loop == "loop0" and kernel.schedule.tasks[0].replicas == groups
    right = args[0].astype(float) @ args[1].astype(float)
    if way == "scaled":
        right *= args[3]
    if way != "ragged":
        np.testing.assert_array_equal(expected[2], right)


@pytest.mark.parametrize("way", ["", "ragged", "scaled"])
@pytest.mark.each(2)
def test_it_is_proved(way: str) -> None:
    args = arguments(300, 72)
    kernel = road.compile_for(tiles, args, 2, meta(way))
    report = kernel.check()
    assert report.ok and not report.explored, str(report)


def without(func: Func, dropped: Any) -> Func:
    """The function without the ops that `dropped` picks."""

    def region(r: Region) -> Region:
        ops = (o for o in r.ops if not dropped(o))
        return Region(r.params, tuple(o.with_(regions=tuple(map(region, o.regions))) for o in ops))

    return func.with_(body=region(func.body))


def test_the_turn_is_needed() -> None:
    """A parity wait tells only neighbouring phases apart: without turns a group may take the slots of a round
    that has not come yet for full."""
    case = Gemm(128, 256, 96, blocks=(64, 64, 32), programs=1)
    args = case.args(*case.arrays(np.random.default_rng(0)))
    kernel = road.compile_for(case.jit, args, 1, {**case.meta, **PING_PONG})
    placed = kernel.lowered.at(Level.PLACED)
    turns = [o for o in walk(placed.body) if o.kind is smem.named_barrier]
    assert turns and check(placed, [(args, (1,))]).ok

    def is_turn(o: Op) -> bool:
        return o.kind is smem.named_barrier

    assert not check(without(placed, is_turn), [(args, (1,))]).ok


def refused(way: str, **knobs: Any) -> CompiledKernel:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = road.compile_for(tiles, arguments(700, 80), 2, meta(way, **knobs))
    assert any(issubclass(w.category, WarploomWarning) for w in caught)
    return kernel


@pytest.mark.parametrize(
    ("way", "knobs", "why"),
    [
        ("carried", {}, "total is handed from iteration to iteration"),
        ("counted", {}, "has an order"),
        ("same", {}, "may write a place twice"),
        ("told", {}, "would have to be told the number"),
        ("after", {}, "stands outside the loop"),
        ("", {"num_consumer_groups": 1}, "there is one group"),
        ("", {"num_consumer_groups": 0}, "the kernel is uniform"),
    ],
)
def test_refused(way: str, knobs: dict[str, Any], why: str) -> None:
    kernel = refused(way, **knobs)
    (reason,) = (r for r in kernel.schedule.reasons if "against ping_pong" in r.decision)
    assert why in reason.because and not kernel.schedule.ping_pong_loop
    with pytest.raises(CompileError) as e:
        road.compile_for(tiles, arguments(700, 80), 2, meta(way, strict=True, **knobs))
    assert e.value.code == "not-as-asked"


def test_a_tile_that_a_group_cannot_hold() -> None:
    case = Gemm(300, 300, 64, blocks=(128, 256, 32))
    args = case.args(*case.arrays(np.random.default_rng(0)))
    with pytest.warns(WarploomWarning, match="256 registers a thread"):
        kernel = road.compile_for(case.jit, args, 2, {**case.meta, **PING_PONG})
    assert not kernel.schedule.ping_pong_loop and kernel.schedule.split.count == 2


def test_explained() -> None:
    kernel = road.compile_for(tiles, arguments(700, 80), 2, meta(""))
    said = kernel.explain()
    assert "2 groups take its iterations in turn" in said and "2 × 4 warps" in said
