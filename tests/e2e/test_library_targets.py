"""The library's kernels for chips without wgmma: equal to the oracle and to float64, proved, built without
spills.  A configuration of every third product and shape of few rows for each chip here, of every sixth form
of attention; all in `make test-all`."""

from __future__ import annotations

from itertools import product as pairs
from typing import Any

import numpy as np
import pytest

import warploom as wl
from tests import launches
from tests.e2e import road
from tests.e2e import test_split_k as split_k
from tests.e2e.library_products import IN_ORDER, LibraryProduct
from tests.e2e.test_attention import arguments, close
from tests.e2e.test_targets import TWINS
from tests.explicit.products import BF16
from warploom.kernels.attention import (
    ATTENTION_IN_ORDER_CONFIGS,
    attention,
    attention_forward,
    grid_of,
)
from warploom.kernels.gemm import GEMM_IN_ORDER_CONFIGS, gemm
from warploom.kernels.split_k import SPLIT_K_IN_ORDER_CONFIGS, gemm_split_k, short_gemm
from warploom.runtime.binding import make_knobs
from warploom.target import TARGETS, Target

OTHERS = [t for t in TARGETS.values() if not t.matrix_units[0].is_async and t.name not in TWINS]


def takes(target: Target, product: LibraryProduct) -> bool:
    """Has the chip products of the kernel's operands?"""
    narrow = "fp8" in product.pointers[0]
    return not narrow or target.matrix_units[0].product("f8e4m3", "f8e4m3", "f32") is not None


def sample(cases: list[tuple[Target, Any]], kind: Any, every: int = 1) -> list[Any]:
    """For each chip and `every` second, third … kind of case one, another for each chip; the others are
    thorough."""
    found, seen = [], {}
    kinds = list(dict.fromkeys(kind(case) for _, case in cases))
    for target, case in cases:
        key, chip = (target.name, kind(case)), OTHERS.index(target)
        mine = [c for t, c in cases if t is target and kind(c) == key[1]]
        at = seen[key] = seen.get(key, -1) + 1
        chosen = at == chip % len(mine) and (kinds.index(key[1]) + chip) % every == 0
        marks = () if chosen else (pytest.mark.thorough,)
        found.append(pytest.param(target, case, marks=marks, id=f"{target.name}-{case}"))
    return found


PRODUCTS = [(t, p) for t, p in pairs(OTHERS, IN_ORDER) if takes(t, p)]
ATTENTION = [
    (t, (d, causal, i))
    for t, d, causal in pairs(OTHERS, ATTENTION_IN_ORDER_CONFIGS, (False, True))
    for i in range(len(ATTENTION_IN_ORDER_CONFIGS[d]))
]


@pytest.mark.parametrize(("target", "product"), sample(PRODUCTS, lambda p: p.name, every=3))
@pytest.mark.each(2)
def test_a_product(target: Target, product: LibraryProduct) -> None:
    m, n, k = 135, 67, 136
    inputs = product.exact(np.random.default_rng(n), m, n, k)
    flat = [road.filled(x.ravel(), x.dtype) for x in inputs]
    args = product.arguments(flat, road.array((m * n,), BF16), m, n, k)
    meta = {**product.config.all_kwargs, "target": target.name, "strict": True}
    variant, found = road.check_equal(product.kernel, args, 2, meta)
    wanted = product.wanted(*inputs).astype(np.float32).astype(BF16)
    np.testing.assert_array_equal(found[len(inputs)].reshape(m, n), wanted)
    assert variant.resources.problems() == ()
    report = variant.check()
    assert report.ok, str(report)


@pytest.mark.parametrize(("target", "case"), sample(ATTENTION, lambda case: case[:2], every=6))
def test_attention(target: Target, case: tuple[int, bool, int]) -> None:
    d, causal, i = case
    config = ATTENTION_IN_ORDER_CONFIGS[d][i]
    meta = {**config.all_kwargs, "D": d, "CAUSAL": causal, "GQA_GROUP": 2, "LSE": True}
    meta |= {"target": target.name, "strict": True}
    heads, seq = 2, 200
    args = arguments(heads, seq, d, 2)
    grid = grid_of(heads, seq, programs=2)(meta)
    compiled = road.compile_for(attention_forward, args, grid, meta)
    close(road.expected_of(compiled, args, grid), causal)
    for order in road.default_orders():
        close(road.simulated(compiled, args, grid, order), causal)
    assert compiled.resources.problems() == ()
    report = compiled.check(*args, grid=grid)
    assert report.ok, str(report)


SHORT = list(pairs(OTHERS, SPLIT_K_IN_ORDER_CONFIGS))


