"""The algebra mode: its field against Python's integers, programs that are right, programs that are not."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.errors import LaunchError
from warploom.ir.core import Builder, Func, Level, Value
from warploom.ir.ops import arith, control, tile
from warploom.ir.parser import parse_func
from warploom.ir.types import DType, Pointer, Tile, bf16, f8e4m3, f16, f32, i8, i16, i32, u64
from warploom.sim import field
from warploom.sim.algebra import compare
from warploom.sim.field import HALF, P
from warploom.sim.machine import simulate
from warploom.sim.report import SimError
from warploom.sim.residues import ALGEBRA, ResidueMemory

FILE = Path(__file__).parent.parent / "golden" / "gemm_bf16_tn.warp.ir"
GEMM = FILE.read_text(encoding="utf-8")
BF16 = ml_dtypes.bfloat16


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def random(rng: np.random.Generator, *shape: int) -> Any:
    found = rng.integers(-HALF, HALF + 1, shape).astype(np.float64)
    found.flat[:3] = HALF, -HALF, 0
    return found


def whole(x: Any) -> Any:
    """Residues as Python's integers, which have no end."""
    return np.vectorize(int, otypes=[object])(x)


def canonical(n: Any) -> Any:
    return np.vectorize(lambda v: v % P if v % P <= HALF else v % P - P, otypes=[object])(n)


# ---- the field


def test_p_is_prime_and_fits() -> None:
    assert all(P % d for d in range(2, int(P**0.5) + 1))
    assert HALF**2 < 2**50


def test_ring_and_field_are_those_of_integers_modulo_p() -> None:
    rng = np.random.default_rng(0)
    x, y = random(rng, 5000), random(rng, 5000)[::-1]
    for fn, exact in (
        (field.add, whole(x) + whole(y)),
        (field.subtract, whole(x) - whole(y)),
        (field.product, whole(x) * whole(y)),
        (field.negative, -whole(x)),
    ):
        got = fn(x) if fn is field.negative else fn(x, y)
        assert (whole(got) == canonical(exact)).all(), fn.__name__
    some = x[x != 0]
    assert (field.product(some, field.inverse(some)) == 1).all()


