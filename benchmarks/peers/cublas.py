"""cuBLAS, as torch.matmul calls it."""

from __future__ import annotations

import torch

from benchmarks.harness import Candidate, Data, Run

NAME = "cuBLAS"


def candidates(data: Data) -> list[Candidate]:
    def make() -> Run:
        return lambda i: torch.matmul(data.a[i], data.b[i], out=data.c[i])

    return [Candidate("torch.matmul", make)]
