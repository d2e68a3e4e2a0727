"""Products that fill no whole instructions: right in every order, proved, ejected and told, on every chip."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corpus import batched, decoding, in_order
from corpus.microscaling import product as scaled
from tests.e2e.corpus import judging
from tests.e2e.road import default_orders
from tests.e2e.test_targets import compiled
from tests.pairwise import diagonals, every
from warploom.ir.core import walk
from warploom.ir.ops import tile

CASES = {
    **{name: in_order.CASES[name] for name in in_order.IN_PART},
    **{f"batched-{name}": batched.CASES[name] for name in ("one-row", "few-both")},
    "scaled": partial(scaled, 20, 40, 256, (8, 16, 64), "e4m3", "e4m3", warps=2),
    "pages": decoding.CASES["pages-eight"],
    "pages-1": decoding.CASES["pages-one"],
}
CHIPS = ["sm_90a", "sm_80", "sm_89", "sm_120a"]


def multiplies(target: str, name: str) -> bool:
    return target != "sm_80" or not name.endswith(("e4m3", "e5m2"))


def on(n: int, chips: list[str]) -> list[Any]:
    """Each n-th case of each chip, and all in thorough tests."""
    return [p for p in diagonals(n, [*CASES], chips) if multiplies(p.values[1], p.values[0])]


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("name", every(2, [*CASES]))
@pytest.mark.each(2)
def test_every_form(name: str, tmp_path: Path) -> None:
    said = judging.judge(CASES[name](), "auto", tmp_path, orders=default_orders())
    assert "no script" not in said


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(("name", "target"), on(6, CHIPS[1:]))
@pytest.mark.each(2)
def test_every_chip(name: str, target: str) -> None:
    case = CASES[name]()
    made = compiled(case, target)
    assert any(o.kind is tile.dot for o in walk(made.placed.body))
    for order in default_orders():
        found = judging.copies(case.args)
        made.simulate(*found, grid=case.grid, order=order)
        assert not case.judge(found), order
    report = made.check(*judging.copies(case.args), grid=case.grid)
    assert report.ok, str(report)


@pytest.mark.parametrize(("name", "target"), on(3, CHIPS))
@pytest.mark.each(3)
def test_they_are_assembled(name: str, target: str) -> None:
    assert compiled(CASES[name](), target).resources.spill_bytes == 0


def test_it_is_told() -> None:
    told = compiled(CASES["4x32-two"](), "sm_90a").explain()
    assert "made as its transpose" in told and "a step of K takes 2 mma.sync instead of 4" in told
    assert "fills 16×4 of the 16×8 of each mma.sync" in told
