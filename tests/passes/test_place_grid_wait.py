"""place_grid_wait: nothing touches what earlier grids may still write, and a missing wait is a race."""

import numpy as np
import pytest

from tests.passes import road
from warploom.check import Verdict, check
from warploom.ir.core import Func, Region
from warploom.ir.ops import grid
from warploom.ir.parser import parse_func
from warploom.sim.machine import simulate
from warploom.sim.report import Race
from warploom.target import named

TEXT = """func @k(%x: ptr<f32>, %y: ptr<f32>) level=WARP {warps=4} {
  %c0 = const() {value=0, dtype=i32}
  %one = const() {value=1, dtype=i64}
  %n = const() {value=64, dtype=i64}
  %xv = make_view(%x, %n, %n, %n, %one) {divisible=(16, 16, 1)}
  %yv = make_view(%y, %n, %n, %n, %one) {divisible=(16, 16, 1)}
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
    %t = load_box(%xv, %c0, %c0) {shape=(64, 64)}
    store_box(%yv, %t, %c0, %c0)
    yield()
  }
  yield()
}"""


def run(func: Func) -> None:
    x, y = np.ones((64, 64), np.float32), np.zeros((64, 64), np.float32)
    simulate(func, [x, y], 1)
    assert np.array_equal(x, y)


def test_without_the_wait_it_is_a_race() -> None:
    func = road.placed(parse_func(TEXT))
    run(func)
    assert check(func).verdict is Verdict.PROVED
    ops = tuple(o for o in func.body.ops if o.kind is not grid.grid_wait)
    spoilt = func.with_(body=Region(func.body.params, ops))
    with pytest.raises(Race, match="load_box touches global memory that an earlier grid"):
        run(spoilt)
    assert check(spoilt).verdict is Verdict.BROKEN


def test_a_target_whose_grids_begin_one_after_the_other_waits_for_none() -> None:
    func = parse_func(TEXT.replace("{warps=4}", '{warps=4, target="sm_80"}'))
    func = road.placed(func)
    assert func.target is named("sm_80")
    assert not any(o.kind is grid.grid_wait for o in func.body.ops)
    run(func)
