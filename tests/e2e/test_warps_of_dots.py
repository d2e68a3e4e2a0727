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
    ("tile", "warps", "target"), diagonals(5, TILES, [1, 2, 4, 8, 16, 32], ["sm_90a", "sm_80"])
)
@pytest.mark.each(3)
def test_small_dots(tile: tuple[int, int, int], warps: int, target: str) -> None:
    case = product(tile[0] + 3, 72, 100, tile, BF16, "rc", warps)
    made = compiled(case, target)
    assert made.placed.attrs["threads"] <= 32 * SM_90A.grid.warps
    simulated(case, made)
    report = made.check()
    assert report.ok, str(report)


ODD = [  # a tile, warps, how many of them there are
    ((48, 40, 32), 3, 3),
    ((96, 64, 32), 6, 6),
    ((80, 24, 64), 5, 5),
    ((32, 224, 16), 7, 7),
    ((64, 64, 32), 6, 4),
    ((64, 64, 32), 3, 2),
]


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.filterwarnings("ignore:(?s).*not-as-asked")
@pytest.mark.parametrize(("odd", "target"), diagonals(2, ODD, ["sm_90a", "sm_80"]))
@pytest.mark.each(3)
def test_warps_of_no_power_of_two(odd: tuple[tuple[int, int, int], int, int], target: str) -> None:
    """They are groups of as many of four as divide them; where no groups can share a tile, fewer share it, which
    is told."""
    tile, warps, used = odd
    case = product(tile[0] + 3, 232, 100, tile, BF16, "rc", warps)
    made = compiled(case, target)
    assert made.placed.attrs["threads"] == 32 * used and not made.schedule.specialized
    assert any(r.warn for r in made.schedule.reasons) == (used != warps)
    simulated(case, made)
    report = made.check()
    assert report.ok, str(report)
