"""Tilus's Hopper ladder (corpus/tilus_hopper.py, which imports tilus and nothing else of ours): through the door,
in adversarial orders, proved, and built without spills or products that wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.explicit.served import served
from tests.orders import default_orders
from warploom.ir.core import walk
from warploom.ir.ops import mma, tile, tma
from warploom.sim.scheduler import ORDERS

ROOT = Path(__file__).parents[2]
SMALL: dict[str, dict[str, int]] = {
    "CopiedByTma": {"block_m": 64, "block_n": 64},
    "Asynchronous": {"block_m": 128, "block_n": 64},
    "Ring": {"block_m": 128, "block_n": 64, "num_stages": 2},
    "Specialized": {"block_m": 128, "block_n": 64, "num_stages": 2},
    "TwoConsumers": {"block_m": 128, "block_n": 64, "num_stages": 2, "swizzle_size": 4},
    "InFlight": {"block_m": 128, "block_n": 64, "num_stages": 2, "swizzle_size": 4},
    "FourConsumers": {"block_m": 256, "block_n": 64, "num_stages": 2, "swizzle_size": 4},
}
LARGE: dict[str, dict[str, int]] = {
    "CopiedByTma": {"block_m": 128, "block_n": 128},
    "Asynchronous": {"block_m": 128, "block_n": 128},
    "Ring": {"block_m": 128, "block_n": 128, "num_stages": 4},
    "Specialized": {"block_m": 128, "block_n": 128, "num_stages": 4},
    "TwoConsumers": {"block_m": 128, "block_n": 256, "num_stages": 4, "swizzle_size": 4},
    "InFlight": {"block_m": 128, "block_n": 128, "num_stages": 4, "swizzle_size": 4},
    "FourConsumers": {"block_m": 256, "block_n": 128, "num_stages": 3, "swizzle_size": 8},
}
each = pytest.mark.parametrize("name", SMALL)


def step(name: str, sizes: dict[str, int], block_k: int) -> Any:
    return getattr(served("corpus.tilus_hopper"), name)(block_k=block_k, **sizes)


def arrays(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (n, k)))
    return a, b, np.full((m, n), np.nan, np.float16)


def test_the_script_runs_through_the_door() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warploom", "run", "corpus/tilus_hopper.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [f"{name}: right" for name in SMALL], done.stderr


@each
@pytest.mark.each(2)
def test_it_computes_the_product_and_is_proved(name: str) -> None:
    m, n, k = 200, 136, 96
    a, b, c = arrays(m, n, k)
    made = step(name, SMALL[name], 32)
    for order in default_orders(ORDERS):
        c[:] = np.nan
        made.simulate(m, n, k, a, b, c, order=order, seed=1)
        assert np.array_equal(c, a.astype(np.float64) @ b.T.astype(np.float64)), order
    report = made.check(m, n, k, a, b, c)
    assert report.ok, str(report)


@each
def test_it_is_built_without_spills(name: str) -> None:
    made = step(name, LARGE[name], 64)
    compiled = made.compile(["i32:16"] + ["*fp16:16"] * 3, {"n": 4096, "k": 4096})
    assert compiled.resources.problems() == ()
    kinds = {o.kind for o in walk(compiled.placed.body)}
    assert (mma.wgmma in kinds) == (name != "CopiedByTma")
    assert (tile.dot in kinds) == (name == "CopiedByTma")
    assert (tma.tma_store in kinds) == (name in ("InFlight", "FourConsumers"))
    starts = mma.no_acc in kinds  # the first product ignores what the registers hold
    assert starts == (name in ("InFlight", "FourConsumers"))
