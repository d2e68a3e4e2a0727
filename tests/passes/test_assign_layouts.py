"""assign_layouts: which layouts it chooses, where it converts, and that programs compute what they did."""

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.passes import kernels, road
from tests.passes.ir_cases import SILENT
from tests.unit.layouts import covers
from warploom.errors import CompileError, InternalError
from warploom.ir.core import Func, Op, walk
from warploom.ir.ops import arith, control, mbarrier, smem, tile, tma
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.types import InFlight, Tile
from warploom.ir.verify import verify
from warploom.layout import Layout, wgmma_a, wgmma_acc
from warploom.layout.choose import conversion
from warploom.passes.placed.assign_layouts import assign_layouts
from warploom.schedule.model import Knobs
from warploom.sim import oracle
from warploom.sim.machine import simulate
from warploom.target import SM_90A

GOLDEN = Path(__file__).parents[1] / "golden" / "gemm_bf16_tn.warp.ir"


def placed(text: str, settled: bool = True) -> Func:
    """Through both passes to PLACED; what comes out verifies, and parses to itself.

    settled: assign_layouts changes nothing when it runs again."""
    func = parse_func(text)
    verify(func)
    laid_out = assign_layouts(func, SM_90A)
    verify(laid_out)
    if settled:
        assert print_func(assign_layouts(laid_out, SM_90A)) == print_func(laid_out)
    out = road.placed(func)
    assert print_func(parse_func(print_func(out))) == print_func(out)
    return out


def kernel(params: str, body: str, warps: int = 4, entry: str = "") -> str:
    return f"""func @k({params}) level=WARP {{warps={warps}}} {{
  {entry}
  tasks() {{names=("main",), warps=({warps},), replicas=(1,), registers=(none,)}} do {{
    {body}
    yield()
  }}
  yield()
}}"""


def ops(func: Func, *kinds: object) -> list[Op]:
    return [o for o in walk(func.body) if o.kind in kinds]


def conversions(func: Func) -> list[str]:
    found = []
    for o in ops(func, tile.convert_layout):
        t = o.operands[0].type
        assert isinstance(t, Tile)
        found.append(conversion(t.layout, o.attrs["layout"]).kind)
    return found


def layout(func: Func, name: str) -> Layout:
    """Of the value of that name (the one, or the first of several copies)."""
    for o in walk(func.body):
        for v in (*o.results, *(p for r in o.regions for p in r.params)):
            if v.hint == name:
                t = v.type.tile if isinstance(v.type, InFlight) else v.type
                assert isinstance(t, Tile) and isinstance(t.layout, Layout)
                return t.layout
    raise AssertionError(f"no %{name}")


def same_results(text: str, out: Func, *args: np.ndarray | int) -> tuple[np.ndarray | int, ...]:
    """The arguments after the program ran, at PLACED as at WARP."""
    before, after = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in "ab")
    simulate(parse_func(text), before, 1, seed=1)
    simulate(out, after, 1, seed=2)
    for x, y in zip(before, after, strict=True):
        assert np.array_equal(x, y)
    return tuple(after)


# ---- wgmma


def test_the_target_gemm_needs_no_conversion() -> None:
    out = placed(GOLDEN.read_text())
    assert not ops(out, tile.convert_layout)
    assert (
        layout(out, "acc") == layout(out, "zeros") == layout(out, "rounded") == wgmma_acc((64, 256))
    )
    assert all(layout(out, f"chunk{i}") == wgmma_acc((64, 64)) for i in range(4))
    before, after = (
        [o.kind.name for o in walk(f.body)] for f in (parse_func(GOLDEN.read_text()), out)
    )
    assert before == [name for name in after if name not in ("grid_wait", "grid_release")]


