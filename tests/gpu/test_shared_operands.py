"""Dots that share their left operand, joined, and tiles that groups finish in turns, on a GPU: bit-equal on exact
data."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.shared_operands import three_products
from tests.e2e.test_tile_ends import TILES, activated

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


def integers(rows: int, columns: int, lead: int) -> Any:
    """Small ones, with so many elements from row to row."""
    whole = torch.full((rows, lead), float("nan"), device="cuda", dtype=torch.bfloat16)
    whole[:, :columns] = torch.randint(-2, 3, (rows, columns), device="cuda")
    return whole[:, :columns]


@pytest.mark.parametrize("groups", [2, 0])
@pytest.mark.parametrize("pad", [0, 4, 1], ids=["tma", "cp_async", "registers"])
@pytest.mark.parametrize("transposed", [False, True], ids=["k-by-n", "n-by-k"])
def test_three_dots_as_one(transposed: bool, pad: int, groups: int) -> None:
    m, n, k = 1000, 424, 1040
    a = integers(m, k, k + pad)
    rows, columns = (n, k) if transposed else (k, n)
    bs = [integers(rows, columns, columns + pad) for _ in range(3)]
    c = torch.full((m, n), float("nan"), device="cuda")
    knobs = {"num_consumer_groups": groups, **({"num_stages": 2} if not groups else {})}
    three_products[8, 7](
        a, *bs, c, m, n, k, a.stride(0), bs[0].stride(0), c.stride(0),
        BLOCK_M=128, BLOCK_N=64, BLOCK_K=64, TRANSPOSED=transposed, WAY="", **knobs,
    )  # fmt: skip
    b1, b2, b3 = (b.double().t() if transposed else b.double() for b in bs)
    wanted = a.double() @ (b1 + 2 * b2 - b3) + 2
    assert torch.equal(c.double(), wanted)


@pytest.mark.parametrize("k", [0, 64, 1000])
@pytest.mark.parametrize("programs", [1, 5, 132])
def test_tiles_in_turns(k: int, programs: int) -> None:
    m, n = 1000, 1048
    a, b = integers(m, k, k), integers(n, k, k)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    activated[programs,](a, b, c, m, n, k, **TILES)
    wanted = (a.double() @ b.double().t() * 0.5).to(torch.bfloat16)
    assert torch.equal(c, wanted)
