"""What NVRTC makes of dots in registers: no spills, nothing that it remarks on."""

from __future__ import annotations

import pytest

from corpus.in_order import CASES
from tests.explicit import ampere
from tests.explicit.test_ampere import HALVES, halves
from warploom.target import TARGETS


@pytest.mark.parametrize(
    "name",
    ["64x32-one", "32x96-eight", "16x32-e5m2", "64x64-f64", "ieee-64x64-four", "chunk-64-two"],
)
def test_builds_have_no_problems(name: str) -> None:
    case = CASES[name]()
    made = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta, **case.knobs)
    assert made.resources.problems() == ()


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
def test_sums_in_float16_build(target: str) -> None:
    for shape in HALVES:
        *args, _ = halves(shape, TARGETS[target])
        assert ampere.Halves(*shape).compile_for(*args, target=target).resources.problems() == ()