ATTENTION = """func @attention(%o: ptr<f32>, %n: i32) level=WARP {warps=4} {
  %q = shared_alloc() {name="q", lead=(), shape=(64, 64), dtype=bf16, inner=1, swizzle=128}
  %k = shared_alloc() {name="k", lead=(), shape=(64, 128), dtype=bf16, inner=0, swizzle=128}
  %v = shared_alloc() {name="v", lead=(), shape=(128, 64), dtype=DTYPE, inner=INNER, swizzle=128}
  tasks() {names=("main",), warps=(4,), replicas=(1,), registers=(none,)} do {
    %c0 = const() {value=0, dtype=i32}
    %c1 = const() {value=1, dtype=i32}
    %false = const() {value=false, dtype=i1}
    %true = const() {value=true, dtype=i1}
    %zero = const() {value=0.0, dtype=f32}
    %minus = const() {value=-inf, dtype=f32}
    %m0 = splat(%minus) {shape=(64,)}
    %l0 = splat(%zero) {shape=(64,)}
    %o0 = splat(%zero) {shape=(64, 64)}
    %m_end, %l_end, %o_end = for(%c0, %n, %c1, %m0, %l0, %o0) : tile<64xf32>, tile<64xf32>, tile<64x64xf32> do (%i: i32, %m: tile<64xf32>, %l: tile<64xf32>, %out: tile<64x64xf32>) {
      %s0 = no_acc() {shape=(64, 128)}
      wgmma_fence()
      %s1 = wgmma(%q, %k, %s0, %false)
      wgmma_commit()
      %s = wgmma_wait(%s1) {pending=0}
      %top = reduce(%s) {axis=1, fn="max"}
      %m_new = maximum(%m, %top)
      %m_col = expand_dims(%m_new) {axis=1}
      %m_wide = broadcast(%m_col) {shape=(64, 128)}
      %shifted = sub(%s, %m_wide)
      %p = exp2(%shifted)
      %step = sub(%m, %m_new)
      %alpha = exp2(%step)
      %sum = reduce(%p) {axis=1, fn="add"}
      %l_old = mul(%l, %alpha)
      %l_new = add(%l_old, %sum)
      %a_col = expand_dims(%alpha) {axis=1}
      %a_wide = broadcast(%a_col) {shape=(64, 64)}
      %o_old = mul(%out, %a_wide)
      %rounded = cast(%p) {dtype=DTYPE}
      %o_in = in_flight(%o_old)
      wgmma_fence()
      %o_next = wgmma(%rounded, %v, %o_in, %true)
      wgmma_commit()
      %o_new = wgmma_wait(%o_next) {pending=0}
      yield(%m_new, %l_new, %o_new)
    }
    %l_col = expand_dims(%l_end) {axis=1}
    %l_wide = broadcast(%l_col) {shape=(64, 64)}
    %result = div(%o_end, %l_wide)
    %rows = arange() {start=0, end=64}
    %columns = arange() {start=0, end=64}
    %row = expand_dims(%rows) {axis=1}
    %rows2 = broadcast(%row) {shape=(64, 64)}
    %column = expand_dims(%columns) {axis=0}
    %columns2 = broadcast(%column) {shape=(64, 64)}
    %c64 = const() {value=64, dtype=i32}
    %wide = splat(%c64) {shape=(64, 64)}
    %up = mul(%rows2, %wide)
    %at = add(%up, %columns2)
    %base = splat(%o) {shape=(64, 64)}
    %p_out = addptr(%base, %at)
    store(%p_out, %result)
    yield()
  }
  yield()
}"""


def test_softmax_between_two_dots_needs_no_conversion() -> None:
    out = placed(ATTENTION.replace("DTYPE", "bf16").replace("INNER", "1"))
    assert not ops(out, tile.convert_layout)
    scores = wgmma_acc((64, 128))
    assert layout(out, "p") == layout(out, "rounded") == scores
    assert layout(out, "m") == layout(out, "alpha") == layout(out, "l_end") == scores.drop(1)
    assert layout(out, "out") == layout(out, "result") == layout(out, "at") == wgmma_acc((64, 64))


def test_an_fp8_operand_in_registers_is_converted() -> None:
    out = placed(ATTENTION.replace("DTYPE", "f8e4m3").replace("INNER", "0"))
    (convert,) = ops(out, tile.convert_layout)
    assert convert.operands[0].hint == "rounded"
    assert convert.attrs["layout"] == wgmma_a((64, 128), 8)


