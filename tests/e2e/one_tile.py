"""The library's gated pair and attention with a tile a program: no loop over tiles, so that what a tile leaves
in shared memory is over when its result is staged."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl
from warploom.kernels.dual import silu
from warploom.kernels.gemm import grouped_tile
from warploom.runtime.compiled import CompiledKernel


@wl.jit
def dual_of_one_tile(
    a_ptr: Any,
    b1_ptr: Any,
    b2_ptr: Any,
    c_ptr: Any,
    M: Any,
    N: Any,
    K: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
) -> None:
    """As kernels.dual, a tile a program: the grid is tiles of M times tiles of N."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    pid_m, pid_n = grouped_tile(tl.program_id(0), tiles_m, tl.cdiv(N, BLOCK_N), GROUP_M)
    m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        b_at = k[:, None] + n[None, :] * K
        b_mask = (k[:, None] < K) & (n[None, :] < N)
        a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
        b1 = tl.load(b1_ptr + b_at, mask=b_mask, other=0.0)
        b2 = tl.load(b2_ptr + b_at, mask=b_mask, other=0.0)
        gate = tl.dot(a, b1, gate)
        up = tl.dot(a, b2, up)
    c = silu(gate) * up
    tl.store(
        c_ptr + m * N + n[None, :],
        c.to(c_ptr.dtype.element_ty),
        mask=(m < M) & (n[None, :] < N),
    )


@wl.jit
def attention_of_one_tile(
    q_ptr: Any,
    k_ptr: Any,
    v_ptr: Any,
    o_ptr: Any,
    seq: Any,
    scale: Any,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
) -> None:
    """As kernels.attention, a tile a program: the grid is tiles of queries times heads."""
    row = tl.program_id(0) * BLOCK_M
    mine = tl.program_id(1).to(tl.int64) * seq * D
    q_desc = tl.make_tensor_descriptor(q_ptr + mine, [seq, D], [D, 1], [BLOCK_M, D])
    k_desc = tl.make_tensor_descriptor(k_ptr + mine, [seq, D], [D, 1], [BLOCK_N, D])
    v_desc = tl.make_tensor_descriptor(v_ptr + mine, [seq, D], [D, 1], [BLOCK_N, D])
    o_desc = tl.make_tensor_descriptor(o_ptr + mine, [seq, D], [D, 1], [BLOCK_M, D])
    rows = row + tl.arange(0, BLOCK_M)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    end = tl.minimum(row + BLOCK_M, seq) if CAUSAL else seq
    clear = tl.minimum(row, seq) if CAUSAL else seq  # columns before it are masked for no row
    q = q_desc.load([row, 0])
    for j in tl.range(0, end, BLOCK_N):
        k = k_desc.load([j, 0])
        s = tl.dot(q, k.T)
        if j + BLOCK_N > clear:
            columns = j + tl.arange(0, BLOCK_N)
            last = tl.minimum(rows, seq - 1) if CAUSAL else tl.full([BLOCK_M], seq - 1, tl.int32)
            s = tl.where(columns[None, :] <= last[:, None], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        shift = higher * scale
        p = tl.exp2(s * scale - shift[:, None])
        alpha = tl.exp2(top * scale - shift)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = v_desc.load([j, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = higher
    o_desc.store([row, 0], (acc * (1.0 / total)[:, None]).to(o_ptr.dtype.element_ty))


def dual(depth: int | None = None, n: int = 128) -> CompiledKernel:
    """The gated pair, 16 bits."""
    made: CompiledKernel = dual_of_one_tile.compile(
        signature=[*["*bf16:16"] * 4, *["i32:16"] * 3],
        constexprs={"BLOCK_M": 128, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 16},
        num_consumer_groups=2,
        num_buffers_warp_spec=depth,
    )
    return made


def attention(
    d: int, causal: bool, rows: int = 128, columns: int = 128, depth: int | None = None
) -> CompiledKernel:
    """Attention, bf16, groups of 64 rows."""
    made: CompiledKernel = attention_of_one_tile.compile(
        signature=[*["*bf16:16"] * 4, "i32:16", "fp32"],
        constexprs={"D": d, "BLOCK_M": rows, "BLOCK_N": columns, "CAUSAL": causal},
        num_consumer_groups=rows // 64,
        num_buffers_warp_spec=depth,
    )
    return made
