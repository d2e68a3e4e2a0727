"""Warploom's explicit door: row-wise scaled e4m3, written by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Candidate, Run
from benchmarks.peers.warploom import multiprocessors
from benchmarks.products import Fp8Data

NAME = "explicit fp8"
KINDS = ("fp8",)


def bind(data: Fp8Data, kernel: Any) -> Run:
    case = data.case
    tensors = zip(data.a, data.b, data.scale_a, data.scale_b, data.c, strict=True)
    calls = [(*five, case.m, case.n, case.k) for five in tensors]
    return lambda i: kernel(*calls[i])


def candidate(data: Fp8Data, cls: Any, **how: Any) -> Candidate:
    return Candidate(str(how), lambda: bind(data, cls(multiprocessors(), **how)))


def candidates(data: Fp8Data) -> list[Candidate]:
    from warploom.kernels.explicit.fp8_gemm import Fp8Gemm

    return [
        candidate(data, Fp8Gemm, stages=stages, rounds=rounds, turns=turns, band=band)
        for stages, rounds, turns in ((4, 2, True), (4, 2, False), (3, 1, False))
        for band in (8, 16)
    ]