def test_wgmma_needs_a_warp_group() -> None:
    text = kernel(
        "",
        '%a = no_acc() {shape=(64, 64)}\n%t = wgmma_wait(%a) {pending=0}\ndevice_print(%t) {prefix=""}',
        8,
    )
    with pytest.raises(InternalError, match="8 warps"):
        assign_layouts(parse_func(text), SM_90A)


EPILOGUE = (
    "%x: ptr<bf16>, %y: ptr<f32>, %bias: ptr<f32>",
    """%acc = no_acc() {shape=(64, 128)}
    %t = wgmma_wait(%acc) {pending=0}
    %zero = const() {value=0, dtype=i32}
    %residual = load_box(%v, %zero, %zero) {shape=(64, 128)}
    %wide = cast(%residual) {dtype=f32}
    %sum = add(%t, %wide)
    %n = arange() {start=0, end=128}
    %p0 = splat(%bias) {shape=(128,)}
    %p = addptr(%p0, %n)
    %b = load(%p)
    %b_row = expand_dims(%b) {axis=0}
    %b_wide = broadcast(%b_row) {shape=(64, 128)}
    %out = add(%sum, %b_wide)
    store_box(%w, %out, %zero, %zero)""",
    4,
    """%m = const() {value=64, dtype=i64}
  %n0 = const() {value=128, dtype=i64}
  %one = const() {value=1, dtype=i64}
  %v = make_view(%x, %m, %n0, %n0, %one) {divisible=(16, 16, 1)}
  %w = make_view(%y, %m, %n0, %n0, %one) {divisible=(16, 16, 1)}""",
)


def test_an_epilogue_reads_and_writes_in_the_accumulators_layout() -> None:
    out = placed(kernel(*EPILOGUE))
    assert not ops(out, tile.convert_layout)
    acc = wgmma_acc((64, 128))
    assert layout(out, "residual") == layout(out, "out") == acc
    assert layout(out, "b") == layout(out, "p") == acc.drop(0)


# ---- memory


def copy(inner_out: int, n: int = 128) -> str:
    strides, rows = {1: ("%n, %one", 16), 0: ("%one, %n", 1)}[inner_out]
    return kernel(
        "%x: ptr<f32>, %y: ptr<f32>",
        f"""%zero = const() {{value=0, dtype=i32}}
    %t = load_box(%v, %zero, %zero) {{shape=({n}, {n})}}
    %u = add(%t, %t)
    store_box(%w, %u, %zero, %zero)""",
        4,
        f"""%n = const() {{value={n}, dtype=i64}}
  %one = const() {{value=1, dtype=i64}}
  %v = make_view(%x, %n, %n, %n, %one) {{divisible=(16, 16, 1)}}
  %w = make_view(%y, %n, %n, {strides}) {{divisible=(16, {rows}, 1)}}""",
    )


def test_boxes_are_coalesced_along_the_views_inner_axis() -> None:
    text = copy(1)
    out = placed(text)
    assert not ops(out, tile.convert_layout)
    assert layout(out, "t") == Layout.parse("blocked(128x128, inner=1, vector=4, warps=4)")
    x = np.arange(128 * 128, dtype=np.float32)
    _, y = same_results(text, out, x, np.zeros_like(x))
    assert np.array_equal(y, 2 * x)


def test_a_transposed_copy_converts_once_through_shared_memory() -> None:
    text = copy(0)
    out = placed(text)
    assert conversions(out) == ["shared"]
    (store,) = ops(out, tile.store_box)
    stored = store.operands[1].type
    assert isinstance(stored, Tile) and stored.layout.contiguous(0) >= 1
    assert stored.layout == Layout.parse("blocked(128x128, inner=0, vector=1, warps=4)")
    (scratch,) = ops(out, smem.shared_alloc)
    assert scratch.attrs["shape"] == (128 * 128 * 4,)
    x = np.arange(128 * 128, dtype=np.float32)
    _, y = same_results(text, out, x, np.zeros_like(x))
    assert isinstance(y, np.ndarray)
    assert np.array_equal(y.reshape(128, 128), 2 * x.reshape(128, 128).T)


def test_alignment_that_a_view_promises_bounds_its_vectors() -> None:
    text = copy(1).replace("divisible=(16, 16, 1)", "divisible=(16, 2, 1)")
    assert layout(placed(text), "t").contiguous(1) == 2
    text = copy(1).replace(" {divisible=(16, 16, 1)}", "")
    assert layout(placed(text), "t").contiguous(1) == 1


