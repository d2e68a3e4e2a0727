"""Warploom: row-wise scaled e4m3 from Triton-style source, with sums promoted to float32."""

from __future__ import annotations

from benchmarks.data import Fp8Data
from benchmarks.measure import Candidate
from benchmarks.peers.warploom_fp8 import variants

NAME = "warploom fp8, promoted"
KINDS = ("fp8",)


def candidates(data: Fp8Data) -> list[Candidate]:
    if data.case.layout != "TN":
        return []
    from warploom.kernels.fp8 import FP8_PROMOTED_CONFIGS

    return variants(data, FP8_PROMOTED_CONFIGS)
