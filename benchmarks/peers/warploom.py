"""Warploom: the library's GEMM from its Triton-style source, specialized by the compiler."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Data, multiprocessors, strides
from benchmarks.launches import KernelRun
from benchmarks.measure import Candidate

NAME = "warploom"


def bind(
    data: Data, tile: tuple[int, int, int], band: int, programs: int, **knobs: Any
) -> KernelRun:
    """Tiles of BLOCK_M×BLOCK_N×BLOCK_K on so many programs, or fewer where there are fewer tiles."""
    from warploom.kernels.gemm import gemm_pointers

    case = data.case
    bm, bn, bk = tile
    calls = [
        (a, b, c, case.m, case.n, case.k, *strides(a), *strides(b), *strides(c))
        for a, b, c in zip(data.a, data.b, data.c, strict=True)
    ]
    meta = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": band}
    grid = (min(programs, -(-case.m // bm) * -(-case.n // bn)),)
    return KernelRun(gemm_pointers, calls, grid=grid, **meta, **knobs)


def candidates(data: Data, **more: Any) -> list[Candidate]:
    """The configs that the library's tuned GEMM would try.  `more`: knobs that all candidates share."""
    from warploom.kernels.gemm import GEMM_CONFIGS, worth_trying

    return candidates_of(data, worth_trying(GEMM_CONFIGS, {"M": data.case.m}), **more)


def candidates_of(data: Data, configs: list[Any], **more: Any) -> list[Candidate]:
    """These configs, each on the fewest programs that take no more waves than all."""
    from warploom.kernels.gemm import persistent_grid

    case = data.case
    grid = persistent_grid(case.m, case.n, multiprocessors())

    def candidate(config: Any) -> Candidate:
        bm, bn, bk, band = (config.kwargs[n] for n in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"))
        knobs = {k: v for k, v in config.all_kwargs.items() if k not in config.kwargs}
        (programs,) = grid(config.kwargs)
        return Candidate(
            f"{config} on {programs}",
            lambda: bind(data, (bm, bn, bk), band, programs, strict=True, **knobs, **more),
        )

    return [candidate(config) for config in configs]