@pytest.mark.parametrize("m, k, n", [(3, 5, 4), (16, 64, 8), (2, 40000, 2)])
def test_a_product_of_matrices_is_exact(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(k)
    a, b = random(rng, m, k), random(rng, k, n)
    a[0], b[:, 0] = HALF, -HALF  # the largest partial sums
    assert (whole(field.matmul(a, b)) == canonical(whole(a) @ whole(b))).all()
    a[1, 2] = np.inf
    got = field.matmul(a, b)
    assert np.isnan(got[1]).all() and np.isfinite(got[0]).all()


def test_floats_that_need_no_rounding_compute_as_their_residues() -> None:
    rng = np.random.default_rng(2)
    x = np.ldexp(rng.integers(-100, 100, 500), rng.integers(-20, 20, 500))
    y = rng.integers(-100, 100, 500) / 8.0
    assert (field.naturals(x * y) == field.product(field.naturals(x), field.naturals(y))).all()
    assert (field.naturals(x + y) == field.add(field.naturals(x), field.naturals(y))).all()
    assert [field.natural(v) for v in x.tolist()] == field.naturals(x).tolist()
    assert [field.natural(v) for v in (0.0, -0.0, 1.0, -1.0, 7.0)] == [0, 0, 1, -1, 7]
    assert np.array_equal(field.naturals(np.array([np.inf, -np.inf])), [np.inf, -np.inf])


def test_infinities_keep_to_ieee() -> None:
    inf, nan, some = np.inf, np.nan, 12345.0
    assert field.add(inf, some) == inf and np.isnan(field.add(inf, -inf))
    assert field.product(-inf, some) == field.product(-inf, -some) == -inf  # see field.py
    assert field.product(-inf, -1.0) == field.negative(-inf) == inf
    assert np.isnan(field.product(inf, 0.0))
    assert field.inverse(np.float64(0.0)) == inf and field.quotient(some, inf) == 0
    assert np.isnan(field.quotient(0.0, 0.0)) and np.isnan(field.product(nan, some))


def unary(kind: Any, source: DType, **attrs: Any) -> Any:
    """What an op makes of eight elements."""
    b = Builder()
    kind(b, Value(Tile((8,), source), "x"), **attrs)
    control.yield_(b)
    return ALGEBRA.meaning(b.region(()).ops[0])


def test_functions_are_fixed_maps_with_the_values_that_programs_rely_on() -> None:
    x = np.array([0.0, 1.0, np.inf, -np.inf, np.nan, 5.0, -5.0, HALF])
    exp2 = unary(arith.exp2, f32)(x)
    assert exp2[0] == 1 and exp2[2] == np.inf and exp2[3] == 0 and np.isnan(exp2[4])
    assert np.array_equal(exp2, unary(arith.exp2, bf16)(x), equal_nan=True)
    log2 = unary(arith.log2, f32)(x)
    assert log2[0] == -np.inf and log2[1] == 0 and np.isnan(log2[3])
    root, inverse = unary(arith.sqrt, f32)(x), unary(arith.rsqrt, f32)(x)
    assert (field.product(root, inverse)[5:] == 1).all()
    assert len({*exp2[5:].tolist(), *log2[5:].tolist(), *root[5:].tolist()}) == 9


@pytest.mark.parametrize("fn", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("backwards", [False, True])
def test_reductions_and_scans(fn: str, backwards: bool) -> None:
    x = random(np.random.default_rng(4), 5, 33)
    step: dict[str, Any] = {"add": operator.add, "mul": operator.mul, "max": max, "min": min}
    rows = [
        list(itertools.accumulate(row[:: -1 if backwards else 1], step[fn])) for row in whole(x)
    ]
    wanted = canonical(np.array(rows, object))
    scanned = folding(tile.scan, x, fn=fn, axis=1, reverse=backwards)
    assert (whole(scanned) == (wanted[:, ::-1] if backwards else wanted)).all()
    assert (whole(folding(tile.reduce, x, fn=fn, axis=1)) == wanted[:, -1]).all()


def folding(kind: Any, x: Any, **attrs: Any) -> Any:
    b = Builder()
    kind(b, Value(Tile(x.shape, f32), "x"), **attrs)
    control.yield_(b)
    return ALGEBRA.meaning(b.region(()).ops[0])(x)


def test_atomics_and_reductions_in_memory() -> None:
    x, y = (random(np.random.default_rng(s), 50) for s in (5, 6))
    assert (whole(ALGEBRA.combined("add", x, y)) == canonical(whole(x) + whole(y))).all()
    assert (ALGEBRA.combined("max", x, y) == np.maximum(x, y)).all()
    counts = np.array([2**31 - 1], np.int32)
    assert ALGEBRA.combined("add", counts, counts) == -2  # integers stay integers


def test_casts() -> None:
    x = np.array([0.0, 1.0, np.inf, -np.inf, np.nan, 5.0, -300.0, HALF])
    assert unary(arith.cast, f32, dtype=f8e4m3)(x) is x
    assert unary(arith.cast, f32, dtype=i32)(x).tolist() == [
        *(0, 1, 2**31 - 1, -(2**31), 0, 5, -300, HALF),
    ]
    assert unary(arith.cast, f16, dtype=i8)(x).tolist()[5:7] == [5, -300 + 256]
    n = np.array([-1, 7, P, P + 3, -P - 4, HALF + 1, 2**31 - 1, -(2**31)], np.int32)
    assert (whole(unary(arith.cast, i32, dtype=f32)(n)) == canonical(n.astype(object))).all()
    huge = np.full(8, 2**64 - 1, np.uint64)
    assert (whole(unary(arith.cast, u64, dtype=f32)(huge)) == canonical(huge.astype(object))).all()


@pytest.mark.parametrize("dtype, word", [(f32, i32), (bf16, i16)])
def test_bits_come_back(dtype: DType, word: DType) -> None:
    x = np.array([0.0, 1.0, np.inf, -np.inf, 3.0, 5.0, -300.0, HALF])
    bits = unary(arith.bitcast, dtype, dtype=word)(x)
    assert bits.dtype == word.numpy
    back = unary(arith.bitcast, word, dtype=dtype)(bits)
    assert np.array_equal(back[: 8 if dtype is f32 else 7], x[: 8 if dtype is f32 else 7])
    infinity = np.array(-np.inf, np.float32).astype(dtype.numpy).view(word.numpy)
    assert bits[3] == infinity


def test_shared_memory_tells_floats_from_integers_and_proxies_apart() -> None:
    memory = ResidueMemory(64)
    at = np.arange(0, 16, 2)
    memory.write(at, np.arange(8.0), f16, False)
    assert memory.read(at, f16, False).tolist() == list(range(8))
    assert np.isnan(memory.read(at, f16, True)).all()
    memory.fence()
    assert memory.read(at, f16, True).tolist() == list(range(8))
    assert np.isnan(memory.read(at + 1, f8e4m3, False)).all()  # inside the elements
    memory.write(at[:2], np.array([1, 2], np.int16), i16, True)
    assert memory.read(at[:2], i16, False).tolist() == [1, 2]
    assert np.isnan(memory.read(at[:2], f16, False)).all()
    assert memory.is_written(np.arange(16)) and not memory.is_written(np.arange(17))


# ---- programs


def ones(m: int, n: int, k: int) -> tuple[Any, ...]:
    a, b, c = (np.ones(shape, BF16) for shape in ((m, k), (n, k), (m, n)))
    return a, b, c, m, n, k


def parsed(text: str) -> Func:
    return parse_func(text, str(FILE))


@pytest.mark.parametrize("order", ["late", "early", "reverse", "seeded"])
@pytest.mark.parametrize("track", [True, False])
@pytest.mark.each(2)
def test_a_right_program_is_equal_in_every_order(order: str, track: bool) -> None:
    func, args = parsed(GEMM), ones(200, 264, 328)
    report = compare(func, func, args, 2, order=order, seed=3, track=track)
    assert report.is_equal and report.void == 0
    assert report.elements == 200 * 328 + 264 * 328 + 200 * 264
    assert "equal modulo" in str(report)
    assert (args[2] == 1).all(), "the caller's arrays stay as they are"


WRONG = {  # what changes nothing for a GEMM of ones
    "the slot of another step": (
        "%b = shared_slot(%b_smem, %slot)",
        "%b = shared_slot(%b_smem, %previous)",
    ),
    "another block of K": (
        "tma_load(%b_map, %b_slot, %full, %slot, %at, %col)",
        "tma_load(%b_map, %b_slot, %full, %slot, %c0, %col)",
    ),
    "rows of the other group": (
        "%a = shared_slice(%a_slot, %group, %c0)",
        "%a = shared_slice(%a_slot, %c0, %c0)",
    ),
    "a wait left out": ("tma_store_wait() {pending=2, read=true}", ""),
    "a release too early": ("wgmma_wait() {pending=1}", "wgmma_wait() {pending=3}"),
    "columns exchanged": (
        "tma_store(%c_map, %staging1, %c_row, %col1)",
        "tma_store(%c_map, %staging0, %c_row, %col1)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.each(2)
def test_a_wrong_operand_shows_where_ones_hide_it(name: str) -> None:
    old, new = WRONG[name]
    assert old in GEMM
    right, wrong = parsed(GEMM), parsed(GEMM.replace(old, new))
    shown = None
    for order in ("late", "early", "reverse"):
        args = ones(256, 256, 256)
        try:
            report = compare(right, wrong, args, 1, order=order, track=False)
            simulate(wrong, args, 1, order=order, track=False, seed=0)
        except SimError:
            continue
        assert (args[2] == 256).all()
        shown = shown or (None if report.is_equal else report)
    assert shown is not None
    (different,) = shown.differences
    assert different.array == "c_ptr" and different.index is not None
    assert "gemm_bf16_tn.warp.ir" in str(different) and "modulo" in str(different)


def test_a_loop_that_ends_early_shows_on_zeros() -> None:
    last = GEMM.replace(
        "%k_steps = idiv(%k_up, %c64) : i32",
        "%all = idiv(%k_up, %c64) : i32\n  %k_steps = sub(%all, %c1) : i32",
    )
    args = tuple(np.zeros_like(a) if isinstance(a, np.ndarray) else a for a in ones(128, 256, 192))
    report = compare(parsed(GEMM), parsed(last), args, 1)
    assert [d.index for d in report.differences] == [(0, 0)]
    assert report.differences[0].count == 128 * 256


@wl.jit
def normalise(x_ptr, y_ptr, flag_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    out = e / tl.sum(e, axis=0) * tl.load(flag_ptr + row)
    tl.store(y_ptr + row * n + at, out.to(y_ptr.dtype.element_ty), mask=at < n)


def test_a_kernel_and_its_interface() -> None:
    x, y, flags = np.zeros((4, 40), BF16), np.zeros((4, 40), BF16), np.arange(4, dtype=np.int32)
    kernel = normalise.compile_for(x, y, flags, 40, BLOCK=64)
    report = kernel.simulate(x, y, flags, 40, grid=4, algebra=True, order="early")
    assert report.is_equal and report.simulated.programs == 4
    assert not y.any()


def test_arrays_that_overlap_do_so_in_the_field() -> None:
    buffer = np.zeros(256, BF16)
    x, y, flags = buffer[:160].reshape(4, 40), buffer[:160].reshape(4, 40), np.ones(4, np.int32)
    kernel = normalise.compile_for(x, y, flags, 40, BLOCK=64)
    report = kernel.simulate(x, y, flags, 40, grid=4, algebra=True)
    assert report.is_equal and report.elements == 160 + 4
    other = buffer[1:161].view(np.float16).reshape(4, 40)
    with pytest.raises(LaunchError, match="overlap and have different dtypes") as caught:
        compare(_copy(bf16, f16), _copy(bf16, f16), (x, other), 1)
    assert caught.value.code == "algebra-overlap"


def _copy(source: DType, target: DType) -> Func:
    b = Builder()
    x, y = Value(Pointer(source), "x"), Value(Pointer(target), "y")
    tile.store(b, y, arith.cast(b, tile.load(b, x), dtype=target))
    control.yield_(b)
    return Func("copy", b.region((x, y)), Level.TILE)


def test_infinities_in_memory_stay_and_nothing_is_asked_of_empty_arrays() -> None:
    x = np.array([-np.inf, np.nan, 1.0], np.float32)
    report = compare(_copy(f32, f16), _copy(f32, f16), (x, np.zeros(3, np.float16)), 1)
    assert report.is_equal and report.void == 3  # x[0], x[1] and y[0]
    nothing = np.zeros((0, 4), np.float32)
    kernel = normalise.compile_for(nothing, nothing, np.ones(4, np.int32), 0, BLOCK=64)
    empty = kernel.simulate(nothing, nothing, np.ones(4, np.int32), 0, grid=0, algebra=True)
    assert empty.is_equal


@wl.jit
def repeated(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    turns = tl.load(x_ptr).to(tl.int32)
    tl.device_assert(turns == 5, "as given")
    for _ in range(turns):
        total += tl.load(x_ptr + at)
    tl.store(y_ptr + at, total)


def test_given_floats_stand_for_themselves(without_nvrtc: None) -> None:
    """Control flow that follows from floats needs them."""
    x, y = np.full(64, 5, np.float32), np.zeros(64, np.float32)
    kernel = repeated.compile_for(x, y, BLOCK=64)
    report = kernel.simulate(x, y, grid=1, algebra=True, given=True)
    assert report.is_equal and report.elements == 128
    with pytest.raises(SimError, match="as given"):
        kernel.simulate(x, y, grid=1, algebra=True)


# ---- addresses


@wl.jit
def by_address(a, b, n, D: tl.constexpr):
    i = tl.arange(0, 64)
    x = tl.load(a.to(tl.int64).to(tl.pointer_type(D)) + i, mask=i < n)
    at = (b.to(tl.int64) + 8 * i).to(tl.pointer_type(tl.float64))
    tl.store(at, x.to(tl.float64), mask=i < n)
    tl.atomic_add(b.to(tl.int64).to(tl.pointer_type(tl.float64)) + 70, 1.0)


@pytest.mark.parametrize("dtype", [np.float16, np.int16, BF16])
def test_addresses_of_arguments_are_followed(dtype: Any) -> None:
    """Residues take other bytes than the floats that they stand for."""
    a, b = np.arange(80).astype(dtype), np.zeros(80)
    args = [a, b, 50]
    named = {np.float16: tl.float16, np.int16: tl.int16, BF16: tl.bfloat16}[dtype]
    compiled = by_address.compile_for(*args, grid=(1,), D=named)
    assert compiled.simulate(*args, grid=(1,), algebra=True).is_equal
    compiled.simulate(*args, grid=(1,))
    assert b.tolist() == [*range(50), *[0] * 20, 1, *[0] * 9]
