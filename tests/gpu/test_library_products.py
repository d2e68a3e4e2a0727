"""The library's products on a GPU: bit-equal on exact data, close to float64 on random data,
nothing written outside of C."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.library_products import GEMMS, PRODUCTS, LibraryProduct
from tests.gpu.guarded import SHAPES, Launch, close_on_random_data, equal_on_exact_data
from warploom.kernels.gemm import persistent_grid

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

each = pytest.mark.parametrize("product", PRODUCTS + GEMMS, ids=str)
shapes = pytest.mark.parametrize(("m", "n", "k"), SHAPES)


def launch_of(product: LibraryProduct) -> Launch:
    def launch(tensors: list[Any], c: Any, m: int, n: int, k: int) -> None:
        grid = persistent_grid(m, n, torch.cuda.get_device_properties(0).multi_processor_count)
        product.kernel[grid](*product.arguments(tensors, c, m, n, k), **product.config.all_kwargs)

    return launch


@each
@shapes
def test_exact_data_comes_out_bit_equal(product: LibraryProduct, m: int, n: int, k: int) -> None:
    equal_on_exact_data(product, launch_of(product), m, n, k)


@each
@shapes
def test_random_data_comes_out_close(product: LibraryProduct, m: int, n: int, k: int) -> None:
    loose = 1e-3 if product.pointers[0] == "*bf16:16" else 2e-2
    close_on_random_data(product, launch_of(product), m, n, k, loose)
