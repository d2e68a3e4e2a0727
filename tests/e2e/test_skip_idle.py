"""Groups that leave a loop early (analysis/idle_iterations.py, analysis/mask_ranges.py, passes/warp/skip_idle.py): when, and how."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from warploom.errors import CompileError
from warploom.kernels.attention import attention_forward, grid_of
from warploom.schedule.model import IdlePlan, Schedule

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


def attention(seq: int, causal: bool, **knobs: Any) -> tuple[Any, list[Any], Any]:
    """The library's kernel, three groups of 64 rows: (compiled, arguments, grid)."""
    rng = np.random.default_rng(0)
    q, k, v = (
        road.filled(rng.standard_normal((1, seq, 64)).astype(np.float32), BF16) for _ in range(3)
    )
    counter = road.filled(np.zeros(2), np.int32)
    args = [q, k, v, road.array((1, seq, 64), BF16), road.array((seq,), np.float32), counter]
    args += [1, seq, 1, 0.18]
    meta = {"D": 64, "BLOCK_M": 192, "BLOCK_N": 128, "CAUSAL": causal, "LSE": True}
    meta |= {"num_consumer_groups": 3, "num_buffers_warp_spec": 2, **knobs}
    grid = grid_of(1, seq)(meta)
    return road.compile_for(attention_forward, args, grid, meta), args, grid


def products(seq: int, causal: bool, **knobs: Any) -> list[int]:
    """Spans of time in which each group keeps the tensor cores busy."""
    compiled, args, grid = attention(seq, causal, **knobs)
    report = compiled.simulate(
        *(x.copy() if isinstance(x, np.ndarray) else x for x in args), grid=grid, order="timed"
    )
    found = Counter(e.agent for e in report.events if e.unit == "tensor")
    return [found[f"consumer[{i}]"] for i in range(3)]


def test_groups_leave() -> None:
    """256 rows in tiles of 192: of the second one a group has rows, and computes."""
    everyone, rest = products(256, False), products(256, False, skip_idle=True)
    assert everyone[0] == everyone[1] == everyone[2] == rest[0]
    assert rest[1] == rest[2] == everyone[0] // 2


def test_groups_leave_where_the_mask_ends() -> None:
    """192 causal rows, two blocks of 128 columns: the first two groups see none of the second."""
    assert products(192, True)[0] == 4
    assert products(192, True, skip_idle="masked") == [2, 2, 4]


def test_the_plan_names_stores_and_mask() -> None:
    compiled, _, _ = attention(256, True, skip_idle="masked")
    (plan,) = compiled.schedule.idle
    stores = (("loop0.0/store_box0", 0), ("loop0.0/store0", 0))
    branch = "loop0.0.0.if0"
    assert plan == IdlePlan("loop0.0.0", stores, f"{branch}.then/select0", branch, (9,))
    again = Schedule.from_json(compiled.schedule.to_json())
    assert again.idle == compiled.schedule.idle
    assert not attention(256, True)[0].schedule.idle


@wl.jit
def product(
    a_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    m: Any,
    n: Any,
    k: Any,
    WHERE: tl.constexpr,
) -> None:
    """C = A·Bᵀ; WHERE "bounded": C ends at row m, "free": nobody says where it ends."""
    a = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [128, 64])
    b = tl.make_tensor_descriptor(b_ptr, [n, k], [k, 1], [128, 64])
    for row in tl.range(tl.program_id(0) * 128, m, tl.num_programs(0) * 128):
        acc = tl.zeros([128, 128], tl.float32)
        for i in tl.range(0, k, 64):
            acc = tl.dot(a.load([row, i]), b.load([0, i]).T, acc)
        if WHERE == "bounded":
            c = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [128, 128])
            c.store([row, 0], acc.to(tl.bfloat16))
        else:
            at = (row + tl.arange(0, 128))[:, None] * n + tl.arange(0, 128)[None, :]
            tl.store(c_ptr + at, acc.to(tl.bfloat16))


