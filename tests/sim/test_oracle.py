"""The oracle against NumPy, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.sim.kernels import pointer_gemm
from warploom.errors import LaunchError
from warploom.ir.core import Builder, Func, Level, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.types import DTYPES, DType, Pointer, Scalar, bf16, f8e4m3, f16, f32, i8, i32, i64
from warploom.sim import memory, oracle
from warploom.sim.evaluate import PURE
from warploom.sim.report import MemoryFault, StepLimit
from warploom.sim.rounding import round_to


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(np.float32).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [bf16, f16, f8e4m3])
@pytest.mark.parametrize(
    "m, n, k", [(64, 64, 64), (70, 33, 17), (1, 1, 1), (5, 40, 0), (64, 33, 100)]
)
def test_gemm_is_exact_on_integers(dtype: DType, m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m + n + k)
    a, b = integers(rng, (m, k), dtype), integers(rng, (k, n), dtype)
    c = np.full((m, n), 9, np.float32).astype(dtype.numpy)
    oracle.run(
        pointer_gemm(dtype, 32, 32, 16), (a, b, c, m, n, k), (math.ceil(m / 32), math.ceil(n / 32))
    )
    expected = round_to(a.astype(np.float64) @ b.astype(np.float64), dtype)
    np.testing.assert_array_equal(c.astype(np.float32), expected.astype(np.float32))


def test_unmasked_lane_out_of_bounds_is_named() -> None:
    p, b = Value(Pointer(f32), "x"), Builder()
    wide = tile.splat(b, p, shape=(8,))
    tile.load(b, arith.addptr(b, wide, tile.arange(b, start=0, end=8)))
    control.yield_(b)
    func = Func("read", b.region((p,)), Level.TILE)
    oracle.run(func, (np.zeros(8, np.float32),), 1)
    with pytest.raises(
        MemoryFault, match=r"load of element 7 of x, which has elements 0 to 6 \(at \(7,\)"
    ):
        oracle.run(func, (np.zeros(7, np.float32),), 1)


def box_copy(shape: tuple[int, int]) -> Func:
    """dst[i, j] ← src[i, j] of one box at (r, c), both row-major, extents h×w and the strides given."""
    names = ("src", "dst", "h", "w", "s0", "s1", "r", "c")
    kinds = (Pointer(i32), Pointer(i32), *[Scalar(i64)] * 4, Scalar(i32), Scalar(i32))
    params = tuple(Value(t, name) for t, name in zip(kinds, names, strict=True))
    src, dst, h, w, s0, s1, r, c = params
    b = Builder()
    one = arith.const(b, value=1, dtype=i64)
    x = tile.load_box(b, tile.make_view(b, src, h, w, s0, s1), r, c, shape=shape)
    tile.store_box(b, tile.make_view(b, dst, h, w, w, one), x, r, c)
    control.yield_(b)
    return Func("copy", b.region(params), Level.TILE)


@pytest.mark.parametrize("r, c", [(0, 0), (-2, 3), (4, 5), (100, 0), (5, -7)])
@pytest.mark.parametrize("turn", ["plain", "transposed", "reversed", "padded"])
def test_boxes_are_filled_and_clipped(r: int, c: int, turn: str) -> None:
    h, w = 7, 9
    x = np.arange(1, 1 + 2 * h * w, dtype=np.int32).reshape(h, 2 * w)[:, :w].copy()
    x = {
        "plain": x,
        "transposed": np.asfortranarray(x),
        "reversed": x[::-1, ::-1].copy()[::-1, ::-1],
        "padded": np.tile(x, 2)[:, :w],
    }[turn]
    out = np.zeros((h, w), np.int32)
    s0, s1 = (s // 4 for s in x.strides)
    oracle.run(box_copy((4, 8)), (x, out, h, w, s0, s1, r, c), 1)
    expected = np.zeros((h, w), np.int32)
    part = np.s_[max(r, 0) : max(r + 4, 0), max(c, 0) : max(c + 8, 0)]
    expected[part] = x[part]
    np.testing.assert_array_equal(out, expected)


def test_extents_beyond_the_buffer_matter_only_where_touched() -> None:
    x, out = np.ones((4, 8), np.int32), np.zeros((100, 8), np.int32)
    oracle.run(box_copy((4, 8)), (x, out, 100, 8, 8, 1, 0, 0), 1)
    with pytest.raises(MemoryFault, match="load of element 39 of src"):
        oracle.run(box_copy((4, 8)), (x, out, 100, 8, 8, 1, 1, 0), 1)


def unary(kind: object, x: object, of: DType, **attrs: object) -> object:
    b, v = Builder(), Value(Scalar(of))
    kind(b, v, **attrs)  # type: ignore[operator]
    return PURE[b.ops[0].kind](b.ops[0], x)


def binary(kind: object, x: object, y: object, dtype: DType) -> object:
    b, v, w = Builder(), Value(Scalar(dtype)), Value(Scalar(dtype))
    kind(b, v, w)  # type: ignore[operator]
    return PURE[b.ops[0].kind](b.ops[0], dtype.numpy.type(x), dtype.numpy.type(y))


@pytest.mark.parametrize(
    "x, y, q, r", [(7, 2, 3, 1), (-7, 2, -3, -1), (7, -2, -3, 1), (-7, -2, 3, -1)]
)
def test_integer_division_is_that_of_c(x: int, y: int, q: int, r: int) -> None:
    assert binary(arith.idiv, x, y, i32) == q
    assert binary(arith.rem, x, y, i32) == r


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("source", "to", "wanted"),
    [
        (np.float32, "i8", [0, 127, -128, 127, -1]),
        (np.float32, "u16", [0, 65535, 0, 300, 0]),
        (np.float32, "i32", [0, 2**31 - 1, -(2**31), 300, -1]),
        (np.float32, "i64", [-(2**63), 2**63 - 1, -(2**63), 300, -1]),
        (np.float32, "u64", [2**63, 2**64 - 1, 0, 300, 0]),
        (np.float64, "i32", [-(2**31), 2**31 - 1, -(2**31), 300, -1]),
        (np.float64, "u8", [255, 255, 0, 255, 0]),
    ],
)
def test_floats_become_integers_as_in_ptx(source: Any, to: str, wanted: list[int]) -> None:
    """Out of range clamps; NaN is 0 where neither type has 64 bits, else the highest bit (PTX ISA, "cvt"),
    clamped for integers of 8 and 16 bits."""
    x = np.array([NAN, INF, -INF, 300.7, -1.2], source)
    assert round_to(x, DTYPES[to]).tolist() == wanted


@pytest.mark.parametrize(
    ("to", "digits"), [("f16", 10), ("bf16", 7), ("f8e4m3", 3), ("f8e5m2", 2)], ids=str
)
def test_a_double_is_rounded_once(to: str, digits: int) -> None:
    """Just above the middle of two numbers, by less than float32 shows; and just below."""
    unit = 2.0**-digits
    x = np.array([1 + unit / 2 + 2.0**-40, 1 + 1.5 * unit - 2.0**-40])
    for sign in (1, -1):
        assert (sign * round_to(sign * x, DTYPES[to]).astype(float)).tolist() == [1 + unit] * 2
    special = round_to(np.array([INF, NAN, 0.0, -0.0, 2.0**-200]), DTYPES["bf16"]).astype(float)
    assert special[0] == INF and np.isnan(special[1]) and not special[2:].any()


def test_numbers() -> None:
    assert binary(arith.add, 127, 1, i8) == -128
    assert binary(arith.maximum, math.nan, 2.0, f32) == 2.0
    assert binary(arith.div, 1.0, 0.0, f32) == math.inf
    assert float(binary(arith.add, 256.0, 1.0, bf16)) == 256.0  # type: ignore[arg-type]
    assert unary(arith.cast, np.float32(-2.7), f32, dtype=i32) == -2
    assert unary(arith.cast, np.float32(3e9), f32, dtype=i32) == 2**31 - 1
    assert unary(arith.cast, np.float32(math.nan), f32, dtype=i32) == 0
    assert float(unary(arith.cast, np.float32(1e6), f32, dtype=f8e4m3)) == 448.0  # type: ignore[arg-type]
    assert unary(arith.bitcast, np.float32(1.0), f32, dtype=i32) == 0x3F800000
    assert abs(float(unary(arith.erf, np.float32(0.5), f32)) - math.erf(0.5)) < 1e-7  # type: ignore[arg-type]


def test_arguments_are_checked() -> None:
    func = pointer_gemm(bf16, 32, 32, 16)
    a = np.zeros((4, 4), np.float32)
    with pytest.raises(LaunchError, match="takes 6 arguments"):
        oracle.run(func, (a,), 1)
    with pytest.raises(LaunchError, match="a holds float32, the kernel takes an array of bf16"):
        oracle.run(func, (a, a, a, 1, 1, 1), 1)
    with pytest.raises(LaunchError, match="grid"):
        memory.grid_of((1, 2, 3, 4))


@wl.jit
def counting(a, n):
    i = 0
    while i < n:
        i += tl.load(a)
    tl.store(a + 1, i)


@wl.jit
def waiting(flags):
    while tl.atomic_add(flags, 0) < tl.program_id(0) + 2:
        pass
    tl.atomic_add(flags, 1)


@wl.jit
def counted(out, n, m):
    total = 0
    for _ in range(n):
        for _i in range(-m, m):
            total += 1
    tl.store(out, total)


@pytest.mark.parametrize("way", ["oracle", "simulator", "timeline", "check"])
@pytest.mark.parametrize(("n", "m"), [(1, 2**40), (2**62, 2**62), (2**40, 15)])
@pytest.mark.each(5)
def test_a_for_of_so_many_iterations_is_an_error(
    way: str, n: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone or together; a check doesn't run them."""
    monkeypatch.setenv("WARPLOOM_MAX_TRIPS", "10")
    monkeypatch.setenv("WARPLOOM_CACHE", "off")
    out = np.zeros(1, np.int64)

    def run(*args: Any) -> Any:
        if way == "oracle":
            return counted[(1,)](*args)
        compiled = counted.compile_for(*args, grid=(1,))
        ways = {"simulator": "simulate", "timeline": "timeline", "check": "check"}
        return getattr(compiled, ways[way])(*args, grid=(1,))

    run(out, 1, 16)
    run(out, 16, 15)
    if way == "check":
        assert "0 of 1 programs were run as they are" in str(run(out, n, m))
        return
    with pytest.raises(StepLimit, match="those of the program are more than 1,000 in all") as e:
        run(out, n, m)
    assert e.value.loc is not None and "WARPLOOM_MAX_TRIPS" in (e.value.help or "")


