"""Programs with equal paths run equally without data; and where nothing can be told, it is not."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom.tilus as tilus
from tests.explicit.squares import Squares
from tests.launches import library, tutorials
from warploom.check import Verdict, check
from warploom.check.cases import find_cases
from warploom.check.input_space import InputSpace
from warploom.check.runs import Case, Runs
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.kernels.explicit.attention import Attention
from warploom.sim.machine import simulate
from warploom.sim.path import Paths
from warploom.sim.report import SimReport
from warploom.tilus import float32, int32

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16
FILE = Path(__file__).parent.parent / "golden" / "gemm_bf16_tn.warp.ir"


def golden() -> Func:
    return parse_func(FILE.read_text(encoding="utf-8"), str(FILE))


def squares() -> Func:
    """A cluster of four CTAs."""
    return Squares().compile(["*bf16:16"] * 2 + ["*fp32:16"] + ["i32:16"] * 3).placed


def drawing() -> Func:
    """Tiles are drawn from a counter in memory, and handed on through shared memory."""
    kernel = Attention(causal=True, d=64, block=64, programs=2)
    signature = ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]
    return kernel.compile(signature).placed


def sizes(func: Func, m: int, n: int, k: int) -> Case:
    x = [np.zeros(16, p.type.dtype.numpy) for p in func.params[:3]]  # type: ignore[attr-defined]
    return InputSpace(func).case([*x, m, n, k, 1][: len(func.params) + 1])


def run(func: Func, case: Case, program: int) -> SimReport:
    return simulate(func, case.args, case.grid, order="early", data=False, program=program)


def protocol(report: SimReport) -> list[tuple[Any, ...]]:
    """Its steps; a task's own setmaxnreg is made anew for each run, where it stands is the same."""
    return [(s.agent, s.op.kind, s.op.loc, s.loops, s.thing, s.phase, s.age) for s in report.steps]


@pytest.mark.parametrize("make", [golden, squares])
def test_programs_with_equal_paths_run_equally(make: Callable[[], Func]) -> None:
    func = make()
    paths, alike = Paths(func), defaultdict(list)
    for size in (
        (64, 64, 0),
        (64, 64, 16),
        (16, 48, 64),
        (64, 64, 272),
        (200, 304, 64),
        (16, 16, 272),
    ):
        case = sizes(func, *size)
        for program in sorted({0, math.prod(case.grid) - 1}):
            path = paths(case.args, case.grid, program)
            assert path is not None
            alike[path].append(run(func, case, program))
    assert 3 <= len(alike) < sum(map(len, alike.values()))
    for reports in alike.values():
        for other in reports[1:]:
            assert protocol(other) == protocol(reports[0])
            assert other.trips == reports[0].trips
    firsts = [protocol(reports[0]) for reports in alike.values()]
    assert all(a != b for i, a in enumerate(firsts) for b in firsts[:i])


def drawn(sizes: tuple[int, int]) -> Case:
    x, lse, counter = np.zeros(16, BF16), np.zeros(16, np.float32), np.zeros(2, np.int32)
    return Case((x, x, x, x, lse, counter, *sizes, 0.1), (2,))


def test_guesses_hold_for_all_programs_with_equal_paths() -> None:
    func, alike = drawing(), defaultdict(list)
    paths = Paths(func)
    for size in ((1, 100), (2, 100), (1, 129), (2, 40), (4, 100)):
        for program in (0, 1):
            case = drawn(size)
            path = paths(case.args, case.grid, program)
            assert path is not None and path.is_guess
            found = run(func, case.copied(), program)
            assert found.is_in_turn
            assert path.trips == {(o, n) for o, counts in found.trips.items() for n in counts}
            alike[path].append(protocol(found))
    assert 3 <= len(alike) < sum(map(len, alike.values()))
    assert all(one == same[0] for same in alike.values() for one in same)


