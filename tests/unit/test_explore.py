"""Exploration: every order that makes a difference, none that does not; failing ones kept and repeated."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.explicit.test_broken import ring_report
from warploom.check import Case, check, protocol, replay
from warploom.check.explore import (
    Diverged,
    Exploration,
    Failing,
    Guided,
    History,
    Redundant,
    Simulation,
    Step,
    attempt,
    explore,
    simulation,
)
from warploom.check.interleaving import shortened
from warploom.check.report import Verdict
from warploom.cli import main
from warploom.errors import LaunchError
from warploom.ir.core import Func
from warploom.ir.parser import parse_func
from warploom.sim.report import SimError

SHARE = """func @share(%counter: ptr<i32>, %n: i32) level=WARP {warps=4} {
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
  %done = mbarrier_alloc() {name="done", n=1, count=3} : mbarriers<1>
  tasks() {names=("worker", "collector"), warps=(1, 1), replicas=(2, 1), registers=(none, none)} do {
    %first = atomic(%counter, %c1) {fn="add"} : i32
    %last = while(%first) : i32 do (%t: i32) {
      %go = lt(%t, %n) : i1
      yield(%go, %t)
    } do (%item: i32) {
      mbarrier_arrive(%done, %c0) {by="one"}
      %next = atomic(%counter, %c1) {fn="add"} : i32
      yield(%next)
    }
    yield()
  } do {
    mbarrier_wait(%done, %c0, %c0)
    yield()
  }
  yield()
}
"""


def shared_work(text: str, n: int) -> tuple[Func, Case]:
    return parse_func(text, "share.ir"), Case((np.zeros(1, np.int32), np.int32(n)), (1,))


def test_workers_that_share_a_counter() -> None:
    """Who takes which item is open: all ways to share three items among two are run."""
    func, case = shared_work(SHARE, 3)
    report = check(func, [case])
    assert report.ok, str(report)
    (explored,) = report.explored
    assert "global memory" in explored.why
    assert explored.interleavings >= 4  # 0, 1, 2 or 3 items for the first worker
    assert explored.states > explored.interleavings
    assert f"{explored.interleavings} interleavings, {explored.states} states, complete" in str(
        report
    )
    assert case.args[0][0] == 0  # each run has a counter of its own


LOCKED = """func @locked(%lock: ptr<i32>, %n: i32) level=WARP {warps=1} {
  %c0 = const() {value=0, dtype=i32} : i32
  %c1 = const() {value=1, dtype=i32} : i32
  tasks() {names=("worker",), warps=(1,), replicas=(1,), registers=(none,)} do {
    for(%c0, %n, %c1) do (%i: i32) {
      while() do () {
        %old = atomic(%lock, %c1, %c0) {fn="cas"} : i32
        %taken = eq(%old, %c1) : i1
        yield(%taken)
      } do () {
        yield()
      }
      %freed = atomic(%lock, %c0) {fn="xchg"} : i32
      yield()
    }
    yield()
  }
  yield()
}
"""


def test_programs_that_spin_are_explored_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often one tries in vain has no end: the report says that it stopped, and no case is run twice."""
    monkeypatch.setattr(protocol, "JOINT_STEPS", 2_000)
    func, lock = parse_func(LOCKED, "locked.ir"), np.zeros(1, np.int32)
    report = check(func, [Case((lock, np.int32(n)), (2,)) for n in (2, 3, 2)])
    assert report.verdict is Verdict.NOT_PROVED, str(report)
    assert [e.is_complete for e in report.explored] == [False, False]
    assert report.explored[0].interleavings > 1 and report.explored[1].interleavings == 0
    assert "none fails, but of no input all" in str(report)
    assert report.seconds < 30


def test_more_arrivals_than_a_phase_takes() -> None:
    """Which of the four arrivals begins the next phase is open, and all the same here."""
    func, case = shared_work(SHARE, 4)
    report = check(func, [case])
    assert report.ok, str(report)
    assert "unbound-arrival" in report.explored[0].why


