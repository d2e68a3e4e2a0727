"""Warploom's attention in the explicit language, in its variants."""

from __future__ import annotations

import math
from typing import Any

import torch

from benchmarks.harness import AttentionData, Candidate, Run

NAME = "warploom, explicit"
KINDS = ("attention",)


def bind(data: AttentionData, **options: Any) -> Run:
    """Launches of one variant."""
    from warploom.kernels.explicit.attention import Attention

    case = data.case
    kernel = Attention(causal=case.causal, d=case.d, **options)
    heads = case.batch * case.heads
    scale = case.d**-0.5 * math.log2(math.e)
    lse = torch.empty(heads, case.seq, device="cuda")
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    tensors = (data.q, data.k, data.v, data.o)
    sets = list(zip(*([x.flatten(0, 1) for x in t] for t in tensors), strict=True))
    return lambda i: kernel(*sets[i], lse, counter, heads, case.seq, scale)


# By head size and causality: groups, eighths, pingpong, q_stages, MB of the L2 cache.
VARIANTS = {
    (128, False): [
        (2, 2, True, 1, 32),
        (2, 3, True, 1, 32),
        (2, 2, True, 2, 32),
        (2, 3, True, 2, 32),
        (2, 2, False, 1, 32),
    ],
    (128, True): [
        (2, 2, True, 1, 32),
        (2, 3, True, 1, 32),
        (2, 2, True, 2, 32),
        (2, 2, False, 1, 32),
        (2, 2, True, 1, 16),
        (2, 2, True, 1, 64),
    ],
    (64, False): [
        (3, 0, True, 2, 32),
        (3, 0, True, 1, 32),
        (3, 1, True, 2, 32),
        (3, 0, False, 2, 32),
        (2, 2, True, 2, 32),
    ],
    (64, True): [
        (3, 2, True, 1, 32),
        (3, 0, True, 2, 32),
        (3, 2, True, 2, 32),
        (2, 2, True, 2, 32),
        (2, 3, True, 2, 32),
        (2, 2, False, 2, 32),
        (3, 2, True, 2, 64),
    ],
}


def candidates(data: AttentionData) -> list[Candidate]:
    def candidate(groups: int, eighths: int, pingpong: bool, q_stages: int, mb: int) -> Candidate:
        options = {"groups": groups, "eighths": eighths, "pingpong": pingpong, "q_stages": q_stages}
        options["l2_bytes"] = mb << 20
        label = ", ".join(f"{k}={v}" for k, v in options.items())
        return Candidate(label, lambda: bind(data, **options))

    return [candidate(*point) for point in VARIANTS[data.case.d, data.case.causal]]
