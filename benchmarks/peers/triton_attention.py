# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""Triton's attention with plain pointers: a program a block of rows, software-pipelined."""

from __future__ import annotations

import math

import triton
import triton.language as tl

from benchmarks.data import AttentionData, zeros
from benchmarks.measure import Candidate, each
from warploom.bench import Run

NAME = "Triton attention, pointers"
KINDS = ("attention",)


@triton.jit
def visit(
    acc, total, top, q, k_at, v_at, rows, first, last, stride, scale,
    BN: tl.constexpr, D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Columns first … last; `top` and the scores are in units of log2."""
    n = tl.arange(0, BN)
    d = tl.arange(0, D)
    for at in range(first, last, BN):
        k = tl.load(k_at + (at + n)[None, :] * stride + d[:, None])
        s = tl.dot(q, k)
        if MASKED:
            s = tl.where(rows[:, None] >= (at + n)[None, :], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1) * scale)
        p = tl.exp2(s * scale - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(p, 1)
        acc = acc * fade[:, None]
        v = tl.load(v_at + (at + n)[:, None] * stride + d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = higher
    return acc, total, top


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, seq, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    if CAUSAL:  # the longest rows first
        block = tl.num_programs(0) - 1 - block
    base = head.to(tl.int64) * seq * D
    rows = block * BM + tl.arange(0, BM)
    at = base + rows[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + at)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    top = tl.full((BM,), float("-inf"), dtype=tl.float32)
    k_at, v_at = k_ptr + base, v_ptr + base
    if CAUSAL:
        diagonal = block * BM
        acc, total, top = visit(
            acc, total, top, q, k_at, v_at, rows, 0, diagonal, D, scale, BN, D, False
        )
        acc, total, top = visit(
            acc, total, top, q, k_at, v_at, rows, diagonal, diagonal + BM, D, scale, BN, D, True
        )
    else:
        acc, total, top = visit(
            acc, total, top, q, k_at, v_at, rows, 0, seq, D, scale, BN, D, False
        )
    tl.store(lse_ptr + head * seq + rows, top + tl.log2(total))
    tl.store(o_ptr + at, (acc / total[:, None]).to(o_ptr.dtype.element_ty))


# BM, BN, warps, stages; BN divides BM where rows end at the diagonal
CONFIGS = {
    64: [(128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 4)],
    128: [(128, 64, 8, 3), (128, 32, 8, 4), (64, 64, 4, 3), (64, 64, 4, 2)],
}


def candidates(data: AttentionData) -> list[Candidate]:
    case = data.case
    if case.seq % 128:
        return []
    heads = case.batch * case.heads
    scale = case.d**-0.5 * math.log2(math.e)
    lse = zeros(data.q[0], heads, case.seq)

    def make(config: tuple[int, ...]) -> Run:
        bm, bn, warps, stages = config
        grid = (case.seq // bm, heads)

        def run(i: int) -> None:
            attention[grid](
                data.q[i], data.k[i], data.v[i], data.o[i], lse, case.seq, scale,
                BM=bm, BN=bn, D=case.d, CAUSAL=case.causal, num_warps=warps, num_stages=stages,
            )  # fmt: skip

        return run

    return each(CONFIGS[case.d], make)
