"""Warploom's explicit door: both products and their gate in one pass, by hand, in all its variants."""

from __future__ import annotations

from typing import Any

from benchmarks.data import DualData, multiprocessors
from benchmarks.launches import ScriptRun
from benchmarks.measure import Candidate

NAME = "explicit dual"
KINDS = ("dual",)


def bind(data: DualData, kernel: Any) -> ScriptRun:
    case = data.case
    calls = [
        (a, b1, b2, c, case.m, case.n, case.k)
        for a, b1, b2, c in zip(data.a, data.b1, data.b2, data.c, strict=True)
    ]
    return ScriptRun(kernel, calls)


def candidates(data: DualData) -> list[Candidate]:
    if data.case.dtype != "bf16":
        return []
    from warploom.kernels.explicit.dual_gemm import TunedDualGemm

    tuned: Any = TunedDualGemm(multiprocessors())
    return [
        Candidate(str(schedule), lambda script=script: bind(data, script))  # type: ignore[misc]
        for script, schedule in zip(tuned.scripts, tuned.schedules, strict=True)
    ]
