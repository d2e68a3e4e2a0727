"""A fixed sample of tests/e2e/fuzz.py's random kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import fuzz


@pytest.mark.parametrize("first", range(0, 30, 5))
def test_random_kernels(first: int, tmp_path: Path) -> None:
    """Equal to the oracle at every level and in every order of events; none of these is refused."""
    for seed in range(first, first + 5):
        assert fuzz.judge(fuzz.draw(seed), tmp_path) == "", f"seed {seed}"


def test_seeds_are_stable() -> None:
    assert fuzz.draw(7).text == fuzz.draw(7).text
    assert len({fuzz.draw(seed).text for seed in range(20)}) == 20