@pytest.mark.parametrize("way", ["oracle", "simulator", "algebra", "timeline"])
def test_a_while_that_never_ends_is_an_error(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU nobody else could end it; the limit can be raised."""
    monkeypatch.setenv("WARPLOOM_MAX_TRIPS", "50")
    monkeypatch.setenv("WARPLOOM_CACHE", "off")

    def run(kernel: wl.JITFunction, grid: int, *args: Any) -> None:
        if way == "oracle":
            kernel[(grid,)](*args)
            return
        compiled = kernel.compile_for(*args, grid=(grid,))
        if way == "timeline":
            compiled.timeline(*args, grid=(grid,))
        else:
            compiled.simulate(*args, grid=(grid,), algebra=way == "algebra", order="late")

    ends = np.array([1, 0], np.int32)
    run(counting, 1, ends, 50)
    if way != "algebra":  # which leaves arrays as they are
        assert ends[1] == 50
    for kernel, args in (
        (counting, (np.array([1, 0], np.int32), 51)),
        (counting, (np.zeros(2, np.int32), 3)),
        (waiting, (np.zeros(1, np.int32),)),
    ):
        with pytest.raises(StepLimit, match="a loop runs for more than 50 iterations") as e:
            run(kernel, 2, *args)
        assert e.value.loc is not None and "WARPLOOM_MAX_TRIPS" in (e.value.help or "")
    monkeypatch.setenv("WARPLOOM_MAX_TRIPS", "60")
    run(counting, 1, ends, 60)
