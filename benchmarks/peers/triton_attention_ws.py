"""Triton's own automatic specialization of attention: the TMA kernel with `warp_specialize=True`."""

from __future__ import annotations

from benchmarks.data import AttentionData
from benchmarks.measure import Candidate
from benchmarks.peers.triton_attention_tma import variants

NAME = "Triton attention, TMA, warp_specialize"
KINDS = ("attention",)

# BM, BN, warps, stages.  Four warps become twelve: a producer's and two consumer groups'.  With three stages,
# or 64 rows, Triton 3.6 computes wrong results.
CONFIGS = [(128, 128, 4, 2), (128, 64, 4, 2)]


def candidates(data: AttentionData) -> list[Candidate]:
    return variants(data, {64: CONFIGS, 128: CONFIGS}, specialize=True)
