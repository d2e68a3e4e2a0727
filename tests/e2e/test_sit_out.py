"""Groups that leave a loop early (schedule/idle.py, schedule/bounds.py, passes/sit_out.py): when, and how."""

from __future__ import annotations

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
    everyone, rest = products(256, False), products(256, False, sit_out=True)
    assert everyone[0] == everyone[1] == everyone[2] == rest[0]
    assert rest[1] == rest[2] == everyone[0] // 2


def test_groups_leave_where_the_mask_ends() -> None:
    """192 causal rows, two blocks of 128 columns: the first two groups see none of the second."""
    assert products(192, True)[0] == 4
    assert products(192, True, sit_out="masked") == [2, 2, 4]


def test_the_plan_names_stores_and_mask() -> None:
    compiled, _, _ = attention(256, True, sit_out="masked")
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
    row = tl.program_id(0) * 128
    a = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [128, 64])
    b = tl.make_tensor_descriptor(b_ptr, [n, k], [k, 1], [128, 64])
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
    (plan,) = compile_product("bounded", sit_out=True).schedule.idle
    assert plan.stores and not plan.mask


@pytest.mark.parametrize(("where", "asked"), [("free", True), ("bounded", "masked")])
def test_what_can_not_be_left_is_told(where: str, asked: Any) -> None:
    """Rows that nobody bounds; a loop without a mask."""
    with pytest.raises(CompileError, match="every group stays to its end"):
        compile_product(where, sit_out=asked, strict=True)
