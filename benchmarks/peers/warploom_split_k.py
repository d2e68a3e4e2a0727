"""Warploom: the library's product of few rows, K split among programs where the grid is short."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Data, strides, zeros
from benchmarks.launches import KernelRun
from benchmarks.measure import Candidate, each

NAME = "warploom, split K"


def candidates(data: Data) -> list[Candidate]:
    from warploom.kernels.split_k import (
        SPLIT_K_CONFIGS,
        gemm_split_k,
        programs,
        workspace,
        worth_trying,
    )

    case = data.case
    if case.m > 64:
        return []
    parts, counts = workspace(case.m, case.n)
    held = zeros(data.c[0], parts), zeros(data.c[0], counts, dtype="int32")
    calls = [
        (a, b, c, *held, case.m, case.n, case.k, *strides(a), *strides(b), *strides(c))
        for a, b, c in zip(data.a, data.b, data.c, strict=True)
    ]

    def make(config: Any) -> KernelRun:
        grid = programs(case.m, case.n)(dict(config.kwargs))
        return KernelRun(gemm_split_k, calls, grid=grid, strict=True, **config.all_kwargs)

    return each(worth_trying(SPLIT_K_CONFIGS, {"M": case.m, "N": case.n}), make)