SOFTMAX = (
    "%x: ptr<f32>, %y: ptr<f32>, %n: i32",
    """%rows = arange() {start=0, end=8}
    %columns = arange() {start=0, end=96}
    %row = expand_dims(%rows) {axis=1}
    %row2 = broadcast(%row) {shape=(8, 96)}
    %column = expand_dims(%columns) {axis=0}
    %column2 = broadcast(%column) {shape=(8, 96)}
    %width = splat(%n) {shape=(8, 96)}
    %up = mul(%row2, %width)
    %at = add(%up, %column2)
    %inside = lt(%column2, %width)
    %x0 = splat(%x) {shape=(8, 96)}
    %xp = addptr(%x0, %at)
    %minus = const() {value=-inf, dtype=f32}
    %other = splat(%minus) {shape=(8, 96)}
    %t = load(%xp, %inside, %other)
    %top = reduce(%t) {axis=1, fn="max"}
    %top_col = expand_dims(%top) {axis=1}
    %top2 = broadcast(%top_col) {shape=(8, 96)}
    %shifted = sub(%t, %top2)
    %e = exp(%shifted)
    %sum = reduce(%e) {axis=1, fn="add"}
    %sum_col = expand_dims(%sum) {axis=1}
    %sum2 = broadcast(%sum_col) {shape=(8, 96)}
    %out = div(%e, %sum2)
    %y0 = splat(%y) {shape=(8, 96)}
    %yp = addptr(%y0, %at)
    store(%yp, %out, %inside)""",
)


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_a_uniform_softmax_has_one_layout(warps: int) -> None:
    text = kernel(*SOFTMAX, warps)
    out = placed(text)
    assert not ops(out, tile.convert_layout)
    t = layout(out, "t")
    # Single elements behind pointers: adjacent lanes take adjacent ones.
    assert [tuple(int(c) for c in t.coords(0, lane)) for lane in range(3)] == [
        (0, 0),
        (0, 1),
        (0, 2),
    ]
    assert t.warps == warps and layout(out, "xp") == layout(out, "out") == t
    assert layout(out, "top") == t.drop(1)
    n = 90
    x = np.random.default_rng(1).normal(size=(8, n)).astype(np.float32)
    _, y, _ = same_results(text, out, x.reshape(-1), np.zeros(8 * n, np.float32), n)
    want = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(np.reshape(y, (8, n)), want / want.sum(1, keepdims=True), rtol=1e-5)


def test_a_column_major_pointer_tile_is_read_along_its_columns() -> None:
    text = kernel(*SOFTMAX).replace("mul(%row2, %width)", "mul(%column2, %width)")
    text = text.replace("add(%up, %column2)", "add(%up, %row2)")
    t = layout(placed(text), "t")
    assert [tuple(int(c) for c in t.coords(0, lane)) for lane in range(3)] == [
        (0, 0),
        (1, 0),
        (2, 0),
    ]


def test_pointers_carried_by_a_loop_take_the_loads_layout() -> None:
    text = kernel(
        "%x: ptr<f32>, %y: ptr<f32>, %n: i32",
        """%c0 = const() {value=0, dtype=i32}
    %c1 = const() {value=1, dtype=i32}
    %c128 = const() {value=128, dtype=i32}
    %zero = const() {value=0.0, dtype=f32}
    %at = arange() {start=0, end=128}
    %x0 = splat(%x) {shape=(128,)}
    %start = addptr(%x0, %at)
    %sum0 = splat(%zero) {shape=(128,)}
    %step = splat(%c128) {shape=(128,)}
    %p_end, %sum_end = for(%c0, %n, %c1, %start, %sum0) : tile<128xptr<f32>>, tile<128xf32> do (%i: i32, %p: tile<128xptr<f32>>, %sum: tile<128xf32>) {
      %v = load(%p)
      %sum_new = add(%sum, %v)
      %p_new = addptr(%p, %step)
      yield(%p_new, %sum_new)
    }
    %y0 = splat(%y) {shape=(128,)}
    %yp = addptr(%y0, %at)
    store(%yp, %sum_end)""",
    )
    out = placed(text)
    assert not ops(out, tile.convert_layout)
    assert layout(out, "p") == layout(out, "v") == layout(out, "sum") == layout(out, "step")
    x = np.arange(384, dtype=np.float32)
    _, y, _ = same_results(text, out, x, np.zeros(128, np.float32), 3)
    assert np.array_equal(y, x.reshape(3, 128).sum(0))


