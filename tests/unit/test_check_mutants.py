"""Mutants of the hand-written GEMM and of the library's programs: a fixed sample; more by `make mutants`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.mutants.__main__ import SAMPLE as KINDS
from tests.mutants.__main__ import by, main
from tests.mutants.change import Mutant
from tests.mutants.conditions import FAMILIES, SIGNED
from tests.mutants.judge import Judged, Trial, harm, judged
from tests.mutants.page import page
from tests.mutants.programs import PROGRAMS, program
from warploom.check import Case, Verdict, check
from warploom.ir.verify import verify

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def trials_of(name: str, *which: int) -> list[Trial]:
    """Some of a program's data runs; negative ones are the far ones."""
    p = program(name)
    return [p.trials[i] if i >= 0 else p.far_trials[i] for i in which]


def found(mutant: Mutant, trials: list[Trial], cases: list[Case] | None = None) -> Judged:
    return judged(mutant, trials, seeds=1, cases=cases)


# ---- making them


def test_mutants_are_valid_and_all_different() -> None:
    made = program("gemm").changed
    assert len(made) > 80
    words = " ".join(m.what for m in made)
    for change in ("remove mbarrier_wait", "duplicate mbarrier_arrive", "swap", "flip the phase", "count 8 → 7",
                   "bytes 49152 → 49151", "depth 3 → 2", "pending 1 → 2"):  # fmt: skip
        assert change in words
    for m in made:
        verify(m.func)


@pytest.mark.parametrize("name", ["gemm", "dual GEMM, store task"])
@pytest.mark.each(2)
def test_mutants_under_conditions_are_valid_and_of_all_families(name: str) -> None:
    made = program(name).conditional
    families = Counter(m.family for m in made)
    assert set(families) == {*FAMILIES, "always"}
    assert min(families.values()) > 20
    for m in made:
        verify(m.func)
        assert len(m.func.params) == len(program(name).func.params) + 2


def test_mutants_under_signs_fail_where_something_is_negative() -> None:
    made = program("gemm").signed
    assert {m.family for m in made} == {*SIGNED, "always"}
    for m in made:
        verify(m.func)
        setting = m.setting
        negative = setting.extra < 0 or any(word < 0 for _, word in setting.words)
        assert negative is (m.family != "always")
    joint = [m.what for m in made if m.family == "together"]
    assert any(" and " in text for text in joint) and any(" or " in text for text in joint)


def test_every_event_of_the_protocol_comes_under_conditions() -> None:
    kinds = {m.kind.name for m in program("gemm").conditional if m.change == "only if"}
    assert kinds >= {
        "mbarrier_wait", "mbarrier_arrive", "mbarrier_expect", "tma_load", "tma_store_commit", "tma_store_wait",
        "wgmma_fence", "wgmma_commit", "wgmma_wait", "group_sync", "fence_async", "ring_next",
    }  # fmt: skip


# ---- judging them


def one(name: str, change: str, op: str, family: str, condition: str = "") -> Mutant:
    """The first mutant under a condition of these."""
    return next(
        m
        for m in (*program(name).conditional, *program(name).signed)
        if (m.change, m.kind.name, m.family) == (change, op, family) and condition in m.what
    )


def test_harm_is_judged_where_the_condition_fails() -> None:
    """At an input where it holds the mutant is its original."""
    late = one("gemm", "only if", "mbarrier_arrive", "late", "iteration of k")
    far, short = trials_of("gemm", -2), trials_of("gemm", 1)
    assert harm(late, far, seeds=0).how
    assert harm(late, short, seeds=0).how == "" and not harm(late, short, seeds=0).flipped


def test_what_all_tasks_leave_out_does_no_harm() -> None:
    """Its result differs from the original's, but not from order to order."""
    for family in ("data", "argument"):
        m = one("gemm", "all tasks only if", "tasks", family)
        verdict = harm(m, trials_of("gemm", 1, 3, 5), seeds=1)
        assert verdict.how == ""


def test_a_checker_that_does_not_turn_the_condition_is_caught() -> None:
    """On given inputs `check` claims nothing of others: called proved, a harmful mutant is missed."""
    late = one("gemm", "only if", "mbarrier_arrive", "late", "iteration of k")
    x = np.zeros(16, np.int32)
    given = program("gemm").cases[3]
    case = Case((*given.args, x, 0), given.grid)
    assert check(late.func, [case]).verdict is Verdict.PROVED
    assert found(late, trials_of("gemm", -2), [case]).is_missed
    assert not found(late, trials_of("gemm", -2)).is_missed


