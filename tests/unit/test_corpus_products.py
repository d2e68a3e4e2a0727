"""The benchmark's cases fit the kernels that they launch."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from benchmarks import corpus_products, mma_sync
from benchmarks.data import Paper

CASES = corpus_products.cases()
FORCED = mma_sync.CASES


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


@pytest.mark.parametrize("name", FORCED)
def test_a_configuration_fits_its_kernel(name: str) -> None:
    made = FORCED[name].make(Paper())
    (args,) = made.calls
    names = list(inspect.signature(made.kernel.fn).parameters)
    knobs = {"num_warps", "num_stages"}
    for config in FORCED[name].configs:
        assert set(names[len(args) :]) == {*made.meta, *config} - knobs
        assert all(n > 0 for n in made.grid(config))
    assert all(isinstance(args[at], np.ndarray) for at in made.wanted) and made.flops > 0