# ---- cheap values, control flow, shapes


def test_cheap_values_are_made_again_in_each_layout_instead_of_converted() -> None:
    """One index tile masks an accumulator and addresses a load of its own layout."""
    text = kernel(
        "%x: ptr<f32>, %out: ptr<f32>, %n: i32",
        """%acc = no_acc() {shape=(64, 128)}
    %t = wgmma_wait(%acc) {pending=0}
    %columns = arange() {start=0, end=128}
    %limit = splat(%n) {shape=(128,)}
    %inside = lt(%columns, %limit)
    %p0 = splat(%x) {shape=(128,)}
    %p = addptr(%p0, %columns)
    %b = load(%p, %inside)
    %o0 = splat(%out) {shape=(128,)}
    %op = addptr(%o0, %columns)
    store(%op, %b, %inside)
    %mask_row = expand_dims(%inside) {axis=0}
    %mask = broadcast(%mask_row) {shape=(64, 128)}
    %zero = const() {value=0.0, dtype=f32}
    %zeros = splat(%zero) {shape=(64, 128)}
    %kept = select(%mask, %t, %zeros)
    device_print(%kept) {prefix="kept"}""",
    )
    out = placed(text)
    assert not ops(out, tile.convert_layout)
    plain, row = layout(out, "b"), wgmma_acc((64, 128)).drop(0)
    assert plain != row and not plain.is_replicated
    assert {o.result.type.layout for o in ops(out, tile.arange)} == {plain, row}
    assert {o.result.type.layout for o in ops(out, arith.lt)} == {plain, row}
    assert len(ops(out, arith.addptr)) == 2


def test_unused_cheap_values_disappear() -> None:
    out = placed(kernel("", "%a = arange() {start=0, end=128}"))
    assert not ops(out, tile.arange)


def test_both_arms_of_an_if_end_in_one_layout() -> None:
    text = kernel(
        "%x: ptr<f32>, %y: ptr<f32>, %n: i32",
        """%c0 = const() {value=0, dtype=i32}
    %zero = const() {value=0.0, dtype=f32}
    %at = arange() {start=0, end=256}
    %x0 = splat(%x) {shape=(256,)}
    %p = addptr(%x0, %at)
    %some = gt(%n, %c0)
    %v = if(%some) : tile<256xf32> do {
      %loaded = load(%p)
      yield(%loaded)
    } do {
      %zeros = splat(%zero) {shape=(256,)}
      yield(%zeros)
    }
    %y0 = splat(%y) {shape=(256,)}
    %yp = addptr(%y0, %at)
    store(%yp, %v)""",
    )
    out = placed(text)
    assert not ops(out, tile.convert_layout)
    assert layout(out, "v") == layout(out, "zeros") == layout(out, "loaded")
    x = np.arange(256, dtype=np.float32)
    for n in (0, 1):
        _, y, _ = same_results(text, out, x, np.ones(256, np.float32), n)
        assert np.array_equal(y, x * n)


def test_while_carries_one_layout() -> None:
    text = kernel(
        "%x: ptr<i32>, %n: i32",
        """%at = arange() {start=0, end=64}
    %x0 = splat(%x) {shape=(64,)}
    %p = addptr(%x0, %at)
    %start = load(%p)
    %c0 = const() {value=0, dtype=i32}
    %c1 = const() {value=1, dtype=i32}
    %i_end, %v_end = while(%c0, %start) : i32, tile<64xi32> do (%i: i32, %v: tile<64xi32>) {
      %more = lt(%i, %n)
      yield(%more, %i, %v)
    } do (%j: i32, %w: tile<64xi32>) {
      %next = add(%j, %c1)
      %twice = add(%w, %w)
      yield(%next, %twice)
    }
    store(%p, %v_end)""",
        2,
    )
    out = placed(text)
    assert not ops(out, tile.convert_layout)
    x, _ = same_results(text, out, np.arange(64, dtype=np.int32), 3)
    assert np.array_equal(x, 8 * np.arange(64))


