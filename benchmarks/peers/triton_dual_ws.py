"""Triton's own automatic specialization of the gated pair: `warp_specialize=True`."""

from __future__ import annotations

from benchmarks.data import DualData
from benchmarks.measure import Candidate, each
from benchmarks.peers.triton_dual import bind

NAME = "Triton dual, persistent TMA, warp_specialize"
KINDS = ("dual",)

# BM, BN, BK, BAND, warps, stages: only four warps, and a loop that isn't flattened, are specialized
CONFIGS = [(128, 128, 64, 8, 4, 3), (128, 64, 64, 8, 4, 3), (128, 64, 64, 8, 4, 4)]


def candidates(data: DualData) -> list[Candidate]:
    if data.case.dtype != "bf16":
        return []
    return each(CONFIGS, lambda config: bind(data, config, False, True))
