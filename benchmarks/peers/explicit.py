"""Warploom's explicit door: the GEMM that is written by hand in its language."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Candidate, Data, Run
from benchmarks.peers.warploom import multiprocessors

NAME = "explicit"


def candidates(data: Data) -> list[Candidate]:
    from warploom.kernels.explicit.gemm import TunedGemm

    case = data.case
    if case.dtype != "bf16":
        return []
    transposed = case.layout == "TN"
    calls = [
        (a, b.t() if transposed else b, c, case.m, case.n, case.k)
        for a, b, c in zip(data.a, data.b, data.c, strict=True)
    ]

    def bind(kernel: Any) -> Run:
        return lambda i: kernel(*calls[i])

    tuned = TunedGemm(multiprocessors(), transposed=transposed)
    return [
        Candidate(str(schedule), lambda script=script: bind(script))  # type: ignore[misc]
        for script, schedule in zip(tuned.scripts, tuned.schedules, strict=True)
    ]
