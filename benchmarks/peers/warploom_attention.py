"""Warploom's attention in the explicit language, with the options that the library finds worth timing."""

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


def candidates(data: AttentionData, **more: Any) -> list[Candidate]:
    """more: further options of each."""
    from warploom.kernels.explicit.attention import configs

    def candidate(options: dict[str, Any]) -> Candidate:
        label = ", ".join(f"{k}={v}" for k, v in options.items())
        return Candidate(label, lambda: bind(data, **options, **more))

    case = data.case
    return [candidate(options) for options in configs(case.d, case.causal, case.seq)]
