"""Single mechanisms: operand orders of wgmma, copies that are not TMA, barriers that are not mbarriers."""

from __future__ import annotations

import numpy as np
import pytest

from warploom.ir.core import HARDWARE, KINDS, SEQUENTIAL
from warploom.ir.ops import control, task
from warploom.ir.parser import parse_func
from warploom.ir.types import DTYPES, bf16
from warploom.sim import oracle
from warploom.sim.evaluate import PURE
from warploom.sim.machine import simulate
from warploom.sim.outline import STEPS
from warploom.sim.report import Deadlock, MemoryFault, ProtocolError, Race, SimError
from warploom.sim.translate import FLOW

ORDERS = ("late", "reverse", "early", "seeded")


def test_every_op_has_a_meaning_at_its_levels() -> None:
    structural = {control.yield_, task.tasks}
    for kind in KINDS.values():
        if kind in structural:
            continue
        if kind.levels & HARDWARE:
            assert kind in PURE or kind in STEPS or kind in FLOW, kind.name
        if kind.levels & SEQUENTIAL:
            assert kind in PURE or kind in oracle._EFFECTS, kind.name


# ---- one wgmma: operands brought by TMA, result stored from registers

PRODUCT = """func @product(%a_ptr: ptr<DT>, %b_ptr: ptr<DT>, %c_ptr: ptr<f32>, %N: i64) level=WARP {warps=4} {
  %c0 = const() {value=0, dtype=i32} : i32
  %yes = const() {value=false, dtype=i1} : i1
  %one = const() {value=1, dtype=i64} : i64
  %m = const() {value=64, dtype=i64} : i64
  %k = const() {value=KK, dtype=i64} : i64
  %a_view = make_view(%a_ptr, %m, %k, A_STRIDES) : view<2xDT>
  %b_view = make_view(%b_ptr, %k, %N, B_STRIDES) : view<2xDT>
  %c_view = make_view(%c_ptr, %m, %N, %N, %one) : view<2xf32>
  %a_map = tensor_map(%a_view) {box=(64, KK), inner=AI, swizzle=SA} : tensormap<64xKKxDT, inner=AI, swizzle=SA>
  %b_map = tensor_map(%b_view) {box=(KK, NN), inner=BI, swizzle=SB} : tensormap<KKxNNxDT, inner=BI, swizzle=SB>
  %a_all = shared_alloc() {name="a", lead=(), shape=(64, KK), dtype=DT, inner=AI, swizzle=SA} : shared<64xKKxDT, inner=AI, swizzle=SA>
  %b_all = shared_alloc() {name="b", lead=(), shape=(KK, NN), dtype=DT, inner=BI, swizzle=SB} : shared<KKxNNxDT, inner=BI, swizzle=SB>
  %full = mbarrier_alloc() {name="full", n=1, count=1} : mbarriers<1>
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
    elect() do {
      mbarrier_expect(%full, %c0) {bytes=BYTES}
      tma_load(%a_map, %a_all, %full, %c0, %c0, %c0)
      tma_load(%b_map, %b_all, %full, %c0, %c0, %c0)
      yield()
    }
    mbarrier_wait(%full, %c0, %c0)
    LEFT
    %acc = no_acc() {shape=(64, NN)} : inflight<tile<64xNNxf32>>
    wgmma_fence()
    %p = wgmma(%left, %b_all, %acc, %yes) : inflight<tile<64xNNxf32>>
    wgmma_commit()
    %c = wgmma_wait(%p) {pending=0} : tile<64xNNxf32>
    store_box(%c_view, %c, %c0, %c0)
    yield()
  }
  yield()
}
"""


def product(
    dtype: str,
    n: int,
    k: int,
    a_inner: int,
    b_inner: int,
    swizzles: tuple[int, int],
    registers: bool,
) -> str:
    size = DTYPES[dtype].bytes
    text = PRODUCT
    if registers:
        text = text.replace("LEFT", "%left = shared_load(%a_all) : tile<64xKKxDT>")
    else:
        text = text.replace("LEFT\n", "\n").replace("%left", "%a_all")
    for old, new in {
        "A_STRIDES": "%k, %one" if a_inner == 1 else "%one, %m",
        "B_STRIDES": "%N, %one" if b_inner == 1 else "%one, %k",
        "BYTES": (64 * k + k * n) * size,
        "SA": swizzles[0],
        "SB": swizzles[1],
        "AI": a_inner,
        "BI": b_inner,
        "KK": k,
        "NN": n,
        "DT": dtype,
    }.items():
        text = text.replace(old, str(new))
    return text


