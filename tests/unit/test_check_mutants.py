"""Mutants of the hand-written GEMM: a fixed sample; all of them by `make mutants`."""

from __future__ import annotations

from pathlib import Path

import pytest

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
