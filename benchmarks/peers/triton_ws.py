"""Triton's own automatic specialization: the persistent TMA kernel with `warp_specialize=True`."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.measure import Candidate
from benchmarks.peers.triton_tma import bind

NAME = "Triton persistent TMA, warp_specialize"

# BM, BN, BK, BAND, warps, stages, halves
LARGE = [
    (128, 256, 64, 8, 8, 3, True),
    (128, 256, 64, 16, 8, 3, True),
    (128, 128, 64, 8, 4, 4, False),
    (128, 128, 64, 8, 8, 4, False),
]
SMALL_M = [(64, 128, 128, 8, 4, 3, False), (64, 128, 64, 8, 4, 5, False)]


def candidates(data: Data) -> list[Candidate]:
    configs = SMALL_M if data.case.m <= 64 else LARGE
    return [
        Candidate(
            f"{config}{' flatten' if flatten else ''}",
            lambda config=config, flatten=flatten: bind(data, config, flatten, True),  # type: ignore[misc]
        )
        for config in configs
        for flatten in (False, True)
    ]