SECONDS = {"dual GEMM, store task", "FP8 GEMM, promoted, store task", "attention"}  # of their kind


def rare(*names: str) -> list[Any]:
    """The programs with these marked thorough."""
    return [pytest.param(n, marks=pytest.mark.thorough if n in names else ()) for n in PROGRAMS]


@pytest.mark.parametrize(
    "name", [p for p in rare(*SECONDS, "attention, causal") if p.values != ("gemm",)]
)
def test_every_harmful_mutant_of_the_librarys_programs_is_found(name: str) -> None:
    """Four of each, spread over the program, on its smallest and its largest input; for four groups the
    largest takes half a minute, and the smallest has a group that sits out."""
    p = program(name)
    n = len(p.changed)
    inputs = (1,) if "four groups" in name else (1, len(p.cases) - 1)
    cases = [p.cases[i] for i in inputs]
    verdicts = [
        found(p.changed[i], trials_of(name, *inputs), cases)
        for i in (n // 7, 2 * n // 5, 3 * n // 5, 6 * n // 7)
    ]
    assert not [v.mutant.what for v in verdicts if v.is_missed]
    assert any(v.harm.how for v in verdicts)


SAMPLE = (  # change, op, family, the condition, the data runs
    ("only if", "mbarrier_wait", "late", "", (4,)),
    ("only if", "tma_load", "argument", "", (2, 3, 5)),
    ("only if", "mbarrier_arrive", "both", "", (3, 4, 5, -2)),
    ("only if", "ring_next", "data", "", (1, 2, 3, 4)),
    (
        "only if",
        "tma_store_wait",
        "data",
        "< 1000",
        (4,),
    ),  # matters from a program's second tile on
    ("only if", "tma_store_wait", "block", "< 4", (-1,)),  # matters in a block that has a tile
    ("again unless", "mbarrier_arrive", "argument", "", (2, 3, 4, 5)),
    ("a trip less unless", "for", "data", "", (3, 5)),
    ("only if", "mbarrier_arrive", "sign", "extra", (3, 4)),
    ("only if", "mbarrier_wait", "sign", "words[", (3, 4)),
)


@pytest.mark.parametrize(("change", "op", "family", "condition", "runs"), SAMPLE)
@pytest.mark.each(2)
def test_no_harmful_mutant_under_a_condition_is_proved(
    change: str, op: str, family: str, condition: str, runs: tuple[int, ...]
) -> None:
    verdict = found(one("gemm", change, op, family, condition), trials_of("gemm", *runs))
    assert verdict.harm.how
    assert verdict.verdict is Verdict.BROKEN
    assert "gemm_bf16_tn.warp.ir" in verdict.message  # the error points into the program


@pytest.mark.parametrize(
    ("change", "op", "family", "condition"),
    [
        ("again unless", "mbarrier_wait", "argument", ""),
        ("only if", "mbarrier_expect", "always", ""),
        ("only if", "fence_async", "always", "%"),  # a remainder is less than its divisor
        ("all tasks only if", "tasks", "argument", ""),
        ("all tasks only if", "tasks", "sign", ""),
        ("only if", "mbarrier_expect", "always", "-2147483648"),
    ],
)
@pytest.mark.each(2)
def test_harmless_ones_are_proved(change: str, op: str, family: str, condition: str) -> None:
    verdict = found(one("gemm", change, op, family, condition), trials_of("gemm", 3))
    assert verdict.harm.how == ""
    assert verdict.verdict is Verdict.PROVED, verdict.message


@pytest.mark.parametrize(
    ("name", "change", "op", "family", "condition", "run"),
    [
        # The number of an iteration, of a loop that begins and steps as the launch says.
        ("gemm", "again unless", "tma_store_commit", "late", "iteration of t != 2", -2),
        ("dual GEMM", "again unless", "tma_store_commit", "late", "iteration of tile < 2", 5),
        # An index is below its loop's end.
        ("attention by hand, causal", "only if", "ring_next", "always", "i < its end", 2),
        # No step is run where a number is 0.
        ("dual GEMM", "only if", "mbarrier_expect", "always", "K >= 1", 5),
    ],
)  # fmt: skip
@pytest.mark.each(2)
def test_harmless_ones_that_go_by_a_loop_are_proved(
    name: str, change: str, op: str, family: str, condition: str, run: int
) -> None:
    mutant, launch = one(name, change, op, family, condition), program(name).far[-1]
    verdict = judged(mutant, trials_of(name, run), seeds=1, launch=launch)
    assert verdict.harm.how == ""
    assert verdict.verdict is Verdict.PROVED, verdict.message


@pytest.mark.parametrize("name", rare(*SECONDS, "attention, causal", "attention, four groups"))
@pytest.mark.each(2)
def test_the_programs_are_proved_at_the_launch_that_mutants_get(name: str) -> None:
    """Else no harmless mutant could be: loops over drawn tiles, and in parts that few tiles come to."""
    p = program(name)
    report = check(p.func, launch=p.far[-1])
    assert report.verdict is Verdict.PROVED, str(report)


# ---- the log and the page


def row(number: int, verdict: str, harm: str = "", **more: object) -> dict[str, object]:
    words = dict.fromkeys(("at", "change", "op", "code"), "x")
    return {"what": "gemm/conditional", "seed": number, "by": by("gemm"), "status": "ok", "family": "late",
            "mutant": f"mutant {number}", "harm": harm, "flipped": True, "verdict": verdict, "replays": False,
            "check seconds": 1.0, **words, **more}  # fmt: skip


def test_the_page_counts_what_is_proved_of_harmful_and_harmless_ones() -> None:
    rows = [row(0, "broken", "deadlock"), row(1, "proved", "deadlock"), row(2, "proved"), row(3, "not proved"),
            row(4, "broken", replays=True), row(5, "proved", flipped=False)]  # fmt: skip
    text = page(rows, {"gemm/conditional": 9}, "abc")
    assert "Judged at abc: 6 of 9 mutants" in text
    assert "| late | 5 | 3 | 2 | 0 | 1 | 1 | 2 | 1 | 1 | 0 | 50.0 % |" in text
    assert "| gemm |  | mutant 3 | not proved |" in text
    assert "mutant 2" not in text and "Of 1 mutants the condition fails in none" in text


def test_a_run_judges_what_todays_checker_has_not(tmp_path: Path) -> None:
    name, log, file = "dual GEMM, store task", tmp_path / "mutants.jsonl", tmp_path / "page.md"
    total = {kind: len(getattr(program(name), kind)) for kind in KINDS}
    rows = [
        row(i, "proved", what=f"{name}/{kind}", by=by(name))
        for kind, n in total.items()
        for i in range(n)
    ]
    rows[3] = {**rows[3], "by": "an earlier one"}
    log.write_text("".join(json.dumps(r) + "\n" for r in rows))
    options = ["--only", name, "--all", "--jobs", "1", "--out", str(log), "--page", str(file)]
    assert main(options) == 0
    *_, last = map(json.loads, log.read_text().splitlines())
    assert (last["what"], last["seed"]) == (f"{name}/changed", 3)
    assert last["mutant"] == program(name).changed[3].what
    assert len(log.read_text().splitlines()) == len(rows) + 1
    assert f": {len(rows)} of {sum(total.values())} mutants" in file.read_text()


@pytest.mark.parametrize(
    ("name", "change", "op", "family", "condition"),
    [
        # A cursor over tiles that stands still in one program: its ring is gone round there alone.
        ("FP8 GEMM, promoted", "only if", "ring_next", "block", "block != 1"),
        # An arrival that is missing where the argument leaves one tile: its ring takes a long K.
        ("dual GEMM, store task", "only if", "mbarrier_arrive", "argument", "M != 128"),
        # A step that is missing in every tile where three numbers say so: it takes two tiles of two steps.
        ("dual GEMM", "a trip less unless", "for", "both", "words[0] != N or (M < 128 or N < 64)"),
    ],
)
def test_loops_are_run_for_long_with_each_outcome(
    name: str, change: str, op: str, family: str, condition: str
) -> None:
    mutant = one(name, change, op, family, condition)
    assert check(mutant.func).verdict is Verdict.BROKEN


def test_a_condition_that_no_input_turns_is_free_only_where_runs_come_to_it() -> None:
    """In the arm of few inputs the fence matters: outcomes given in other runs say nothing of it."""
    condition = "words[0] < 1000 or section != 1"
    mutant = one("attention", "only if", "wgmma_fence", "both", condition)
    case = program("attention").far[-1]
    launch = Case((*case.args, np.zeros(16, np.int32), 0), case.grid)
    assert check(mutant.func, launch=launch).verdict is not Verdict.PROVED
