"""Warploom's attention in the explicit language, O stored by warps of its own."""

from __future__ import annotations

from warploom.bench.data import AttentionData
from warploom.bench.measure import Candidate
from warploom.bench.peers import warploom_attention

NAME = "warploom, explicit, store role"
KINDS = ("attention",)


def candidates(data: AttentionData) -> list[Candidate]:
    return warploom_attention.candidates(data, store_role=True)
