"""Budgets of registers, and the estimate of what tiles take."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.kernels import gated
from tests.passes import kernels
from warploom.analysis.liveness import Peak, peak
from warploom.analysis.structure import structure_of
from warploom.compile import lower
from warploom.errors import CompileError
from warploom.ir.core import Func, Value
from warploom.ir.ops import tile
from warploom.ir.parser import parse_func
from warploom.ir.types import dtype_of, shape_of
from warploom.schedule.heuristic import choose
from warploom.schedule.model import Knobs, Schedule, SplitPlan, TaskPlan
from warploom.schedule.resources import (
    WORK,
    Headroom,
    budgets,
    check_registers,
)
from warploom.target import SM_90A

LOW, HIGH, UNIT = SM_90A.registers.reallocation


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("groups", range(1, 8))
@pytest.mark.parametrize("need", [0, 96, 128, 160, 200, 232, 255])
@pytest.mark.each(3)
def test_budgets_are_legal_and_enough(work: str, groups: int, need: int) -> None:
    """What is launched with is what is handed out: setmaxnreg.inc neither waits for ever nor wastes."""
    entry = SM_90A.entry_registers((groups + 1) * SM_90A.group_threads)
    for headroom in (None, Headroom(producer=32)):
        found = budgets(groups, work, SM_90A, need, headroom)
        if found is None:
            assert need > entry
            continue
        low, high = found
        assert low + groups * high == (groups + 1) * entry and high >= need
        if high == entry:
            continue
        assert low < entry < high <= HIGH and low >= LOW
        assert low % UNIT == high % UNIT == 0
        plans = (
            TaskPlan("consumer", "consumer", 4, groups, high),
            TaskPlan("producer", "producer", 4, 1, low),
        )
        check_registers(plans, SM_90A, None)


def test_budgets_that_were_measured() -> None:
    assert [budgets(2, w, SM_90A) for w in WORK] == [(40, 232), (72, 216), (152, 176), (152, 176)]
    assert [budgets(3, w, SM_90A) for w in WORK[:2]] == [(32, 160), (80, 144)]
    assert budgets(2, "copies", SM_90A, 224) == (56, 224)  # consumers that need it get more
    assert budgets(2, "copies", SM_90A, 232) is None
    assert budgets(2, "issues", SM_90A, lean=True) == (24, 240)
    assert budgets(1, "issues", SM_90A) == (248, 248)  # as launched: all that a thread can have


def tile_func(text: str) -> Func:
    return lower(parse_func(text, "test"), Knobs(), SM_90A).tile


def peak_of(func: Func) -> Peak:
    """On one warp group, with all that feeds dots in rings."""
    s = structure_of(func)
    items = frozenset(o.result for o in s.ops if o.kind in (tile.load, tile.load_box))

    def registers(v: Value) -> int:
        return -(-prod(shape_of(v.type)) * dtype_of(v.type).bits // (32 * SM_90A.group_threads))

    return peak(s, lambda o: True, items, registers)


def test_one_accumulator_counts_once() -> None:
    """Init, carried tile, result, and what is stored of it are the same registers."""
    assert peak_of(tile_func(kernels.gemm(128, 128, 64))).registers == 128


def test_accumulators_that_live_together_add_up() -> None:
    signature = ["*bf16:16"] * 4 + ["i32:16"] * 6
    tiles = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}
    found = peak_of(gated.compile(signature, tiles, num_consumer_groups=0).lowered.tile)
    assert found.registers == 2 * 64 and len(found.values) == 2


def test_operands_in_registers_and_carried_rows_count() -> None:
    """Attention, 128 x 64: the sum (64), and either the scores (64) or what they become as operand (32)."""
    found = peak_of(tile_func(kernels.attention()))
    assert 128 <= found.registers <= 170


@wl.jit
def weighed(q_ptr: Any, k_ptr: Any, o_ptr: Any, s_ptr: Any, n: Any) -> None:
    at = tl.arange(0, 128)[:, None] * 64 + tl.arange(0, 64)[None, :]
    of = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :]
    q = tl.load(q_ptr + at)
    o, s = tl.zeros((128, 64), tl.float32), tl.zeros((128,), tl.float32)
    for i in range(0, n, 64):
        k = tl.load(k_ptr + i * 64 + of)
        p = tl.exp2(tl.dot(q, k.T))
        o = tl.dot(p.to(tl.bfloat16), k, o)
        s += tl.sum(p, 1)
    tl.store(o_ptr + at, o)
    tl.store(s_ptr + tl.arange(0, 128), s)


def test_weights_that_a_product_and_a_sum_read_count_once() -> None:
    """The sum below the product is taken as soon as there are weights: they are gone when it begins."""
    made = weighed.compile(["*bf16:16", "*bf16:16", "*fp32:16", "*fp32:16", "i32:16"], {})
    found = peak_of(made.lowered.tile)
    assert found.registers == 64 + 64 + 1 + 16  # sum, products, sums of rows; k, as it is turned


def test_a_tile_that_registers_cannot_hold_is_refused_in_figures() -> None:
    with pytest.raises(CompileError) as caught:
        func = tile_func(kernels.gemm(128, 256, 64))
        choose(func, Knobs(num_consumer_groups=1), SM_90A, Headroom(consumer=200))
    assert caught.value.code == "registers" and caught.value.help
    assert f"{SM_90A.registers.reserve + 200} are for the rest" in caught.value.message


def test_what_no_tasks_can_have_is_uniform_where_nobody_asked() -> None:
    func, few = tile_func(kernels.gemm(64, 128, 64)), SM_90A.limited(24)
    found = choose(func, Knobs(), few)
    assert not found.specialized
    assert "warp groups are launched with 24" in found.reasons[0].because
    with pytest.raises(CompileError, match="launched with 24"):
        choose(func, Knobs(num_consumer_groups=1), few)


@pytest.mark.parametrize("text", ["[]", "{}", '{"overlaps": []}', "no json"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    saved = Schedule("", True, (), {}, SplitPlan(None, 1), (), (), 1).to_json()
    with pytest.raises(ValueError):
        Schedule.from_json(text)
    with pytest.raises(ValueError, match="no schedule"):
        Schedule.from_json(saved.replace('"pipelines"', '"overlaps"'))
