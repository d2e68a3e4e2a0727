"""The programs of corpus/as_triton as operators.  Each compares its own results: no number is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.third_party.operators import Operator, late

# Their sizes where compilers are compared, and where only results are.
SIZES = {
    "vector_add": (1 << 25, 3000),
    "fused_softmax": (32768, 9),
    "matmul": (4096, 256),
    "dropout": (1 << 24, 1000),
    "layer_norm": (32768, 5),
    "attention": (4096, 256),
    "attention_backward": (4096, 256),
    "extern_functions": (1 << 25, 3000),
    "grouped_gemm": (4096, 512),
    "persistent_matmul": (4096, 512),
    "block_scaled_matmul": (4096, 256),
    "packed_scales": (4096, 256),
    "dependent_launch": (1 << 25, 3000),
    "clustered_matmul": (4096, 512),
    "shared_examples": (4096, 128),
    "shared_accesses": (4096, 100),
}


def operators() -> Iterator[Operator]:
    for name, (real, small) in SIZES.items():
        yield Operator(
            name,
            lambda s: {"n": s.sizes.rows, "device": s.device},
            checked(name),
            lambda n, device: torch.zeros(1, device=device),
            backward=False,
            sizes={"rows": real},
            small={"rows": small},
        )


def checked(name: str) -> Any:
    """A program's check, which raises where a result is wrong."""

    def call(n: int, device: str) -> Any:
        late(f"corpus.as_triton.{name}", "check")(device, n)
        return torch.zeros(1, device=device)

    return call
