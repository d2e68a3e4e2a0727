"""A fixed sample of the random kernels and scripts (`make fuzz N=…`: more of them)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.case import Case
from tests.fuzz.draw import draw
from tests.fuzz.judge import judge
from tests.fuzz.planted import PLANTS, search
from tests.fuzz.runner import is_failure
from tests.fuzz.scripts import judge_script
from tests.fuzz.shrink import shrink
from tests.fuzz.tree import statements

CHUNK = 10
SEEDS = range(0, 200)
SCRIPTS = range(0, 12)


@pytest.mark.parametrize("first", SEEDS[::CHUNK])
def test_random_kernels(first: int, tmp_path: Path) -> None:
    """The tree in NumPy, the oracle and the simulator agree; nothing fails inside the compiler."""
    verdicts = {seed: judge(Case(draw(seed)), tmp_path) for seed in range(first, first + CHUNK)}
    failed = {seed: f"{v.kind}: {v.said}" for seed, v in verdicts.items() if v.failed}
    assert not failed


def test_random_scripts(tmp_path: Path) -> None:
    """No ring without a mistake is refused; none that does harm, whatever it is given, is called proved."""
    records = [judge_script(seed, tmp_path) for seed in SCRIPTS]
    assert [r for r in records if is_failure(r)] == []
    assert sum(r["code"].endswith("harmful") for r in records) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mask", "extent", "phase"])
def test_planted_miscompilations_are_found(name: str, tmp_path: Path) -> None:
    """Three of `python -m tests.fuzz.planted`, each within 60 kernels."""
    number = next(i for i, p in enumerate(PLANTS) if p.name == name)
    assert search(("plant", number, ""), tmp_path, limit=60)["code"] == "found"


def test_seeds_are_stable() -> None:
    assert Case(draw(7)).text == Case(draw(7)).text
    assert len({Case(draw(seed)).text for seed in range(20)}) == 20


def test_failures_shrink() -> None:
    """What fails wherever a tile is added up becomes a few statements."""
    kernel = next(k for k in map(draw, range(100)) if "tl.sum(" in Case(k).text)
    small = shrink(kernel, lambda k: "tl.sum(" in Case(k).text, seconds=5)
    assert "tl.sum(" in Case(small).text
    assert len(list(statements(small.body))) < 6 < len(list(statements(kernel.body)))
