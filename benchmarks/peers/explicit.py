"""Warploom's explicit door: the GEMM that is written by hand in its language."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Candidate, Data, Run
from benchmarks.peers.warploom import multiprocessors

NAME = "explicit"


def candidates(data: Data) -> list[Candidate]:
    from warploom.kernels.explicit.gemm import Gemm

    case = data.case
    if case.dtype != "bf16":
        return []
    transposed = case.layout == "TN"
    calls = [
        (a, b.t() if transposed else b, c, case.m, case.n, case.k)
        for a, b, c in zip(data.a, data.b, data.c, strict=True)
    ]

    def candidate(**how: Any) -> Candidate:
        def make() -> Run:
            kernel = Gemm(multiprocessors(), transposed=transposed, **how)
            return lambda i: kernel(*calls[i])

        return Candidate(str(how), make)

    return [
        candidate(block_n=block_n, stages=stages, band=band)
        for block_n, stages in ((256, 3), (128, 6))
        for band in (4, 8, 16)
    ]
