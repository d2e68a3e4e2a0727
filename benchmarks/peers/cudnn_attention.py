"""cuDNN's attention, as torch calls it."""

from __future__ import annotations

from typing import Any

from benchmarks.data import AttentionData
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "cuDNN"
KINDS = ("attention",)


def candidates(data: AttentionData) -> list[Candidate]:
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def make() -> Run:
        def run(i: int) -> Any:
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return F.scaled_dot_product_attention(
                    data.q[i], data.k[i], data.v[i], is_causal=data.case.causal
                )

        return run

    return [Candidate("scaled_dot_product_attention", make)]