def test_slices_of_lane_spread_tiles_get_registers() -> None:
    """Halves of rows that a coalesced layout spreads over lanes: converted once, then both are registers."""
    text = kernel(
        "%x: ptr<f32>, %y: ptr<f32>",
        """%zero = const() {value=0, dtype=i32}
    %t = load_box(%v, %zero, %zero) {shape=(64, 64)}
    %left = slice_tile(%t) {offset=(0, 0), shape=(64, 32)}
    %right = slice_tile(%t) {offset=(0, 32), shape=(64, 32)}
    %sum = add(%left, %right)
    store_box(%w, %sum, %zero, %zero)""",
        4,
        """%n = const() {value=64, dtype=i64}
  %half = const() {value=32, dtype=i64}
  %one = const() {value=1, dtype=i64}
  %v = make_view(%x, %n, %n, %n, %one) {divisible=(16, 16, 1)}
  %w = make_view(%y, %n, %half, %half, %one) {divisible=(16, 16, 1)}""",
    )
    out = placed(text)
    assert conversions(out) == ["shared"]
    left, right = ops(out, tile.slice_tile)
    assert left.operands == right.operands and left.result.type == right.result.type
    x = np.arange(64 * 64, dtype=np.float32)
    _, y = same_results(text, out, x, np.zeros(64 * 32, np.float32))
    assert isinstance(y, np.ndarray)
    halves = x.reshape(64, 2, 32).sum(1)
    assert np.array_equal(y.reshape(64, 32), halves)


def test_transpose_and_reshape_move_nothing() -> None:
    text = kernel(
        "%x: ptr<f32>, %y: ptr<f32>",
        """%zero = const() {value=0, dtype=i32}
    %t = load_box(%v, %zero, %zero) {shape=(64, 64)}
    %transposed = transpose(%t) {perm=(1, 0)}
    %flat = reshape(%t) {shape=(4096,)}
    %back = reshape(%flat) {shape=(64, 64)}
    %sum = add(%back, %t)
    store_box(%w, %transposed, %zero, %zero)
    store_box(%v, %sum, %zero, %zero)""",
        4,
        """%n = const() {value=64, dtype=i64}
  %one = const() {value=1, dtype=i64}
  %v = make_view(%x, %n, %n, %n, %one) {divisible=(16, 16, 1)}
  %w = make_view(%y, %n, %n, %one, %n) {divisible=(16, 1, 16)}""",
    )
    out = placed(text)
    assert not ops(out, tile.convert_layout)
    assert layout(out, "transposed") == layout(out, "t").permute((1, 0))
    x = np.arange(4096, dtype=np.float32)
    x2, y = same_results(text, out, x, np.zeros_like(x))
    assert np.array_equal(x2, 2 * x) and np.array_equal(y, x)


def test_a_row_statistic_from_elsewhere_is_converted_while_it_is_small() -> None:
    """Column sums of one tile scale the rows of another: only the vector of 64 changes layout."""
    text = kernel(
        "%x: ptr<f32>, %y: ptr<f32>",
        """%zero = const() {value=0, dtype=i32}
    %t = load_box(%v, %zero, %zero) {shape=(64, 64)}
    %sums = reduce(%t) {axis=0, fn="add"}
    %col = expand_dims(%sums) {axis=1}
    %wide = broadcast(%col) {shape=(64, 64)}
    %out = mul(%t, %wide)
    store_box(%w, %out, %zero, %zero)""",
        4,
        """%n = const() {value=64, dtype=i64}
  %one = const() {value=1, dtype=i64}
  %v = make_view(%x, %n, %n, %n, %one) {divisible=(16, 16, 1)}
  %w = make_view(%y, %n, %n, %n, %one) {divisible=(16, 16, 1)}""",
    )
    out = placed(text)
    (convert,) = ops(out, tile.convert_layout)
    assert convert.result.type.shape == (64, 1)
    assert convert.attrs["layout"] == layout(out, "t").drop(1).insert(1)
    x = np.random.default_rng(2).integers(-4, 5, 4096).astype(np.float32)
    _, y = same_results(text, out, x, np.zeros_like(x))
    square = x.reshape(64, 64)
    assert np.array_equal(np.reshape(y, (64, 64)), square * square.sum(0)[:, None])


