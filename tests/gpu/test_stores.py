"""Staging in a ring's slots, and its buffers, on a GPU: bit-equal on integers, odd sizes, three launches each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.test_stores import SHARED, WIDE, one_tile

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    "knobs", [SHARED, {"store_buffers": 1}, {"store_buffers": 0}, {**SHARED, "BLOCK_N": 128}]
)
@pytest.mark.parametrize(("m", "n", "k"), [(200, 520, 200), (1000, 1032, 1544), (128, 256, 0)])
def test_it_is_right(m: int, n: int, k: int, knobs: dict[str, Any]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    meta = {**WIDE, **knobs}
    random = torch.Generator(device="cuda").manual_seed(m)
    a, b = (
        torch.randint(-3, 4, (rows, k), device="cuda", generator=random).bfloat16()
        for rows in (m, n)
    )
    right = (a.double() @ b.double().T).bfloat16()
    grid = (-(-m // meta["BLOCK_M"]), -(-n // meta["BLOCK_N"]))
    for _ in range(3):
        c = torch.full((m, n), float("nan"), device="cuda").bfloat16()
        one_tile[grid](a, b, c, m, n, k, **meta)
        torch.cuda.synchronize()
        assert torch.equal(c, right)
