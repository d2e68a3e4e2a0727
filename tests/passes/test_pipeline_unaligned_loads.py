"""pipeline_unaligned_loads: what is read early, when it may be, and that the simulator sees each read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.passes import kernels, road
from tests.passes.kernels import View
from warploom.compile import lower
from warploom.ir import build
from warploom.ir.core import Builder, Func, Op, OpKind, Value, walk
from warploom.ir.ops import arith, tile, unaligned
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.rewrite import rewrite
from warploom.ir.types import i64
from warploom.passes.placed.pipeline_unaligned_loads import (
    has_unaligned_loads,
)
from warploom.schedule.model import Knobs
from warploom.sim.machine import simulate
from warploom.sim.oracle import run
from warploom.sim.report import SimError
from warploom.target import SM_90A

ODD = View("a", "M", "K", "la", kernels.ODD, "f16")
EVEN = View("b", "K", "N", "lb", kernels.ALIGNED, "f16")
GEMM = kernels.gemm(128, 64, 64, ODD, EVEN)
M, N, K, LD = 128, 64, 320, 321
UNALIGNED = (
    unaligned.load_unaligned,
    unaligned.no_units,
    unaligned.load_unaligned_ahead,
    unaligned.prefetch_box,
)


def placed(**knobs: Any) -> Func:
    return lower(road.tile(GEMM), Knobs(**knobs), SM_90A).placed


def count(func: Func, kind: OpKind) -> int:
    return sum(o.kind is kind for o in walk(func.body))


def arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    a = rng.integers(-2, 3, M * LD + 1).astype(np.float16)[1:]
    b = rng.integers(-2, 3, (K, N)).astype(np.float16)
    c = np.zeros((M, N), ml_dtypes.bfloat16)
    return [a, b, c, M, N, K, LD, N, N]


def edited(func: Func, kind: OpKind, change: Callable[[Op, Builder], Op]) -> Func:
    """With each op of a kind replaced."""

    def rule(o: Op, b: Builder) -> tuple[Value, ...] | None:
        if o.kind is not kind:
            return None
        new = change(o, b)
        b.append(new)
        return new.results

    return rewrite(func, rule)


def loop(step: int, more: str = "", extent: str = "%k64") -> Func:
    """One task whose loop moves a box of unaligned rows on by `step` columns in each iteration."""
    text = f"""func @k(%x: ptr<f16>, %m: i32, %k: i32, %steps: i32) level=WARP {{warps=4}} {{
  %c0 = const() {{value=0, dtype=i32}}
  %c1 = const() {{value=1, dtype=i32}}
  %by = const() {{value={step}, dtype=i32}}
  %one = const() {{value=1, dtype=i64}}
  %any = const() {{value={tile.UNBOUNDED}, dtype=i64}}
  %m64 = cast(%m) {{dtype=i64}}
  %k64 = cast(%k) {{dtype=i64}}
  %v = make_view(%x, %m64, {extent}, %k64, %one) {{divisible=(2, 1, 1)}}
  %s = shared_alloc() {{name="s", lead=(), shape=(64, 64), dtype=f16, inner=1, swizzle=128}}
  tasks() {{names=("main",), warps=(4,), replicas=(1,), registers=(none,)}} do {{
    for(%c0, %steps, %c1) do (%i: i32) {{
      %at = mul(%i, %by)
      %t = load_box(%v, %c0, %at) {{shape=(64, 64)}}
      shared_store(%s, %t)
      {more}
      yield()
    }}
    yield()
  }}
  yield()
}}
"""
    after = road.placed(parse_func(text))
    assert any(o.kind in UNALIGNED for o in walk(after.body))
    assert not has_unaligned_loads(after)
    return after


def test_a_producer_reads_the_next_units_early() -> None:
    func = placed(num_consumer_groups=2)
    assert [count(func, kind) for kind in UNALIGNED] == [0, 1, 1, 1]
    (ahead,) = (o for o in walk(func.body) if o.kind is unaligned.load_unaligned_ahead)
    (prefetch,) = (o for o in walk(func.body) if o.kind is unaligned.prefetch_box)
    assert (ahead.attrs["axis"], ahead.attrs["by"]) == (1, 64)
    assert (prefetch.attrs["axis"], prefetch.attrs["by"]) == (1, 128)
    text = print_func(func)
    assert print_func(parse_func(text)) == text


@pytest.mark.parametrize(
    "knobs",
    [
        {"num_consumer_groups": 0},
        {"num_consumer_groups": 2, "reg_dec_producer": 104, "reg_inc_consumer": 200},
    ],
)
def test_others_read_units_when_they_need_them(knobs: dict[str, int]) -> None:
    func = placed(**knobs)
    assert count(func, unaligned.load_unaligned) > 0 == count(func, unaligned.load_unaligned_ahead)
    assert count(func, unaligned.no_units) == 0
    for o in walk(func.body):
        if o.kind is unaligned.prefetch_box:
            assert o.attrs["by"] == 64


@pytest.mark.parametrize("knobs", [{"num_consumer_groups": 2}, {"num_consumer_groups": 0}])
@pytest.mark.parametrize("order", ["early", "late"])
def test_it_computes_the_same(knobs: dict[str, int], order: str) -> None:
    expected, found = arguments(), arguments()
    run(road.tile(GEMM), expected, (1,))
    simulate(placed(**knobs), found, (1,), order=order)
    np.testing.assert_array_equal(found[2], expected[2])
    assert expected[2].astype(float).any()


@pytest.mark.parametrize(("step", "is_ahead"), [(64, True), (8, True), (4, False), (1, False)])
def test_both_boxes_begin_alike_in_their_units(step: int, is_ahead: bool) -> None:
    assert count(loop(step), unaligned.load_unaligned_ahead) == is_ahead


@pytest.mark.parametrize(
    "more",
    ['group_sync() {scope="task"}', "store_box(%v, %t, %c0, %at)", "tma_store_wait() {pending=0}"],
)
def test_nothing_in_the_loop_orders_memory(more: str) -> None:
    if "tma" in more:
        more = f"elect() do {{ {more}\n yield() }}"
    assert count(loop(64, more), unaligned.load_unaligned_ahead) == 0


def test_an_end_that_nobody_knows() -> None:
    """Nothing is read early; what the L2 is asked for is what the next iteration reads."""
    func = loop(64, extent="%any")
    assert [count(func, kind) for kind in UNALIGNED] == [1, 0, 0, 1]
    (prefetch,) = (o for o in walk(func.body) if o.kind is unaligned.prefetch_box)
    made = {v: o for o in walk(func.body) for v in o.results}
    assert made[prefetch.operands[1]].kind is arith.gt
    values = np.zeros((64, 192), np.float16)
    simulate(func, [values, 64, 192, 3], (1,), track=False)


# ---- what is wrong is found


def test_a_read_behind_the_array_is_found() -> None:
    """As where units of the next box were read of an array whose end nobody knows."""

    def endless(o: Op, b: Builder) -> Op:
        base, rows, columns, *strides = o.operands
        if o.attrs["divisible"][1] == kernels.ODD:
            columns = build.const(b, tile.UNBOUNDED, i64)
        return o.with_(operands=(base, rows, columns, *strides))

    func = edited(placed(num_consumer_groups=2), tile.make_view, endless)
    with pytest.raises(SimError, match="of element") as e:
        simulate(func, arguments(), (1,))
    assert e.value.code == "out-of-bounds"


@pytest.mark.parametrize("by", [1, 56])
def test_units_of_another_box_are_found(by: int) -> None:
    """The wrong distance is refused, or gives other numbers."""
    func = edited(
        placed(num_consumer_groups=2),
        unaligned.load_unaligned_ahead,
        lambda o, b: o.with_(attrs={**o.attrs, "by": by}),
    )
    found, exact = arguments(), arguments()
    if by == 1:
        with pytest.raises(SimError, match="begins elsewhere in its units"):
            simulate(func, found, (1,))
        return
    run(road.tile(GEMM), exact, (1,))
    simulate(func, found, (1,))
    assert not np.array_equal(found[2], exact[2])
