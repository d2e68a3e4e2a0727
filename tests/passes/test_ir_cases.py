"""Each pass by itself: the function in a file, and what the pass has to make of it (ir_cases.py)."""

from __future__ import annotations

import difflib

import numpy as np
import pytest

from tests.e2e.road import default_orders
from tests.passes.ir_cases import cases, computed
from warploom.ir.printer import print_func
from warploom.passes.pipeline import names

CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_a_pass_makes_what_the_case_says(name: str) -> None:
    case = CASES[name]
    _, after = case.functions()
    found = print_func(after)
    difference = "\n".join(
        difflib.unified_diff(
            case.after.splitlines(), found.splitlines(), "the case", "now", lineterm=""
        )
    )
    assert not difference, difference
    assert found != case.before  # else nothing is shown


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.told("run")])
def test_both_sides_compute_the_same(name: str) -> None:
    case = CASES[name]
    before, after = case.functions()
    told = case.told("run")
    untouched = computed(before.with_(body=before.body), [[0], *told[1:]], "late")
    for order in default_orders():
        expected, found = computed(before, told, order), computed(after, told, order)
        assert any(not np.array_equal(x, y) for x, y in zip(untouched, expected, strict=True))
        for x, y in zip(expected, found, strict=True):
            assert x.tobytes() == y.tobytes()


def test_every_pass_has_a_case() -> None:
    assert {case.row.name for case in CASES.values()} == set(names())
