"""What NVRTC makes of dots in registers: no spills, nothing that it remarks on."""

from __future__ import annotations

import pytest

from corpus.in_order import CASES


@pytest.mark.parametrize(
    "name",
    ["64x32-one", "32x96-eight", "16x32-e5m2", "64x64-f64", "ieee-64x64-four", "chunk-64-two"],
)
def test_builds_have_no_problems(name: str) -> None:
    case = CASES[name]()
    made = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta, **case.knobs)
    assert made.resources.problems() == ()
