"""Gathers by cp.async of a few pieces, and early returns, on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.e2e.test_returns import Writer, arrays, loaded, plainly
from tests.e2e.test_small_gathers import STEPS, gathered_rows

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("groups", [0, 1])
@pytest.mark.parametrize("lead", [128, 132])
@pytest.mark.parametrize("n", [8, 24])
@pytest.mark.parametrize("name", ["float32", "float16"])
def test_small_gathers(name: str, n: int, lead: int, groups: int) -> None:
    dtype, k = getattr(torch, name), 16
    a = torch.randint(-2, 3, (64, k), device="cuda").to(dtype)
    b = torch.randint(-2, 3, (8 * n, lead), device="cuda").to(dtype)
    idx = torch.tensor([7, 0, 3, 5], device="cuda", dtype=torch.int32)
    out = torch.full((64, n), float("nan"), device="cuda")
    meta = {"M": 64, "N": n, "K": k, "num_consumer_groups": groups}
    gathered_rows[(1,)](a, b, idx, out, STEPS, lead, **meta)
    blocks = b.double().view(8, n, lead)
    wanted = sum(
        a.double() @ blocks[int(g), :, i * k : (i + 1) * k].T for i, g in enumerate(idx.tolist())
    )
    assert torch.equal(out.double(), wanted)


@pytest.mark.parametrize("seed", range(20))
def test_random_control_flow(seed: int, tmp_path: Any) -> None:
    text = Writer(seed).text()
    kernel = loaded(text, tmp_path / f"gpu{seed}.py")
    out, c = arrays(seed)
    wanted = out.copy()
    plainly(text, wanted, c, 5, True, False)
    x, y = torch.from_numpy(out).cuda(), torch.from_numpy(c).cuda()
    kernel[(len(c) // 8,)](x, y, 5, True, False)
    np.testing.assert_array_equal(x.cpu().numpy(), wanted)
