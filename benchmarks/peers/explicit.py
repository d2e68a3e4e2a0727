"""Warploom's explicit door: the GEMM that is written by hand in its language."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Data, multiprocessors
from benchmarks.launches import ScriptRun
from benchmarks.measure import Candidate

NAME = "explicit"


def bind(data: Data, kernel: Any) -> ScriptRun:
    case = data.case
    calls = [
        (a, b.T if case.layout == "TN" else b, c, case.m, case.n, case.k)
        for a, b, c in zip(data.a, data.b, data.c, strict=True)
    ]
    return ScriptRun(kernel, calls)


def candidates(data: Data) -> list[Candidate]:
    from warploom.kernels.explicit.gemm import TunedGemm

    if data.case.dtype != "bf16":
        return []
    tuned: Any = TunedGemm(multiprocessors(), transposed=data.case.layout == "TN")
    return [
        Candidate(str(schedule), lambda script=script: bind(data, script))  # type: ignore[misc]
        for script, schedule in zip(tuned.scripts, tuned.schedules, strict=True)
    ]
