"""torch's row-wise scaled product of e4m3, with fast accumulation.  It takes B stored N×K only: another B is
transposed by a copy before, in the time."""

from __future__ import annotations

from benchmarks.data import Fp8Data
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "torch._scaled_mm, fast"
KINDS = ("fp8",)


def candidates(data: Fp8Data, fast: bool = True) -> list[Candidate]:
    import torch

    def make() -> Run:
        def run(i: int) -> None:
            torch._scaled_mm(
                data.a[i], data.b[i].contiguous().t(), out=data.c[i], out_dtype=torch.bfloat16,
                scale_a=data.scale_a[i][:, None], scale_b=data.scale_b[i][None, :],
                use_fast_accum=fast,
            )  # fmt: skip

        return run

    return [Candidate(f"use_fast_accum={fast}", make)]
