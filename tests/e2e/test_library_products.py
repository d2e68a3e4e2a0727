"""The library's products, from Triton-style source: specialized by analysis, equal to the
oracle in every order and to float64 on exact data, proved, without spills."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.e2e import road
from tests.e2e.library_products import GEMMS, PRODUCTS, LibraryProduct
from tests.explicit.products import BF16
from tests.pairwise import diagonals, every
from warploom.runtime.compiled import CompiledKernel

FIRSTS = list({p.name: p for p in reversed(PRODUCTS + GEMMS)}.values())[::-1]  # one of each kind
ALIGNED, ODD, NO_STEP = (192, 160, 400), (135, 67, 133), (5, 16, 0)

# Ping-pong tiles and a task that stores are proved together, other pairs that differ in a dtype or a width one
# of the two.
TOGETHER = ("gemm-ping-pong", "gemm-task")
SECONDS = ("dual-e4m3", "both-transposed", "promoted-256", "gemm")
PROVED = [
    pytest.param(p, marks=pytest.mark.thorough if p.name in SECONDS else ())
    for p in FIRSTS
    if p.name not in TOGETHER
]


def compiled(product: LibraryProduct) -> CompiledKernel:
    options = product.config.all_kwargs
    constexprs = product.config.kwargs
    knobs = {key: value for key, value in options.items() if key not in constexprs}
    found: CompiledKernel = product.kernel.compile(
        signature=product.signature, constexprs=constexprs, strict=True, **knobs
    )
    return found


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.filterwarnings("ignore:(?s).*not-as-asked")  # rows that TMA can't load
@pytest.mark.parametrize(
    ("product", "shape"), diagonals(2, FIRSTS, [ALIGNED, ODD, NO_STEP]), ids=str
)
@pytest.mark.each(3)
def test_exact_data_comes_out_bit_equal(
    product: LibraryProduct, shape: tuple[int, int, int]
) -> None:
    """Rows without gaps: of odd length they start at any address, and no TMA takes them."""
    m, n, k = shape
    inputs = product.exact(np.random.default_rng(n), m, n, k)
    flat = [road.filled(x.ravel(), x.dtype) for x in inputs]
    args = product.arguments(flat, road.array((m * n,), BF16), m, n, k)
    variant, found = road.check_equal(
        product.kernel, args, 2, product.config.all_kwargs, orders=("late", "seeded")
    )
    wanted = product.wanted(*inputs).astype(np.float32).astype(BF16)
    np.testing.assert_array_equal(found[len(inputs)].reshape(m, n), wanted)
    assert variant.schedule.specialized


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("product", PRODUCTS + GEMMS, ids=str)
def test_all_configs_have_the_memory_that_they_ask_for(product: LibraryProduct) -> None:
    """Of eleven slots nothing is left for an exchange that sums of 16 bits in columns would be stored by."""
    found = compiled(product)
    depth = product.config.all_kwargs.get("num_buffers_warp_spec")
    assert depth in (None, *(c.depth for c in found.schedule.channels))


@pytest.mark.parametrize("product", every(2, PRODUCTS), ids=str)
@pytest.mark.each(3)
def test_its_configs_compile_without_spills(product: LibraryProduct) -> None:
    found = compiled(product)
    assert found.schedule.specialized
    assert found.resources.problems() == ()


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("product", PROVED, ids=str)
@pytest.mark.each(3)
def test_it_is_proved(product: LibraryProduct) -> None:
    report = compiled(product).check()
    assert report.ok, str(report)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("product", [p for p in FIRSTS if p.name == "dual"], ids=str)
def test_the_pair_loads_a_once(product: LibraryProduct) -> None:
    found = compiled(product)
    rings: list[Any] = list(found.schedule.channels)
    assert sum(len(ring.items) for ring in rings) == 3  # A once, B1, B2
