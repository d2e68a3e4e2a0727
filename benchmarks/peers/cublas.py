"""cuBLAS, as torch.matmul calls it."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "cuBLAS"


def candidates(data: Data) -> list[Candidate]:
    import torch

    def make() -> Run:
        return lambda i: torch.matmul(data.a[i], data.b[i], out=data.c[i])

    return [Candidate("torch.matmul", make)]
