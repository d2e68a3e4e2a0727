"""Triton's language beyond what `warploom.language` always had: oracle and simulator against NumPy, odd sizes
too."""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import warploom.triton as triton
import warploom.triton.language as tl
from tests.pairwise import every
from warploom.errors import CompileError
from warploom.sim import special
from warploom.triton.language.extra import libdevice

SEVEN = tl.constexpr(3) * 2 + 1


@tl.constexpr
def half(n: int) -> int:
    return n // 2


def on_both(kernel: Any, out: Any, *args: Any, **constexprs: Any) -> Any:
    """What a kernel of one program leaves in `out` on the oracle; the simulator leaves the same."""
    kernel[(1,)](*args, out, **constexprs)
    simulated = np.full_like(out, 99)
    compiled = kernel.compile_for(*args, simulated, grid=(1,), **constexprs)
    compiled.simulate(*args, simulated, grid=(1,))
    np.testing.assert_allclose(simulated, out, rtol=2e-6, atol=1e-6)
    return out


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---- expressions


@triton.jit
def converted(x: Any, dtype: tl.constexpr) -> Any:
    return x.to(dtype.value)


@triton.jit
def expressions(x_ptr: Any, y_ptr: Any, n: Any, flag: Any, out_ptr: Any, B: tl.constexpr) -> None:
    i = tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0)
    y = tl.load(y_ptr + i, mask=i < n, other=0)
    both = tl.where((x > 0 and y > 0) or not x < 1, 1.0, 0.0)
    mixed = tl.where(n > 5 and x > 0, 2.0, 0.0) + tl.where(flag or x > 0, 4.0, 0.0)
    dtype = x.type.scalar
    if x_ptr and dtype.is_fp32() and x.type.is_block() and not dtype.is_fp8():
        both += SEVEN
    if x_ptr.type.element_ty.is_floating() and dtype.primitive_bitwidth == 32:
        both += half(20)
    sizes = (2, 3)
    both += tl.sum(tl.full((*sizes, 4), 0.5, tl.float32))
    places = out_ptr + i
    value = both + mixed + flag[None] + converted(i, tl.float32)
    tl.store(places, value.to(places.type.element_ty.element_ty), mask=i < n)


@pytest.mark.parametrize("flag", [0, 3])
def test_expressions(flag: int) -> None:
    x, y = numbers(2, 101)
    out = on_both(expressions, np.zeros(101, np.float32), x, y, 101, flag, B=128)
    want = 1.0 * ((x > 0) & (y > 0) | ~(x < 1)) + 2.0 * (x > 0) + 4.0 * ((x > 0) | (flag != 0))
    np.testing.assert_allclose(out, want + 17 + 12 + flag + np.arange(101), rtol=1e-6)


def test_constexprs_and_dtypes_on_the_host() -> None:
    assert SEVEN == 7 and 1 + SEVEN == 8 and -SEVEN == -7 and SEVEN // 2 == 3 and 2**SEVEN == 128
    assert (SEVEN > 6) and not (SEVEN < 7) and half(9) == 4 and list(range(SEVEN))[-1] == 6
    assert isinstance(SEVEN + 1, tl.constexpr) and isinstance(SEVEN >= 7, tl.constexpr)
    assert tl.float16.is_fp16() and tl.bfloat16.is_bf16() and tl.float8e5.is_fp8()
    assert not tl.float32.is_fp8() and tl.float32.is_standard_floating() and tl.int1.is_int1()
    widths = [d.primitive_bitwidth for d in (tl.int1, tl.uint8, tl.float16, tl.float64)]
    assert widths == [1, 8, 16, 64] and tl.float32.fp_mantissa_width == 23
    assert tl.int32.get_int_max_value() == 2**31 - 1 and tl.uint8.get_int_min_value() == 0
    assert pickle.loads(pickle.dumps(tl.float16)) == copy.deepcopy(tl.float16) == tl.float16
    with pytest.raises(AttributeError, match="the dtype f32 has no attribute is_fp31"):
        tl.float32.is_fp31()


@triton.jit
def nested(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    factor = 2.0

    @triton.jit
    def scaled(v: Any, add: Any = 1.0) -> Any:
        w = v * factor
        if add > 3:
            return w
        return w + add

    def larger(a: Any, b: Any) -> Any:
        return tl.where(a > b, a, b)

    y = scaled(x)
    factor = 3.0
    for _ in range(2):
        y += scaled(x, add=4)
    tl.store(out_ptr + i, y + tl.reduce(x, 0, larger))


def test_functions_inside_of_kernels() -> None:
    x = numbers(50)
    out = on_both(nested, np.zeros(50, np.float32), x, N=50)
    np.testing.assert_allclose(out, 8 * x + 1 + x.max(), rtol=1e-6)


# ---- reductions and scans by any function


@triton.jit
def welford(m1: Any, s1: Any, n1: Any, m2: Any, s2: Any, n2: Any) -> Any:
    n = n1 + n2
    delta = m2 - m1
    share = tl.where(n == 0, 0.0, n2 / n)
    return m1 + delta * share, s1 + s2 + delta * delta * n1 * share, n


@triton.jit
def moments(x_ptr: Any, out_ptr: Any, N: tl.constexpr, M: tl.constexpr, AXIS: tl.constexpr) -> None:
    i, j = tl.arange(0, N)[:, None], tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + i * M + j)
    mean, square, n = tl.reduce((x, x * 0, x * 0 + 1), AXIS, welford)
    REST: tl.constexpr = mean.shape[0]
    at = out_ptr + tl.arange(0, REST)
    tl.store(at, mean)
    tl.store(at + REST, square / n)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("n", "m"), [(4, 8), (5, 7), (1, 33)])
