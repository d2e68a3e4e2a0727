"""Warploom's attention from Triton-style source, in its configurations."""

from __future__ import annotations

import math
from typing import Any

import torch

from benchmarks.harness import AttentionData, Candidate, Run

NAME = "warploom, automatic"
KINDS = ("attention",)


def bind(data: AttentionData, persistent: bool = False, **meta: Any) -> Run:
    """Launches of one variant; meta: meta-parameters and knobs."""
    from warploom.kernels.attention import attention_forward, grid_of, section_of

    case = data.case
    heads = case.batch * case.heads
    scale = case.d**-0.5 * math.log2(math.e)
    lse = torch.empty(1, device="cuda")
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    section = section_of(heads, case.seq, case.d)
    programs = torch.cuda.get_device_properties(0).multi_processor_count if persistent else None
    grid = grid_of(heads, case.seq, programs)
    tensors = (data.q, data.k, data.v, data.o)
    sets = list(zip(*([x.flatten(0, 1) for x in t] for t in tensors), strict=True))
    meta = {"D": case.d, "CAUSAL": case.causal, **meta}

    def run(i: int) -> None:
        attention_forward[grid](*sets[i], lse, counter, heads, case.seq, section, scale, **meta)

    return run


def candidates(data: AttentionData) -> list[Candidate]:
    from warploom.kernels.attention import ATTENTION_CONFIGS

    case = data.case
    found = []
    for c in ATTENTION_CONFIGS[case.d, case.causal]:
        for persistent in (True,) if c.kwargs["DRAWN"] else (False, True):
            options = {**c.all_kwargs, "persistent": persistent}
            label = ", ".join(f"{k}={v}" for k, v in options.items())
            found.append(Candidate(label, lambda options=options: bind(data, **options)))
    return found