SIGNATURE = ["*bf16:16"] * 3 + ["i32:16", "i32:16", "i32:16"]


def compile_product(where: str, **knobs: Any) -> Any:
    return product.compile(
        signature=SIGNATURE, constexprs={"WHERE": where}, num_consumer_groups=2, **knobs
    )


def test_any_product_whose_rows_end_has_a_plan() -> None:
    (plan,) = compile_product("bounded", skip_idle=True).schedule.idle
    assert plan.stores and not plan.mask


@pytest.mark.parametrize(("where", "asked"), [("free", True), ("bounded", "masked")])
def test_what_can_not_be_left_is_told(where: str, asked: Any) -> None:
    """Rows that nobody bounds; a loop without a mask."""
    with pytest.raises(CompileError, match="every group stays to its end"):
        compile_product(where, skip_idle=asked, strict=True)


def test_who_left_gives_back_slots_before_it_waits_for_its_turn() -> None:
    """The second group has no rows; the ring is shorter than the loop."""
    rng = np.random.default_rng(1)
    a, b = (road.filled(rng.integers(-2, 3, (n, 384)).astype(np.float32), BF16) for n in (64, 128))
    args = [a, b, road.array((64, 128), BF16), 64, 128, 384]
    knobs = {"num_consumer_groups": 2, "num_buffers_warp_spec": 3}
    found, _ = road.check_equal(
        product,
        args,
        1,
        {"WHERE": "bounded", "skip_idle": True, "stagger_epilogues": True, **knobs},
    )
    assert found.schedule.idle and found.schedule.staggered_loops


@wl.jit
def masked(q_ptr: Any, k_ptr: Any, o_ptr: Any, seq: Any, last: Any, WHERE: tl.constexpr) -> None:
    """Σ exp2(s - max) of each row, along columns up to the row, or to `last`."""
    row = tl.program_id(0) * 128
    q = tl.make_tensor_descriptor(q_ptr, [seq, 64], [64, 1], [128, 64]).load([row, 0])
    k_desc = tl.make_tensor_descriptor(k_ptr, [seq, 64], [64, 1], [64, 64])
    rows = row + tl.arange(0, 128)
    top = tl.full([128], float("-inf"), tl.float32)
    total = tl.zeros([128], tl.float32)
    for j in tl.range(0, tl.minimum(seq, row + 128), 64):
        columns = j + tl.arange(0, 64)
        seen = columns[None, :] <= rows[:, None]
        if WHERE == "i64":
            seen = columns.to(tl.int64)[None, :] <= rows.to(tl.int64)[:, None]
        if WHERE == "both":
            seen &= (columns.to(tl.int64) < seq)[None, :]
        if WHERE == "last":
            seen = (columns <= last)[None, :] & seen
        if WHERE == "bytes":
            seen = columns.to(tl.uint8)[None, :] <= rows.to(tl.uint8)[:, None]
        s = tl.where(seen, tl.dot(q, k_desc.load([j, 0]).T), float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(s - higher[:, None]), 1)
        top = higher
    tl.store(o_ptr + rows, total, mask=rows < seq)


@pytest.mark.parametrize("where", ["i32", "i64", "both", "last", "bytes"])
def test_numbers_of_masks(where: str) -> None:
    """Of any width; where there is no more of them behind `last`.  What a cast cuts off is not known."""
    rng = np.random.default_rng(2)
    q, k = (road.filled(rng.integers(-1, 2, (160, 64)).astype(np.float32), BF16) for _ in range(2))
    args = [q, k, road.array((160,), np.float32), 160, 2**31 - 1]
    meta = {"WHERE": where, "num_consumer_groups": 2, "skip_idle": "masked"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*every group stays to its end")
        compiled = road.compile_for(masked, args, 2, meta)
    (plan,) = compiled.schedule.idle
    assert bool(plan.mask) == (where != "bytes")
    found = road.simulated(compiled, args, 2)
    wanted = road.expected_of(compiled, args, 2)
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-5)
