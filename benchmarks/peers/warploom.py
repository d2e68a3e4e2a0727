"""Warploom: the library's GEMM from its Triton-style source, specialized by the compiler."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.harness import Candidate, Data, Run

NAME = "warploom"

# BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, consumer groups, depth
LARGE = [
    (128, 256, 64, 16, 2, 3),
    (128, 256, 64, 8, 2, 3),
    (128, 256, 64, 4, 2, 3),
    (128, 256, 64, 4, 2, 4),
    (128, 256, 128, 4, 2, 2),
    (128, 192, 64, 16, 2, 4),
    (128, 128, 64, 16, 2, 5),
    (128, 128, 64, 4, 2, 6),
    (128, 128, 128, 4, 2, 3),
]
SMALL_M = [
    (64, 128, 128, 8, 1, 4),
    (64, 128, 64, 8, 1, 7),
    (64, 64, 128, 8, 1, 6),
    (64, 64, 256, 8, 1, 3),
    (64, 64, 64, 8, 1, 8),
    (64, 32, 128, 8, 1, 8),
    (64, 32, 256, 8, 1, 4),
    (64, 128, 256, 8, 1, 2),
]


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


def grids(data: Data, bm: int, bn: int) -> list[int]:
    """All SMs, and the largest power of two of them where it divides the tiles into whole waves."""
    sms: int = torch.cuda.get_device_properties(0).multi_processor_count
    even = 1 << (sms.bit_length() - 1)
    tiles = -(-data.case.m // bm) * -(-data.case.n // bn)
    return [sms, even] if tiles % even == 0 else [sms]


def candidates(data: Data, **more: Any) -> list[Candidate]:
    """`more`: knobs that all candidates share."""

    def candidate(config: tuple[int, ...], programs: int) -> Candidate:
        bm, bn, bk, band, groups, depth = config

        def make() -> Run:
            knobs = {"num_consumer_groups": groups, "num_buffers_warp_spec": depth, "strict": True}
            return bind(data, (bm, bn, bk), band, programs, **knobs, **more)

        return Candidate(f"{config} on {programs}", make)

    configs = SMALL_M if data.case.m <= 64 else LARGE
    return [
        candidate(config, programs)
        for config in configs
        for programs in grids(data, config[0], config[1])
    ]
