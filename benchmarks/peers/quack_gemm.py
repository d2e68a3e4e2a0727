"""quack (CuTe DSL): its tuned matrix product."""

from __future__ import annotations

from quack.gemm_interface import gemm

from benchmarks.data import Data
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "quack (CuTe DSL)"


def candidates(data: Data) -> list[Candidate]:
    def make() -> Run:
        return lambda i: gemm(data.a[i], data.b[i], out=data.c[i], tuned=True)

    return [Candidate("gemm, tuned", make)]
