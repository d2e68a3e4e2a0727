"""Warploom's attention in the explicit language, O stored by warps of its own."""

from __future__ import annotations

from benchmarks.data import AttentionData
from benchmarks.measure import Candidate
from benchmarks.peers import warploom_attention

NAME = "warploom, explicit, store role"
KINDS = ("attention",)


def candidates(data: AttentionData) -> list[Candidate]:
    return warploom_attention.candidates(data, store_role=True)
