"""Round trips through shared and global memory on the GPU: stmatrix, swizzles, tails, cp.async, reductions,
conversions; integer-valued data, bit-equal."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.e2e.test_runs import add_rows, rows_to_add
from tests.gpu.probe import integers, needs_gpu, run
from tests.unit.codegen_kernels import SIZES, kernel, placed, through, view
from warploom.ir.core import walk
from warploom.ir.ops import tile
from warploom.ir.types import DTYPES

pytestmark = [pytest.mark.gpu, needs_gpu]


def apply(ops: str, x: Any, out: Any, *, dtype: str, out_dtype: str | None = None, shape: str,
          to: str | None = None) -> Any:  # fmt: skip
    """Runs `ops` from %x to %y; rows and columns of the memory are x's, which may be fewer than the tile's."""
    text = through(ops, dtype=dtype, out=out_dtype, shape=shape, to=to)
    *_, got = run(text, x, out, *x.shape)
    return got


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8e4m3", "f8e5m2", "u8", "i64", "f64"])
@pytest.mark.parametrize("size", [(64, 64), (61, 64), (64, 59), (3, 5), (1, 1)])
def test_boxes_with_tails(dtype: str, size: tuple[int, int]) -> None:
    if size[1] * DTYPES[dtype].bytes % 16:
        pytest.skip("the rows of these views are promised to be aligned")
    x = integers(size, DTYPES[dtype].numpy, high=3)
    got = apply(
        f"    %y = add(%x, %x) : tile<64x64x{dtype}>",
        x,
        np.zeros_like(x),
        dtype=dtype,
        shape="64x64",
    )
    np.testing.assert_array_equal(got, x + x)


@pytest.mark.parametrize("cols", [64, 56, 8])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_columns_beyond_the_extent_are_zero_and_untouched(dtype: str, cols: int) -> None:
    x = integers((40, cols), DTYPES[dtype].numpy, 5)
    got = apply(
        f"""    %r = reduce(%x) {{axis=1, fn="add"}} : tile<64x{dtype}>
    %e = expand_dims(%r) {{axis=1}} : tile<64x1x{dtype}>
    %y = broadcast(%e) {{shape=(64, 64)}} : tile<64x64x{dtype}>""",
        x, np.zeros_like(x), dtype=dtype, shape="64x64",
    )  # fmt: skip
    sums = x.astype(np.float32).sum(1, keepdims=True).astype(x.dtype)
    np.testing.assert_array_equal(got, np.broadcast_to(sums, x.shape))


@pytest.mark.parametrize("fn", ["add", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["f32", "i32", "bf16"])
def test_reductions(fn: str, axis: int, dtype: str) -> None:
    x = integers((64, 64), DTYPES[dtype].numpy, 7)
    got = apply(
        f"""    %r = reduce(%x) {{axis={axis}, fn="{fn}"}} : tile<64x{dtype}>
    %e = expand_dims(%r) {{axis={axis}}} : tile<{"1x64" if axis == 0 else "64x1"}x{dtype}>
    %y = broadcast(%e) {{shape=(64, 64)}} : tile<64x64x{dtype}>""",
        x, np.zeros_like(x), dtype=dtype, shape="64x64",
    )  # fmt: skip
    combine = {"add": np.sum, "max": np.max, "min": np.min}[fn]
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(
        got, np.broadcast_to(combine(wide, axis, keepdims=True), x.shape).astype(x.dtype)
    )


@pytest.mark.parametrize("dtype", ["f16", "f32", "f8e4m3", "i64"])
def test_transpose_through_scratch(dtype: str) -> None:
    x = integers((64, 64), DTYPES[dtype].numpy, 8, high=3)
    got = apply(
        f"""    %t = transpose(%x) {{perm=(1, 0)}} : tile<64x64x{dtype}>
    %y = sub(%x, %t) : tile<64x64x{dtype}>""",
        x, np.zeros_like(x), dtype=dtype, shape="64x64",
    )  # fmt: skip
    np.testing.assert_array_equal(got, x - x.T)


@pytest.mark.parametrize("to", ["bf16", "f16", "f8e4m3", "f8e5m2", "i32", "i8", "f64"])
def test_casts_round_to_nearest_even(to: str) -> None:
    x = (np.random.default_rng(3).standard_normal((64, 64)) * 4).astype(np.float32)
    out = np.zeros((64, 64), DTYPES[to].numpy)
    got = apply(
        f"    %y = cast(%x) {{dtype={to}}} : tile<64x64x{to}>",
        x,
        out,
        dtype="f32",
        out_dtype=to,
        shape="64x64",
    )
    np.testing.assert_array_equal(got, x.astype(DTYPES[to].numpy))


def shared_round_trip(
    dtype: str, shape: tuple[int, int], swizzle: int, *, store: str, load: str
) -> str:
    """global → shared (by `store`: tma, cp_async or registers) → global (by `load`: tma or registers)."""
    dims = "x".join(map(str, shape))
    slot = f"{dims}x{dtype}, inner=1, swizzle={swizzle}"
    before = SIZES + view("a", dtype) + view("b", dtype)
    arrivals = 1 if store == "tma" else 128
    before += (
        f'  %smem = shared_alloc() {{name="s", lead=(2,), shape={shape}, dtype={dtype}, inner=1,'
        f" swizzle={swizzle}}} : shared<[2]{slot}>\n"
        f'  %full = mbarrier_alloc() {{name="full", n=1, count={arrivals}}} : mbarriers<1>\n'
    )
    for name in "ab":
        before += (
            f"  %{name}_map = tensor_map(%{name}_view) {{box={shape}, inner=1, swizzle={swizzle}}}"
            f" : tensormap<{slot}>\n"
        )
    body = f"    %slot = shared_slot(%smem, %c1) : shared<{slot}>\n"
    if store == "tma":
        size = shape[0] * shape[1] * DTYPES[dtype].bytes
        body += f"""    elect() do {{
      mbarrier_expect(%full, %c0) {{bytes={size}}}
      tma_load(%a_map, %slot, %full, %c0, %c0, %c0)
      yield()
    }}
    mbarrier_wait(%full, %c0, %c0)
