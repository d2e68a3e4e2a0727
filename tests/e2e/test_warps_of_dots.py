"""Small dots by any number of warps that a launch may have: right, proved, and no producer beside all of a CTA's."""

from __future__ import annotations

import pytest

from corpus.case import BF16
from corpus.in_order import product
from tests.e2e.test_targets import compiled, simulated
from tests.pairwise import diagonals
from warploom.target import SM_90A

TILES = [(16, 16, 16), (32, 32, 32), (8, 64, 32), (1, 8, 16), (64, 64, 32)]


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("tile", "warps", "target"), diagonals(2, TILES, [1, 2, 4, 8, 16, 32], ["sm_90a", "sm_80"])
)
def test_small_dots(tile: tuple[int, int, int], warps: int, target: str) -> None:
    case = product(tile[0] + 3, 72, 100, tile, BF16, "rc", warps)
    made = compiled(case, target)
    assert made.placed.attrs["threads"] <= 32 * SM_90A.grid.warps
    simulated(case, made)
    report = made.check()
    assert report.ok, str(report)
