"""recover_boxes: the boxes it finds, and that the program computes what it computed before."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from warploom.ir.core import Fact, Func, Op, walk
from warploom.ir.ops import tile
from warploom.ir.parser import parse_func
from warploom.ir.verify import verify
from warploom.passes.tile.recover_boxes import recover_boxes
from warploom.sim import oracle

HERE = Path(__file__).parent
BF16 = ml_dtypes.bfloat16


def case(name: str) -> Func:
    return parse_func((HERE / name).read_text(), name)


def kinds(func: Func) -> list[str]:
    return [o.kind.name for o in walk(func.body)]


def views(func: Func) -> list[Op]:
    return [o for o in walk(func.body) if o.kind is tile.make_view]


def structured(func: Func) -> Func:
    out = recover_boxes(func)
    verify(out)
    return out


def run_gemm(func: Func, m: int, n: int, k: int) -> np.ndarray:
    """C (padded to whole tiles, as this kernel stores without bounds along n) = A·Bᵀ."""
    rng = np.random.default_rng(m * 1000 + n * 10 + k)
    rows, cols, depth = (-(-x // 64) * 64 for x in (m, n, k))
    a = rng.integers(-4, 5, (m, k)).astype(BF16)
    b = rng.integers(-4, 5, (cols, depth)).astype(BF16)
    c = np.full((rows, cols), np.nan, BF16)
    oracle.run(func, [a, b, c, m, n, k, k, depth, cols], (rows // 64, cols // 64))
    return c


@pytest.mark.parametrize("name", ["pointer_gemm.tile.ir", "pointer_gemm_wrapped.tile.ir"])
def test_pointer_gemm_becomes_boxes(name: str) -> None:
    out = structured(case(name))
    assert "load" not in kinds(out) and "store" not in kinds(out)
    assert kinds(out).count("load_box") == 2 and kinds(out).count("store_box") == 1
    assert out.attrs["access_notes"] == ()


@pytest.mark.parametrize("name", ["pointer_gemm.tile.ir", "pointer_gemm_wrapped.tile.ir"])
@pytest.mark.parametrize("m,n,k", [(64, 64, 64), (100, 64, 72), (130, 70, 200), (64, 64, 1)])
def test_pointer_gemm_computes_the_same(name: str, m: int, n: int, k: int) -> None:
    func = case(name)
    before, after = run_gemm(func, m, n, k), run_gemm(structured(func), m, n, k)
    # without a mask along m, rows beyond the last one are whatever was loaded for them
    np.testing.assert_array_equal(before[:m, :n], after[:m, :n])
    assert np.isfinite(before[:m, :n].astype(np.float32)).all()


def test_facts_give_alignment() -> None:
    func = case("pointer_gemm.tile.ir")
    facts = tuple(Fact(16) for _ in func.params)
    out = structured(func.with_(attrs={**func.attrs, "facts": facts}))
    a, b, c = views(out)
    assert a.attrs["divisible"] == (16, 16, 1)
    assert b.attrs["divisible"] == (16, 1, 16)
    assert c.attrs["divisible"] == (16, 16, 1)


HEAD = """func @k(%x: ptr<f32>, %y: ptr<f32>, %n: i32, %s: i32) level=TILE {
  %ar = arange() {start=0, end=32} : tile<32xi32>
  %xt = splat(%x) {shape=(32,)} : tile<32xptr<f32>>
  %yt = splat(%y) {shape=(32,)} : tile<32xptr<f32>>
  %yp = addptr(%yt, %ar) : tile<32xptr<f32>>
  %pid = program_id() {axis=0} : i32
  %c32 = const() {value=32, dtype=i32} : i32
"""
TAIL = """
  store(%yp, %v)
  yield()
}
"""


def small(body: str) -> Func:
    return structured(parse_func(HEAD + body + TAIL))


@pytest.mark.parametrize(
    "body,why",
    [
        (  # a gather
            """
  %it = splat(%n) {shape=(32,)} : tile<32xi32>
  %sq = mul(%ar, %ar) : tile<32xi32>
  %p = addptr(%xt, %sq) : tile<32xptr<f32>>
  %v = load(%p) {} #load0 : tile<32xf32>""",
            "not base",
        ),
        (  # may reach below the base
            """
  %st = sub(%n, %pid) : i32
  %stt = splat(%st) {shape=(32,)} : tile<32xi32>
  %i = add(%stt, %ar) : tile<32xi32>
  %p = addptr(%xt, %i) : tile<32xptr<f32>>
  %v = load(%p) {} #load0 : tile<32xf32>""",
            "may be negative",
        ),
        (  # masked-off elements are one
            """
  %nt = splat(%n) {shape=(32,)} : tile<32xi32>
  %m = lt(%ar, %nt) : tile<32xi1>
  %one = const() {value=1.0, dtype=f32} : f32
  %ot = splat(%one) {shape=(32,)} : tile<32xf32>
  %p = addptr(%xt, %ar) : tile<32xptr<f32>>
  %v = load(%p, %m, %ot) {} #load0 : tile<32xf32>""",
            "not zero",
        ),
        (  # wraps, and everything is stored
            """
  %nt = splat(%n) {shape=(32,)} : tile<32xi32>
  %i = rem(%ar, %nt) : tile<32xi32>
  %p = addptr(%xt, %i) : tile<32xptr<f32>>
  %v = load(%p) {} #load0 : tile<32xf32>""",
            "wraps",
        ),
        (  # the stride changes from program to program
            """
  %pt = splat(%pid) {shape=(32,)} : tile<32xi32>
  %i = mul(%ar, %pt) : tile<32xi32>
  %p = addptr(%xt, %i) : tile<32xptr<f32>>
  %v = load(%p) {} #load0 : tile<32xf32>""",
            "not known at launch",
        ),
    ],
)
def test_what_is_no_box_says_why(body: str, why: str) -> None:
    out = small(body)
    assert kinds(out).count("load") == 1
    assert why in dict(out.attrs["access_notes"])["load0"]


