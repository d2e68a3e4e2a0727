"""Lanes of one warp, and its elected thread, know what the others did only after they met."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.check import check
from warploom.ir.parser import parse_func
from warploom.sim.machine import simulate
from warploom.sim.report import SimError
from warploom.sim.scheduler import ORDERS

# y = 2·x, n blocks: by TMA into one slot, from registers to the other one, by TMA to memory.
DOUBLE = """func @double(%x_ptr: ptr<f32>, %y_ptr: ptr<f32>, %n: i32) level=WARP {warps=WARPS} {
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
  %c32 = const() {value=32, dtype=i32} : i32
  %one = const() {value=1, dtype=i64} : i64
  %w = const() {value=32, dtype=i64} : i64
  %n64 = cast(%n) {dtype=i64} : i64
  %rows = mul(%n64, %w) : i64
  %x_view = make_view(%x_ptr, %rows, %w, %w, %one) {divisible=(32, 32, 1)} : view<2xf32>
  %y_view = make_view(%y_ptr, %rows, %w, %w, %one) {divisible=(32, 32, 1)} : view<2xf32>
  %x_map = tensor_map(%x_view) {box=(32, 32), inner=1, swizzle=128} : tensormap<32x32xf32, inner=1, swizzle=128>
  %y_map = tensor_map(%y_view) {box=(32, 32), inner=1, swizzle=128} : tensormap<32x32xf32, inner=1, swizzle=128>
  %a = shared_alloc() {name="a", lead=(), shape=(32, 32), dtype=f32, inner=1, swizzle=128} : shared<32x32xf32, inner=1, swizzle=128>
  %b = shared_alloc() {name="b", lead=(), shape=(32, 32), dtype=f32, inner=1, swizzle=128} : shared<32x32xf32, inner=1, swizzle=128>
  %full = mbarrier_alloc() {name="full", n=1, count=1} : mbarriers<1>
  tasks() {names=("main",), warps=(WARPS,), replicas=(1,), registers=(none,)} do {
    %last = for(%c0, %n, %c1, %c0) : i32 do (%i: i32, %phase: i32) {
      %row = mul(%i, %c32) : i32
      elect() do {
        mbarrier_expect(%full, %c0) {bytes=4096}
        tma_load(%x_map, %a, %full, %c0, %row, %c0)
        yield()
      }
      mbarrier_wait(%full, %c0, %phase)
      %x = shared_load(%a) : tile<32x32xf32>
      %y = add(%x, %x) : tile<32x32xf32>
      shared_store(%b, %y)
      fence_async()
      group_sync() {scope="replica"}
      elect() do {
        tma_store(%y_map, %b, %row, %c0)
        tma_store_commit()
        tma_store_wait() {pending=0, read=true}
        yield()
      }
      group_sync() {scope="replica"}
      %next = xor(%phase, %c1) : i32
      yield(%next)
    }
    elect() do {
      tma_store_wait() {pending=0, read=false}
      yield()
    }
    yield()
  }
  yield()
}
"""
SYNC = '      group_sync() {scope="replica"}\n'
FIRST = "      fence_async()\n" + SYNC
WAIT = "      mbarrier_wait(%full, %c0, %phase)\n"


def double(text: str, warps: int, n: int = 3, **options: object) -> None:
    x = np.arange(32 * n * 32, dtype=np.float32).reshape(32 * n, 32)
    y = np.zeros_like(x)
    simulate(parse_func(text.replace("WARPS", str(warps)), "<double>"), (x, y, n), 1, **options)  # type: ignore[arg-type]
    assert np.array_equal(y, 2 * x)


@pytest.mark.parametrize("warps", [1, 4])
def test_where_all_meet(warps: int) -> None:
    for order in ORDERS:
        double(DOUBLE, warps, order=order, seed=1)
    assert check(parse_func(DOUBLE.replace("WARPS", str(warps)), "<double>")).ok


BROKEN = {
    "stored by one before all have written": (
        FIRST, "      fence_async()\n", "race", "shared_store of b is not ordered before tma_store of b",
    ),
    "waited for by one": (
        WAIT, "      elect() do {\n  " + WAIT + "        yield()\n      }\n", "race",
        "tma_load of a is not ordered before shared_load of a",
    ),
    "loaded again before all have read": (
        FIRST,
        "      elect() do {\n        tma_load(%x_map, %a, %full, %c0, %row, %c0)\n        yield()\n      }\n" + FIRST,
        "race", "shared_load of a is not ordered before tma_load of a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize(("old", "new", "code", "words"), BROKEN.values(), ids=list(BROKEN))
def test_what_is_broken_is_found(old: str, new: str, code: str, words: str, warps: int) -> None:
    assert old in DOUBLE
    broken = DOUBLE.replace(old, new)
    with pytest.raises(SimError) as caught:
        double(broken, warps)
    assert caught.value.code == code and words in str(caught.value)
    report = check(parse_func(broken.replace("WARPS", str(warps)), "<double>"))
    assert [f.error.code for f in report.failures] == [code]
