"""Warploom's explicit door: both products and their gate in one pass, by hand, in all its variants."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Candidate, Run
from benchmarks.peers.warploom import multiprocessors
from benchmarks.products import DualData

NAME = "explicit dual"
KINDS = ("dual",)


def bind(data: DualData, kernel: Any) -> Run:
    case = data.case
    calls = [
        (a, b1, b2, c, case.m, case.n, case.k)
        for a, b1, b2, c in zip(data.a, data.b1, data.b2, data.c, strict=True)
    ]
    return lambda i: kernel(*calls[i])


def candidates(data: DualData) -> list[Candidate]:
    from warploom.kernels.explicit.dual_gemm import TunedDualGemm

    tuned = TunedDualGemm(multiprocessors())
    return [
        Candidate(str(schedule), lambda script=script: bind(data, script))  # type: ignore[misc]
        for script, schedule in zip(tuned.scripts, tuned.schedules, strict=True)
    ]