def test_a_loop_with_a_step_advances_its_pointer() -> None:
    """for i in range(0, n, 32): p += 32: the box starts at i; the sum of n elements is kept."""
    func = parse_func(
        HEAD
        + """
  %c0 = const() {value=0, dtype=i32} : i32
  %z = const() {value=0.0, dtype=f32} : f32
  %zt = splat(%z) {shape=(32,)} : tile<32xf32>
  %p0 = addptr(%xt, %ar) : tile<32xptr<f32>>
  %st = splat(%c32) {shape=(32,)} : tile<32xi32>
  %v, %pe = for(%c0, %n, %c32, %zt, %p0) : tile<32xf32>, tile<32xptr<f32>> do (%i: i32, %sum: tile<32xf32>, %p: tile<32xptr<f32>>) {
    %left = sub(%n, %i) : i32
    %lt = splat(%left) {shape=(32,)} : tile<32xi32>
    %m = lt(%ar, %lt) : tile<32xi1>
    %x1 = load(%p, %m) : tile<32xf32>
    %sum1 = add(%sum, %x1) : tile<32xf32>
    %p1 = addptr(%p, %st) : tile<32xptr<f32>>
    yield(%sum1, %p1)
  }"""
        + TAIL
    )
    out = structured(func)
    (box,) = [o for o in walk(out.body) if o.kind is tile.load_box]
    (loop,) = [o for o in walk(out.body) if o.kind.name == "for"]
    assert box.operands[1] is loop.regions[0].params[0]
    x = np.arange(77, dtype=np.float32)
    before, after = np.zeros(32, np.float32), np.zeros(32, np.float32)
    oracle.run(func, [x, before, 77, 1], (1,))
    oracle.run(out, [x, after, 77, 1], (1,))
    np.testing.assert_array_equal(before, after)
    assert before.sum() == x.sum()


def test_what_counts_down_begins_at_the_end() -> None:
    """for i in range(0, n): row pid·n + n - 1 - i: no start is negative, so there is a box where the
    kernel has a dot (loads of recurrences stay by pointers, which a mask can hold back)."""
    func = parse_func(
        HEAD
        + """
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
  %c64 = const() {value=64, dtype=i32} : i32
  %z = const() {value=0.0, dtype=f32} : f32
  %zt = splat(%z) {shape=(32,)} : tile<32xf32>
  %wide = splat(%z) {shape=(32, 16)} : tile<32x16xf32>
  %square = splat(%z) {shape=(16, 16)} : tile<16x16xf32>
  %first = mul(%pid, %n) : i32
  %last = sub(%n, %c1) : i32
  %v = for(%c0, %n, %c1, %zt) : tile<32xf32> do (%i: i32, %sum: tile<32xf32>) {
    %back = sub(%last, %i) : i32
    %row = add(%first, %back) : i32
    %at = mul(%row, %c64) : i32
    %ats = splat(%at) {shape=(32,)} : tile<32xi32>
    %places = add(%ats, %ar) : tile<32xi32>
    %p = addptr(%xt, %places) : tile<32xptr<f32>>
    %x1 = load(%p) : tile<32xf32>
    %double = add(%sum, %sum) : tile<32xf32>
    %products = dot(%wide, %square, %wide) : tile<32x16xf32>
    %nothing = reduce(%products) {axis=1, fn="add"} : tile<32xf32>
    %more = add(%double, %nothing) : tile<32xf32>
    %sum1 = add(%more, %x1) : tile<32xf32>
    yield(%sum1)
  }"""
        + TAIL
    )
    out = structured(func)
    assert kinds(out).count("load_box") == 1
    assert all(o.operands[0] is out.params[0] for o in views(out)[:1])  # nothing before the array
    x = np.arange(3 * 5 * 64, dtype=np.float32)
    before, after = np.zeros(32, np.float32), np.zeros(32, np.float32)
    oracle.run(func, [x, before, 5, 1], (3,))
    oracle.run(out, [x, after, 5, 1], (3,))
    np.testing.assert_array_equal(before, after)
    assert before.any()
