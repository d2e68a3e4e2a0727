"""Groups of cp.asyncs: bytes are there for the thread that waited for their group, for others behind a barrier."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.ir.parser import parse_func
from warploom.ir.types import bf16
from warploom.sim.machine import simulate
from warploom.sim.report import SimError
from warploom.sim.scheduler import ORDERS

# y = x, block by block, through a ring of three slots that is filled two blocks ahead
RING = """func @copy(%x_ptr: ptr<f32>, %y_ptr: ptr<f32>, %n: i32) level=WARP {warps=WARPS} {
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
  %c2 = const() {value=2, dtype=i32} : i32
  %c3 = const() {value=3, dtype=i32} : i32
  %c32 = const() {value=32, dtype=i32} : i32
  %one = const() {value=1, dtype=i64} : i64
  %w = const() {value=32, dtype=i64} : i64
  %n64 = cast(%n) {dtype=i64} : i64
  %rows = mul(%n64, %w) : i64
  %x_view = make_view(%x_ptr, %rows, %w, %w, %one) : view<2xf32>
  %y_view = make_view(%y_ptr, %rows, %w, %w, %one) : view<2xf32>
  %ring = shared_alloc() {name="ring", lead=(3,), shape=(32, 32), dtype=f32, inner=1, swizzle=128} : shared<[3]32x32xf32, inner=1, swizzle=128>
  tasks() {names=("main",), warps=(WARPS,), replicas=(1,), registers=(none,)} do {
    for(%c0, %c2, %c1) do (%i: i32) {
      %early = shared_slot(%ring, %i) : shared<32x32xf32, inner=1, swizzle=128>
      %first = mul(%i, %c32) : i32
      cp_async(%x_view, %early, %first, %c0) {bytes=16}
      cp_async_commit()
      yield()
    }
    for(%c0, %n, %c1) do (%k: i32) {
      cp_async_wait() {pending=1}
      group_sync() {scope="replica"}
      %ahead = add(%k, %c2) : i32
      %free = rem(%ahead, %c3) : i32
      %next = shared_slot(%ring, %free) : shared<32x32xf32, inner=1, swizzle=128>
      %later = mul(%ahead, %c32) : i32
      cp_async(%x_view, %next, %later, %c0) {bytes=16}
      cp_async_commit()
      %s = rem(%k, %c3) : i32
      %slot = shared_slot(%ring, %s) : shared<32x32xf32, inner=1, swizzle=128>
      %tile = shared_load(%slot) : tile<32x32xf32>
      %row = mul(%k, %c32) : i32
      store_box(%y_view, %tile, %row, %c0)
      yield()
    }
    cp_async_commit()
    cp_async_wait() {pending=0}
    yield()
  }
  yield()
}
"""
SYNC = '      group_sync() {scope="replica"}\n'
WAIT = "      cp_async_wait() {pending=1}\n"


def copy(text: str, n: int, warps: int = 4, **options: object) -> bool:
    x = np.arange(32 * n * 32, dtype=np.float32).reshape(32 * n, 32) + 1
    y = np.zeros_like(x)
    func = parse_func(text.replace("WARPS", str(warps)), "<copy>")
    simulate(func, (x, y, n), 1, **options)  # type: ignore[arg-type]
    return np.array_equal(x, y)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_a_ring_of_groups(n: int, warps: int) -> None:
    for order in ORDERS:
        for track in (True, False):
            assert copy(RING, n, warps, order=order, seed=1, track=track)


BROKEN = {
    "not waited for": (WAIT, "", "race", "cp_async of ring[0] is not ordered before shared_load"),
    "waited for too little": ("pending=1", "pending=2", "race", "cp_async of ring[0]"),
    "in no group": ("      cp_async_commit()\n      yield()", "      yield()", "race", "cp_async of ring[0]"),
    "of other threads": (SYNC, "", "race", "cp_async of ring[0] is not ordered before shared_load"),
    "barrier before the wait": (WAIT + SYNC, SYNC + WAIT, "race", "cp_async of ring[0]"),
    "read while refilled": ("%ahead, %c3) : i32", "%k, %c3) : i32", "race", "cp_async of ring[0]"),
    "refilled before others read": ("add(%k, %c2) : i32", "add(%k, %c3) : i32", "race", "cp_async of ring[0]"),
    "under way at the end": ("    cp_async_wait() {pending=0}\n", "", "exit-copy", "a cp.async of main (k=4) may still write"),
}  # fmt: skip


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize(("old", "new", "code", "words"), BROKEN.values(), ids=list(BROKEN))
def test_what_is_broken_is_found(old: str, new: str, code: str, words: str, warps: int) -> None:
    assert old in RING
    for order in ("late", "early"):
        with pytest.raises(SimError) as caught:
            copy(RING.replace(old, new), 5, warps, order=order)
        assert caught.value.code == code
        assert words in str(caught.value)


@pytest.mark.parametrize("name", ["not waited for", "waited for too little", "in no group"])
def test_bytes_come_late_where_nothing_waits(name: str) -> None:
    """Without the proof: copies that no wait covers may land last."""
    old, new, _, _ = BROKEN[name]
    assert any(wrong(RING.replace(old, new), order) for order in ORDERS)


def wrong(text: str, order: str) -> bool:
    try:
        return not copy(text, 5, order=order, seed=1, track=False)
    except SimError:
        return True


WGMMA = """func @product(%x_ptr: ptr<bf16>, %y_ptr: ptr<f32>) level=WARP {warps=4} {
  %c0 = const() {value=0, dtype=i32} : i32
  %no = const() {value=false, dtype=i1} : i1
  %one = const() {value=1, dtype=i64} : i64
  %w = const() {value=64, dtype=i64} : i64
  %x_view = make_view(%x_ptr, %w, %w, %w, %one) : view<2xbf16>
  %y_view = make_view(%y_ptr, %w, %w, %w, %one) : view<2xf32>
  %x = shared_alloc() {name="x", lead=(), shape=(64, 64), dtype=bf16, inner=1, swizzle=128} : shared<64x64xbf16, inner=1, swizzle=128>
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
    cp_async(%x_view, %x, %c0, %c0) {bytes=16}
    cp_async_commit()
    cp_async_wait() {pending=0}
    fence_async() {space="shared"}
    group_sync() {scope="replica"}
    %acc = no_acc() {shape=(64, 64)} : inflight<tile<64x64xf32>>
    wgmma_fence()
    %d = wgmma(%x, %x, %acc, %no) : inflight<tile<64x64xf32>>
    wgmma_commit()
    %y = wgmma_wait(%d) {pending=0} : tile<64x64xf32>
    store_box(%y_view, %y, %c0, %c0)
    yield()
  }
  yield()
}
"""
FENCE = '    fence_async() {space="shared"}\n'


def product(text: str, order: str) -> bool:
    x = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float32)
    y = np.zeros((64, 64), np.float32)
    func = parse_func(text, "<product>")
    simulate(func, (x.astype(bf16.numpy), y), 1, order=order)
    return np.array_equal(x @ x, y)


def test_a_fence_before_the_barrier_shows_copies_to_wgmma() -> None:
    """cp.async writes by the generic proxy: each thread fences what it waited for, or all what they know."""
    for order in ORDERS:
        assert product(WGMMA, order)
        assert product(WGMMA.replace(FENCE, "").replace("    %acc", FENCE + "    %acc"), order)


def test_without_the_fence_it_is_found() -> None:
    early = WGMMA.replace(FENCE, "").replace("    cp_async_wait", FENCE + "    cp_async_wait")
    for text in (WGMMA.replace(FENCE, ""), early):
        with pytest.raises(SimError) as caught:
            product(text, "late")
        assert caught.value.code == "proxy-fence"
