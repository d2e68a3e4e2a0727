"""Triton's attention with tensor descriptors and persistent programs."""

from __future__ import annotations

from benchmarks.data import AttentionData
from benchmarks.measure import Candidate
from benchmarks.peers.triton_attention_tma import variants

NAME = "Triton attention, persistent TMA"
KINDS = ("attention",)

# BM, BN, warps, stages
CONFIGS = {
    64: [(128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 4, 2), (64, 64, 4, 4)],
    128: [(128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 8, 2), (64, 64, 4, 3)],
}


def candidates(data: AttentionData) -> list[Candidate]:
    return variants(data, CONFIGS, persistent=True)
