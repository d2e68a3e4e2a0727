"""The library's gated pair and 8-bit products on a GPU: bit-equal on exact data, close to float64 on random data,
nothing written outside of C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.e2e.library_products import PRODUCTS, LibraryProduct
from tests.gpu.test_explicit_products import GUARD, SHAPES, upload
from warploom.kernels.gemm import persistent_grid

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

each = pytest.mark.parametrize("product", PRODUCTS, ids=str)
shapes = pytest.mark.parametrize(("m", "n", "k"), SHAPES)


def launched(product: LibraryProduct, inputs: Any, m: int, n: int, k: int) -> Any:
    """C as float64, after several launches into memory between guards."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    tensors = [upload(x) for x in inputs]
    grid = persistent_grid(m, n, torch.cuda.get_device_properties(0).multi_processor_count)
    for _ in range(3):
        whole = torch.full((m + 2 * GUARD, n), torch.nan, device="cuda", dtype=torch.bfloat16)
        c = whole[GUARD : GUARD + m]
        product.kernel[grid](*product.arguments(tensors, c, m, n, k), **product.config.all_kwargs)
        torch.cuda.synchronize()
        assert whole[:GUARD].isnan().all() and whole[GUARD + m :].isnan().all()
    return c.double().cpu().numpy()


@each
@shapes
def test_exact_data_comes_out_bit_equal(product: LibraryProduct, m: int, n: int, k: int) -> None:
    inputs = product.exact(np.random.default_rng(m + n + k), m, n, k)
    c = launched(product, inputs, m, n, k)
    wanted = torch.from_numpy(product.wanted(*inputs)).float().bfloat16().double().numpy()
    assert np.array_equal(c, wanted)


@each
@shapes
def test_random_data_comes_out_close(product: LibraryProduct, m: int, n: int, k: int) -> None:
    inputs = product.random(np.random.default_rng(m + n + k), m, n, k)
    c = launched(product, inputs, m, n, k)
    wanted = product.wanted(*inputs)
    loose = 1e-3 if product.pointers[0] == "*bf16:16" else 2e-2
    assert np.all(abs(c - wanted) <= abs(wanted) * 2**-8 + loose * np.sqrt(k))
    assert np.linalg.norm(c - wanted) <= 6e-3 * np.linalg.norm(wanted)
