"""How tensor cores add: what an H200 answered, the rule read independently, and the simulator's exact mode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.e2e.test_library_products import FIRSTS
from tests.pairwise import diagonals
from tests.sim.tensor_core_vectors import FILE, FORMATS, Answers, answers, dtypes_of
from warploom.errors import InternalError, LaunchError
from warploom.ir.types import DType, f8e4m3, f16, f32, f64
from warploom.kernels.explicit.gemm import Gemm
from warploom.sim import oracle, tensor_core
from warploom.sim.tensor_core import Arithmetic, accumulate
from warploom.sim.tensor_core import rule as rule_of
from warploom.target import SM_90A
from warploom.target.sm_90a import MMA_SYNC, WGMMA

RECORDED = list(answers())
names = pytest.mark.parametrize("name", FORMATS)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def of(name: str) -> list[Answers]:
    return [x for x in RECORDED if x.format == name]


# ---- the record


@names
def test_every_recorded_answer_is_reproduced(name: str) -> None:
    assert sum(x.d.size for x in of(name)) >= 190
    assert [(x.kernel, x.wrong(x.rule)) for x in of(name) if x.wrong(x.rule)] == []


def test_the_record_is_small() -> None:
    assert FILE.stat().st_size < 200_000
    kernels = {x.kernel for x in RECORDED}
    assert {"ss1", "ss4", "rs1", "rs2", "mm1", "ss1_nc"} <= kernels
    assert sum(x.d.size for x in RECORDED) == 2159


def neighbours(rule: Arithmetic) -> dict[str, Arithmetic]:
    found = {
        "a bit less": replace(rule, kept=rule.kept - 1),
        "a bit more": replace(rule, kept=rule.kept + 1),
        "two halves of K": replace(rule, k=rule.k // 2),
        "c in a sum of its own": replace(rule, after=not rule.after),
    }
    if rule.rounding == "cut":
        found["a shorter result"] = replace(rule, fraction=rule.fraction - 1)
    return found


@names
@pytest.mark.each(2)
def test_neighbouring_rules_fail_on_the_record(name: str) -> None:
    for instruction in ("wgmma", "mma"):
        mine = [x for x in of(name) if x.kernel.startswith("mm") == (instruction == "mma")]
        if not mine:
            continue
        for what, rule in neighbours(mine[0].rule).items():
            assert sum(x.wrong(rule) for x in mine), (instruction, what)


@pytest.mark.parametrize("floor", [-(10**5), -134, -132, -126])
def test_the_floor_is_where_it_is(floor: int) -> None:
    mine = [x for x in RECORDED if x.format in ("bf16", "tf32")]
    assert sum(x.wrong(replace(x.rule, floor=floor)) for x in mine)


# ---- the rule, read independently: one sum at a time, in fractions


def fraction_of(x: Any, dtype: DType) -> tuple[Fraction | float, int]:
    """A number and the exponent of its point."""
    if dtype == f32:  # tf32
        x = (np.asarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)[()]
    value = float(x)
    if not math.isfinite(value):
        return value, 0
    least = {"f16": -14, "bf16": -126, "f32": -126, "f8e4m3": -6, "f8e5m2": -14}[dtype.name]
    return Fraction(value), max(math.frexp(value)[1] - 1, least) if value else least


def fused(terms: list[tuple[Fraction, int]], kept: int, fraction: int, nearest: bool) -> float:
    """Sum of terms with their exponents, as one instruction writes it."""
    unit = Fraction(2) ** (max([e for x, e in terms if x] + [-133]) - kept)
    total = sum((math.trunc(x / unit) * unit for x, _ in terms), Fraction(0))
    low, high = (-14, 16) if nearest else (-126, 128)
    e = low
    while Fraction(2) ** (e + 1) <= abs(total):
        e += 1
    last = Fraction(2) ** (e - fraction)
    written = (round(total / last) if nearest else math.trunc(total / last)) * last
    return (
        math.copysign(math.inf, written) if abs(written) >= Fraction(2) ** high else float(written)
    )


def one_sum(a: Any, b: Any, c: Any, name: str) -> float:
    """c + Σ a·b by one instruction, from the rule's text."""
    left, right, accumulator = dtypes_of(name)
    nearest, narrow = accumulator == f16, left.bits == 8
    pairs = [(fraction_of(x, left), fraction_of(y, right)) for x, y in zip(a, b, strict=True)]
    start = float(c)
    terms: list[tuple[Fraction, int]] = []
    rest = 0.0 if math.isfinite(start) else start
    if rest == 0.0 and start:
        least = -14 if nearest else -126
        terms.append((Fraction(start), max(math.frexp(start)[1] - 1, least)))
    for (x, e), (y, f) in pairs:
        if isinstance(x, float) or isinstance(y, float):
            rest += math.nan if x == 0 or y == 0 else float(x) * float(y)
        else:
            terms.append((x * y, e + f))
    if rest != 0:
        return rest
    return fused(terms, 13 if narrow else 25, 10 if nearest else 13 if narrow else 23, nearest)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, rare: bool) -> Any:
    """Any bits, or numbers whose exponents lie near each other; now and then a zero."""
    if rare:
        return rng.integers(0, 256, (*shape, dtype.bytes), np.uint8).view(dtype.numpy)[..., 0]
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape)
    x[rng.random(shape) < 0.1] = 0
    return x.astype(np.float32).astype(dtype.numpy)


