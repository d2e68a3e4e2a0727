"""The benchmark's cases fit the kernels that they launch."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from benchmarks import corpus_products
from benchmarks.data import Paper

CASES = corpus_products.cases()


@pytest.mark.parametrize("name", CASES)
def test_a_case_fits_its_kernel(name: str) -> None:
    made = CASES[name](source=Paper())
    (args,) = made.calls
    names = list(inspect.signature(made.kernel.fn).parameters)
    assert names[len(args) :] and set(names[len(args) :]) == set(made.meta)
    assert set(made.dtypes) <= set(made.meta)
    for at in (*made.wanted, *made.fresh):
        assert isinstance(args[at], np.ndarray), names[at]
    arrays = [x for x in args if isinstance(x, np.ndarray)]
    assert all(x.size for x in arrays) and made.flops > 0
