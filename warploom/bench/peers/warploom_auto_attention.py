"""Warploom's attention from Triton-style source, in its configurations."""

from __future__ import annotations

import math
from typing import Any

from warploom.bench.data import AttentionData, multiprocessors, zeros
from warploom.bench.launches import KernelRun
from warploom.bench.measure import Candidate

NAME = "warploom, automatic"
KINDS = ("attention",)


def bind(data: AttentionData, persistent: bool = True, **meta: Any) -> KernelRun:
    """One variant; meta: meta-parameters and knobs.  persistent: a program a multiprocessor; else a tile."""
    from warploom.kernels.attention import attention_forward, grid_of, section_of

    case = data.case
    heads = case.batch * case.heads
    scale = case.d**-0.5 * math.log2(math.e)
    lse = zeros(data.q[0], 1)
    counter = zeros(data.q[0], 2, dtype="int32")
    section = section_of(heads, case.seq, case.d)
    grid = grid_of(heads, case.seq, multiprocessors() if persistent else None)
    calls = [(*qkvo, lse, counter, heads, case.seq, section, scale) for qkvo in data.by_head]
    meta = {"D": case.d, "CAUSAL": case.causal, **meta}
    return KernelRun(attention_forward, calls, grid=grid, **meta)


def candidates(data: AttentionData) -> list[Candidate]:
    from warploom.kernels.attention import ATTENTION_CONFIGS

    case = data.case
    found = []
    for c in ATTENTION_CONFIGS[case.d, case.causal]:
        options = c.all_kwargs
        label = ", ".join(f"{k}={v}" for k, v in options.items())
        found.append(Candidate(label, lambda options=options: bind(data, **options)))  # type: ignore[misc]
    return found
