"""Triton's attention with tensor descriptors and persistent programs."""

from __future__ import annotations

from warploom.bench.data import AttentionData
from warploom.bench.measure import Candidate
from warploom.bench.peers.triton_attention_tma import CONFIGS, variants

NAME = "Triton attention, persistent TMA"
KINDS = ("attention",)


def candidates(data: AttentionData) -> list[Candidate]:
    return variants(data, CONFIGS, persistent=True)
