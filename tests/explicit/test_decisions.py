"""A protocol that hangs on conditions: proved where it is right, never where it is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.explicit.broken.decisions import Product
from tests.explicit.broken.tiles import Drained, Tiles
from warploom.check import CheckReport, Verdict, check
from warploom.check.dependence import Dependence

HARMFUL = {  # case: may it stay open?
    "loaded bound, no wait": False,
    "loaded bound, no arrival": False,
    "loaded bound, the producer's is another word": False,
    "late wait": False,
    "late arrival": False,
    "very late wait": True,
    "wait in every seventh iteration but one": False,
    "wait hangs on two arguments": False,
    "wait hangs on memory": False,
    "wait hangs on a word of its own": False,
    "wait hangs on a hash": True,
    "arrival up to a very late iteration": True,
    "arrival up to a late iteration, doubled": True,
    "arrival up to a late iteration beyond an argument": False,
    "arrival up to a count": True,
    "arrival hangs on an argument": False,
    "arrival hangs on the block": False,
    "arrival hangs on the block and an argument": False,
    "arrival hangs on memory": False,
    "arrival hangs on two words in a row": False,
    "copy skipped where m is 192": False,
    "wait hangs on three arguments": False,
    "arrival hangs on three arguments": False,
    "next slot hangs on three arguments": False,
    "arrival hangs on conditions in conditions": True,
    "one trip fewer for every 64": False,
    "at most 50 trips": False,
}
RIGHT = (
    "",
    "loaded bound",
    "assumed",
    "again in a late iteration",
    "again in a very late iteration",
    "again where an argument says so",
    "again where three arguments say so",
    "again in one block",
    "again where memory says so",
    "again by a hash",
)


HARMFUL_TILES = (
    "two steps in far tiles, one copy",
    "steps by turns, no arrival where they fall",
)
RIGHT_TILES = ("", "steps by turns", "two steps in far tiles")


def report_of_tiles(case: str) -> CheckReport:
    x = np.zeros((64, 64), ml_dtypes.bfloat16)
    script: Any = Tiles(case)
    request = script._request(script.bind([x, x, x, 64, 128, 64, 4], {}), "sm_90a")
    return check(script._lowered(request).placed)


def report(case: str) -> CheckReport:
    x, flags = np.zeros((64, 64), ml_dtypes.bfloat16), np.zeros(64, np.int32)
    script: Any = Product(case)
    request = script._request(script.bind([x, x, x, flags, 64, 128, 64], {}), "sm_90a")
    return check(script._lowered(request).placed)


# Like others here, but for when: these run for long.
RARE = {
    "very late wait",
    "arrival up to a late iteration, doubled",
    "again in a very late iteration",
    "arrival hangs on three arguments",
    "wait hangs on two arguments",
    "arrival hangs on the block and an argument",
}


def often(cases: Iterable[str]) -> list[Any]:
    return [pytest.param(c, marks=pytest.mark.thorough if c in RARE else ()) for c in cases]


@pytest.mark.parametrize("case", often(HARMFUL))
@pytest.mark.each(2)
def test_what_does_harm_is_never_proved(case: str) -> None:
    found = report(case)
    assert not found.ok
    if HARMFUL[case] and found.verdict is Verdict.NOT_PROVED:
        assert any(
            u.loc is not None and u.loc.file.endswith("decisions.py") for u in found.unproved
        )
        assert any(f"the mbarrier_{e} depends on" in str(found) for e in ("wait", "arrive"))
    else:
        assert found.verdict is Verdict.BROKEN, str(found)


@pytest.mark.parametrize("case", often(RIGHT))
@pytest.mark.each(2)
def test_what_is_right_is_proved(case: str) -> None:
    found = report(case)
    assert found.verdict is Verdict.PROVED, str(found)


@pytest.mark.parametrize("case", HARMFUL_TILES)
def test_what_does_harm_in_some_tiles_is_never_proved(case: str) -> None:
    assert not report_of_tiles(case).ok


@pytest.mark.parametrize("case", RIGHT_TILES)
@pytest.mark.each(2)
def test_tiles_of_different_lengths_are_proved(case: str) -> None:
    found = report_of_tiles(case)
    assert found.verdict is Verdict.PROVED, str(found)


@pytest.mark.parametrize("late", (0, 4, 60, pytest.param(300, marks=pytest.mark.thorough)))
def test_tasks_that_go_on_by_the_same_are_proved_and_others_never(late: int) -> None:
    script: Any = Drained(late)
    x = np.zeros((64, 64), ml_dtypes.bfloat16)
    request = script._request(script.bind([x, 64, 4], {}), "sm_90a")
    func = script._lowered(request).placed
    found, dependence = check(func), Dependence(func)
    (condition, *_) = dependence.conditions
    assert dependence.ends_loops_of_all_tasks(condition) is (late == 0)
    assert found.ok is (late == 0), str(found)
