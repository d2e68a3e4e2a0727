"""Warploom's GEMM with a tile a consumer group: ping-pong."""

from __future__ import annotations

from benchmarks.data import Data
from benchmarks.measure import Candidate
from benchmarks.peers.warploom import candidates_of
from warploom.kernels.gemm import config

NAME = "warploom, tiles in turn"

CONFIGS = [
    *(config(128, 192, 64, band, 2, 4, ping_pong=True) for band in (16, 8, 4)),
    *(config(128, 128, 64, band, 2, 5, ping_pong=True) for band in (16, 4)),
    config(64, 256, 64, 16, 2, 4, ping_pong=True),
    config(192, 128, 64, 8, 2, 4, ping_pong=True),
    config(128, 176, 64, 8, 2, 5, ping_pong=True),
]


def candidates(data: Data) -> list[Candidate]:
    return candidates_of(data, CONFIGS)
