"""Warploom: both products and their gate from Triton-style source, specialized by the compiler."""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Candidate, Run
from benchmarks.peers.warploom import multiprocessors
from benchmarks.products import DualData

NAME = "warploom dual"
KINDS = ("dual",)


def bind(data: DualData, config: Any) -> Run:
    """Launches of one configuration, prepared."""
    from warploom.kernels.dual import dual_gemm_forward
    from warploom.kernels.gemm import persistent_grid

    case = data.case
    grid = persistent_grid(case.m, case.n, multiprocessors())(config.kwargs)
    launches = [
        dual_gemm_forward.prepare(
            a, b1, b2, c, 1.0, 1.0, case.m, case.n, case.k,
            grid=grid, strict=True, **config.all_kwargs,
        )
        for a, b1, b2, c in zip(data.a, data.b1, data.b2, data.c, strict=True)
    ]  # fmt: skip
    return lambda i: launches[i]()


def candidates(data: DualData) -> list[Candidate]:
    from warploom.kernels.dual import DUAL_CONFIGS

    return [
        Candidate(str(config), lambda config=config: bind(data, config))  # type: ignore[misc]
        for config in DUAL_CONFIGS
    ]
