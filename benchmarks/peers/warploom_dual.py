"""Warploom: both products and their gate from Triton-style source, specialized by the compiler."""

from __future__ import annotations

from typing import Any

from benchmarks.data import DualData, multiprocessors
from benchmarks.launches import KernelRun
from benchmarks.measure import Candidate, each

NAME = "warploom dual"
KINDS = ("dual",)


def bind(data: DualData, config: Any) -> KernelRun:
    """One configuration."""
    from warploom.kernels.dual import dual_gemm_forward
    from warploom.kernels.gemm import persistent_grid

    case = data.case
    grid = persistent_grid(case.m, case.n, multiprocessors())(config.kwargs)
    calls = [
        (a, b1, b2, c, data.scale, data.scale, case.m, case.n, case.k)
        for a, b1, b2, c in zip(data.a, data.b1, data.b2, data.c, strict=True)
    ]
    return KernelRun(dual_gemm_forward, calls, grid=grid, strict=True, **config.all_kwargs)


def candidates(data: DualData) -> list[Candidate]:
    from warploom.kernels.dual import DUAL_CONFIGS, DUAL_FP8_CONFIGS

    configs = DUAL_FP8_CONFIGS if data.case.dtype == "e4m3" else DUAL_CONFIGS
    return each(configs, lambda config: bind(data, config))