def test_an_order_that_fails_is_found_kept_and_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two phases of one arrival each: the collector misses the first where it comes too late."""
    func, case = shared_work(SHARE.replace("count=3", "count=1"), 2)
    kept = tmp_path / "late.interleaving"
    report = check(func, [case], save=kept)
    (failure,) = report.failures
    assert failure.error.code == "unbound-arrival"
    assert failure.interleaving is not None
    assert failure.interleaving.error.code == "deadlock"
    text = str(report)
    assert "arrives at done, phase 1: complete" in text and "share.ir:11" in text

    found = replay(kept)
    assert found is not None and found.code == "deadlock"
    assert str(found.loc) == str(failure.interleaving.error.loc)
    assert replay(kept, parse_func(SHARE.replace("count=3", "count=2"))) is None  # the mended one
    assert main(["check", "--replay", str(kept)]) == 1
    assert "worker[1]" in capsys.readouterr().out
    (tmp_path / "else").write_text("{}\n")
    with pytest.raises(LaunchError):
        replay(tmp_path / "else")


def test_what_is_left_out_is_not_proved() -> None:
    func, case = shared_work(SHARE, 4)
    report = check(func, [case], max_states=20)
    assert not report.ok
    assert "explored and none fails, but not all" in str(report)


def test_programs_that_share_a_word_are_run_together() -> None:
    """Whoever comes second waits for what nobody does: each program alone is right."""
    second = """func @second(%counter: ptr<i32>) level=WARP {warps=4} {
      %c0 = const() {value=0, dtype=i32} : i32
      %c1 = const() {value=1, dtype=i32} : i32
      %never = mbarrier_alloc() {name="never", n=1, count=1} : mbarriers<1>
      tasks() {names=("one",), warps=(1,), replicas=(1,), registers=(none,)} do {
        %mine = atomic(%counter, %c1) {fn="add"} : i32
        %late = eq(%mine, %c1) : i1
        if(%late) do {
          mbarrier_wait(%never, %c0, %c0)
          yield()
        } do {
          yield()
        }
        yield()
      }
      yield()
    }
    """
    case = Case((np.zeros(1, np.int32),), (2,))
    report = check(parse_func(second), [case])
    (failure,) = report.failures
    assert failure.error.code == "deadlock" and failure.interleaving is not None
    assert failure.interleaving.program is None
    assert "one of program 0" in str(report) and "one of program 1" in str(report)
    fine = check(parse_func(second.replace("eq(%mine, %c1)", "lt(%mine, %c0)")), [case])
    assert fine.ok and [e.interleavings for e in fine.explored] == [2]  # alone, nobody shares it


@pytest.mark.parametrize("bug", ["released before the wait", "no wait for empty", "too few bytes"])
def test_what_is_kept_can_not_be_stopped_a_step_earlier(bug: str) -> None:
    """Without the last step of any process, and what follows from it, the failure does not come about."""
    found = ring_report(bug).failures[0].interleaving
    assert found is not None and len(found.path) < 80
    run = simulation(found.func, found.case, found.program, found.confluent)
    failing = Failing(found.path, list(found.steps), found.error)
    assert shortened(run, failing).path == found.path
    history = History(failing.steps)

    def stop(steps: list[Step], options: list[str]) -> str:
        raise Redundant

    for process in {s.process for s in failing.steps[:-1]}:
        last = max(i for i, s in enumerate(failing.steps[:-1]) if s.process == process)
        path = [s.process for i, s in enumerate(found.steps) if not history.full[i] >> last & 1]
        try:
            again = attempt(run, Guided(path, stop))
        except (Redundant, Diverged):
            continue
        assert not isinstance(again, SimError) or again.code != found.error.code, process


# ---- against all orders


def tiny(rng: random.Random) -> Func:
    """Two or three tasks that wait and arrive at random."""
    counts = [rng.choice((1, 1, 2, 2, 3)) for _ in range(rng.choice((1, 1, 2)))]
    tasks = rng.choice((2, 2, 3))
    regions = []
    for _ in range(tasks):
        ops = []
        for _ in range(rng.randint(1, 3)):
            b, kind = rng.randrange(len(counts)), rng.random()
            if kind < 0.5:
                ops.append(f'mbarrier_arrive(%b{b}, %c0) {{by="one"}}')
            elif kind < 0.9:
                ops.append(f"mbarrier_wait(%b{b}, %c0, %c{rng.randrange(2)})")
            else:
                way = rng.choice(("true", "false"))
                ops.append(f"named_barrier() {{id=1, threads=64, arrive={way}}}")
        regions.append("do {\n" + "\n".join(ops) + "\nyield()\n}")
    barriers = [
        f'%b{i} = mbarrier_alloc() {{name="b{i}", n=1, count={n}}} : mbarriers<1>'
        for i, n in enumerate(counts)
    ]
    names = ", ".join(f'"t{i}"' for i in range(tasks))
    ones, none = ", ".join("1" * tasks), ", ".join(["none"] * tasks)
    attrs = f"names=({names}), warps=({ones}), replicas=({ones}), registers=({none})"
    return parse_func(
        "\n".join(
            (
                "func @tiny() level=WARP {warps=1} {",
                "%c0 = const() {value=0, dtype=i32} : i32",
                "%c1 = const() {value=1, dtype=i32} : i32",
                *barriers,
                f"tasks() {{{attrs}}} {' '.join(regions)}",
                "yield()\n}",
            )
        )
    )


def in_every_order(run: Simulation, limit: int) -> set[str] | None:
    """How the runs of all orders end, without any reduction; None: there are too many."""
    outcomes: set[str] = set()
    stack: list[tuple[str, list[str]]] = []
    for _ in range(limit):
        offered: list[list[str]] = []

        def choose(
            steps: list[Step], options: list[str], offered: list[list[str]] = offered
        ) -> str:
            offered.append(options)
            return options[0]

        result = attempt(run, Guided([name for name, _ in stack], choose))
        outcomes.add(result.code if isinstance(result, SimError) else "right")
        stack += [(options[0], options) for options in offered]
        while stack and stack[-1][0] == stack[-1][1][-1]:
            stack.pop()
        if not stack:
            return outcomes
        name, options = stack.pop()
        stack.append((options[options.index(name) + 1], options))
    return None


def test_it_finds_what_all_orders_find() -> None:
    """On random programs whose first order is right."""
    rng = random.Random(7)
    compared = mixed = 0
    while compared < 12:
        run = simulation(tiny(rng), Case((), (1,)), 0, False)
        if isinstance(attempt(run, Guided()), SimError):
            continue
        outcomes = in_every_order(run, 600)
        if outcomes is None:
            continue
        found: Exploration = explore(run)
        assert bool(found.failures) == (outcomes != {"right"})
        assert all(f.error.code in outcomes for f in found.failures)
        compared += 1
        mixed += len(outcomes) > 1
    assert mixed >= 2
