"""Attention as Triton's tutorial has it, in two phases where causal: a user's kernel as it comes."""

from __future__ import annotations

import functools
from typing import Any

import torch

from benchmarks.data import AttentionData
from benchmarks.measure import Candidate
from corpus.tutorials import attention
from warploom.bench import Run

NAME = "warploom, tutorial's kernel"
KINDS = ("attention",)


def bind(data: AttentionData, **meta: Any) -> Run:
    """Launches of one variant; meta: meta-parameters and knobs."""
    case = data.case
    heads = case.batch * case.heads
    m = torch.empty(heads, case.seq, device="cuda")
    tensors = (data.q, data.k, data.v, data.o)
    sets = list(zip(*([x.flatten(0, 2) for x in t] for t in tensors), strict=True))
    scale = case.d**-0.5
    meta = {"HEAD_DIM": case.d, "STAGE": 3 if case.causal else 1, **meta}
    grid = (case.seq // meta["BLOCK_M"], heads)

    def run(i: int) -> None:
        attention[grid](scale, m, case.batch, case.heads, *sets[i], case.seq, **meta)

    return run


def candidates(data: AttentionData) -> list[Candidate]:
    """Sequences that the blocks divide, as there."""
    found = []
    for rows, columns, eighths in ((128, 128, 3), (128, 128, 2), (128, 64, 3), (192, 128, 0)):
        if data.case.seq % rows == 0 and not (data.case.causal and rows % columns):
            options: dict[str, Any] = {"BLOCK_M": rows, "BLOCK_N": columns, "WARP_SPECIALIZE": True}
            options["mma_wait_position"] = eighths
            label = ", ".join(f"{k}={v}" for k, v in options.items())
            found.append(Candidate(label, functools.partial(bind, data, **options)))
    return found
