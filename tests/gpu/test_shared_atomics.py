"""Atomics and scattered stores in shared memory on the GPU: what the simulator says they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.explicit import test_shared_atomics as atomics
from warploom.tilus import int32, int64

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")


def on_gpu(script: Any, *args: Any) -> list[Any]:
    """What the GPU leaves in the arrays."""
    given = [torch.from_numpy(x.copy()).cuda() for x in args]
    script(*given)
    return [x.cpu().numpy() for x in given]


@pytest.mark.parametrize(("fn", "dtype"), [f for f in atomics.FUNCTIONS if f[1].name[0] != "u"])
def test_each_element_is_combined(fn: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for shape, warps in (((4, 33), 1), ((8, 64), 4)):
        args = [rng.integers(0, 9, shape).astype(atomics.DTYPES[dtype]) for _ in range(3)]
        script = atomics.Combined(fn, dtype, list(shape), warps)
        found = on_gpu(script, *args)
        script(*args)
        assert all(map(np.array_equal, found, args))


@pytest.mark.parametrize(("shape", "n", "dim"), atomics.SLOTS)
@pytest.mark.parametrize("index", [int32, int64])
def test_indices_along_an_axis(shape: Any, n: int, dim: int, index: Any) -> None:
    script, args, want = atomics.scattered(shape, n, dim, index)
    for _ in range(20):
        assert np.array_equal(on_gpu(script, *args)[0], want)


def test_groups_count_at_the_same_time() -> None:
    for seed in range(20):
        x = np.random.default_rng(seed).integers(0, 32, (2, 64)).astype(np.int32)
        _, out = on_gpu(atomics.Counted(), x, np.zeros(32, np.int32))
        assert np.array_equal(out, np.bincount(x.reshape(-1), minlength=32))