def test_ops_without_tiles_stay_themselves() -> None:
    func = parse_func(GOLDEN.read_text())
    before = {o for o in walk(func.body) if o.kind in (tma.tma_load, mbarrier.mbarrier_wait)}
    after = set(walk(assign_layouts(func, SM_90A).body))
    assert before <= after
    loops = [o for o in walk(func.body) if o.kind is control.for_]
    assert [o in after for o in loops] == [False, False, True, True]


def test_a_statistic_of_shared_data_is_taken_where_the_accumulator_needs_it() -> None:
    """Row sums of a tile in shared memory scale an accumulator: the tile is read as the matrix unit would."""
    text = kernel(
        "",
        """%acc = no_acc() {shape=(64, 128)}
    %t = wgmma_wait(%acc) {pending=0}
    %a = shared_load(%s)
    %wide = cast(%a) {dtype=f32}
    %sums = reduce(%wide) {axis=1, fn="add"}
    %col = expand_dims(%sums) {axis=1}
    %scale = broadcast(%col) {shape=(64, 128)}
    %out = mul(%t, %scale)
    device_print(%out) {prefix=""}""",
        4,
        '%s = shared_alloc() {name="s", lead=(), shape=(64, 64), dtype=bf16, inner=1, swizzle=128}',
    )
    out = placed(text)
    assert not ops(out, tile.convert_layout)
    assert layout(out, "a") == wgmma_acc((64, 64))


def test_a_result_of_32_bits_is_the_next_left_operand() -> None:
    """Products of float32 take K in the order in which an accumulator has its columns."""
    text = kernel(
        "",
        """%a = shared_load(%s)
    %b = shared_load(%s)
    %c = const() {value=0.0, dtype=f32}
    %zero = splat(%c) {shape=(64, 64)}
    %first = dot(%a, %b, %zero) {unit="mma.sync"}
    %squares = mul(%first, %first)
    %d = shared_load(%s)
    %out = dot(%squares, %d, %zero) {unit="mma.sync"}
    device_print(%out) {prefix=""}""",
        4,
        '%s = shared_alloc() {name="s", lead=(), shape=(64, 64), dtype=f32, inner=1, swizzle=128}',
    )
    out = placed(text)
    assert "shared" not in conversions(out)
    acc, left = layout(out, "first"), ops(out, tile.dot)[1].operands[0].type
    assert isinstance(left, Tile) and acc.permutation(left.layout) is not None


@pytest.mark.parametrize(("warps", "width"), [(1, 4), (4, 2)])
def test_one_warp_loads_whole_lines(warps: int, width: int) -> None:
    """Its lanes exchange fragments without a barrier; several warps load 8 rows at once, as they multiply."""
    text = kernel(
        "%p: ptr<f32>",
        """%a = load_box(%v, %z, %z) {shape=(64, 64)}
    %b = mul(%a, %a)
    %c = const() {value=0.0, dtype=f32}
    %zero = splat(%c) {shape=(64, 64)}
    %out = dot(%b, %b, %zero) {unit="mma.sync"}
    device_print(%out) {prefix=""}""",
        warps,
        """%n = const() {value=64, dtype=i64}
  %one = const() {value=1, dtype=i64}
  %z = const() {value=0, dtype=i32}
  %v = make_view(%p, %n, %n, %n, %one) {divisible=(16, 16, 1)}""",
    )
    assert layout(placed(text), "a").contiguous(1) == width


