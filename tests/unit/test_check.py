"""The checker: what it proves of the GEMM, and that it finds what is broken, at every trip count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.library_attention import compiled
from warploom.check import Case, check
from warploom.check.cases import find_cases
from warploom.check.course import Course
from warploom.check.dependence import Dependence
from warploom.check.input_space import InputSpace
from warploom.check.recurrence import Recurrences
from warploom.check.runs import Runs
from warploom.check.search import Search
from warploom.check.solve import Solver
from warploom.check.values import Wish
from warploom.ir.core import Op
from warploom.ir.ops import control
from warploom.ir.parser import parse_func
from warploom.ir.types import bf16
from warploom.sim.report import SimReport, SyncStep

FILE = Path(__file__).parent.parent / "golden" / "gemm_bf16_tn.warp.ir"
GEMM = FILE.read_text(encoding="utf-8")


def test_the_gemm_is_proved_at_all_trip_counts() -> None:
    report = check(parse_func(GEMM, str(FILE)))
    assert report.ok
    trips: dict[str, set[int]] = {}
    for run in report.runs:
        for loop, n in run.trips.items():
            trips.setdefault(loop, set()).update(n)
    assert len(trips) == 4  # tiles and steps, in the consumer and in the producer
    for loop, n in trips.items():
        assert n >= {0, 1, 2, 3, 4, 7}, loop
    assert len(report.recurring) == 4 and not report.not_recurring
    steps = [period for loop, period in report.recurring.items() if "over k" in loop]
    assert steps == [6, 6]  # twice the depth: then parities recur too
    assert "no deadlock, and no race on shared memory, in any order of events" in str(report)


def test_a_depth_of_one_must_drain() -> None:
    """Late release holds a slot beyond its step: with one slot the producer waits for ever."""
    text = (
        GEMM.replace("lead=(3,)", "lead=(1,)").replace("n=3", "n=1").replace("depth=3", "depth=1")
    )
    text = text.replace("shared<[3]", "shared<[1]").replace("mbarriers<3>", "mbarriers<1>")
    report = check(parse_func(text))
    assert not report.ok
    assert report.diagnostics[0].code == "deadlock"


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.each(2)
def test_other_depths(depth: int) -> None:
    text = GEMM.replace("lead=(3,)", f"lead=({depth},)").replace("n=3", f"n={depth}")
    text = text.replace("depth=3", f"depth={depth}").replace("shared<[3]", f"shared<[{depth}]")
    report = check(parse_func(text.replace("mbarriers<3>", f"mbarriers<{depth}>")))
    assert report.ok, str(report)
    assert [p for loop, p in report.recurring.items() if "over k" in loop] == [2 * depth] * 2


def test_given_cases() -> None:
    func = parse_func(GEMM, str(FILE))
    x = np.zeros(1, bf16.numpy)
    report = check(func, [((x, x, x, 128, 256, 256), 1), Case((x, x, x, 256, 256, 64), (1,))])
    assert report.ok and len(report.runs) == 2
    assert "M=128, N=256, K=256 on grid 1" in report.runs[0].case


def test_a_bug_that_shows_only_beyond_the_depth() -> None:
    """The producer never waits for its slot: right for up to three steps in all."""
    func = parse_func(GEMM.replace("mbarrier_wait(%empty, %slot, %free)", "", 1), str(FILE))
    x = np.zeros(1, bf16.numpy)
    assert check(func, [((x, x, x, 128, 256, 192), 1)]).ok
    report = check(func)
    assert not report.ok
    text = str(report)
    assert "producer" in text and "full[0]" in text


def test_cases_cover_zero_trips() -> None:
    func = parse_func(GEMM, str(FILE))
    cases = find_cases(func)
    assert len(cases) <= 64
    assert any(c.args[5] == 0 for c in cases) and any(c.args[3] == 0 for c in cases)
    assert any(c.grid == (2,) for c in cases)


def _step(op: Op, loop: Op, turn: int, phase: int) -> SyncStep:
    return SyncStep("producer", op, ((loop, turn),), "full[0]", phase, (0, 0))


def test_a_number_that_counts_in_two_loops_counts_twice() -> None:
    """Combined inputs take few iterations in all: a tile of causal attention that is one of many is short."""
    func = compiled(64, True, 2).placed
    readings = Dependence(func).readings
    space = InputSpace(func, [(r.array.hint, r.is_written) for r in readings])
    at = [i for i, p in enumerate(func.params) if p.hint in ("heads", "seq")]
    found = [[case.args[i] for i in at] for case in find_cases(func, None, space)]
    for heads, seq in found:
        tiles, steps = -(-seq // 256), -(-seq // 64)
        assert heads == 1 or heads * tiles * steps <= 64
    assert max(seq for _, seq in found) == 1024 and max(heads for heads, _ in found) == 15


def test_numbers_that_make_work_are_no_larger_than_serve() -> None:
    """Of eleven programs each is to have as many tiles as the one had before."""
    func = compiled(64, False, 4).placed
    dependence = Dependence(func)
    space, runs = InputSpace(func), Runs(func)
    checker = SimpleNamespace(runs=runs, report=None)
    search = Search(checker, Solver(dependence, space), [])
    heads, seq = ([p.hint for p in func.params].index(x) for x in ("heads", "seq"))
    base = space.case(space.smallest.values, {heads: 1, seq: 2497, space.grid: 1})
    case, _ = search.made(base, Wish({seq: 1, space.grid: 11}, {}))
    assert case is not None and case.grid == (11,)
    assert 11 * 14 <= case.args[heads] < 11 * 16  # 14 tiles each


def test_a_loop_is_lengthened_from_inputs_with_a_kind_that_never_came_for_long() -> None:
    """Those that leave a part out, such as a loop inside that runs for 0 iterations, show no recurrence of the
    whole, however long they are."""
    loop, wait, arrive = (Op(control.yield_, (), {}, (), (), frozenset(), None) for _ in range(3))
    recurrences = Recurrences(2)

    def run(ops: tuple[Op, ...], trips: int) -> Case:
        case = Case((trips, *ops), (1,))
        steps = [_step(o, loop, i, i) for i in range(trips) for o in ops]
        recurrences.add(SimReport(steps=steps, trips={loop: {trips}}), case)
        return case

    run((wait,), 8)
    whole = run((wait, arrive), 7)
    assert recurrences.brief(loop) == {(wait, arrive): whole}
    run((wait,), 40)
    assert recurrences.brief(loop) == {(wait, arrive): whole} and recurrences.period(loop) is None
    run((wait, arrive), 12)
    assert not recurrences.brief(loop) and recurrences.period(loop) == 2


def test_without_a_known_course_each_kind_of_iteration_is_lengthened() -> None:
    loop, wait, arrive = (Op(control.yield_, (), {}, (), (), frozenset(), None) for _ in range(3))
    recurrences = Recurrences(1, {loop: Course(is_known=False)})
    kinds = [(wait,), (wait,), (arrive,), (wait,), (wait,), (wait,)]
    steps = [_step(o, loop, i, i) for i, kind in enumerate(kinds) for o in kind]
    first, second = Case((1,), (1,)), Case((2,), (1,))
    recurrences.add(SimReport(steps=steps, trips={loop: {len(kinds)}}), first)
    assert recurrences.brief(loop) == {(wait,): first, (arrive,): first}
    steps = [_step(arrive, loop, i, i) for i in range(6)]
    recurrences.add(SimReport(steps=steps, trips={loop: {6}}), second)
    assert recurrences.brief(loop) == {(wait,): first}, (
        "waits never came for more than two iterations"
    )


@wl.jit
def from_addresses(addresses: Any, y: Any, n: Any, E: tl.constexpr) -> None:
    """Rows of arrays whose addresses are in memory."""
    for g in range(n):
        x = tl.load(addresses + g).to(tl.pointer_type(E))
        rows = tl.make_tensor_descriptor(x, shape=[32, 32], strides=[32, 1], block_shape=[32, 32])
        at = tl.arange(0, 32)
        part = rows.load([0, 0]).to(tl.float32)
        tl.store(y + g * 1024 + at[:, None] * 32 + at[None, :], part)


@pytest.mark.parametrize("element", [tl.float8e4nv, tl.float16, tl.float32])
def test_an_address_that_is_drawn_is_one_of_some_array(element: Any) -> None:
    """In a run without data nobody knows it; numbers that no element of 16 bits begins at were passed over."""
    signature = {"addresses": "*i64:16", "y": "*fp32:16", "n": "i32"}
    report = check(from_addresses.compile(signature, {"E": element}).placed)
    assert report.ok, str(report)
