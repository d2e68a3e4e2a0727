# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""The gated pair of products as torch users have it: one cuBLAS product of both weights, then one pass.
Of e4m3 it is `_scaled_mm` with fast accumulation."""

from __future__ import annotations

import triton
import triton.language as tl

from benchmarks.data import DualData, zeros
from benchmarks.measure import Candidate
from warploom.bench import Run

NAME = "cuBLAS, then silu·mul"
KINDS = ("dual",)


@triton.jit
def silu_mul(h, c, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(h + row * 2 * n + at, mask=at < n).to(tl.float32)
    up = tl.load(h + row * 2 * n + n + at, mask=at < n).to(tl.float32)
    out = gate / (1 + tl.exp(-gate)) * up
    tl.store(c + row * n + at, out.to(c.dtype.element_ty), mask=at < n)


def candidates(data: DualData) -> list[Candidate]:
    import torch

    m, n = data.case.m, data.case.n

    def make(block: int) -> Run:
        h = zeros(data.c[0], m, 2 * n, dtype="bf16")
        grid = (m, triton.cdiv(n, block))

        scales = [zeros(data.c[0], 1) + x for x in (1.0, data.scale)]

        def product(a: torch.Tensor, w: torch.Tensor) -> None:
            if data.case.dtype == "bf16":
                torch.matmul(a, w.t(), out=h)
            else:
                torch._scaled_mm(
                    a, w.t(), out=h, out_dtype=torch.bfloat16,
                    scale_a=scales[0], scale_b=scales[1], use_fast_accum=True,
                )  # fmt: skip

        def run(i: int) -> None:
            product(data.a[i], data.w[i])
            silu_mul[grid](h, data.c[i], n, BLOCK=block, num_warps=8)

        return run

    return [Candidate(f"block={block}", lambda b=block: make(b)) for block in (2048, 4096)]
