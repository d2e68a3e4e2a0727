"""Triton's own automatic specialization of attention: the TMA kernel with `warp_specialize=True`."""

from __future__ import annotations

from warploom.bench.data import AttentionData
from warploom.bench.measure import Candidate
from warploom.bench.peers.triton_attention_tma import variants

NAME = "Triton attention, TMA, warp_specialize"
KINDS = ("attention",)

# BM, BN, warps, stages (four warps become twelve: a producer's, two consumer groups'; eight stay uniform)
CONFIGS = {
    64: [(128, 128, 4, 2), (128, 128, 4, 3), (128, 64, 4, 3), (128, 64, 4, 2), (64, 64, 4, 3)],
    128: [(128, 128, 4, 2), (128, 64, 4, 2), (128, 64, 4, 3), (64, 64, 4, 3)],
}


def candidates(data: AttentionData) -> list[Candidate]:
    return variants(data, CONFIGS, specialize=True)
