"""The library's kernels in the algebra mode: what the passes make of them computes what is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.e2e import road
from tests.e2e.test_attention import arguments
from tests.e2e.test_library_products import FIRSTS
from tests.explicit.products import BF16, PRODUCTS
from tests.pairwise import diagonals, every
from warploom.kernels.attention import attention_forward, grid_of
from warploom.kernels.explicit.attention import Attention
from warploom.sim.algebra import compare

pytestmark = pytest.mark.usefixtures("without_nvrtc")


@pytest.mark.filterwarnings("ignore:(?s).*not-as-asked")
@pytest.mark.parametrize(
    ("product", "shape"), diagonals(2, FIRSTS, [(192, 160, 400), (135, 67, 133)]), ids=str
)
@pytest.mark.each(3)
def test_products(product: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    inputs = [np.ones_like(x) for x in product.exact(np.random.default_rng(n), m, n, k)]
    args = product.arguments([x.ravel() for x in inputs], np.zeros(m * n, BF16), m, n, k)
    compiled = road.compile_for(product.kernel, args, 2, product.config.all_kwargs)
    report = compiled.simulate(*args, grid=2, algebra=True)
    assert report.is_equal, str(report)
    assert report.void == 0


@pytest.mark.parametrize(
    ("heads", "seq", "causal", "options"),
    every(
        2,
        [
            (2, 100, False, {"D": 128, "groups": 2, "mma_wait_position": 3}),
            (
                4,
                300,
                True,
                {"D": 64, "groups": 3, "GQA_GROUP": 2, "BALANCED_PAIRS": True, "Q_STAGES": 2},
            ),
            (2, 257, False, {"D": 64, "groups": 3, "DYNAMIC": True, "skip_idle": True}),
            (2, 500, True, {"D": 64, "groups": 4, "BLOCK_N": 64, "skip_idle": "masked"}),
            (1, 600, False, {"D": 64, "groups": 2, "BLOCK_M": 256, "num_ctas": 2}),
        ],
    ),
)
@pytest.mark.each(2)
def test_attention(heads: int, seq: int, causal: bool, options: dict[str, Any]) -> None:
    """What sits out masked blocks relies on exp2(-inf) = 0, and on exp2(0) = 1."""
    options = dict(options)
    groups = options.pop("groups")
    meta = {"BLOCK_M": 64 * groups, "BLOCK_N": 128, "CAUSAL": causal, "LSE": True}
    meta |= {"num_consumer_groups": groups, "num_buffers_warp_spec": 2, **options}
    args = arguments(heads, seq, options["D"], options.get("GQA_GROUP", 1))
    for out in args[3:5]:
        out[...] = 0
    grid = grid_of(heads, seq, programs=2)(meta)
    compiled = road.compile_for(attention_forward, args, grid, meta)
    report = compiled.simulate(*args, grid=grid, algebra=True, order="reverse")
    assert report.is_equal, str(report)
    assert report.void == 0


def test_every_pass_by_itself() -> None:
    """A difference is narrowed down to the pass behind which it shows."""
    product = next(p for p in FIRSTS if p.name == "promoted-192")
    m, n, k = 128, 192, 272
    inputs = [np.ones_like(x) for x in product.exact(np.random.default_rng(n), m, n, k)]
    args = product.arguments([x.ravel() for x in inputs], np.zeros(m * n, BF16), m, n, k)
    lowered = road.compile_for(product.kernel, args, 1, product.config.all_kwargs).lowered
    last = {func.level: (name, func) for name, func in lowered.steps}
    assert len(last) == 5
    for name, func in last.values():
        report = compare(lowered.written, func, args, 1)
        assert report.is_equal, f"after {name}: {report}"


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.name)
@pytest.mark.each(3)
def test_explicit_products(product: Any) -> None:
    m, n, k = 80, 144, 336
    inputs = product.random(np.random.default_rng(7), m, n, k)
    script = product.make(programs=1)
    report = script.simulate(*inputs, np.zeros((m, n), BF16), m, n, k, algebra=True)
    assert report.is_equal and report.void == 0, str(report)


def test_explicit_attention() -> None:
    heads, seq, d = 2, 300, 64
    q, k, v, o = (np.ones((heads, seq, d), BF16) for _ in range(4))
    lse, counter = np.ones((heads, seq), np.float32), np.zeros(2, np.int32)
    script = Attention(d=d, groups=3, causal=True, eighths=0, lse=True)
    report = script.simulate(q, k, v, o, lse, counter, heads, seq, 0.18, algebra=True, order="late")
    assert report.is_equal and report.void == 0, str(report)
    assert not counter.any() and (o == 1).all()
