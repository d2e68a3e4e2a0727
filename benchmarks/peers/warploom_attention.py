"""Warploom's attention in the explicit language, in its variants."""

from __future__ import annotations

import itertools
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
    tensors = (data.q, data.k, data.v, data.o)
    sets = list(zip(*([x.flatten(0, 1) for x in t] for t in tensors), strict=True))
    return lambda i: kernel(*sets[i], lse, heads, case.seq, scale)


# groups, eighths, pingpong, q_stages
VARIANTS = {
    128: [
        *itertools.product((2,), (0, 1, 2, 3), (True,), (1,)),
        (2, 2, False, 1),
        (2, 2, True, 2),
    ],
    64: [
        *itertools.product((3,), (0, 1, 2), (True,), (1,)),
        (3, 0, False, 1),
        (3, 0, True, 2),
        *itertools.product((2,), (0, 2), (True,), (1,)),
        (2, 2, True, 2),
    ],
}


def candidates(data: AttentionData) -> list[Candidate]:
    def candidate(groups: int, eighths: int, pingpong: bool, q_stages: int) -> Candidate:
        options = {"groups": groups, "eighths": eighths, "pingpong": pingpong, "q_stages": q_stages}
        label = ", ".join(f"{k}={v}" for k, v in options.items())
        return Candidate(label, lambda: bind(data, **options))

    return [candidate(*point) for point in VARIANTS[data.case.d]]
