"""Warploom: the library's GEMM from its Triton-style source, specialized by the compiler."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.harness import Candidate, Data, Run

NAME = "warploom"


def bind(data: Data, tile: tuple[int, int, int], band: int, programs: int, **knobs: Any) -> Run:
    """A run with every launch prepared."""
    from warploom.kernels.gemm import gemm_pointers

    case = data.case
    bm, bn, bk = tile
    grid = (min(programs, -(-case.m // bm) * -(-case.n // bn)),)
    launches = [
        gemm_pointers.prepare(
            data.a[i], data.b[i], data.c[i], case.m, case.n, case.k,
            *data.a[i].stride(), *data.b[i].stride(), *data.c[i].stride(),
            BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=band, grid=grid, **knobs,
        )
        for i in range(len(data))
    ]  # fmt: skip
    return lambda i: launches[i]()


def multiprocessors() -> int:
    count: int = torch.cuda.get_device_properties(0).multi_processor_count
    return count


def candidates(data: Data, **more: Any) -> list[Candidate]:
    """The configs that the library's tuned GEMM would try.  `more`: knobs that all candidates share."""
    from warploom.kernels.gemm import GEMM_CONFIGS, worth_trying

    return candidates_of(data, worth_trying(GEMM_CONFIGS, {"M": data.case.m}), **more)


def candidates_of(data: Data, configs: list[Any], **more: Any) -> list[Candidate]:
    from warploom.kernels.gemm import persistent_grid

    case = data.case
    grid = persistent_grid(case.m, case.n, multiprocessors())

    def candidate(config: Any) -> Candidate:
        tile = tuple(config.kwargs[f"BLOCK_{axis}"] for axis in "MNK")
        knobs = {k: v for k, v in config.all_kwargs.items() if k not in config.kwargs}
        (programs,) = grid(config.kwargs)

        def make() -> Run:
            return bind(
                data, tile, config.kwargs["GROUP_M"], programs, strict=True, **knobs, **more
            )

        return Candidate(f"{config} on {programs}", make)

    return [candidate(config) for config in configs]
