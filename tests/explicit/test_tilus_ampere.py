"""Split-K by semaphores, as Tilus's last step on Ampere does it (corpus/tilus_ampere.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.explicit.served import served
from warploom.ir.core import walk
from warploom.ir.ops import control, smem, tile

SMALL = {"block_m": 64, "block_n": 64, "block_k": 32, "num_stages": 3, "num_warps": 4}


def arrays(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float16)


@pytest.mark.parametrize("parts", [1, 3])
def test_it_computes_the_product(parts: int) -> None:
    m, n, k = 100, 72, 200
    a, b, c = arrays(m, n, k)
    made = served("corpus.tilus_ampere").SplitK(**SMALL, split_k_factor=parts)
    for seed in (1, 2):
        c[:] = np.nan
        made.simulate(m, n, k, a, b, c, seed=seed)
        assert np.array_equal(c, a.astype(np.float64) @ b)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_it_is_built_without_spills(target: str) -> None:
    made = served("corpus.tilus_ampere").SplitK(**SMALL, split_k_factor=2)
    compiled = made.compile(["i32:16"] * 3 + ["*fp16:16"] * 3, target=target)
    assert compiled.resources.problems() == ()
    kinds = [o.kind for o in walk(compiled.placed.body)]
    assert {tile.dot, smem.cp_async, tile.atomic, control.while_} <= set(kinds)