@pytest.mark.parametrize(("columns", "exchanged"), [(16, False), (64, True)])
def test_one_warp_exchanges_what_then_fills_lines(columns: int, exchanged: bool) -> None:
    """Rows of 32 bytes are lines of their own however they are stored: of fragments two accesses touch each."""
    text = kernel(
        "%p: ptr<bf16>",
        f"""%a = load_box(%v, %z, %z) {{shape=(16, {columns})}}
    %c = const() {{value=0.0, dtype=f32}}
    %zero = splat(%c) {{shape=(16, {columns})}}
    %w = load_box(%v, %z, %z) {{shape=({columns}, {columns})}}
    %out = dot(%a, %w, %zero) {{unit="mma.sync"}}
    %y = cast(%out) {{dtype=bf16}}
    store_box(%v, %y, %z, %z)""",
        1,
        """%n = const() {value=64, dtype=i64}
  %one = const() {value=1, dtype=i64}
  %z = const() {value=0, dtype=i32}
  %v = make_view(%p, %n, %n, %n, %one) {divisible=(16, 16, 1)}""",
    )

    def stored(func: Func) -> int:
        (store,) = ops(func, tile.store_box)
        return store.operands[1].typed(Tile).layout.contiguous(1)

    assert stored(placed(text)) == (8 if exchanged else 2)
    few = replace(SILENT, few_registers=True)  # the exchange would take some
    assert stored(assign_layouts(parse_func(text), SM_90A, few)) == 2


@pytest.mark.parametrize("groups", [0, 2])
def test_derived_kernels_compute_the_same_when_placed(groups: int) -> None:
    rng = np.random.default_rng(3)
    a, b = (road.integers(rng, shape, ml_dtypes.bfloat16) for shape in ((256, 192), (192, 64)))
    args = [a, b, np.full((256, 64), 7, np.float32), 256, 64, 192, 192, 64, 64]
    func = road.tile(kernels.ROW_SUMS)
    want = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    oracle.run(func, want, 2)
    _, steps = road.lower(func, Knobs(num_consumer_groups=groups, num_buffers_warp_spec=2))
    out = road.placed(steps[-1][1])
    simulate(out, args, 2, seed=4)
    assert np.array_equal(args[2], want[2])


def reshaped(old: str, new: str, then: str = "") -> str:
    return kernel(
        "%x: ptr<f32>",
        f"""%zero = const() {{value=0, dtype=i32}}
    %t = load_box(%v, %zero, %zero) {{shape=({old})}}
    {then or f"%u = reshape(%t) {{shape=({new})}}"}
    device_print(%u) {{prefix=""}}""",
        4,
        """%n = const() {value=112, dtype=i64}
  %one = const() {value=1, dtype=i64}
  %v = make_view(%x, %n, %n, %n, %one)""",
    )


@pytest.mark.parametrize(
    "old, new", [("16, 48", "64, 12"), ("64, 24", "768, 2"), ("8, 12", "6, 16")]
)
def test_reshapes_of_odd_shapes_find_threads_or_stay_in_one(old: str, new: str) -> None:
    out = placed(reshaped(old, new), settled=False)
    (o,) = ops(out, tile.reshape)
    x, y = o.operands[0].type.layout, o.result.type.layout
    tiles = [np.arange(np.prod(t.shape)).reshape(t.shape) for t in (x, y)]
    inside = np.all([c < n for c, n in zip(x.table, x.shape, strict=True)], axis=0)
    assert inside.all() and covers(y)
    assert np.array_equal(tiles[0][x.table], tiles[1][y.table])


def test_a_reshape_that_divides_in_no_common_way_says_so() -> None:
    with pytest.raises(CompileError, match="6x96 can't be reshaped to 8x72") as caught:
        placed(reshaped("6, 96", "8, 72"))
    assert caught.value.code == "reshape-layout" and caught.value.loc is not None


@pytest.mark.parametrize(
    "offset, shape", [("98, 20", "7, 2"), ("0, 3", "112, 1"), ("56, 0", "56, 4")]
)
@pytest.mark.each(2)
def test_any_slice_finds_a_layout(offset: str, shape: str) -> None:
    cut = f"%u = slice_tile(%t) {{offset=({offset}), shape=({shape})}}"
    out = placed(reshaped("112, 24", "", cut))
    (o,) = ops(out, tile.slice_tile)
    part = o.operands[0].type.layout.slice(o.attrs["offset"], o.attrs["shape"])
    assert part is not None and part[0] == o.result.type.layout and covers(part[0])