class Overwritten(tilus.Script):
    """What one group leaves for the other is not the first that it wrote there."""

    def __call__(self, n: int32, y_ptr: ~float32) -> None:  # type: ignore[name-defined,operator]
        self.attrs.blocks = 1
        self.attrs.warps = 8
        number = self.shared_tensor(dtype=int32, shape=[1, 1, 1])
        full = self.mbarrier.alloc([128])
        with self.thread_group(0, 128):
            self.store_shared(number[0], 1)
            self.store_shared(number[0], n)
            self.mbarrier.arrive(full[0])
        with self.thread_group(128, 128):
            self.mbarrier.wait(full[0], 0)
            for _i in range(self.load_shared(number[0])):
                self.sync()


def test_a_wrong_guess_is_noticed() -> None:
    func = Overwritten().compile(["i32", "*fp32:16"]).placed
    runs = Runs(func)
    for n in (1, 2, 3, 2):
        case = Case((n, np.zeros(16, np.float32)), (1,))
        (_, counts), *_ = runs(case, 0).trips.items()
        assert counts == {n}
    assert runs.predicted(case, 0) is None


def test_what_can_not_go_on_is_not_told() -> None:
    """A tensor map whose rows are no multiple of 16 bytes: the run says why."""
    func = golden()
    assert Paths(func)(sizes(func, 64, 64, 16).args, (1,), 0) is not None
    assert Paths(func)(sizes(func, 64, 64, 3).args, (1,), 0) is None


def grouped(starts: int) -> tuple[Paths, Case]:
    """Products whose sizes and beginnings are in memory, with so many words of the latter."""
    (found,) = (one for one in tutorials() if one.name == "grouped-1")
    func, case = found.make()
    at = [p.hint for p in func.params].index("starts_ptr")
    args = (*case.args[:at], np.zeros(starts, np.int32), *case.args[at + 1 :])
    return Paths(func), Case(args, case.grid)


def test_what_nothing_told_follows_from_is_not_read() -> None:
    """Where a product begins in memory no copy without data asks: a path is told without these words."""
    assert all(grouped(n)[0](grouped(n)[1].args, (2, 1, 1), 0) is not None for n in (1, 9))


class Counted(tilus.Script):
    """A loop that runs for the root of an argument, and meets in each iteration."""

    def __call__(self, n: int32, out: ~float32) -> None:  # type: ignore[name-defined,operator]
        self.attrs.blocks = 1
        self.attrs.warps = 1
        i: int32 = 0
        while i * i < n:
            self.sync()
            i = i + 1


def test_a_loop_that_runs_too_often_is_not_told() -> None:
    """One that never ends would take as long as the longest path."""
    func = Counted().compile(["i32", "*fp32:16"]).placed
    paths = Paths(func, None, 50)
    assert paths((50 * 50, np.zeros(16, np.float32)), (1,), 0) is not None
    assert paths((50 * 50 + 1, np.zeros(16, np.float32)), (1,), 0) is None


def test_what_flipped_before_is_flipped_in_small_inputs() -> None:
    """Inputs of up to 10 000 steps were run for conditions of which both outcomes were known."""
    (found,) = (one for one in library() if one.name == "attention-128-causal-0")
    func, case = found.make()
    taken: list[int] = []
    with pytest.MonkeyPatch.context() as m:
        m.setattr(Runs, "_note", counting(Runs._note, taken))
        assert check(func, launch=case).verdict is Verdict.PROVED
    assert taken[-1] < 45_000


def counting(note: Callable[..., None], taken: list[int]) -> Callable[..., None]:
    """Keeps how many steps all runs have taken."""

    def noted(runs: Runs, *rest: Any) -> None:
        note(runs, *rest)
        taken.append(runs.taken)

    return noted


def test_few_programs_of_a_search_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    func, ran, found = golden(), [], Runs._run
    monkeypatch.setattr(Runs, "_run", lambda *a: ran.append(a) or found(*a))
    find_cases(func, runs := Runs(func))
    assert len(ran) < len(runs._found) * 2 // 3
