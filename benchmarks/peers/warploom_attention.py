"""Warploom's attention in the explicit language, with the options that the library finds worth timing."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.data import AttentionData, zeros
from benchmarks.launches import ScriptRun
from benchmarks.measure import Candidate

NAME = "warploom, explicit"
KINDS = ("attention",)


def bind(data: AttentionData, **options: Any) -> ScriptRun:
    """One variant."""
    from warploom.kernels.explicit.attention import Attention

    case = data.case
    heads = case.batch * case.heads
    scale = case.d**-0.5 * math.log2(math.e)
    lse = zeros(data.q[0], heads, case.seq)
    counter = zeros(data.q[0], 2, dtype="int32")
    calls = [(*qkvo, lse, counter, heads, case.seq, scale) for qkvo in data.by_head]
    return ScriptRun(Attention(causal=case.causal, d=case.d, **options), calls)


def candidates(data: AttentionData, **more: Any) -> list[Candidate]:
    """more: further options of each."""
    from warploom.kernels.explicit.attention import configs

    def candidate(options: dict[str, Any]) -> Candidate:
        label = ", ".join(f"{k}={v}" for k, v in options.items())
        return Candidate(label, lambda: bind(data, **options, **more))

    case = data.case
    return [candidate(options) for options in configs(case.d, case.causal, case.seq)]