def test_welford(n: int, m: int, axis: int) -> None:
    x = numbers(n, m)
    out = on_both(moments, np.zeros((2, (m, n)[axis]), np.float32), x, N=n, M=m, AXIS=axis)
    np.testing.assert_allclose(out, [x.mean(axis), x.var(axis)], rtol=1e-5, atol=1e-6)


@triton.jit
def affine(a1: Any, b1: Any, a2: Any, b2: Any) -> Any:
    return a1 * a2, b1 * a2 + b2


@triton.jit
def first(a: Any, b: Any) -> Any:
    return a


@triton.jit
def smaller_or_later(x: Any, i: Any, y: Any, j: Any) -> Any:
    take = (x < y) | ((x == y) & (i > j))
    return tl.where(take, x, y), tl.where(take, i, j)


@triton.jit
def scans(
    x_ptr: Any,
    out_ptr: Any,
    N: tl.constexpr,
    M: tl.constexpr,
    AXIS: tl.constexpr,
    BACK: tl.constexpr,
) -> None:
    i, j = tl.arange(0, N)[:, None], tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + i * M + j)
    _, y = tl.associative_scan((x * 0 + 0.5, x), AXIS, affine, reverse=BACK)
    tl.store(out_ptr + i * M + j, y)
    out_ptr += N * M
    tl.store(out_ptr + i * M + j, tl.associative_scan(x, AXIS, first, reverse=BACK))
    _, last = tl.reduce((x, (i * M + j)), None, smaller_or_later)
    tl.store(out_ptr + N * M, last.to(tl.float32))
    tl.store(out_ptr + N * M + 1, tl.reduce(x > 2, None, first).to(tl.float32))


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("n", "m"), [(8, 4), (5, 7)])
def test_scans_keep_the_order(n: int, m: int, axis: int, back: bool) -> None:
    x = numbers(n, m)
    out = on_both(scans, np.zeros(2 * n * m + 2, np.float32), x, N=n, M=m, AXIS=axis, BACK=back)
    y = np.moveaxis(x, axis, 0).copy()
    y = y[::-1] if back else y
    for k in range(1, len(y)):
        y[k] += 0.5 * y[k - 1]
    y = np.moveaxis(y[::-1] if back else y, 0, axis)
    np.testing.assert_allclose(out[: n * m].reshape(n, m), y, rtol=1e-5, atol=1e-6)
    ends = np.take(x, [-1 if back else 0], axis)
    assert np.array_equal(out[n * m : -2].reshape(n, m), np.broadcast_to(ends, (n, m)))
    assert out[-2] == x.argmin() and out[-1] == (x[0, 0] > 2)


# ---- sorting, rearranging, counting


@triton.jit
def arranged(x_ptr: Any, out_ptr: Any, N: tl.constexpr, M: tl.constexpr, K: tl.constexpr) -> None:
    i, j = tl.arange(0, N)[:, None], tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + i * M + j)
    at = out_ptr + i * M + j
    tl.store(at, tl.sort(x))
    tl.store(at + N * M, tl.sort(x, dim=0, descending=True))
    tl.store(at + 2 * N * M, tl.flip(x))
    tl.store(at + 3 * N * M, x.flip(0))
    tl.store(out_ptr + 4 * N * M + tl.arange(0, 2 * N)[:, None] * M + j, tl.cat(x, x + 10))
    largest = tl.topk(x, K)
    tl.store(out_ptr + 6 * N * M + i * K + tl.arange(0, K)[None, :], largest)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8])
@pytest.mark.parametrize(("n", "m"), [(4, 8), (3, 13)])
@pytest.mark.each(2)
def test_sorted_and_rearranged(n: int, m: int, dtype: Any) -> None:
    x = (numbers(n, m) * 20).astype(dtype)
    out = np.zeros(6 * n * m + n * 3, dtype)
    parts = on_both(arranged, out, x, N=n, M=m, K=3)
    same = parts[: 6 * n * m].reshape(6 * n, m)
    down = np.sort(x, 0)[::-1]
    want = [np.sort(x, 1), down, x[:, ::-1], x[::-1], x, x + np.array(10, dtype)]
    assert np.array_equal(same, np.concatenate(want))
    assert np.array_equal(parts[6 * n * m :].reshape(n, 3), np.sort(x, 1)[:, :-4:-1])


@triton.jit
def widened_kernel(x_ptr: Any, out_ptr: Any, K: tl.constexpr) -> None:
    found = tl.topk(tl.load(x_ptr + tl.arange(0, 8)), K)
    tl.static_assert(
        found.dtype == (x_ptr.dtype.element_ty if K == 8 else out_ptr.dtype.element_ty)
    )
    tl.store(out_ptr + tl.arange(0, K), found * 3)


@pytest.mark.parametrize(("dtype", "wide"), [(np.int8, np.int32), (np.float16, np.float32)])
def test_topk_of_few_is_as_wide_as_max(dtype: Any, wide: Any) -> None:
    x = np.array([1, 100, 3, 90, -5, 7, 60, 8], dtype)
    assert list(on_both(widened_kernel, np.zeros(2, wide), x, K=2)) == [300, 270]
    on_both(widened_kernel, np.zeros(8, wide), x, K=8)


