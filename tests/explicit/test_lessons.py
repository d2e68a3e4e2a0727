"""The lessons: each computes the product, is proved, and compiles without spills or advisories."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.pairwise import every
from warploom.check import check

LESSONS = sorted((Path(__file__).parents[2] / "docs" / "lessons").glob("0*.py"))


@functools.cache
def kernel(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"lesson_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from warploom import Script

    (cls,) = (
        v
        for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, Script) and v is not Script
    )
    return cls()


@functools.cache
def compiled(path: Path) -> Any:
    return kernel(path).compile(["*bf16:16"] * 3 + ["i32:16"] * 3)


each = pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)


@each
@pytest.mark.each(2)
def test_it_computes_the_product(path: Path) -> None:
    m, n, k = 144, 264, 208
    rng = np.random.default_rng(1)
    a = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    kernel(path)(a, b, c, m, n, k)
    want = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    assert np.array_equal(c.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("path", every(2, LESSONS), ids=lambda p: p.stem)
@pytest.mark.each(2)
def test_it_is_proved(path: Path) -> None:
    report = check(compiled(path).placed)
    assert report.ok, str(report)


@each
def test_it_compiles_without_spills(path: Path) -> None:
    assert compiled(path).resources.problems() == ()


def test_every_lesson_says_what_changed() -> None:
    assert len(LESSONS) >= 7
    for path in LESSONS:
        text = path.read_text(encoding="utf-8")
        assert f"Lesson {int(path.stem[:2])}:" in text
        assert "What " in text


def test_the_table_is_current() -> None:
    tool = Path(__file__).parents[2] / "tools" / "lessons_table.py"
    assert subprocess.run([sys.executable, str(tool), "--check"], check=False).returncode == 0


def test_programs_that_fit_side_by_side_are_compiled_for_it() -> None:
    """The naive lesson takes 16 KB, so ptxas weighs registers against programs on the multiprocessor: eight
    fit.  Where one fills it, or tasks trade registers, it is told of that one."""
    naive, *others = LESSONS
    resources = compiled(naive).resources
    assert 8 * resources.threads * resources.registers <= 65_536 and not resources.problems()
    assert "__launch_bounds__(THREADS)" in compiled(naive).cuda
    for path in others[3:]:  # two groups of consumers and a producer, that trade
        assert "__launch_bounds__(THREADS, 1)" in compiled(path).cuda, path.stem
