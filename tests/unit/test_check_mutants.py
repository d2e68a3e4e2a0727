"""Mutants of the hand-written GEMM and of the library's kernels: a fixed sample; all of them by `make
mutants`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.mutants import PROGRAMS, merged, program, summary
from warploom.check.mutants import examine, mutants, table
from warploom.ir.parser import parse_func
from warploom.ir.verify import verify

FILE = Path(__file__).parent.parent / "golden" / "gemm_bf16_tn.warp.ir"


def test_mutants_are_valid_and_all_different() -> None:
    func = parse_func(FILE.read_text(encoding="utf-8"), str(FILE))
    made = list(mutants(func))
    assert len(made) > 80
    words = " ".join(m.what for m in made)
    for change in ("remove mbarrier_wait", "duplicate mbarrier_arrive", "swap", "flip the phase", "count 8 → 7",
                   "bytes 49152 → 49151", "depth 3 → 2", "pending 1 → 2"):  # fmt: skip
        assert change in words
    for m in made:
        verify(m.func)


@pytest.mark.slow
def test_every_harmful_mutant_of_a_sample_is_found() -> None:
    func = parse_func(FILE.read_text(encoding="utf-8"), str(FILE))
    verdicts = examine(func, lambda i: i % 15 == 4, seeds=1)
    harmful = [v for v in verdicts if v.harm]
    assert len(harmful) >= 3
    missed = [v.mutant.what for v in verdicts if v.is_missed]
    assert not missed
    for v in harmful:
        assert str(FILE) in v.message  # the error points into the program
    text = table(func, verdicts)
    assert f"{len(verdicts)} mutants" in text and "misses 0" in text
    assert "not explained" not in text


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"gemm"}))
def test_every_harmful_mutant_of_the_librarys_programs_is_found(name: str) -> None:
    """Four of each, spread over the program, on its smallest and its largest input; for four groups the
    largest takes half a minute, and the smallest has a group that sits out."""
    func, cases, made = program(name)
    n = len(made)
    picked = {n // 7, 2 * n // 5, 3 * n // 5, 6 * n // 7}
    inputs = [cases[1]] if "four groups" in name else [cases[1], cases[-1]]
    verdicts = examine(func, picked.__contains__, seeds=1, cases=inputs)
    assert len(verdicts) == len(picked)
    assert not [v.mutant.what for v in verdicts if v.is_missed]
    assert any(v.harm for v in verdicts)


def test_a_record_keeps_what_was_judged_of_the_same_program() -> None:
    words = dict.fromkeys(("at", "change", "op", "mutant", "harm", "check", "why"), "")
    first = merged("dual GEMM", {i: {"number": i, "anew": True, **words} for i in (2, 5)}, {})
    now = {5: {"number": 5, "anew": True, **words, "harm": "deadlock", "check": "deadlock"}}
    both = merged("dual GEMM", now, first)
    assert [(r["number"], r["anew"], r["harm"]) for r in both["judged"]] == [
        (2, False, ""),
        (5, True, "deadlock"),
    ]
    text = summary({"dual GEMM": both["judged"]}, {"dual GEMM": both["mutants"]})
    assert f"| dual GEMM | 2 of {both['mutants']}, at random, 1 anew | 1 | 1 | 0 |" in text
    other = merged("dual GEMM", now, {**first, "program": "another"})
    assert [r["number"] for r in other["judged"]] == [5]