@triton.jit
def rows_sorted(
    x_ptr: Any, out_ptr: Any, N: tl.constexpr, M: tl.constexpr, DOWN: tl.constexpr
) -> None:
    at = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(out_ptr + at, tl.sort(tl.load(x_ptr + at), descending=DOWN))


@pytest.mark.parametrize(
    ("n", "m", "down", "steps"),
    [(2, 33, False, 6), (1, 64, True, 6), (3, 128, False, 7), (1, 4096, False, 1)],
)
def test_long_rows_are_sorted_by_a_loop(n: int, m: int, down: bool, steps: int) -> None:
    """Its body has the steps of the longest runs, of a large tile a single one."""
    x = numbers(n, m)
    out = on_both(rows_sorted, np.zeros((n, m), np.float32), x, N=n, M=m, DOWN=down)
    want = np.sort(x, 1)
    assert np.array_equal(out.reshape(n, m), want[:, ::-1] if down else want)
    kernel = rows_sorted.compile(["*fp32:16"] * 2, {"N": n, "M": m, "DOWN": down}, num_warps=4)
    padding = 2 * (m & (m - 1) > 0)
    assert kernel.ir["PLACED"].count(" gather(") == steps + padding


@triton.jit
def counted(x_ptr: Any, n: Any, out_ptr: Any, N: tl.constexpr, BINS: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + tl.arange(0, BINS), tl.histogram(x, BINS, mask=i < n))


@pytest.mark.parametrize(("n", "bins"), [(60, 7), (2048, 33)])
def test_histogram(n: int, bins: int) -> None:
    x = np.random.default_rng(n).integers(-3, bins + 3, n, dtype=np.int32)
    out = on_both(counted, np.zeros(bins, np.int32), x, n - 5, N=n, BINS=bins)
    inside = x[: n - 5][(x[: n - 5] >= 0) & (x[: n - 5] < bins)]
    assert np.array_equal(out, np.bincount(inside, minlength=bins))


@triton.jit
def merged(x_ptr: Any, out_ptr: Any, N: tl.constexpr, DOWN: tl.constexpr) -> None:
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.bitonic_merge(tl.load(x_ptr + i), descending=DOWN))


@pytest.mark.parametrize("down", [False, True])
def test_bitonic_merge(down: bool) -> None:
    x = np.concatenate([np.sort(numbers(16)), np.sort(numbers(16, seed=1))[::-1]])
    out = on_both(merged, np.zeros(32, np.float32), x, N=32, DOWN=down)
    assert np.array_equal(out, np.sort(x)[:: -1 if down else 1])


# ---- random numbers


@triton.jit
def random_numbers(seed: Any, out_ptr: Any, N: tl.constexpr, WIDE: tl.constexpr) -> None:
    i = tl.arange(0, N)
    at = i.to(tl.int64) * 123456789012 if WIDE else i * 7 - 3
    o = out_ptr + i
    tl.store(o, tl.rand(seed, at))
    _, _, _, d = tl.rand4x(seed, at)
    tl.store(o + N, d)
    bits = tl.randint(seed, at).to(tl.int32, bitcast=True)
    tl.store(o + 2 * N, bits.to(tl.float32, bitcast=True))
    z = at.to(tl.int64)
    p, q, _, t = tl.philox(seed, z, z, z * 0, z + 1, tl.random.N_ROUNDS_DEFAULT)
    tl.store(o + 3 * N, tl.uint_to_uniform_float(t).to(tl.float32))
    tl.store(o + 4 * N, tl.umulhi(p, q).to(tl.float32))
    high = tl.umulhi(tl.randint(seed, at), tl.randint(seed + 1, at))
    tl.store(o + 5 * N, high.to(tl.float32))


# Of the bytes that Triton 3.6's interpreter leaves.
DIGESTS = {
    (0, False): "4a8023274c180885a71918ca5b0f162b",
    (0, True): "0b7d7f108179335179c38f23c0646bbd",
    (42, False): "b9be210951254d859a485d6d1a3ab407",
    (42, True): "94a50d6b3e16db6f74eb1acfbd03938d",
    (-5, False): "d16fc2a28b58d580a99f8576a5babb5b",
    (-5, True): "5ade6ab5ab52382f48cf3e828eea7e69",
    (1 << 40, False): "9548c68b94936e26b810a7c613c6cc89",
    (1 << 40, True): "921987b977c7fb70126ec39bd579c5eb",
}


@pytest.mark.parametrize(("seed", "wide"), every(3, [*DIGESTS]))
@pytest.mark.each(2)
def test_random_numbers_are_those_of_triton(seed: int, wide: bool) -> None:
    out = on_both(random_numbers, np.zeros(6 * 64, np.float32), seed, N=64, WIDE=wide)
    assert hashlib.md5(out.tobytes()).hexdigest() == DIGESTS[seed, wide]
    assert (out[:128] >= 0).all() and (out[:128] < 1).all()


