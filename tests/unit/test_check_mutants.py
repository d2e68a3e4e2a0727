"""Mutants of the hand-written GEMM and of the library's kernels: a fixed sample; all of them by `make
mutants`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.mutants import PROGRAMS, begun, checker, main, program, put, summary, write
from warploom.check.cases import find_cases
from warploom.check.mutants import examine, few, mutants, table
from warploom.ir.parser import parse_func
from warploom.ir.verify import verify

pytestmark = pytest.mark.usefixtures("without_nvrtc")
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
    verdicts = examine(func, lambda i: i % 15 == 4, seeds=1, cases=few(find_cases(func))[1::3])
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
    record = begun("dual GEMM", {})
    for i in (5, 2):
        put(record, {"number": i, "by": "an earlier one", **words})
    record = begun("dual GEMM", record)
    put(record, {"number": 5, "by": checker(), **words, "harm": "deadlock", "check": "deadlock"})
    assert [(r["number"], r["harm"]) for r in record["judged"]] == [(2, ""), (5, "deadlock")]
    text = summary({"dual GEMM": record["judged"]}, {"dual GEMM": record["mutants"]})
    of = record["mutants"]
    assert f"| dual GEMM | 2 of {of}, at random, 1 by today's | 1 | 1 | 0 |" in text
    assert begun("dual GEMM", {**record, "program": "another"})["judged"] == []


def test_a_run_judges_what_todays_checker_has_not(tmp_path: Path) -> None:
    name, words = "dual GEMM, store task", dict.fromkeys(("at", "change", "op", "why"), "")
    record = begun(name, {})
    for i in range(record["mutants"]):
        put(record, {"number": i, "by": checker(), **words, "mutant": "", "harm": "", "check": ""})
    put(record, {**record["judged"][0], "by": "an earlier one"})
    results, page = tmp_path / "mutants.json", tmp_path / "mutants.md"
    write(results, {name: record})
    options = ["--only", name, "--jobs", "1", "--out", str(page), "--results", str(results)]
    assert main(options) == 0
    first, *rest = json.loads(results.read_text())[name]["judged"]
    assert first["by"] == checker() and first["mutant"]
    assert not any(r["mutant"] for r in rest)
    assert f"| {name} | {record['mutants']} | " in page.read_text()