@names
@pytest.mark.parametrize("rare", [False, True], ids=["near", "any-bits"])
@pytest.mark.each(2)
def test_one_instruction_in_fractions(name: str, rare: bool) -> None:
    left, right, accumulator = dtypes_of(name)
    rule = rule_of(WGMMA, left, right, accumulator)
    rng = np.random.default_rng(len(name) + rare)
    a, b = drawn(rng, (12, rule.k), left, rare), drawn(rng, (rule.k, 10), right, rare)
    c = drawn(rng, (12, 10), accumulator, rare)
    if not rare and accumulator == f32:
        a[0] = 0  # every product is zero
    got = accumulate(a, b, c, rule)
    expected = [[one_sum(a[i], b[:, j], c[i, j], name) for j in range(10)] for i in range(12)]
    np.testing.assert_array_equal(got.astype(np.float64), np.array(expected))
    word = np.dtype(f"u{accumulator.bytes}")
    nan = (1 << (accumulator.bits - 1)) - 1
    assert set(got.view(word)[np.isnan(got)].tolist()) <= {nan}
    assert not np.signbit(got[got == 0]).any()


# ---- matrices


@names
def test_a_long_sum_is_a_chain(name: str) -> None:
    left, right, accumulator = dtypes_of(name)
    rule = rule_of(WGMMA, left, right, accumulator)
    rng = np.random.default_rng(3)
    k = 3 * rule.k + rule.k // 2  # the rest is as if it were filled with zeros
    a, b = drawn(rng, (5, k), left, False), drawn(rng, (k, 7), right, False)
    total = None
    for at in range(0, k, rule.k):
        total = accumulate(a[:, at : at + rule.k], b[at : at + rule.k], total, rule)
    whole = accumulate(a, b, np.zeros((5, 7), accumulator.numpy), rule)
    np.testing.assert_array_equal(whole, total)
    np.testing.assert_array_equal(accumulate(b.T, a.T, None, replace(rule)).T, whole)


def test_a_format_without_a_rule_is_a_bug_of_ours() -> None:
    with pytest.raises(InternalError, match="no rule for wgmma of f64"):
        rule_of(WGMMA, f64, f64, f32)
    with pytest.raises(InternalError, match=r"no rule for mma\.sync of f8e4m3"):
        rule_of(MMA_SYNC, f8e4m3, f8e4m3, f16)


# ---- simulate(exact=True)


@wl.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(
            a_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0,
        )
        b = tl.load(
            b_ptr + rn[None, :] * K + rk[:, None],
            mask=(rn[None, :] < N) & (rk[:, None] < K),
            other=0,
        )
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


BLOCKS = {"BM": 64, "BN": 64, "BK": 64}
FORMS = {
    "specialized": {"num_consumer_groups": 1, "num_buffers_warp_spec": 2},
    "uniform": {"num_consumer_groups": 0, "num_warps": 4, "num_stages": 2},
}
DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def operands(name: str, m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal((rows, k)).astype(np.float32) for rows in (m, n))
    dtype = DTYPES[name]
    return a.astype(dtype), b.astype(dtype), np.full((m, n), np.nan, np.float32)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(("name", "form"), diagonals(2, [*DTYPES], [*FORMS]))
