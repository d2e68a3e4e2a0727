"""Warploom's explicit door: row-wise scaled e4m3, written by hand, in all its variants."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Fp8Data, multiprocessors
from benchmarks.launches import ScriptRun
from benchmarks.measure import Candidate

NAME = "explicit fp8"
KINDS = ("fp8",)


def bind(data: Fp8Data, kernel: Any) -> ScriptRun:
    case = data.case
    tensors = zip(data.a, data.b, data.scale_a, data.scale_b, data.c, strict=True)
    return ScriptRun(kernel, [(*five, case.m, case.n, case.k) for five in tensors])


def variants(data: Fp8Data, tuned: Any) -> list[Candidate]:
    """What the library's tuned kernel would try."""
    return [
        Candidate(str(schedule), lambda script=script: bind(data, script))  # type: ignore[misc]
        for script, schedule in zip(tuned.scripts, tuned.schedules, strict=True)
    ]


def candidates(data: Fp8Data) -> list[Candidate]:
    if data.case.layout != "TN":
        return []
    from warploom.kernels.explicit.fp8_gemm import TunedFp8Gemm

    return variants(data, TunedFp8Gemm(multiprocessors()))
