"""FlashAttention-3 forward, as the fa3-fwd wheel has it: (batch, seq, heads, d), in bf16."""

from __future__ import annotations

from typing import Any

import fa3_fwd_interface

from benchmarks.data import AttentionData
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "FlashAttention-3"
KINDS = ("attention",)


def candidates(data: AttentionData) -> list[Candidate]:
    def make() -> Run:
        sets = list(zip(data.q, data.k, data.v, strict=True))
        own = [tuple(t.transpose(1, 2).contiguous() for t in qkv) for qkv in sets]

        def run(i: int) -> Any:
            out = fa3_fwd_interface.flash_attn_func(*own[i], causal=data.case.causal)
            out = out[0] if isinstance(out, tuple) else out
            return out.transpose(1, 2)

        return run

    return [Candidate("fa3-fwd wheel", make)]