"""
    elif store.startswith("cp_async"):
        body += f"""    cp_async(%a_view, %slot, %c0, %c0) {{bytes={store.removeprefix("cp_async")}}}
    cp_async_arrive(%full, %c0)
    mbarrier_wait(%full, %c0, %c0)
"""
    else:
        body += f"    %x = load_box(%a_view, %c0, %c0) {{shape={shape}}} : tile<{dims}x{dtype}>\n"
        body += "    shared_store(%slot, %x)\n"
    if load == "tma":
        body += """    fence_async()
    group_sync() {scope="replica"}
    elect() do {
      tma_store(%b_map, %slot, %c0, %c0)
      tma_store_commit()
      tma_store_wait() {pending=0, read=false}
      yield()
    }"""
    else:
        body += f"""    group_sync() {{scope="replica"}}
    %y = shared_load(%slot) : tile<{dims}x{dtype}>
    store_box(%b_view, %y, %c0, %c0)"""
    return kernel(f"%a: ptr<{dtype}>, %b: ptr<{dtype}>, %M: i32, %N: i32", body, before=before)


@pytest.mark.parametrize(
    ("dtype", "shape", "swizzle"),
    [("bf16", (64, 64), 128), ("f16", (64, 128), 128), ("f32", (64, 32), 128), ("bf16", (64, 32), 64),
     ("bf16", (64, 96), 64), ("f16", (64, 16), 32), ("f8e4m3", (64, 128), 128), ("u8", (128, 32), 32),
     ("f32", (32, 24), 0), ("f64", (16, 16), 128)],
)  # fmt: skip
@pytest.mark.parametrize("store", ["tma", "cp_async16", "registers"])
@pytest.mark.parametrize("load", ["tma", "registers"])
@pytest.mark.parametrize("tail", [0, 16])
def test_shared_round_trips(
    dtype: str, shape: tuple[int, int], swizzle: int, store: str, load: str, tail: int
) -> None:
    """tail: bytes of each row, and 3 rows, that the memory lacks."""
    rows, cols = shape[0] - (3 if tail else 0), shape[1] - tail // DTYPES[dtype].bytes
    if cols <= 0:
        pytest.skip("nothing left")
    x = integers((rows, cols), DTYPES[dtype].numpy, 4, high=3)
    *_, got = run(
        shared_round_trip(dtype, shape, swizzle, store=store, load=load),
        x,
        np.zeros_like(x),
        rows,
        cols,
    )
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("cols", [64, 50, 34, 2])
def test_cp_async_in_small_pieces_with_tails(size: int, cols: int) -> None:
    """Rows of any even number of elements: a piece may end beyond the extent."""
    if cols * 2 % size:
        pytest.skip("rows not aligned to the piece")
    x = integers((37, cols), ml_dtypes.bfloat16, 6)
    text = shared_round_trip("bf16", (64, 64), 128, store=f"cp_async{size}", load="registers")
    text = text.replace("divisible=(16, 16, 1)", f"divisible=(16, {size // 2}, 1)")
    text = "\n".join(line for line in text.split("\n") if "_map = tensor_map" not in line)
    *_, got = run(text, x, np.zeros_like(x), 37, cols)
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize("cols", [64, 32, 8])
def test_accumulator_leaves_by_stmatrix_and_tma(cols: int) -> None:
    """The GEMM's epilogue: wgmma's accumulator as bf16, stmatrix, TMA store."""
    from tests.unit.codegen_wgmma import Product

    p = Product(64, 64, 64)
    text = p.text.replace("%c: ptr<f32>", "%c: ptr<bf16>").replace("view<2xf32>", "view<2xbf16>")
    slot = "64x64xbf16, inner=1, swizzle=128"
    text = text.replace(
        "  tasks()",
        '  %out = shared_alloc() {name="out", lead=(), shape=(64, 64), dtype=bf16, inner=1, swizzle=128}'
        f" : shared<{slot}>\n"
        f"  %c_map = tensor_map(%c_view) {{box=(64, 64), inner=1, swizzle=128}} : tensormap<{slot}>\n"
        "  tasks()",
    ).replace(
        "    store_box(%c_view, %sum, %c0, %c0)",
        """    %low = cast(%sum) {dtype=bf16} : tile<64x64xbf16>
    shared_store(%out, %low)
    fence_async()
    group_sync() {scope="replica"}
    elect() do {
      tma_store(%c_map, %out, %c0, %c0)
      tma_store_commit()
      tma_store_wait() {pending=0, read=false}
      yield()
    }""",
    )
    a, b = integers((64, 64), ml_dtypes.bfloat16, 1), integers((64, 64), ml_dtypes.bfloat16, 2)
    a[:, cols:] = 0
    *_, got = run(text, a, np.ascontiguousarray(b.T), np.zeros((64, 64), ml_dtypes.bfloat16))
    exact = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(got, exact.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8e4m3", "u8", "i16", "i64", "f64"])
@pytest.mark.parametrize("divisible", [1, 2, 4, 16])
def test_runs_by_pointers(dtype: str, divisible: int) -> None:
    """Loads with `other` and masked stores: several elements at once where the size is divisible."""
    elements, m = 4096, 4000 + divisible
    body = f"""    %r = arange() {{start=0, end={elements}}} : tile<{elements}xi32>
    %n = splat(%M) {{shape=({elements},)}} : tile<{elements}xi32>
    %mask = lt(%r, %n) : tile<{elements}x i1>
    %pa = splat(%a) {{shape=({elements},)}} : tile<{elements}xptr<{dtype}>>
    %pb = splat(%b) {{shape=({elements},)}} : tile<{elements}xptr<{dtype}>>
    %p = addptr(%pa, %r) : tile<{elements}xptr<{dtype}>>
    %q = addptr(%pb, %r) : tile<{elements}xptr<{dtype}>>
    %s = splat(%x) {{shape=({elements},)}} : tile<{elements}x{dtype}>
    %v = load(%p, %mask, %s) : tile<{elements}x{dtype}>
    store(%q, %v)""".replace("x i1", "xi1")
    text = kernel(
        f"%a: ptr<{dtype}>, %b: ptr<{dtype}>, %M: i32, %x: {dtype}",
        body,
        attrs=f", facts=(fact<16>, fact<16>, fact<{divisible}>, fact<1>)",
    )
    a = integers((elements,), DTYPES[dtype].numpy, divisible)
    one = 1 if DTYPES[dtype].is_int else 1.0
    *_, got = run(text, a, np.zeros_like(a), m, one)
    np.testing.assert_array_equal(got, np.where(np.arange(elements) < m, a, a.dtype.type(1)))
    widest = min(divisible, 16 // DTYPES[dtype].bytes)
    loads = [o.attrs.get("run", ()) for o in walk(placed(text).body) if o.kind is tile.load]
    assert loads == [(0, widest) if widest > 1 else ()]


@pytest.mark.parametrize("dtype", ["i32", "i64", "i16", "i8"])
def test_integers_wrap_and_divide_as_in_the_simulator(dtype: str) -> None:
    info = np.iinfo(DTYPES[dtype].numpy)
    edges = np.array([info.min, info.min + 1, -7, -1, 0, 1, 7, info.max], DTYPES[dtype].numpy)
    x = np.resize(edges, (8, 64))
    ops = """    %k = const() {value=3, dtype=DT} : DT
    %t = splat(%k) {shape=(64, 64)} : tile<64x64xDT>
    %tripled = mul(%x, %t) : tile<64x64xDT>
    %four = add(%tripled, %x) : tile<64x64xDT>
    %transposed = neg(%four) : tile<64x64xDT>
    %size = abs(%transposed) : tile<64x64xDT>
    %rest = rem(%size, %t) : tile<64x64xDT>
    %third = idiv(%four, %t) : tile<64x64xDT>
    %y = sub(%third, %rest) : tile<64x64xDT>""".replace("DT", dtype)
    got = apply(ops, x, np.zeros_like(x), dtype=dtype, shape="64x64")
    with np.errstate(all="ignore"):
        t = x.dtype.type(3)
        b = x * t + x
        d = np.abs(-b)
        wanted = np.trunc(b.astype(np.longdouble) / t).astype(x.dtype) - np.fmod(d, t)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_rows_are_added_to_those_that_an_index_names(dtype: Any) -> None:
    pytest.importorskip("torch")
    from tests.gpu.test_mma_sync import on_device

    x, rows, out, sums = rows_to_add(dtype, 2048, 256)
    moved = [on_device(v) for v in (x, rows, out)]
    add_rows[(32,)](*moved, 2048, N=256, BM=64)
    assert np.array_equal(moved[2].double().cpu().numpy(), np.float64(sums.astype(dtype)))