@triton.jit
def normal_numbers(seed: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    tl.store(out_ptr + i, tl.randn(seed, i))
    a, b, c, d = tl.randn4x(seed + 1, i)
    tl.store(out_ptr + N + i, (a + b + c + d) / 2)


def test_normal_numbers() -> None:
    out = on_both(normal_numbers, np.zeros(2 * 512, np.float32), 3, N=512).reshape(2, -1)
    assert (np.abs(out.mean(1)) < 0.1).all() and (np.abs(out.std(1) - 1) < 0.1).all()
    assert abs(np.corrcoef(out)[0, 1]) < 0.1


# ---- libdevice


@triton.jit
def functions(x_ptr: Any, y_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    a, b = tl.load(x_ptr + i), tl.load(y_ptr + i)
    o = out_ptr + i
    tl.store(o, libdevice.pow(tl.abs(a), b))
    tl.store(o + N, libdevice.atan2(a, b))
    tl.store(o + 2 * N, libdevice.round(a * 3))
    tl.store(o + 3 * N, libdevice.hypot(a, b))
    tl.store(o + 4 * N, libdevice.expm1(a) + libdevice.log1p(tl.abs(b)))
    tl.store(o + 5 * N, libdevice.lgamma(a))
    tl.store(o + 6 * N, libdevice.tgamma(a))
    tl.store(o + 7 * N, libdevice.erfc(a))
    tl.store(o + 8 * N, libdevice.exp10(a))
    tl.store(o + 9 * N, libdevice.copysign(a, b) * libdevice.signbit(a))
    nan = tl.where(a > 0, a, float("nan"))
    tl.store(o + 10 * N, (libdevice.isnan(nan) + 2 * libdevice.isinf(a / 0.0)).to(tl.float32))
    tl.store(o + 11 * N, libdevice.float2int_rd(a * 5).to(tl.float32))
    tl.store(o + 12 * N, libdevice.acosh(1 + tl.abs(a)) + libdevice.asinh(b))
    tl.store(o + 13 * N, tl.math.tanh(a) + libdevice.sinpi(a * 3) + libdevice.cospi(b))
    tl.store(o + 14 * N, libdevice.fmod(a, b) + libdevice.fdim(a, b) + libdevice.rcbrt(tl.abs(a)))
    tl.store(o + 15 * N, libdevice.float_as_int(a).to(tl.float32) + libdevice.rint(b * 3))


def test_libdevice() -> None:
    x, y = numbers(2, 96)
    out = on_both(functions, np.zeros((16, 96), np.float32), x, y, N=96)
    gamma, lgamma, erfc = map(np.vectorize, (math.gamma, math.lgamma, math.erfc))
    wide = x.astype(float)
    want = [
        np.abs(x) ** y, np.arctan2(x, y), np.floor(np.abs(x * 3) + 0.5) * np.sign(x), np.hypot(x, y),
        np.expm1(x) + np.log1p(np.abs(y)), lgamma(x), gamma(x), erfc(x), 10.0**x, np.copysign(x, y) * (x < 0),
        ~(x > 0) + 2.0, np.floor(x * 5), np.arccosh(1 + np.abs(x)) + np.arcsinh(y),
        np.tanh(x) + np.sin(np.pi * 3 * wide) + np.cos(np.pi * y.astype(float)),
        np.fmod(x, y) + np.maximum(x - y, 0) + 1 / np.cbrt(np.abs(x)), x.view(np.int32) + np.rint(y * 3),
    ]  # fmt: skip
    np.testing.assert_allclose(out, np.array(want), rtol=3e-5, atol=3e-6)


RNG = np.random.default_rng(4)
WIDE = RNG.standard_normal(400).astype(np.float32) * np.float32(2.0) ** RNG.integers(
    -140, 100, 400
).astype(np.float32)
EDGES = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4028235e38], np.float32
)


@triton.jit
def of_two(x_ptr: Any, y_ptr: Any, n_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x, y, n = tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(n_ptr + i)
    o = out_ptr + i
    tl.store(o, libdevice.nextafter(x, y))
    tl.store(o + N, libdevice.remainder(x, y))
    tl.store(o + 2 * N, libdevice.ldexp(x, n))
    tl.store(o + 3 * N, libdevice.logb(x))
    tl.store(o + 4 * N, libdevice.ilogb(x).to(tl.float32))
    tl.store(o + 5 * N, libdevice.norm3d(x, y, 2.0))
    tl.store(o + 6 * N, libdevice.rnorm4d(x, y, 2.0, x))


def test_parts_of_a_number() -> None:
    x = np.concatenate([np.repeat(EDGES, 10), WIDE[:156]])
    y = np.concatenate([np.tile(EDGES, 10), WIDE[156:312]])
    n = RNG.integers(-300, 300, 256).astype(np.int32)
    out = on_both(of_two, np.zeros((7, 256), np.float32), x, y, n, N=256)
    with np.errstate(all="ignore"):
        wide, other = x.astype(float), y.astype(float)
        first = np.frexp(x)[1] - 1.0
        logb = np.where(x == 0, -np.inf, np.where(np.isfinite(x), first, np.abs(x)))
        ilogb = np.where(
            np.isinf(x), 2.0**31 - 1, np.where((x == 0) | np.isnan(x), -(2.0**31), first)
        )
        norm = np.hypot(np.hypot(wide, other), 2)
        rnorm = 1 / np.hypot(norm, wide)
        whole = np.array(
            [
                math.remainder(a, b) if np.isfinite(a) and b else math.nan
                for a, b in zip(wide, other, strict=True)
            ]
        )
        exact = [np.nextafter(x, y), whole, np.ldexp(x, n), logb, ilogb]
        lengths = np.array([norm, rnorm]).astype(np.float32)
        single = np.array(exact).astype(np.float32)
    assert np.array_equal(out[:5], single, equal_nan=True)
    ok = ~(np.isinf(x) | np.isinf(y))  # of an infinity and NaN: infinite or none
    np.testing.assert_allclose(out[5:, ok], lengths[:, ok], rtol=2e-6, atol=1e-44)


EXACT: dict[str, Any] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "fma": lambda x, y: x * y + x, "rcp": lambda x, y: 1 / x, "sqrt": lambda x, y: np.sqrt(np.abs(x)),
}  # fmt: skip
DIRECTED = """
add_rd add_rn add_ru add_rz sub_rd sub_rn sub_ru sub_rz mul_rd mul_rn mul_ru mul_rz div_rd div_rn div_ru div_rz
fma_rd fma_rn fma_ru fma_rz rcp_rd rcp_rn rcp_ru rcp_rz sqrt_rd sqrt_rn sqrt_ru sqrt_rz
"""
FROM = {"int": "i4", "uint": "u4", "ll": "i8", "ull": "u8", "double": "f8"}
CONVERTED = """
int2float_rd int2float_rn int2float_ru int2float_rz uint2float_rd uint2float_rn uint2float_ru uint2float_rz
ll2float_rd ll2float_rn ll2float_ru ll2float_rz ull2float_rd ull2float_rn ull2float_ru ull2float_rz
ll2double_rd ll2double_rn ll2double_ru ll2double_rz ull2double_rd ull2double_rn ull2double_ru ull2double_rz
double2float_rd double2float_rn double2float_ru double2float_rz
"""


