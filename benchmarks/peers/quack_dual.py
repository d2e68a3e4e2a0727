"""quack (CuTe DSL): the gated pair as one product, gate and up columns interleaved beforehand (untimed)."""

from __future__ import annotations

from typing import Any

from quack.gemm_interface import gemm_gated

from benchmarks.data import DualData
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "quack gemm swiglu (CuTe DSL)"
KINDS = ("dual",)


def candidates(data: DualData) -> list[Candidate]:
    if data.case.dtype != "bf16":
        return []
    n, k = data.case.n, data.case.k

    def make() -> Run:
        mixed = [w.view(2, n, k).transpose(0, 1).reshape(2 * n, k) for w in data.w]

        def run(i: int) -> Any:
            return gemm_gated(
                data.a[i],
                mixed[i].t(),
                activation="swiglu",
                postact_out=data.c[i],
                store_preact=False,
            )

        return run

    return [Candidate("gemm_gated, tuned", make)]
