"""Kernels that nothing is wrong with."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl


@wl.jit
def matmul(a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EACH: tl.constexpr = None) -> None:  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_ptrs = a_ptr + m[:, None] * K + k[None, :]
    b_ptrs = b_ptr + k[:, None] + n[None, :] * K
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        a = tl.load(a_ptrs, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, max_num_imprecise_acc=EACH)
        a_ptrs += BK
        b_ptrs += BK
    c_ptrs = c_ptr + m[:, None] * N + n[None, :]
    tl.store(c_ptrs, acc.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


@wl.jit
def doubled(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(y_ptr + i, x + x)
