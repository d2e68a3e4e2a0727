"""The hand-written CUDA program that the code generator is measured against."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import torch

from benchmarks.data import Data
from benchmarks.measure import Candidate
from benchmarks.reference.build import ReferenceKernel, compile_cubin
from warploom.bench import Run

NAME = "reference (hand-written CUDA)"
CUBIN = "REFERENCE_CUBIN"  # a cubin built elsewhere, for machines with an older NVRTC


@cache
def loaded() -> ReferenceKernel:
    path = os.environ.get(CUBIN)
    return ReferenceKernel(Path(path).read_bytes() if path else compile_cubin()[0])


def candidates(data: Data) -> list[Candidate]:
    case = data.case
    if case.dtype != "bf16" or case.layout != "TN":
        return []

    def make(programs: int) -> Run:
        stream = torch.cuda.current_stream().cuda_stream
        launches = [
            loaded().prepare(data.a[i], data.b[i].t(), data.c[i], stream, programs)
            for i in range(len(data))
        ]
        return lambda i: launches[i]()

    return [Candidate(f"{n} programs", lambda n=n: make(n)) for n in (128, 132)]  # type: ignore[misc]