@pytest.mark.each(2)
def test_a_kernel_adds_as_the_tensor_core(name: str, form: str) -> None:
    m, n, k = 70, 80, 336
    a, b, c = operands(name, m, n, k)
    grid = (2, 2)
    args = (a, b, c, m, n, k)
    kernel = product.compile_for(*args, grid=grid, **BLOCKS, **FORMS[form])
    rule = rule_of(WGMMA, *dtypes_of(name))
    expected = accumulate(a, b.T, None, rule)
    kernel.simulate(*args, grid=grid, exact=True, order="late")
    np.testing.assert_array_equal(c, expected)
    c[...] = np.nan
    oracle.run(kernel.lowered.written, args, grid, tensor_core.exact(SM_90A))
    np.testing.assert_array_equal(c, expected)
    kernel.simulate(*args, grid=grid)
    assert (c != expected).any() and np.allclose(c, expected, rtol=1e-2, atol=1e-1)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("kind", ["fp8", "promoted-192", "gemm"])
@pytest.mark.each(2)
def test_the_oracle_adds_in_the_order_of_the_library_s_products(kind: str) -> None:
    (product_,) = (p for p in FIRSTS if p.name == kind)
    m, n, k = 128, 192, 528
    inputs = product_.random(np.random.default_rng(k), m, n, k)
    flat = [road.filled(x.ravel(), x.dtype) for x in inputs]
    args = product_.arguments(flat, road.array((m * n,), ml_dtypes.bfloat16), m, n, k)
    kernel = road.compile_for(product_.kernel, args, (1,), product_.config.all_kwargs)
    simulated, read = ([road.clone(x) for x in args] for _ in range(2))
    kernel.simulate(*simulated, grid=(1,), exact=True)
    oracle.run(kernel.lowered.written, read, (1,), tensor_core.exact(SM_90A))
    road.same(read, simulated, kind)


def test_a_script_adds_as_the_tensor_core() -> None:
    m, n, k = 72, 144, 400
    a, b, _ = operands("bf16", m, n, k)
    c = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    Gemm(1, block_n=128, stages=3).simulate(a, b, c, m, n, k, exact=True)
    expected = accumulate(a, b.T, None, rule_of(WGMMA, *dtypes_of("bf16")))
    np.testing.assert_array_equal(c, expected.astype(c.dtype))


@pytest.mark.usefixtures("without_nvrtc")
def test_integers_are_exact_in_every_mode() -> None:
    """Their sums wrap at 32 bits."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (64, 256)).astype(np.int8) for _ in range(2))
    found = tensor_core.exact(SM_90A).multiply(a, b.T, np.full((64, 64), 2**31 - 1, np.int32))
    exact = a.astype(np.int64) @ b.astype(np.int64).T + 2**31 - 1
    np.testing.assert_array_equal(found, exact.astype(np.int32))


def test_one_mode_at_a_time(without_nvrtc: None) -> None:
    a, b, c = operands("bf16", 64, 64, 64)
    args = (a, b, c, 64, 64, 64)
    kernel = product.compile_for(*args, grid=(1, 1), **BLOCKS)
    with pytest.raises(LaunchError, match="exact and algebra are two modes"):
        kernel.simulate(*args, grid=(1, 1), exact=True, algebra=True)


def test_the_page_has_these_numbers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")
    rows = [[x.strip() for x in line.strip("|").split("|")] for line in page.splitlines()]
    told = {}
    for instructions, operands, accumulator, *numbers in (r for r in rows if len(r) == 7):
        for name in instructions.replace("mma.sync", "mma").split(", "):
            kinds = operands.replace(" as tf32", "").replace(", mixed", "").split(", ")
            for a, b in itertools.product(kinds, kinds):
                if name in ("wgmma", "mma") and (a == b or "mixed" in operands):
                    told[name, a, b, accumulator] = numbers
    columns = ("k", "kept", "fraction", "rounding")
    held = {
        (name, p.a, p.b, p.accumulator): [str(getattr(p.arithmetic, x)) for x in columns]
        for name, unit in (("wgmma", WGMMA), ("mma", MMA_SYNC))
        for p in unit.products
        if p.arithmetic is not None
    }
    assert told == held
