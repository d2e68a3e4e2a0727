"""The Ampere ladder: each lesson computes the product in adversarial orders, is proved, and is built without
spills; its program is the same for all targets."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.explicit.test_lessons import kernel
from tests.orders import default_orders
from tests.pairwise import diagonals
from warploom.check import check
from warploom.ir.core import walk
from warploom.ir.ops import smem, tma
from warploom.ir.printer import print_func
from warploom.sim.report import SimError
from warploom.sim.scheduler import ORDERS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "lessons" / "ampere"
LESSONS = sorted(FOLDER.glob("0*.py"))
OTHERS = ("sm_86", "sm_89", "sm_90a")


@functools.cache
def compiled(path: Path, target: str) -> Any:
    return kernel(path).compile(["*fp16:16"] * 3 + ["i32:16"] * 3, target=target)


def arrays(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float16)


each = pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)


@each
@pytest.mark.parametrize("sizes", [(144, 144, 272), (64, 16, 16)], ids=str)
def test_it_computes_the_product(path: Path, sizes: tuple[int, int, int]) -> None:
    a, b, c = arrays(*sizes)
    for order in default_orders(ORDERS):
        c[:] = np.nan
        kernel(path).simulate(a, b, c, *sizes, order=order, seed=1)
        assert np.array_equal(c, a.astype(np.float64) @ b), order


@pytest.mark.usefixtures("without_nvrtc")
@each
@pytest.mark.each(3)
def test_it_is_proved(path: Path) -> None:
    report = check(compiled(path, "sm_80").placed)
    assert report.ok, str(report)


@pytest.mark.usefixtures("without_nvrtc")
@each
def test_it_is_one_program_for_all_targets(path: Path) -> None:
    def text(target: str) -> str:
        """But for what launches that may begin early need."""
        own = r', target="\w+"|\n *grid_(wait|release)\(.*'
        return re.sub(own, "", print_func(compiled(path, target).placed))

    assert 'target="sm_80"' in print_func(compiled(path, "sm_80").placed)
    assert {text(target) for target in OTHERS} == {text("sm_80")}


@pytest.mark.parametrize(("path", "target"), diagonals(3, LESSONS, ["sm_80", *OTHERS]))
@pytest.mark.each(2)
def test_it_is_built_without_spills(path: Path, target: str) -> None:
    made = compiled(path, target)
    assert made.resources.problems() == ()
    assert "mma_m16n8k16_f16(" in made.cuda
    assert ("ldmatrix" in made.cuda) == (path.stem != "00_naive")
    assert ("cp_async<16>(" in made.cuda) == (int(path.stem[:2]) >= 3)


@pytest.mark.usefixtures("without_nvrtc")
def test_what_each_adds() -> None:
    pending = {}
    for path in LESSONS:
        ops = list(walk(compiled(path, "sm_80").placed.body))
        pending[path.stem[:2]] = {o.attrs["pending"] for o in ops if o.kind is smem.cp_async_wait}
        assert not any(o.kind in (tma.tma_load, tma.tma_store) for o in ops)
    assert pending == {"00": set(), "01": set(), "02": set(), "03": {0}, "04": {0, 2}, "05": {2}}


@pytest.mark.parametrize("name", ["01_shared", "03_copy_async", "04_stages", "05_split_k"])
def test_each_barrier_is_needed(name: str) -> None:
    """Without any one of them the proof, or a run, says what goes wrong."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    line = " " * 12 + "self.sync()\n"
    for at in (m.start() for m in re.finditer(re.escape(line), text)):
        broken = text[:at] + text[at + len(line) :]
        assert not proved(broken, f"{name} without the barrier at {at}")


def proved(text: str, name: str) -> bool:
    import linecache

    linecache.cache[f"<{name}>"] = len(text), None, text.splitlines(keepends=True), f"<{name}>"
    scope: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"<{name}>", "exec"), scope)
    (cls,) = (v for v in scope.values() if isinstance(v, type) and v.__module__ == name)
    a, b, c = arrays(144, 144, 272)
    try:
        return bool(cls().check(a, b, c, 144, 144, 272).ok)
    except SimError:
        return False


def test_every_lesson_says_what_changed() -> None:
    assert len(LESSONS) == 6
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    for path in LESSONS:
        text = path.read_text(encoding="utf-8")
        assert f"Ampere, lesson {int(path.stem[:2])}:" in text and "What " in text
        assert f"[{path.stem}]({path.name})" in page
