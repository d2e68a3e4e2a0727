"""Which dtype a literal has as it is compared, stored and handed on, and what truth values are in memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl

N = 32


@wl.jit
def compared(x_ptr, out_ptr, C: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    x, c = tl.load(x_ptr + i), C
    results = (x == C).to(tl.int32) + 2 * (C < x).to(tl.int32)  # noqa: SIM300
    tl.store(out_ptr + i, results + 16 * (x == c).to(tl.int32) + 32 * (c < x).to(tl.int32))


@wl.jit
def written(out_ptr, C: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    tl.store(out_ptr + i, C, mask=i < 8)
    tl.store(out_ptr + i, tl.load(out_ptr + i, mask=i < 0, other=C), mask=(i >= 8) & (i < 16))
    c = C
    tl.store(out_ptr + i, c, mask=i >= 16)


@wl.jit
def copied(x_ptr, out_ptr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


@wl.jit
def shifted(x_ptr, out_ptr, C: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    tl.store(out_ptr + i, C >> tl.load(x_ptr + i))


@wl.jit
def fused(x_ptr, y_ptr, z_ptr, out_ptr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    x, y, z = tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(z_ptr + i)
    tl.store(out_ptr + i, tl.fma(x, y, z))


@wl.jit
def fused_literals(x_ptr, out_ptr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.fma(tl.load(x_ptr + i), 3, 1))


@wl.jit
def divided(x_ptr, y_ptr, out_ptr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    found = tl.fdiv(tl.load(x_ptr + i), tl.load(y_ptr + i), ieee_rounding=True)
    tl.store(out_ptr + i, found)


@wl.jit
def functions(x_ptr, out_ptr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    c = 0.1
    tl.store(out_ptr + i, tl.minimum(x, 0.1) + tl.clamp(x, 0.1, 0.7) + x * c)


@wl.jit
def places(x_ptr, out_ptr, LEFT: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr, tl.argmax(x, 0, tie_break_left=LEFT))
    tl.store(out_ptr + 1, tl.argmin(x, 0, tie_break_left=LEFT))


@wl.jit
def two():  # type: ignore[no-untyped-def]
    return 2


@wl.jit
def two_and_half():  # type: ignore[no-untyped-def]
    return 2, 0.5


@wl.jit
def by_returned(x_ptr, out_ptr, C: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    places = tl.reshape(i, (two(), N // two()))  # known while compiling even so
    sums = x * two() + two_and_half()[0] * x + x * tl.cdiv(C, 2)
    tl.store(out_ptr + places, tl.reshape(sums, (2, N // 2)))


def both(kernel: Any, *args: Any, out: Any, **meta: Any) -> Any:
    """`out` by the oracle, which the simulator agrees with."""
    start = out.copy()
    kernel[(1,)](*args, out, N=N, **meta)
    found = out.copy()
    out[...] = start
    compiled = kernel.compile_for(*args, out, grid=(1,), N=N, **meta)
    compiled.simulate(*args, out, grid=(1,))
    assert np.array_equal(found, out, equal_nan=out.dtype.kind == "f")
    return found


@pytest.mark.parametrize("c", [0.1, 0.5, 1e39, float("inf"), float("nan"), 3, 70000])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_literals_are_compared_in_their_own_dtype(dtype: Any, c: float) -> None:
    values = [c, 0.1, -0.5, 3.0, float("inf"), float(np.float32(0.1)), float("nan"), 0.0]
    with np.errstate(over="ignore"):
        x = np.resize(np.array(values).astype(dtype), N)
        wide = np.float64 if c == 1e39 or dtype == np.float64 else np.float32
        own = (np.float64(c) if c == 1e39 else np.float32(c)).astype(wide)
        if isinstance(c, int):  # an integer takes the float's dtype
            own, wide = dtype(c), dtype
    held = x.astype(wide)
    want = 17 * (held == own).astype(np.int32) + 34 * (own < held).astype(np.int32)
    assert (both(compared, x, out=np.zeros(N, np.int32), C=c) == want).all()


@pytest.mark.parametrize("c", [0.1, 1e-3, 3, 1e300])
def test_stored_literals_are_rounded_first(c: float) -> None:
    """A literal is an f32 where one holds about that: so it is in memory of f64."""
    want = np.float64(c) if c == 1e300 else np.float64(np.float32(c))
    assert (both(written, out=np.zeros(N), C=c) == want).all()


@pytest.mark.parametrize("c", [0.5, -0.9, 1, 2, 255, 256, 257, 1 << 32])
def test_truth_values_are_stored_as_bytes(c: float) -> None:
    want = int(c) % 256 != 0
    assert (both(written, out=np.full(N, not want), C=c) == want).all()


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint64, np.float16, np.float32])
def test_numbers_are_stored_as_truth_values_by_their_byte(dtype: Any) -> None:
    values = [0, 1, 2, 0.5, 100.25] + ([] if dtype in (np.float16, np.float32) else [256, 257, 512])
    x = np.resize(np.array(values).astype(dtype), N)
    want = x.astype(np.int64) % 256 != 0
    assert (both(copied, x, out=~want) == want).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int32])
def test_a_shifted_literal_has_the_sign_of_the_other(dtype: Any) -> None:
    x = (np.arange(N) % 7).astype(dtype)
    c = int(np.iinfo(dtype).max)
    want = dtype(c) >> x
    assert (both(shifted, x, out=np.zeros(N, dtype), C=c) == want).all()


def test_fma_is_computed_in_the_dtype_of_all_three() -> None:
    x = np.full(N, 300, np.float16)
    y, z = x.copy(), np.full(N, 0.5, np.float32)
    assert (both(fused, x, y, z, out=np.zeros(N, np.float32)) == 90000.5).all()
    signed, unsigned, ones = np.full(N, -1, np.int8), np.full(N, 2, np.uint8), np.ones(N, np.int32)
    found = both(fused, signed, unsigned, ones, out=np.zeros(N, np.int32))
    assert (found == 255 * 2 + 1).all()  # the first two meet as uint8, the others as int32
    narrow = np.full(N, 100, np.int8)
    assert (both(fused_literals, narrow, out=np.zeros(N, np.int32)) == 301).all()


def test_fma_of_narrow_floats_rounds_once() -> None:
    x, z = np.full(N, 1 + 3 * 2.0**-10, np.float16), np.full(N, -1, np.float16)
    want = np.float16(6 * 2.0**-10 + 9 * 2.0**-20)
    assert (both(fused, x, x.copy(), z, out=np.zeros(N, np.float16)) == want).all()


def test_fdiv_of_narrow_floats_is_correctly_rounded() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(1, 9, N).astype(np.float16) for _ in range(2))
    assert (both(divided, x, y, out=np.zeros(N, np.float16)) == x / y).all()


def test_functions_take_literals_as_f32() -> None:
    x = np.linspace(-1, 1, N)
    c, top = float(np.float32(0.1)), float(np.float32(0.7))
    want = np.minimum(x, c) + np.clip(x, c, top) + x * c
    assert (both(functions, x, out=np.zeros(N)) == want).all()


@pytest.mark.parametrize("left", [True, False])
def test_an_extreme_of_nans_is_somewhere_in_the_tile(left: bool) -> None:
    x = np.full(N, np.nan, np.float32)
    found = both(places, x, out=np.full(2, -7, np.int32), LEFT=left)
    assert ((found >= 0) & (found < N)).all()


def test_returned_literals_are_numbers_of_their_own_dtype() -> None:
    """int8 times a returned 2 is an int32."""
    x = np.full(N, 100, np.int8)
    assert (both(by_returned, x, out=np.zeros(N, np.int32), C=4) == 600).all()


@wl.jit
def beside_whole(x_ptr, out_ptr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, (x < 257).to(tl.int32) + 2 * (x == 257).to(tl.int32))


def test_a_narrow_float_is_compared_with_an_integer_that_it_cannot_hold() -> None:
    """In bf16 257 is 256."""
    x = np.array([255, 256, 258, 0] * (N // 4)).astype(ml_dtypes.bfloat16)
    want = np.array([1, 1, 0, 1] * (N // 4))
    assert (both(beside_whole, x, out=np.zeros(N, np.int32)) == want).all()
