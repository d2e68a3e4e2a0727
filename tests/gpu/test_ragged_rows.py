"""Rows that begin inside a unit of 16 bytes, on a GPU: what is wanted is cut out of the units around."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.parts import part_of_k
from warploom.kernels.gemm import gemm_pointers

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
KNOBS = [{"num_consumer_groups": 2}, {"num_consumer_groups": 0, "num_warps": 8}]


def integers(rows: int, columns: int, pad: int = 0, first: int = 0) -> Any:
    """Behind NaN in memory, with NaN between rows."""
    row = columns + pad
    whole = torch.full((first + rows * row + 8,), float("nan"), device="cuda").bfloat16()
    view = whole[first : first + rows * row].view(rows, row)[:, :columns]
    return view.copy_(torch.randint(-2, 3, (rows, columns), device="cuda"))


@pytest.mark.parametrize("knobs", KNOBS, ids=["specialized", "uniform"])
@pytest.mark.parametrize("first", [0, 8, 6, 5, 1])
def test_columns_from_anywhere_on(first: int, knobs: dict[str, int]) -> None:
    a, b = integers(128, 208), integers(64, 208)
    c = torch.full((128, 64), float("nan"), device="cuda")
    one = {**knobs, "num_consumer_groups": min(1, knobs["num_consumer_groups"])}
    part_of_k[2,](a, b, c, 64, first, 190, 208, 208, BLOCK=64, STEP=32, **one)
    assert torch.equal(c, a[:, first:190].float() @ b[:, first:190].float().T)


@pytest.mark.parametrize("knobs", KNOBS, ids=["specialized", "uniform"])
@pytest.mark.parametrize("by_rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize(
    "m,n,k,pads,first",
    [
        (300, 520, 1040, (1, 3), 0),
        (130, 257, 1039, (0, 0), 3),
        (300, 520, 1, (1, 1), 1),
        (5, 700, 100, (0, 1), 7),
    ],
)
def test_products(
    m: int, n: int, k: int, pads: tuple[int, int], first: int, by_rows: bool, knobs: dict[str, int]
) -> None:
    a = integers(m, k, pads[0], first)
    b = integers(k, n, pads[1]) if by_rows else integers(n, k, pads[1]).T
    c = torch.full((m, n), float("nan"), device="cuda").bfloat16()
    meta = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}
    sizes = (m, n, k, *a.stride(), *b.stride(), *c.stride())
    gemm_pointers[7,](a, b, c, *sizes, **meta, **knobs)
    assert torch.equal(c, (a.double() @ b.double()).bfloat16())