@pytest.mark.parametrize(
    ("target", "config"),
    sample(SHORT, lambda c: (c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]), every=3),
)
@pytest.mark.each(2)
def test_a_product_of_few_rows(target: Target, config: wl.Config) -> None:
    rows, split = config.kwargs["BLOCK_M"], config.kwargs["SPLIT_K"]
    args, _, grid, want = split_k.arguments(
        rows + 3, 150, 1000, rows, split, BF16, np.float32, "rc", **dict(config.kwargs)
    )
    meta = {**config.all_kwargs, "target": target.name, "strict": True}
    made = road.compile_for(gemm_split_k, args, grid, meta)
    for order in road.default_orders():
        args[2][...] = np.nan
        made.simulate(*args, grid=grid, order=order, seed=1)
        assert np.array_equal(args[2], want) and not args[4].any(), order
    assert made.resources.problems() == ()
    assert {c.depth for c in made.schedule.channels} == {config.num_stages}
    report = made.check(*args, grid=(*grid, 1))
    assert report.ok, str(report)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("target", OTHERS, ids=lambda t: t.name)
@pytest.mark.each(2)
def test_entries_compile_for_the_target_asked_for(target: Target) -> None:
    """With the first configuration for such chips."""
    strides = ["i32:16", "i32=1", "i32=1", "i32:16", "i32:16", "i32=1"]
    made = gemm.compile(["*bf16:16"] * 3 + ["i32:16"] * 3 + strides, target=target.name)
    assert not made.schedule.specialized and made.schedule.tasks[0].warps == 4
    first = GEMM_IN_ORDER_CONFIGS[0].all_kwargs
    assert {c.depth for c in made.schedule.channels} == {first["num_stages"]}
    assert made.request.knobs == make_knobs({k: v for k, v in first.items() if not k.isupper()})
    short = ["*bf16:16"] * 3 + ["*fp32:16", "*i32:16"] + ["i32:16"] * 3 + strides
    made = short_gemm.compile(short, target=target.name)
    assert not made.schedule.specialized
    assert {c.depth for c in made.schedule.channels} == {SPLIT_K_IN_ORDER_CONFIGS[0].num_stages}
    pointers = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16"]
    shape = {"D": 64, "CAUSAL": False, "GQA_GROUP": 1, "LSE": True}
    made = attention.compile([*pointers, "i32", "i32", "i32", "fp32"], shape, target=target.name)
    assert not made.schedule.specialized


def tutorials() -> dict[str, tuple[Any, list[Any], Any, dict[str, Any]]]:
    """The launches of Triton's tutorials, with data: whole numbers where their sums are compared bit by bit."""
    found: dict[str, tuple[Any, list[Any], Any, dict[str, Any]]] = {}
    rng = np.random.default_rng(0)

    def filled(x: Any) -> Any:
        if not isinstance(x, np.ndarray):
            return x
        return road.filled(x if x.dtype.kind == "i" else rng.integers(-2, 3, x.shape), x.dtype)

    def note(kernel: Any, args: Any, grid: Any, meta: dict[str, Any]) -> Any:
        found[launch.name] = kernel, [filled(x) for x in args], grid, meta

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "_of_jit", note)
        for launch in launches.tutorials():
            launch.make()
    return found


TUTORIALS = tutorials()
FEWER = 2 * len(OTHERS)  # each second one, on one of the chips
SLOW = {"grouped-0", "grouped-1"}  # to be checked: 6 to 22 s each
thorough = pytest.mark.thorough


@pytest.mark.filterwarnings("ignore:(?s).*not-as-asked")  # tasks, where a chip's are worth less
@pytest.mark.parametrize(
    ("target", "name"),
    [
        pytest.param(
            t,
            name,
            marks=() if i % FEWER == OTHERS.index(t) and name not in SLOW else thorough,
            id=f"{t.name}-{name}",
        )
        for t in OTHERS
        for i, name in enumerate(TUTORIALS)
    ],
)
@pytest.mark.each(3)
def test_a_tutorial(target: Target, name: str) -> None:
    kernel, args, grid, meta = TUTORIALS[name]
    compiled = road.compile_for(kernel, args, grid, {**meta, "target": target.name})
    wanted = road.expected_of(compiled, args, grid)
    for order in road.default_orders():
        found = road.simulated(compiled, args, grid, order)
        for x, y in zip(wanted, found, strict=True):
            if isinstance(x, np.ndarray) and not np.array_equal(x, y):
                assert name.startswith(("softmax", "layer-norm", "attention")), "sums are exact"
                np.testing.assert_allclose(
                    x.astype(np.float64), y.astype(np.float64), rtol=2.0**-7, atol=2.0**-7
                )
    assert compiled.resources.problems() == ()
    report = compiled.check(*args, grid=grid)
    assert report.ok, str(report)
