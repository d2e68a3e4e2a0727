# mypy: ignore-errors
# (Triton's kernels are not annotated)
"""Triton's attention with tensor descriptors: loads and stores by TMA, a program a block of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.data import AttentionData, multiprocessors, zeros
from benchmarks.measure import Candidate, each
from warploom.bench import Run

NAME = "Triton attention, TMA"
KINDS = ("attention",)


@triton.jit
def visit(
    acc, total, top, q, k_desc, v_desc, base, rows, first, last, scale,
    BN: tl.constexpr, MASKED: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """Columns first … last; `top` and the scores are in units of log2."""
    k_row = base + first
    v_row = base + first
    for at in tl.range(first, last, BN, warp_specialize=SPECIALIZE):
        at = tl.multiple_of(at, BN)
        k = k_desc.load([k_row, 0]).T
        s = tl.dot(q, k)
        if MASKED:
            inside = rows[:, None] >= (at + tl.arange(0, BN))[None, :]
            s = s * scale + tl.where(inside, 0, -1.0e6)
            higher = tl.maximum(top, tl.max(s, 1))
            s -= higher[:, None]
        else:
            higher = tl.maximum(top, tl.max(s, 1) * scale)
            s = s * scale - higher[:, None]
        p = tl.math.exp2(s)
        fade = tl.math.exp2(top - higher)
        part = tl.sum(p, 1)
        acc = acc * fade[:, None]
        v = v_desc.load([v_row, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        total = total * fade + part
        top = higher
        k_row += BN
        v_row += BN
    return acc, total, top


@triton.jit
def tile(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, head, block, seq, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
    SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """BM rows of one head; the descriptors see (heads · seq) × D."""
    base = head * seq
    row = block * BM
    rows = row + tl.arange(0, BM)
    q = q_desc.load([base + row, 0])
    acc = tl.zeros((BM, D), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    top = tl.full((BM,), float("-inf"), dtype=tl.float32)
    if CAUSAL and SPECIALIZE:  # Triton 3.6 specializes one loop, and fails where there are two
        acc, total, top = visit(
            acc, total, top, q, k_desc, v_desc, base, rows, 0, row + BM, scale, BN, True, True
        )
    elif CAUSAL:
        acc, total, top = visit(
            acc, total, top, q, k_desc, v_desc, base, rows, 0, row, scale, BN, False, SPECIALIZE
        )
        acc, total, top = visit(
            acc, total, top, q, k_desc, v_desc, base, rows, row, row + BM, scale, BN, True, False
        )  # fmt: skip
    else:
        acc, total, top = visit(
            acc, total, top, q, k_desc, v_desc, base, rows, 0, seq, scale, BN, False, SPECIALIZE
        )
    tl.store(lse_ptr + base + rows, top + tl.log2(total))
    o_desc.store([base + row, 0], (acc / total[:, None]).to(o_desc.dtype))


@triton.jit
def attention(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, heads, seq, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
    SPECIALIZE: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """PROGRAMS: 0 for a program a tile (grid blocks × heads), else programs that stride over all tiles.

    With SPECIALIZE pointers stand in for the descriptors: Triton 3.6's pass hangs on those of the host."""
    if SPECIALIZE:
        rows = heads * seq
        q_desc = tl.make_tensor_descriptor(q_desc, [rows, D], [D, 1], [BM, D])
        k_desc = tl.make_tensor_descriptor(k_desc, [rows, D], [D, 1], [BN, D])
        v_desc = tl.make_tensor_descriptor(v_desc, [rows, D], [D, 1], [BN, D])
        o_desc = tl.make_tensor_descriptor(o_desc, [rows, D], [D, 1], [BM, D])
    blocks = seq // BM
    if PROGRAMS:
        for at in tl.range(tl.program_id(0), blocks * heads, PROGRAMS):
            block = at // heads
            if CAUSAL:  # the longest rows first
                block = blocks - 1 - block
            tile(
                q_desc, k_desc, v_desc, o_desc, lse_ptr, at % heads, block, seq, scale,
                BM, BN, D, CAUSAL, SPECIALIZE,
            )  # fmt: skip
    else:
        block = tl.program_id(0)
        if CAUSAL:
            block = blocks - 1 - block
        tile(
            q_desc, k_desc, v_desc, o_desc, lse_ptr, tl.program_id(1), block, seq, scale,
            BM, BN, D, CAUSAL, SPECIALIZE,
        )  # fmt: skip


# BM, BN, warps, stages; BN divides BM, as rows end at the diagonal
CONFIGS = {
    64: [(128, 64, 8, 3), (128, 64, 4, 3), (128, 128, 4, 2), (64, 64, 4, 3)],
    128: [(128, 64, 8, 4), (128, 64, 4, 3), (128, 128, 8, 3), (64, 64, 4, 3)],
}


def bind(
    data: AttentionData, config: tuple[int, ...], specialize: bool = False, persistent: bool = False
) -> Run:
    """A run of one configuration; the descriptors are made beforehand."""
    case = data.case
    bm, bn, warps, stages = config
    heads = case.batch * case.heads
    scale = case.d**-0.5 * math.log2(math.e)
    lse = zeros(data.q[0], heads, case.seq)
    rows = heads * case.seq
    tensors = [
        [x.view(rows, case.d) for x in qkvo]
        for qkvo in zip(data.q, data.k, data.v, data.o, strict=True)
    ]
    if specialize:
        triton.set_allocator(lambda size, align, stream: zeros(lse, size, dtype="int8"))
        sets = tensors
    else:
        blocks = ([bm, case.d], [bn, case.d], [bn, case.d], [bm, case.d])
        sets = [list(map(TensorDescriptor.from_tensor, qkvo, blocks)) for qkvo in tensors]
    sms = multiprocessors()
    # as many programs as fit: two of four warps share an SM, one of eight has it alone
    programs = (sms if warps > 4 else 2 * sms) if persistent else 0
    grid = (programs,) if persistent else (case.seq // bm, heads)

    def run(i: int) -> None:
        attention[grid](
            *sets[i], lse, heads, case.seq, scale, BM=bm, BN=bn, D=case.d, CAUSAL=case.causal,
            SPECIALIZE=specialize, PROGRAMS=programs, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    return run


def variants(
    data: AttentionData, configs: Mapping[int, Sequence[tuple[int, ...]]], **how: bool
) -> list[Candidate]:
    """All configurations, for sequences that blocks divide."""
    if data.case.seq % 128:
        return []
    return each(configs[data.case.d], lambda config: bind(data, config, **how))


def candidates(data: AttentionData) -> list[Candidate]:
    return variants(data, CONFIGS)
