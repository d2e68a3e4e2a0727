"""Warploom's baseline: the same source with uniform, software-pipelined warps."""

from __future__ import annotations

from benchmarks.data import Data, multiprocessors
from benchmarks.measure import Candidate
from benchmarks.peers.warploom import bind

NAME = "warploom, uniform"

# BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, warps, stages
LARGE = [
    (128, 256, 64, 16, 8, 3),
    (128, 256, 64, 8, 8, 3),
    (128, 128, 64, 16, 8, 4),
    (128, 128, 64, 16, 4, 4),
]
SMALL_M = [(64, 128, 128, 8, 4, 4), (64, 128, 64, 8, 4, 6), (64, 64, 128, 8, 4, 5)]


def candidates(data: Data) -> list[Candidate]:
    def candidate(config: tuple[int, ...]) -> Candidate:
        bm, bn, bk, band, warps, stages = config
        knobs = {"num_consumer_groups": 0, "num_warps": warps, "num_stages": stages}
        return Candidate(
            str(config), lambda: bind(data, (bm, bn, bk), band, multiprocessors(), **knobs)
        )

    return [candidate(config) for config in (SMALL_M if data.case.m <= 64 else LARGE)]