def is_rounded(exact: Any, found: Any, way: str) -> bool:
    """Whether each found number is the neighbour of an exact one on its side."""
    step = np.abs(np.spacing(found)).astype(np.longdouble)
    off = found.astype(np.longdouble) - exact
    size = np.abs(found).astype(np.longdouble) <= np.abs(exact)
    side = {"rd": off <= 0, "ru": off >= 0, "rz": size, "rn": np.abs(off) <= step / 2}[way]
    return bool((side & (np.abs(off) < step)).all())


@pytest.mark.parametrize("name", DIRECTED.split())
def test_arithmetic_rounds_its_way(name: str) -> None:
    op, way = name.split("_")
    fn = getattr(libdevice, name, None) or tl.sqrt_rn
    count = {"fma": 3, "rcp": 1, "sqrt": 1}.get(op, 2)

    @triton.jit
    def kernel(x_ptr: Any, y_ptr: Any, out_ptr: Any, N: tl.constexpr, COUNT: tl.constexpr) -> None:
        i = tl.arange(0, N)
        x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
        if COUNT == 3:
            r = fn(x, y, x)
        elif COUNT == 2:
            r = fn(x, y)
        else:
            r = fn(tl.abs(x))
        tl.store(out_ptr + i, r)

    x, y = numbers(2, 96)
    out = np.zeros(96, np.float32)
    kernel[(1,)](x, y, out, N=96, COUNT=count)
    x = np.abs(x) if count == 1 else x
    assert is_rounded(EXACT[op](x.astype(np.longdouble), y.astype(np.longdouble)), out, way)


