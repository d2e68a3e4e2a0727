"""Triton's own automatic specialization of row-wise scaled e4m3: `warp_specialize=True`."""

from __future__ import annotations

from benchmarks.data import Fp8Data
from benchmarks.measure import Candidate
from benchmarks.peers.triton_fp8 import CONFIGS, variants

NAME = "Triton fp8, persistent TMA, warp_specialize"
KINDS = ("fp8",)


def candidates(data: Fp8Data) -> list[Candidate]:
    return variants(data, CONFIGS[:2] + CONFIGS[4:], specialize=True)