CASES = [
    ("bf16", 256, 64, 1, 0, (128, 128), False),
    ("bf16", 64, 64, 1, 1, (128, 128), False),
    ("bf16", 192, 128, 0, 1, (128, 128), False),
    ("f16", 96, 32, 0, 1, (64, 64), False),
    ("f16", 48, 32, 1, 1, (32, 32), False),
    ("f16", 24, 48, 0, 0, (32, 32), False),
    ("bf16", 8, 64, 1, 1, (128, 0), False),  # N-major rows of 16 bytes: no swizzle
    ("f8e4m3", 128, 128, 1, 0, (128, 128), False),
    ("f8e5m2", 40, 64, 1, 0, (64, 32), False),
    ("bf16", 128, 64, 1, 0, (128, 128), True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_wgmma_in_every_operand_order(case: tuple, order: str) -> None:
    dtype, n, k, a_inner, b_inner = case[:5]
    func = parse_func(product(*case))
    rng = np.random.default_rng(n)
    a = rng.integers(-3, 4, (64, k)).astype(np.float32)
    b = rng.integers(-3, 4, (k, n)).astype(np.float32)
    c = np.zeros((64, n), np.float32)
    narrow = DTYPES[dtype].numpy
    args = [
        (x if inner == 1 else np.ascontiguousarray(x.T)).astype(narrow)
        for x, inner in ((a, a_inner), (b, b_inner))
    ]
    simulate(func, (*args, c, n), 1, order=order, seed=2)
    np.testing.assert_array_equal(c, a @ b)


def test_a_wait_that_is_too_weak_reads_poison() -> None:
    text = product(*CASES[0]).replace("{pending=0}", "{pending=1}")
    x = np.zeros((256, 256), bf16.numpy)
    for track in (True, False):
        with pytest.raises(ProtocolError, match="accumulator of wgmma group 1 is read"):
            simulate(parse_func(text), (x, x, np.zeros((64, 256), np.float32), 256), 1, track=track)


def test_rows_without_a_swizzle_are_no_operand() -> None:
    x = np.zeros((256, 256), bf16.numpy)
    with pytest.raises(ProtocolError, match="row-major"):
        simulate(
            parse_func(product("bf16", 64, 64, 1, 1, (0, 128), False)),
            (x, x, np.zeros((64, 64), np.float32), 64),
            1,
        )


# ---- a ring filled by cp.async, or from registers; the consumer multiplies by the identity

COPY = """func @copy(%x_ptr: ptr<bf16>, %i_ptr: ptr<bf16>, %y_ptr: ptr<f32>, %n: i32) level=WARP {warps=4} {
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
  %c64 = const() {value=64, dtype=i32} : i32
  %no = const() {value=false, dtype=i1} : i1
  %one = const() {value=1, dtype=i64} : i64
  %w = const() {value=64, dtype=i64} : i64
  %n64 = cast(%n) {dtype=i64} : i64
  %rows = mul(%n64, %w) : i64
  %x_view = make_view(%x_ptr, %rows, %w, %w, %one) : view<2xbf16>
  %i_view = make_view(%i_ptr, %w, %w, %w, %one) : view<2xbf16>
  %y_view = make_view(%y_ptr, %rows, %w, %w, %one) : view<2xf32>
  %ring = shared_alloc() {name="ring", lead=(2,), shape=(64, 64), dtype=bf16, inner=1, swizzle=128} : shared<[2]64x64xbf16, inner=1, swizzle=128>
  %eye_all = shared_alloc() {name="eye", lead=(), shape=(64, 64), dtype=bf16, inner=1, swizzle=128} : shared<64x64xbf16, inner=1, swizzle=128>
  %full = mbarrier_alloc() {name="full", n=2, count=COUNT} : mbarriers<2>
  %empty = mbarrier_alloc() {name="empty", n=2, count=4} : mbarriers<2>
  tasks() {names=("consumer", "producer"), warps=(4, 4), replicas=(1, 1), registers=(none, none)} do {
    %eye_tile = load_box(%i_view, %c0, %c0) {shape=(64, 64)} : tile<64x64xbf16>
    shared_store(%eye_all, %eye_tile)
    fence_async()
    group_sync() {scope="replica"}
    %s1, %p1 = for(%c0, %n, %c1, %c0, %c0) : i32, i32 do (%k: i32, %s: i32, %p: i32) {
      mbarrier_wait(%full, %s, %p)
      CONSUMER_FENCE
      %slot = shared_slot(%ring, %s) : shared<64x64xbf16, inner=1, swizzle=128>
      %acc = no_acc() {shape=(64, 64)} : inflight<tile<64x64xf32>>
      wgmma_fence()
      %d = wgmma(%slot, %eye_all, %acc, %no) : inflight<tile<64x64xf32>>
      wgmma_commit()
      %y = wgmma_wait(%d) {pending=0} : tile<64x64xf32>
      mbarrier_arrive(%empty, %s) {by="warp"}
      %row = mul(%k, %c64) : i32
      store_box(%y_view, %y, %row, %c0)
      %s2, %p2 = ring_next(%s, %p) {depth=2} : i32, i32
      yield(%s2, %p2)
    }
    yield()
  } do {
    %s1, %p1 = for(%c0, %n, %c1, %c0, %c0) : i32, i32 do (%k: i32, %s: i32, %p: i32) {
      %free = xor(%p, %c1) : i32
      mbarrier_wait(%empty, %s, %free)
      %slot = shared_slot(%ring, %s) : shared<64x64xbf16, inner=1, swizzle=128>
      %row = mul(%k, %c64) : i32
      FILL
      %s2, %p2 = ring_next(%s, %p) {depth=2} : i32, i32
      yield(%s2, %p2)
    }
    yield()
  }
  yield()
}
"""
CP_ASYNC = COPY.replace("COUNT", "128").replace("CONSUMER_FENCE", "fence_async()").replace(
    "FILL",
    "cp_async(%x_view, %slot, %row, %c0) {bytes=16}\n      cp_async_arrive(%full, %s)",
)  # fmt: skip
GATHERED = CP_ASYNC.replace(
    "      cp_async(%x_view, %slot, %row, %c0)",
    """      %pr = arange() {start=0, end=64} : tile<64xi32>
      %base = splat(%row) {shape=(64,)} : tile<64xi32>
      %at = add(%pr, %base) : tile<64xi32>
      %wide = splat(%c64) {shape=(64,)} : tile<64xi32>
      %starts = mul(%at, %wide) : tile<64xi32>
      %tall = expand_dims(%starts) {axis=1} : tile<64x1xi32>
      %down = broadcast(%tall) {shape=(64, 64)} : tile<64x64xi32>
      %pc = arange() {start=0, end=64} : tile<64xi32>
      %flat = expand_dims(%pc) {axis=0} : tile<1x64xi32>
      %along = broadcast(%flat) {shape=(64, 64)} : tile<64x64xi32>
      %offsets = add(%down, %along) : tile<64x64xi32>
      %xs = splat(%x_ptr) {shape=(64, 64)} : tile<64x64xptr<bf16>>
      %pointers = addptr(%xs, %offsets) : tile<64x64xptr<bf16>>
      %edge = splat(%c64) {shape=(64, 64)} : tile<64x64xi32>
      %mask = lt(%along, %edge) : tile<64x64xi1>
      cp_async(%pointers, %slot, %mask)""",
)
PUT = COPY.replace("COUNT", "4").replace("CONSUMER_FENCE", "").replace(
    "FILL",
    "%x = load_box(%x_view, %row, %c0) {shape=(64, 64)} : tile<64x64xbf16>\n      shared_store(%slot, %x)\n"
    '      fence_async()\n      mbarrier_arrive(%full, %s) {by="warp"}',
)  # fmt: skip


def copy(text: str, n: int, **options: object) -> bool:
    rng = np.random.default_rng(n)
    x = rng.integers(-9, 9, (64 * n, 64)).astype(np.float32)
    y = np.zeros((64 * n, 64), np.float32)
    eye = np.eye(64, dtype=np.float32).astype(bf16.numpy)
    simulate(parse_func(text, "<copy>"), (x.astype(bf16.numpy), eye, y, n), 1, **options)  # type: ignore[arg-type]
    return np.array_equal(x, y)


@pytest.mark.parametrize(
    "text", [CP_ASYNC, GATHERED, PUT], ids=["cp_async", "by pointers", "registers"]
)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
@pytest.mark.each(2)
def test_rings_that_tma_does_not_fill(text: str, n: int) -> None:
    for order in ORDERS:
        assert copy(text, n, order=order, seed=1)
        assert copy(text, n, order=order, seed=1, track=False)


BROKEN_COPIES = [
    (CP_ASYNC, "      fence_async()\n      %slot", "      %slot", "proxy-fence", "cp_async of ring"),
    (CP_ASYNC, "count=128", "count=4", "split-arrival", "full["),
    (GATHERED, "      fence_async()\n      %slot", "      %slot", "proxy-fence", "cp_async of ring"),
    (GATHERED, "%edge = splat(%c64)", "%edge = splat(%c1)", "run", "runs of 8 along axis 1"),
    (GATHERED, "mul(%at, %wide)", "add(%at, %wide)", "run", "runs of 8 along axis 1"),
    (PUT, '      fence_async()\n      mbarrier_arrive(%full', '      mbarrier_arrive(%full', "proxy-fence", "shared_store of ring"),
    (PUT, 'mbarrier_arrive(%full, %s) {by="warp"}', 'mbarrier_arrive(%full, %s) {by="one"}', "deadlock", "3 of 4 arrivals"),
    (PUT, "    fence_async()\n    group_sync", "    group_sync", "proxy-fence", "shared_store of eye"),
    (PUT, '    group_sync() {scope="replica"}\n', "", "race", "shared_store of eye"),
]  # fmt: skip


@pytest.mark.parametrize(
    "text, old, new, code, words", BROKEN_COPIES, ids=[b[3] for b in BROKEN_COPIES]
)
def test_broken_copies(text: str, old: str, new: str, code: str, words: str) -> None:
    assert old in text
    broken = text.replace(old, new)
    for order in ("late", "early"):
        with pytest.raises(SimError) as caught:
            copy(broken, 5, order=order)
        assert caught.value.code in (code, "unbound-arrival")
        assert words in str(caught.value)
    assert any(goes_wrong(broken, order) for order in ORDERS)


def goes_wrong(text: str, order: str) -> bool:
    try:
        return not copy(text, 5, order=order, seed=1, track=False)
    except SimError:
        return True


# ---- named barriers: two tasks take turns with a slot

TURNS = """func @turns(%y_ptr: ptr<f32>, %n: i32) level=WARP {warps=4} {
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
  %c64 = const() {value=64, dtype=i32} : i32
  %one = const() {value=1, dtype=i64} : i64
  %w = const() {value=64, dtype=i64} : i64
  %y_view = make_view(%y_ptr, %w, %w, %w, %one) : view<2xf32>
  %s = shared_alloc() {name="s", lead=(), shape=(64, 64), dtype=f32, inner=1, swizzle=128} : shared<64x64xf32, inner=1, swizzle=128>
  tasks() {names=("left", "right"), warps=(4, 4), replicas=(1, 1), registers=(none, none)} do {
    for(%c0, %n, %c1) do (%k: i32) {
      %f = cast(%k) {dtype=f32} : f32
      %x = splat(%f) {shape=(64, 64)} : tile<64x64xf32>
      named_barrier() {id=1, threads=256, arrive=false}
      shared_store(%s, %x)
      named_barrier() {id=2, threads=256, arrive=true}
      yield()
    }
    yield()
  } do {
    named_barrier() {id=1, threads=256, arrive=true}
    %zero = const() {value=0.0, dtype=f32} : f32
    %zeros = splat(%zero) {shape=(64, 64)} : tile<64x64xf32>
    %sum = for(%c0, %n, %c1, %zeros) : tile<64x64xf32> do (%k: i32, %t: tile<64x64xf32>) {
      named_barrier() {id=2, threads=256, arrive=false}
      %x = shared_load(%s) : tile<64x64xf32>
      %next = add(%t, %x) : tile<64x64xf32>
      %more = add(%k, %c1) : i32
      %again = lt(%more, %n) : i1
      if(%again) do {
        named_barrier() {id=1, threads=256, arrive=true}
        yield()
      } do {
        yield()
      }
      yield(%next)
    }
    store_box(%y_view, %sum, %c0, %c0)
    yield()
  }
  yield()
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_named_barriers(order: str) -> None:
    y = np.zeros((64, 64), np.float32)
    simulate(parse_func(TURNS), (y, 6), 1, order=order, seed=3)
    assert (y == 15).all()


def test_named_barriers_broken() -> None:
    y = np.zeros((64, 64), np.float32)
    one_way = TURNS.replace("      named_barrier() {id=2, threads=256, arrive=false}\n", "")
    with pytest.raises((Race, MemoryFault)) as race:
        simulate(parse_func(one_way), (y, 6), 1)
    assert "shared_load of s" in str(race.value)
    wrong = TURNS.replace("id=2, threads=256, arrive=true", "id=2, threads=128, arrive=true")
    with pytest.raises((ProtocolError, Deadlock)) as count:
        simulate(parse_func(wrong), (y, 6), 1)
    assert "named barrier 2" in str(count.value)
