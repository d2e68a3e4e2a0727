"""What each NVRTC makes of the witness and of the library's attention, on a GPU: cubins that
`python -m tests.compilers build` left in .carry/cubins."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compilers import CUBINS, WITNESS_THREADS, versions
from tests.gpu.test_attention import expected
from warploom.kernels.attention import grid_of, section_of
from warploom.runtime.launch import LoadedKernel, driver
from warploom.runtime.plan import LaunchPlan, ScalarParam

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

PROGRAMS = 132
STEPS = 3000
CASES = [
    (v, made["key"])
    for v in versions(CUBINS)
    for made in json.loads((CUBINS / v / "made.json").read_text())
]


def made(version: str, key: str) -> dict[str, Any]:
    (found,) = (
        m for m in json.loads((CUBINS / version / "made.json").read_text()) if m["key"] == key
    )
    return dict(found)


def launch(
    cubin: Path, plan: LaunchPlan, grid: tuple[int, int, int], args: tuple[Any, ...]
) -> None:
    addresses = tuple(a.data_ptr() if hasattr(a, "data_ptr") else a for a in args)
    LoadedKernel(driver(), cubin.read_bytes(), plan).prepare(0, grid, addresses)()
    torch.cuda.synchronize()


@pytest.mark.parametrize(("version", "key"), [c for c in CASES if c[1] != "witness"], ids=str)
def test_attention_is_right(version: str, key: str) -> None:
    found = made(version, key)
    meta, plan = found["meta"], LaunchPlan.from_json(found["plan"])
    if meta.get("SPLIT_KV_TAIL"):
        pytest.skip("what is left in parts needs a second kernel")
    d, causal = meta["D"], meta["CAUSAL"]
    for heads, seq in ((4, 77), (8, 1000), (16, 2048)):
        random = torch.Generator(device="cuda").manual_seed(seq)
        q, k, v = (
            torch.randn(heads, seq, d, device="cuda", generator=random).bfloat16() for _ in "qkv"
        )
        o = torch.full_like(q, math.nan)
        lse = torch.empty(heads, seq, device="cuda")
        counter = torch.zeros(2, device="cuda", dtype=torch.int32)
        scale = d**-0.5 * math.log2(math.e)
        if key.startswith("auto"):
            grid = (*grid_of(heads, seq, PROGRAMS)(meta), 1, 1)
            args = (q, k, v, o, lse, counter, heads, seq, section_of(heads, seq, d), scale)
        else:
            tiles = -(-seq // (64 * meta.get("groups", 2))) * heads
            grid = (min(PROGRAMS, tiles), 1, 1)
            args = (q, k, v, o, lse, counter, heads, seq, scale)
        launch(CUBINS / version / f"{key}.cubin", plan, grid, args)
        wanted, _ = expected(q, k, v, causal)
        error = o.double() - wanted
        assert error.norm() < 6e-3 * wanted.norm() and error.abs().max() < 0.05, (heads, seq)
        assert not counter.any()


def wanted_of(table: Any) -> Any:
    """What the witness computes: of each step and chunk the sums along the rows of A, in its fragment's order."""
    out = np.zeros((WITNESS_THREADS, 8))
    threads = np.arange(WITNESS_THREADS)
    for step in range(STEPS):
        for chunk in range(4):
            words = table[(threads + 128 * chunk + step) % 1024].sum(axis=2)  # thread, word
            rows = words.reshape(-1, 4, 4).sum(axis=1).repeat(4, axis=0)  # four lanes share a row
            out[:, [0, 1, 4, 5]] += (rows[:, 0] + rows[:, 2])[:, None]
            out[:, [2, 3, 6, 7]] += (rows[:, 1] + rows[:, 3])[:, None]
    return out


@pytest.mark.parametrize("version", [v for v, key in CASES if key == "witness"])
def test_the_witness(version: str) -> None:
    """Right where its machine code keeps the operands; else it says how many outputs were wrong."""
    table = np.random.default_rng(0).integers(-4, 5, (1024, 4, 2))
    words = torch.tensor(table, dtype=torch.bfloat16, device="cuda")
    out = torch.zeros(WITNESS_THREADS, 8, device="cuda")
    plan = LaunchPlan(
        "witness", WITNESS_THREADS, 0, tuple(ScalarParam(i, "QQi"[i]) for i in range(3))
    )
    launch(CUBINS / version / "witness.cubin", plan, (1, 1, 1), (words, out, STEPS))
    wrong = int((out.double().cpu().numpy() != wanted_of(table)).sum())
    if not made(version, "witness")["kept"]:
        pytest.skip(
            f"NVRTC {version} overwrites operands in flight: {wrong} of {out.numel()} outputs are wrong"
        )
    assert wrong == 0
