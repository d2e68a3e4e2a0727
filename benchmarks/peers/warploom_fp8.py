"""Warploom: row-wise scaled e4m3 from Triton-style source, specialized by the compiler."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Fp8Data, multiprocessors
from benchmarks.launches import KernelRun
from benchmarks.measure import Candidate, each

NAME = "warploom fp8"
KINDS = ("fp8",)


def bind(data: Fp8Data, config: Any) -> KernelRun:
    """One configuration."""
    from warploom.kernels.fp8 import fp8_gemm_rowwise
    from warploom.kernels.gemm import persistent_grid

    case = data.case
    grid = persistent_grid(case.m, case.n, multiprocessors())(config.kwargs)
    stored = [b.T for b in data.b] if case.layout == "NN" else data.b
    tensors = zip(data.a, stored, data.scale_a, data.scale_b, data.c, strict=True)
    calls = [(*five, case.m, case.n, case.k) for five in tensors]
    return KernelRun(fp8_gemm_rowwise, calls, grid=grid, strict=True, **config.all_kwargs)


def variants(data: Fp8Data, configs: list[Any]) -> list[Candidate]:
    return each(configs, lambda config: bind(data, config))


def candidates(data: Fp8Data) -> list[Candidate]:
    from warploom.kernels.fp8 import FP8_CONFIGS, FP8_TRANSPOSED_CONFIGS

    return variants(data, FP8_TRANSPOSED_CONFIGS if data.case.layout == "NN" else FP8_CONFIGS)
