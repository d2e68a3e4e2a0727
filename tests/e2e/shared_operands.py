"""Kernels whose dots share a left operand, in the ways in which the right ones and the sums can come."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl


@wl.jit
def three_products(
    a_ptr: Any, b1_ptr: Any, b2_ptr: Any, b3_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any,
    stride_a: Any, stride_b: Any, stride_c: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    TRANSPOSED: tl.constexpr, WAY: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B1 + 2·A·B2 - A·B3 (B's of N×K where TRANSPOSED).  WAY: what is unusual about it."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    y = tl.full((BLOCK_M, BLOCK_N), 1.0, tl.float32)
    z = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        a_mask = (m[:, None] < M) & (k[None, :] < K)
        a = tl.load(a_ptr + m[:, None] * stride_a + k[None, :], mask=a_mask, other=0.0)
        if TRANSPOSED:
            at = n[:, None] * stride_b + k[None, :]
            mask = (n[:, None] < N) & (k[None, :] < K)
            b1 = tl.load(b1_ptr + at, mask=mask, other=0.0).T
            b2 = tl.load(b2_ptr + at, mask=mask, other=0.0).T
            b3 = tl.load(b3_ptr + at, mask=mask, other=0.0).T
        else:
            at = k[:, None] * stride_b + n[None, :]
            mask = (k[:, None] < K) & (n[None, :] < N)
            b1 = tl.load(b1_ptr + at, mask=mask, other=0.0)
            b2 = tl.load(b2_ptr + at, mask=mask, other=0.0)
            b3 = tl.load(b3_ptr + at, mask=mask, other=0.0)
        if WAY == "fresh":  # not carried by the dots
            p = tl.dot(a, b1)
            x = tl.maximum(x, p)
            q = tl.dot(a, b2)
            y = tl.maximum(y, q)
            z += tl.dot(a, b3)
        elif WAY == "exchanged":
            x, y = tl.dot(a, b2, y), tl.dot(a, b1, x)
            z = tl.dot(a, b3, z)
        elif WAY == "read":  # b1 otherwise, too
            x = tl.dot(a, b1, x) + tl.sum(b1.to(tl.float32), 0)[None, :]
            y = tl.dot(a, b2, y)
            z = tl.dot(a, b3, z)
        elif WAY == "twice":  # on each sum two dots an iteration
            x = tl.dot(a, b1, x)
            y = tl.dot(a, b2, y)
            x = tl.dot(a, b2, x)
            y = tl.dot(a, b3, y)
        else:
            x = tl.dot(a, b1, x)
            y = tl.dot(a, b2, y)
            z = tl.dot(a, b3, z)
    c_mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c_ptr + m[:, None] * stride_c + n[None, :], x + 2 * y - z, mask=c_mask)


@wl.jit
def descriptors(
    a_desc: Any, b1_desc: Any, b2_desc: Any, c_desc: Any, M: Any, N: Any, K: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROMOTE: tl.constexpr,
) -> None:  # fmt: skip
    """C = (A·B1ᵀ)·(A·B2ᵀ) elementwise, persistent, by descriptors.  PROMOTE: max_num_imprecise_acc."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    for t in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tiles_n, tl.num_programs(0)):
        m = t // tiles_n * BLOCK_M
        n = t % tiles_n * BLOCK_N
        x = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        y = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_desc.load([m, k])
            x = tl.dot(a, b1_desc.load([n, k]).T, x, max_num_imprecise_acc=PROMOTE)
            y = tl.dot(a, b2_desc.load([n, k]).T, y, max_num_imprecise_acc=PROMOTE)
        c_desc.store([m, n], (x * y).to(c_desc.dtype))


@wl.jit
def gated_scores(
    q_ptr: Any, k_ptr: Any, g_ptr: Any, v_ptr: Any, o_ptr: Any, SEQ: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
) -> None:  # fmt: skip
    """O = ((Q·Kᵀ) · max(Q·Gᵀ, 0))·V elementwise in the middle: the first two dots are early, the third late."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d[None, :], mask=m[:, None] < SEQ, other=0.0)
    acc = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, SEQ, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        at = n[:, None] * D + d[None, :]
        mask = n[:, None] < SEQ
        k = tl.load(k_ptr + at, mask=mask, other=0.0)
        g = tl.load(g_ptr + at, mask=mask, other=0.0)
        s = tl.dot(q, k.T)
        gate = tl.dot(q, g.T)
        p = s * tl.maximum(gate, 0.0)
        v = tl.load(v_ptr + at, mask=mask, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
    tl.store(o_ptr + m[:, None] * D + d[None, :], acc, mask=m[:, None] < SEQ)
