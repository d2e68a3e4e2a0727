"""Warploom's explicit door in clusters: the GEMM written by hand, with multicast of one operand."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Data, multiprocessors
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "explicit in clusters"


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
            # of 4 CTAs only 30 clusters fit on an H200's 132 multiprocessors
            programs = multiprocessors() if how["ctas"] == 2 else multiprocessors() // 11 * 10
            kernel = Gemm(programs, transposed=transposed, **how)
            return lambda i: kernel(*calls[i])

        return Candidate(str(how), make)

    return [
        candidate(block_n=block_n, stages=stages, band=band, ctas=ctas, share=share)
        for block_n, stages in ((256, 3), (128, 6))
        for ctas, share in ((2, "a"), (2, "b"), (4, "b"))
        for band in (8, 16)
    ]