@pytest.mark.parametrize("name", CONVERTED.split())
def test_conversions_to_floats_round_their_way(name: str) -> None:
    source, to, way = name.replace("2", "_").split("_")
    rng = np.random.default_rng(1)
    x = (
        rng.standard_normal(64)
        if source == "double"
        else rng.integers(0, 2**62, 64).astype(FROM[source])
    )

    @triton.jit
    def kernel(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
        i = tl.arange(0, N)
        tl.store(out_ptr + i, getattr(libdevice, name)(tl.load(x_ptr + i)))

    out = np.zeros(64, np.float32 if to == "float" else np.float64)
    kernel[(1,)](x, out, N=64)
    assert is_rounded(x.astype(np.longdouble), out, way)


@triton.jit
def of_bits(x_ptr: Any, y_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    o = out_ptr + i
    tl.store(o, libdevice.rcp_rn(x) + libdevice.rsqrt_rn(tl.abs(y)) + libdevice.scalbn(x, 2))
    bits = libdevice.byte_perm(libdevice.float_as_int(x), libdevice.float_as_int(y), 0x7610)
    tl.store(o + N, libdevice.int_as_float(bits))
    tl.store(o + 2 * N, libdevice.mul24(libdevice.float_as_int(x), -3).to(tl.float32))
    tl.store(o + 3 * N, libdevice.norm4d(x, y, x, 2.0) + libdevice.rnorm3d(x, y, 2.0))


def test_bits_and_lengths() -> None:
    x, y = numbers(2, 96)
    out = on_both(of_bits, np.zeros((4, 96), np.float32), x, y, N=96)
    want = (
        np.float32(1 / x.astype(float)) + np.float32(1 / np.sqrt(np.abs(y.astype(float)))) + 4 * x
    )
    np.testing.assert_allclose(out[0], want, rtol=1e-6, atol=1e-6)
    mixed = (x.view(np.uint32) & 0xFFFF) | (y.view(np.uint32) & 0xFFFF0000)
    assert np.array_equal(out[1], mixed.view(np.float32))
    low = (x.view(np.int32) << 8) >> 8
    assert np.array_equal(out[2], (low * np.int32(-3)).astype(np.float32))
    size = x.astype(float) ** 2 + y.astype(float) ** 2 + 4
    np.testing.assert_allclose(out[3], np.sqrt(size + x**2) + 1 / np.sqrt(size), rtol=1e-6)


SPECIAL = {
    "erfinv": (special.erfinv, -0.99, 0.99), "erfcinv": (special.erfcinv, 0.01, 1.99),
    "erfcx": (special.erfcx, -3, 30), "j0": (lambda x: special.bessel_j(0, x), -20, 20),
    "j1": (lambda x: special.bessel_j(1, x), -20, 20), "y0": (lambda x: special.bessel_y(0, x), 0.1, 20),
    "y1": (lambda x: special.bessel_y(1, x), 0.1, 20), "normcdfinv": (NormalDist().inv_cdf, 0.01, 0.99),
    "cyl_bessel_i0": (lambda x: special.bessel_i(0, x), -9, 9),
    "cyl_bessel_i1": (lambda x: special.bessel_i(1, x), -9, 9),
}  # fmt: skip


@triton.jit
def of_orders(n_ptr: Any, x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    n, x = tl.load(n_ptr + i), tl.load(x_ptr + i)
    tl.store(out_ptr + i, libdevice.jn(n, x))
    tl.store(out_ptr + N + i, libdevice.jn(n + 1, x))
    tl.store(out_ptr + 2 * N + i, libdevice.yn(n, x))
    tl.store(out_ptr + 3 * N + i, libdevice.yn(n + 1, x))


def test_bessel_functions_of_any_order() -> None:
    """By their Wronskian, J(n + 1)·Y(n) - J(n)·Y(n + 1) = 2 / (π·x) (DLMF 10.5.2), and by known numbers."""
    n = np.array([0, 1, 2, 5, 5, 20, 20, 60, 3, -1], np.int32)
    x = np.array([0.5, 2, 31, 0.1, 50, 3, 400, 55, -2, 2.0])
    j, above, y, y_above = on_both(of_orders, np.zeros((4, 10)), n, x, N=10)
    wronskian = (above * y - j * y_above)[:8]
    np.testing.assert_allclose(wronskian, 2 / (np.pi * x[:8]), rtol=1e-9)
    assert np.isnan(y[8]) and np.isnan(j[9]) and np.isnan(y[9])
    np.testing.assert_allclose(j[8], -0.12894324947440205, rtol=1e-13)  # J(3, 2), odd
    narrow = on_both(of_orders, np.zeros((4, 8), np.float32), n[:8], x[:8].astype(np.float32), N=8)
    np.testing.assert_allclose(narrow[0], j[:8], rtol=2e-5, atol=1e-7)


def test_an_order_is_an_integer() -> None:
    with pytest.raises(CompileError, match="jn takes an integer"):
        of_orders[(1,)](np.zeros(4, np.float32), np.zeros(4), np.zeros((4, 4)), N=4)


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions(name: str) -> None:
    fn, low, high = SPECIAL[name]
    x = np.random.default_rng(2).uniform(low, high, 40).astype(np.float32)
    out = np.zeros(40, np.float64)
    of_one(getattr(libdevice, name), tl.float64)[(1,)](x, out, N=40)
    np.testing.assert_allclose(out, [fn(float(v)) for v in x], rtol=1e-8, atol=1e-12)


CONVERSIONS = (
    "float2int_rd float2int_rn float2int_ru float2int_rz float2uint_rd float2uint_rn float2uint_ru "
    "float2uint_rz float2ll_rd float2ll_rn float2ll_ru float2ll_rz float2ull_rd float2ull_rn "
    "float2ull_ru float2ull_rz "
    "double2int_rd double2int_rn double2int_ru double2int_rz double2uint_rd double2uint_rn "
    "double2uint_ru double2uint_rz double2ll_rd double2ll_rn double2ll_ru double2ll_rz double2ull_rd "
    "double2ull_rn double2ull_ru double2ull_rz "
)
WAYS = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
TO = {"int": np.int32, "uint": np.uint32, "ll": np.int64, "ull": np.uint64}
OF_ONE: dict[str, Any] = {
    "nearbyint": np.rint, "fast_sinf": np.sin, "fast_cosf": np.cos, "fast_tanf": np.tan, "fast_logf": np.log,
    "fast_log2f": np.log2, "fast_log10f": np.log10, "fast_expf": np.exp, "fast_exp10f": lambda x: 10**x,
    "fast_tanhf": np.tanh, "saturatef": lambda x: np.clip(x, 0, 1), "finitef": np.isfinite,
    "isfinited": np.isfinite, "llrint": np.rint, "llround": lambda x: np.floor(x + 0.5),
    "sqrt_rn": np.sqrt,
}  # fmt: skip


def of_one(fn: Any, dtype: Any) -> Any:
    @triton.jit
    def kernel(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
        i = tl.arange(0, N)
        tl.store(out_ptr + i, fn(tl.load(x_ptr + i).to(dtype)).to(tl.float64))

    return kernel


@pytest.mark.parametrize("name", OF_ONE)
def test_functions_of_one_number(name: str) -> None:
    x = np.abs(numbers(40)) * 3
    fn = getattr(tl if name == "sqrt_rn" else libdevice, name)
    out = np.zeros(40, np.float64)
    of_one(fn, tl.float32)[(1,)](x, out, N=40)
    np.testing.assert_allclose(out, OF_ONE[name](x.astype(np.float64)), rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", CONVERSIONS.split())
def test_every_conversion_rounds_its_way(name: str) -> None:
    source, to, way = name.replace("2", "_").split("_")
    x = numbers(30) * 9
    x = np.abs(x) if to.startswith("u") else x
    out = np.zeros(30, np.float64)
    dtype = tl.float32 if source == "float" else tl.float64
    of_one(getattr(libdevice, name), dtype)[(1,)](x, out, N=30)
    assert np.array_equal(out, WAYS[way](x).astype(TO[to]))


@triton.jit
def bit_patterns(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    o = out_ptr + i
    tl.store(o, libdevice.int_as_float(libdevice.float_as_int(x)))
    tl.store(o + N, libdevice.uint_as_float(libdevice.float_as_uint(x) | 0x80000000))
    wide = x.to(tl.float64)
    tl.store(o + 2 * N, libdevice.longlong_as_double(libdevice.double_as_longlong(wide)))
    tl.store(o + 3 * N, libdevice.mulhi(libdevice.float_as_int(x), 1 << 16).to(tl.float32))
    tl.store(o + 4 * N, libdevice.rhypot(x, 2.0) + libdevice.fast_powf(tl.abs(x), 2.0))
    tl.store(o + 5 * N, libdevice.fast_dividef(x, 3.0))


def test_bit_patterns() -> None:
    x = numbers(40)
    out = on_both(bit_patterns, np.zeros((6, 40), np.float32), x, N=40)
    high = x.view(np.int32) >> 16
    want = [x, -np.abs(x), x, high, 1 / np.hypot(x, 2) + x * x, x / 3]
    np.testing.assert_allclose(out, np.array(want), rtol=2e-6)


EDGES = (0.0, -0.0, 1.0, -1.5, 1e-40, 3e38, math.inf, -math.inf, math.nan, 0.25)


@triton.jit
def at_edges(x_ptr: Any, y_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x, y, o = tl.load(x_ptr + i), tl.load(y_ptr + i), out_ptr + i
    tl.store(o, libdevice.hypot(x, y))
    tl.store(o + N, libdevice.fdim(x, y))
    tl.store(o + 2 * N, libdevice.copysign(x, y))
    tl.store(o + 3 * N, libdevice.erf(x))
    tl.store(o + 4 * N, libdevice.erfc(x))
    tl.store(o + 5 * N, libdevice.lgamma(x))
    tl.store(o + 6 * N, libdevice.tgamma(x))
    h = libdevice.copysign(x.to(tl.float16), y.to(tl.float16))
    tl.store(o + 7 * N, h.to(tl.float32) + libdevice.signbit(y.to(tl.bfloat16)))


def test_functions_at_their_edges() -> None:
    """As C has them (Annex F)."""
    x, y = (a.ravel().astype(np.float32) for a in np.meshgrid(EDGES, EDGES))
    n = len(x)
    out = on_both(at_edges, np.zeros((8, n), np.float32), x, y, N=n)
    gamma = {0.0: math.inf, -math.inf: math.nan, math.inf: math.inf, 1.0: 1.0}
    with np.errstate(all="ignore"):
        nothing = np.isnan(x) | np.isnan(y)
        half = np.copysign(x.astype(np.float16), y).astype(np.float32) + np.signbit(y)
        want = [
            np.hypot(x, y), np.where(nothing, np.nan, np.where(x > y, x - y, 0)), np.copysign(x, y),
            np.vectorize(math.erf)(x), np.vectorize(math.erfc)(x),
        ]  # fmt: skip
    np.testing.assert_allclose(out[:5], np.array(want, np.float32), rtol=2e-6, atol=2e-38)
    np.testing.assert_array_equal(out[7], half)
    for value, wanted in gamma.items():
        np.testing.assert_equal(
            out[6][x == value], np.copysign(wanted, x[x == value]) if value == 0 else wanted
        )
    assert (out[5][np.isinf(x) | (x == 0)] == math.inf).all()


@triton.jit
def high_halves(x_ptr: Any, y_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, libdevice.mulhi(x, y))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_upper_halves_have_the_sign(dtype: Any) -> None:
    info = np.iinfo(dtype)
    numbers = [0, 1, 2, 5, 12345, info.max, info.min, info.max - 7, int(info.min) // 2 + 3]
    numbers.append(-3 if info.min else info.max - 2)
    x, y = (a.ravel() for a in np.meshgrid(*[np.array(numbers, dtype)] * 2))
    out = on_both(high_halves, np.zeros(len(x), dtype), x, y, N=len(x))
    assert out.tolist() == [int(a) * int(b) >> info.bits for a, b in zip(x, y, strict=True)]


@triton.jit
def bit_counts(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, libdevice.popc(x))
    tl.store(out_ptr + N + i, libdevice.clz(x))
    tl.store(out_ptr + 2 * N + i, libdevice.ffs(x))
    tl.store(out_ptr + 3 * N + i, libdevice.brev(x))


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_counts(bits: int) -> None:
    random = np.random.default_rng(bits)
    x = random.integers(-(1 << bits - 1), 1 << bits - 1, 37, dtype=f"int{bits}")
    x >>= random.integers(0, bits - 1, 37)
    x[:3] = 0, -1, 1
    out = on_both(bit_counts, np.zeros((4, 37), x.dtype), x, N=37)
    for v, found in zip(x.tolist(), out.T.tolist(), strict=True):
        text = f"{v % (1 << bits):0{bits}b}"
        want = [text.count("1"), text.find("1") % (bits + 1), (text[::-1].find("1") + 1)]
        assert found[:3] == want and found[3] % (1 << bits) == int(text[::-1], 2)


# ---- the rest


@triton.jit
def sign_and_size(x: Any) -> Any:
    return tl.where(x > 0, 1.0, -1.0), tl.abs(x)


@triton.jit
def others(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    tl.extra.cuda.gdc_wait()
    described = tl.make_tensor_descriptor(x_ptr, (N,), (1,), (N,))
    if isinstance(described, tl.tensor_descriptor):
        x = tl.load_tensor_descriptor(described, [0])
    target = tl.make_tensor_descriptor(out_ptr, (5 * N,), (1,), (N,))
    sign, size = tl.map_elementwise(sign_and_size, tl.max_constancy(x, 1))
    tl.store_tensor_descriptor(target, [0], tl.mul(tl.add(sign, 1.0), tl.sub(size, 2.0)))
    bits = tl.reduce_or(1 << (i % 7), 0)
    low = x.to(tl.float8e4nv).to(tl.float32)
    target.store([N], low + bits)
    zero = (i * 0).to(tl.uint32)
    a, b, _, _ = tl.randint4x(5, i)
    c, d, _, _ = tl.philox_impl(i.to(tl.uint32), zero, zero, zero, zero + 5, zero)
    target.store([2 * N], ((a == c) & (b == d)).to(tl.float32))
    u, v = tl.uint_to_uniform_float(a), tl.uint_to_uniform_float(b)
    n, _ = tl.pair_uniform_to_normal(u, v)
    target.store([3 * N], n - tl.randn(5, i))
    tl.extra.cuda.gdc_launch_dependents()
    x = tl.extra.cuda.libdevice.copysign(tl.abs(x), x)
    both = (x > 0).logical_and(i).logical_or(x < 0)
    (out_ptr + 5 * N + i).store(both + x.to(tl.int32).cdiv(2) + (x * x).sqrt_rn())
    (out_ptr + 5 * N + i).atomic_add(1.0)
    target.store([4 * N], x * (tl.TRITON_MAX_TENSOR_NUMEL // 1048576))


def test_other_names() -> None:
    x = numbers(32)
    out = on_both(others, np.zeros(6 * 32, np.float32), x, N=32).reshape(6, 32)
    import ml_dtypes

    low = x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    whole = x.astype(np.int32)
    both = ((x > 0) & (np.arange(32) > 0)) | (x < 0)
    last = 1 + both + np.trunc((whole + 1) / 2) + np.abs(x)
    want = [2.0 * (x > 0) * (np.abs(x) - 2), low + 127, x * 0 + 1, x * 0, x, last]
    np.testing.assert_allclose(out, np.array(want), rtol=1e-6, atol=1e-6)


def test_functions_of_two_numbers_of_another_dtype() -> None:
    @triton.jit
    def kernel(out_ptr: Any) -> None:
        tl.store(out_ptr, libdevice.pow(tl.program_id(0), 2))

    with pytest.raises(CompileError, match="pow computes in f32 or f64, found i32 and 2"):
        kernel[(1,)](np.zeros(1, np.int32))


@triton.jit
def halves(x_ptr: Any, y_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    o = out_ptr + i
    tl.store(o, libdevice.hadd(x, y).to(tl.float64))
    tl.store(o + N, libdevice.rhadd(x, y).to(tl.float64))
    tl.store(o + 2 * N, libdevice.sad(x >> 1, y >> 1, 7).to(tl.float64))
    wide = x.to(tl.float64) / 3
    low, high = libdevice.double2loint(wide), libdevice.double2hiint(wide)
    tl.store(o + 3 * N, libdevice.hiloint2double(high, low))
    tl.store(o + 4 * N, libdevice.normcdf(wide / 1e9))


def test_halves_of_integers() -> None:
    x, y = np.random.default_rng(4).integers(-(2**31), 2**31, (2, 64)).astype(np.int32)
    out = on_both(halves, np.zeros((5, 64), np.float64), x, y, N=64)
    a, b = x.astype(np.int64), y.astype(np.int64)
    third = x / np.float64(3)
    cdf = np.vectorize(math.erfc)(-third / 1e9 / 2**0.5) / 2
    want = [(a + b) >> 1, (a + b + 1) >> 1, np.abs((a >> 1) - (b >> 1)) + 7, third, cdf]
    np.testing.assert_allclose(out, np.array(want), rtol=1e-12)


FROM_INTEGERS = (
    "int2float_rn uint2float_rn ll2float_rn ull2float_rn int2double_rn uint2double_rn ll2double_rn "
    "ull2double_rn double2float_rn"
)


@pytest.mark.parametrize("name", FROM_INTEGERS.split())
def test_every_conversion_from_integers(name: str) -> None:
    source = {
        "int": np.int32,
        "uint": np.uint32,
        "ll": np.int64,
        "ull": np.uint64,
        "double": np.float64,
    }
    to = np.float32 if "2float" in name else np.float64
    x = (np.random.default_rng(1).integers(0, 1 << 31, 40) * 5 // 3).astype(
        source[name.partition("2")[0]]
    )
    out = np.zeros(40, np.float64)
    fn = getattr(libdevice, name)

    @triton.jit
    def kernel(x_ptr: Any, out_ptr: Any, N: tl.constexpr) -> None:
        i = tl.arange(0, N)
        tl.store(out_ptr + i, fn(tl.load(x_ptr + i)).to(tl.float64))

    kernel[(1,)](x, out, N=40)
    assert np.array_equal(out, x.astype(to).astype(np.float64))
