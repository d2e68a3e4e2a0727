"""Hardware facts that the code generator rests on: fragments, descriptors, swizzles, against NumPy, bit-equal."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu.probe import integers, needs_gpu, run
from tests.unit.codegen_wgmma import PRODUCTS, Product
from warploom.ir.types import DTYPES

pytestmark = [pytest.mark.gpu, needs_gpu]


@pytest.mark.parametrize("p", PRODUCTS, ids=str)
def test_product(p: Product) -> None:
    a = integers((p.m, p.k), DTYPES[p.dtype].numpy, 1)
    b = integers((p.k, p.n), DTYPES[p.b_dtype or p.dtype].numpy, 2)
    c = np.full((p.m, p.n), np.nan, np.float32)
    given_a = a.T if p.a == "m" else a
    given_b = b.T if p.b == "k" else b
    *_, got = run(p.text, np.ascontiguousarray(given_a), np.ascontiguousarray(given_b), c)
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.astype(np.float32))
