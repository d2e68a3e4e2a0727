"""The explicit products on a GPU: bit-equal on exact data, close to float64 on random data, nothing written
outside of C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.explicit.products import PRODUCTS, Product
from tests.gpu.guarded import SHAPES, Launch, close_on_random_data, equal_on_exact_data, upload
from warploom.kernels.explicit.dual_gemm import TunedDualGemm

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

each = pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.name)
shapes = pytest.mark.parametrize(("m", "n", "k"), SHAPES)


def launch_of(product: Product) -> Launch:
    kernel = product.make()

    def launch(tensors: list[Any], c: Any, m: int, n: int, k: int) -> None:
        kernel(*tensors, c, m, n, k)

    return launch


@each
@shapes
def test_exact_data_comes_out_bit_equal(product: Product, m: int, n: int, k: int) -> None:
    equal_on_exact_data(product, launch_of(product), m, n, k)


@each
@shapes
def test_random_data_comes_out_close(product: Product, m: int, n: int, k: int) -> None:
    loose = 2e-2 if product.name.startswith("fp8") else 1e-3
    close_on_random_data(product, launch_of(product), m, n, k, loose)


def test_a_tuned_product_picks_a_variant_and_computes() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    m, n, k = 512, 768, 640
    (product,) = (p for p in PRODUCTS if p.name == "dual")
    inputs = product.exact(np.random.default_rng(1), m, n, k)
    tensors = [upload(x) for x in inputs]
    c = torch.full((m, n), torch.nan, device="cuda", dtype=torch.bfloat16)
    tuned = TunedDualGemm()
    tuned(*tensors, c, m, n, k)
    assert tuned.choose(*tensors, c, m, n, k) in tuned.scripts
    wanted = torch.from_numpy(product.wanted(*inputs)).float().bfloat16().double()
    assert torch.equal(c.double().cpu(), wanted)
