"""The explicit products on a GPU: bit-equal on exact data, close to float64 on random data, nothing written
outside of C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.explicit.products import PRODUCTS, Product
from warploom.kernels.explicit.dual_gemm import TunedDualGemm

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

SHAPES = [(192, 272, 208), (1000, 1040, 528), (2560, 3072, 1024), (64, 16, 400)]
GUARD = 64  # rows of NaN on both sides of C

each = pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.name)
shapes = pytest.mark.parametrize(("m", "n", "k"), SHAPES)


def upload(x: Any) -> Any:
    if x.dtype.name == "float8_e4m3fn":
        return torch.from_numpy(x.view(np.uint8)).cuda().view(torch.float8_e4m3fn)
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(x).cuda()


def launched(product: Product, inputs: Any, m: int, n: int, k: int, times: int = 3) -> Any:
    """C as float64, after several launches into memory between guards."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    kernel, tensors = product.make(), [upload(x) for x in inputs]
    for _ in range(times):
        whole = torch.full((m + 2 * GUARD, n), torch.nan, device="cuda", dtype=torch.bfloat16)
        c = whole[GUARD : GUARD + m]
        kernel(*tensors, c, m, n, k)
        torch.cuda.synchronize()
        assert whole[:GUARD].isnan().all() and whole[GUARD + m :].isnan().all()
    return c.double().cpu().numpy()


@each
@shapes
def test_exact_data_comes_out_bit_equal(product: Product, m: int, n: int, k: int) -> None:
    inputs = product.exact(np.random.default_rng(m + n + k), m, n, k)
    c = launched(product, inputs, m, n, k)
    wanted = torch.from_numpy(product.wanted(*inputs)).float().bfloat16().double().numpy()
    assert np.array_equal(c, wanted)


@each
@shapes
def test_random_data_comes_out_close(product: Product, m: int, n: int, k: int) -> None:
    inputs = product.random(np.random.default_rng(m + n + k), m, n, k)
    c = launched(product, inputs, m, n, k)
    wanted = product.wanted(*inputs)
    loose = 2e-2 * np.sqrt(k) if product.name.startswith("fp8") else 1e-3 * np.sqrt(k)
    assert np.all(abs(c - wanted) <= abs(wanted) * 2**-8 + loose)
    assert np.linalg.norm(c - wanted) <= 6e-3 * np.linalg.norm(wanted)


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
