"""GEMMs from Triton-style source to PLACED: bit-equal to the oracle on integers, close to float64 on
random data, at every level, whatever sizes, dtypes, operand orders, producers and knobs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.e2e import gemms, road
from tests.e2e.gemms import (
    DESCRIBED,
    EIGHT_BIT,
    KNOBS,
    PRODUCERS,
    SIXTEEN_BIT,
    TRANSPOSED,
    WS,
    Gemm,
)
from tests.errors.kernels import matmul
from tests.examples import examples
from tests.orders import default_orders
from tests.pairwise import every
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def check(
    case: Gemm, knobs: dict[str, Any], orders: tuple[str, ...] = road.ORDERS, levels: bool = False
) -> CompiledKernel:
    """Integer data: oracle, float64 and every order of events agree bit for bit."""
    a, b, c = case.arrays(np.random.default_rng(0))
    args = case.args(a, b, c)
    meta = {**case.meta, **knobs}
    compiled, expected = road.check_equal(case.jit, args, case.programs, meta, orders, levels)
    found = expected[2].base if case.kernel == "host" else expected[2]
    np.testing.assert_array_equal(found, gemms.exact(a, b, case.out))
    assert compiled.schedule.specialized == (knobs["num_consumer_groups"] > 0)
    return compiled


def paired(cases: list[Any]) -> list[Any]:
    """Each case with two of the knobs, all knobs in turn; one of the two is thorough."""
    names = itertools.cycle(KNOBS)
    return [
        pytest.param(
            case,
            KNOBS[name],
            id=f"{case[0] if isinstance(case, tuple) else case}-{name}",
            marks=() if j == i // (len(KNOBS) // 2) % 2 else pytest.mark.thorough,
        )
        for i, case in enumerate(cases)
        for j, name in enumerate(itertools.islice(names, 2))
    ]


@pytest.mark.parametrize(("case", "knobs"), paired(SIXTEEN_BIT + EIGHT_BIT + DESCRIBED))
@pytest.mark.each(2)
def test_dtypes_orders_and_descriptors(case: Gemm, knobs: dict[str, Any]) -> None:
    compiled = check(case, knobs)
    assert {via for c in compiled.schedule.channels for via in c.via} == {"tma"}


@pytest.mark.parametrize(("case", "knobs"), paired(PRODUCERS))
@pytest.mark.each(2)
def test_producers(case: tuple[Gemm, tuple[str, str]], knobs: dict[str, Any]) -> None:
    gemm, via = case
    compiled = check(gemm, knobs)
    assert tuple(v for c in compiled.schedule.channels for v in c.via) == via


@pytest.mark.parametrize("name", every(2, [*KNOBS], 1))
@pytest.mark.each(2)
def test_every_level(name: str) -> None:
    case = Gemm(150, 90, 100, orders="rr")
    check(case, KNOBS[name], levels=True)
    check(case.with_(pads=(1, 4, 1)), KNOBS[name], orders=("seeded",), levels=True)


@pytest.mark.parametrize("name", every(2, [*KNOBS]))
@pytest.mark.each(3)
def test_trip_counts_around_the_depth(name: str) -> None:
    """One program, two tiles, so that the rings turn on from one tile to the next."""
    depth = 1 if "depth-1" in name else 3
    for trips in sorted({0, 1, depth - 1, depth, depth + 1, 2 * depth, 2 * depth + 1}):
        for k in {max(0, 32 * trips), max(0, 32 * trips - 20)}:
            orders = ("late",) if trips > 2 else ("early", "seeded")
            check(Gemm(100, 128, k, programs=1), KNOBS[name], orders)


@pytest.mark.parametrize("name", ["two-groups", "uniform"])
@pytest.mark.parametrize("kernel", ["pointers", "host", "device"])
@pytest.mark.each(3)
def test_k_zero_stores_zeros(name: str, kernel: str) -> None:
    check(Gemm(130, 70, 0, kernel=kernel), KNOBS[name], ("late",))


@pytest.mark.parametrize("name", ["two-groups", "depth-1", "uniform"])
@pytest.mark.parametrize("programs", [1, 3, 9])
@pytest.mark.each(2)
def test_programs_with_many_tiles_and_with_none(name: str, programs: int) -> None:
    check(Gemm(300, 130, 64, programs=programs), KNOBS[name], ("late", "seeded"))


@pytest.mark.parametrize(("groups", "axis"), [(1, None), (2, "N")])
@pytest.mark.parametrize("orders", ["rc", "rr"])
def test_small_m_splits_n(groups: int, axis: str | None, orders: str) -> None:
    case = Gemm(50, 200, 96, blocks=(64, 128, 32), orders=orders)
    compiled = check(case, {**WS, "num_consumer_groups": groups})
    assert (compiled.schedule.split.axis, compiled.schedule.split.count) == (axis, groups)


@pytest.mark.parametrize("blocks", [(128, 96, 32), (128, 48, 64), (64, 112, 16), (192, 64, 64)])
def test_blocks_that_are_no_powers_of_two(blocks: tuple[int, int, int]) -> None:
    groups = 3 if blocks[0] == 192 else blocks[0] // 64
    check(Gemm(200, 150, 100, blocks=blocks), {**WS, "num_consumer_groups": groups}, ("seeded",))


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Gemm(160, 100, 200), "two-groups"),
        (Gemm(160, 100, 200, dtype="f16", out="f16", orders="cr"), "depth-1"),
        (Gemm(160, 100, 200, pads=(1, 1, 1), orders="rr", out="f32"), "one-group"),
        (Gemm(160, 100, 200, dtype="e4m3", out="f32", blocks=(128, 64, 64)), "two-groups"),
        (Gemm(160, 100, 200, dtype="e5m2", blocks=(128, 64, 64)), "uniform"),
        (Gemm(160, 100, 200, dtype="f16", out="f32", orders="rr"), "uniform"),
    ],
    ids=str,
)
@pytest.mark.each(2)
def test_random_data(case: Gemm, name: str) -> None:
    a, b, c = case.arrays(np.random.default_rng(1), integers=False)
    args = case.args(a, b, c)
    meta = {**case.meta, **KNOBS[name]}
    compiled = road.compile_for(case.jit, args, case.programs, meta)
    for order in default_orders(("late", "seeded")):
        found = road.simulated(compiled, args, case.programs, order)[2]
        gemms.assert_close(found, a, b, case.out)
    gemms.assert_close(road.expected_of(compiled, args, case.programs)[2], a, b, case.out)


@settings(
    max_examples=examples(12),
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    m=st.integers(1, 200),
    n=st.integers(1, 140),
    k=st.integers(0, 130),
    pads=st.tuples(*[st.sampled_from([0, 0, 1, 4, 5])] * 3),
    orders=st.sampled_from(["rr", "rc", "cr", "cc"]),
    programs=st.integers(1, 5),
    name=st.sampled_from(list(KNOBS)),
    order=st.sampled_from(road.ORDERS),
)
def test_any_shape(
    m: int,
    n: int,
    k: int,
    pads: tuple[int, int, int],
    orders: str,
    programs: int,
    name: str,
    order: str,
) -> None:
    check(Gemm(m, n, k, pads=pads, orders=orders, programs=programs), KNOBS[name], (order,))


@pytest.mark.parametrize("orders", ["rr", "cc", "cr"])
@pytest.mark.parametrize("case", EIGHT_BIT[:2], ids=str)
@pytest.mark.each(2)
def test_fp8_in_other_orders_is_transposed_on_its_way(case: Gemm, orders: str) -> None:
    """wgmma takes 8-bit operands with K adjacent only: a task of its own transposes the others, and that is said."""
    compiled = check(case.with_(orders=orders), WS, ("late", "seeded"))
    wrong = [name for name, ok in (("a", orders[0] == "r"), ("b", orders[1] == "c")) if not ok]
    rings = {c.name: c for c in compiled.schedule.channels}
    assert [t.name for t in compiled.schedule.tasks] == ["consumer", "producer", "transpose"]
    assert len(compiled.schedule.forwards) == len(wrong)
    for name in wrong:
        arrived, transposed = rings[f"{name}_arrived"], rings[name]
        assert arrived.via == ("tma",) and arrived.consumers == ("transpose",)
        assert transposed.via == ("registers",) and transposed.producer == "transpose"
    told = [r for r in compiled.schedule.reasons if r.decision == "transposed by transpose warps"]
    assert {r.subject for r in told} == set(compiled.schedule.forwards)
    assert all("wgmma reads it with axis" in r.because for r in told)
    assert "ldmatrix4_trans" in compiled.cuda and "stmatrix4" in compiled.cuda


@pytest.mark.parametrize(("case", "knobs"), paired(TRANSPOSED))
@pytest.mark.each(2)
def test_fp8_in_other_orders_whoever_brings_it(case: Gemm, knobs: dict[str, Any]) -> None:
    check(case, knobs, ("seeded",))


@pytest.mark.parametrize("types", [("e4m3", "e5m2"), ("e5m2", "e4m3")], ids="-".join)
def test_two_kinds_of_bytes_in_one_product(types: tuple[str, str]) -> None:
    case = EIGHT_BIT[0].with_(orders="cr")
    a, b, c = case.arrays(np.random.default_rng(5))
    a, b = (road.filled(x, gemms.DTYPES[t], o) for x, t, o in zip((a, b), types, "cr", strict=True))
    meta = {**case.meta, **WS}
    _, found = road.check_equal(case.jit, case.args(a, b, c), 2, meta, levels=True)
    wanted = gemms.exact(a, b, case.out).astype(np.float32)
    np.testing.assert_array_equal(found[2].astype(np.float32), wanted)


def test_promotion_finer_than_a_row_of_the_swizzle() -> None:
    """Operands lie in rows as narrow as the sums are to be short."""
    signature = Gemm(256, 256, 256, dtype="e4m3").signature[:6]
    found = matmul.compile(signature, {"BM": 128, "BN": 128, "BK": 128, "EACH": 32})
    warp = found.ir["WARP"]
    assert warp.count("wgmma(") == 4 and "swizzle=32" in warp
    assert found.resources.problems() == ()


# ---- the published kernel


@pytest.mark.skipif(not gemms.SEED.exists(), reason="the published kernel is not here")
@pytest.mark.parametrize("dtype", ["f16", "bf16", "e4m3", "e5m2"])
@pytest.mark.parametrize("name", ["two-groups", "depth-1", "uniform"])
@pytest.mark.each(3)
def test_the_published_kernel(dtype: str, name: str) -> None:
    """It masks nothing, stores fp16, and numbers its tiles so that C has to be square in tiles."""
    case = Gemm(256, 128, 192, dtype=dtype, out="f16", blocks=(128, 64, 64))
    a, b, c = case.arrays(np.random.default_rng(2))
    meta = {k: v for k, v in case.meta.items() if k != "GROUP_M"} | KNOBS[name]
    kernel = gemms.seed_kernel().kernel
    levels = name == "two-groups"
    compiled, expected = road.check_equal(kernel, case.args(a, b, c), 4, meta, levels=levels)
    np.testing.assert_array_equal(expected[2], gemms.exact(a, b, "f16"))
    assert {via for c in compiled.schedule.channels for via in c.via} == {"tma"}


@pytest.mark.skipif(not gemms.SEED.exists(), reason="the published kernel is not here")
def test_the_published_kernel_as_configured() -> None:
    case = Gemm(256, 512, 64, dtype="f16", out="f16", blocks=(128, 256, 64))
    a, b, c = case.arrays(np.random.default_rng(3))
    kernel = gemms.seed_kernel()
    args = case.args(a, b, c)
    compiled, expected = road.check_equal(kernel, args, 4, {}, ("seeded",))
    np.testing.assert_array_equal(expected[2], gemms.exact(a, b, "f16"))
    assert compiled.schedule.split.count == 2
    assert [c.depth for c in compiled.schedule.channels] == [3]


# ---- proofs


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Gemm(1, 1, 1), "two-groups"),
        (Gemm(1, 1, 1, orders="rr"), "depth-1"),
        (Gemm(1, 1, 1, pads=(1, 4, 1)), "two-groups"),
        (Gemm(1, 1, 1, kernel="device"), "one-group"),
        (Gemm(1, 1, 1, dtype="e4m3", blocks=(128, 64, 64)), "uniform"),
        (Gemm(1, 1, 1, pads=(4, 1, 1)), "uniform"),
    ],
    ids=str,
)
def test_check_is_clean_and_says_what_was_proved(case: Gemm, name: str) -> None:
    case = case.with_(m=256, n=128, k=160)
    args = case.args(*case.arrays(np.random.default_rng(0)))
    compiled = road.compile_for(case.jit, args, 1, {**case.meta, **KNOBS[name]})
    report = compiled.check()
    assert report.ok, str(report)
    text = str(report)
    assert "no deadlock, and no race on shared memory, in any order of events" in text
    assert report.runs and "loop over" in text
    trips = {n for run in report.runs for counts in run.trips.values() for n in counts}
    depth = 1 if "depth-1" in name else 3
    assert {0, 1, depth, depth + 1, 2 * depth + 1} <= trips
    assert not report.not_recurring, text
