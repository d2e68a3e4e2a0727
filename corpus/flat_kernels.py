"""A product of few rows whose programs begin at different places along K."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl


@wl.jit
def rotated(
    a_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    M: Any,
    N: Any,
    K: Any,
    stride_am: Any,
    stride_ak: Any,
    stride_bk: Any,
    stride_bn: Any,
    stride_cm: Any,
    stride_cn: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    APART: tl.constexpr,
    FIRST: tl.constexpr,
) -> None:
    """C (M×N) = A (M×K) · B (K×N), a program a tile; program p begins at step p · APART of K, and goes on
    from the start where K ends.  FIRST: B leaves the L2 first."""
    pid_n = tl.program_id(0)
    steps = tl.cdiv(K, BLOCK_K)
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    first = pid_n * APART
    for i in range(0, steps):
        k = (first + i) % steps * BLOCK_K + tl.arange(0, BLOCK_K)
        a_mask = (offs_m[:, None] < M) & (k[None, :] < K)
        b_mask = (k[:, None] < K) & (offs_n[None, :] < N)
        a_at = a_ptr + offs_m[:, None] * stride_am + k[None, :] * stride_ak
        a = tl.load(a_at, mask=a_mask, other=0.0)
        b_at = b_ptr + k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        if FIRST:
            b = tl.load(b_at, mask=b_mask, other=0.0, eviction_policy="evict_first")
        else:
            b = tl.load(b_at, mask=b_mask, other=0.0)
        acc += tl.dot(a, b)
    c_at = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=c_mask)
