"""Kernels with a dot for benchmarks/choice.py, as users write them: specialization is left to the chooser."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl


@wl.jit
def one_tile(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, stride_az: Any, stride_bz: Any,
    stride_cz: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C[z] = A[z]·B[z]ᵀ, a program a tile; the batch is the grid's second axis."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    batch = tl.program_id(1)
    m = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    a = a_ptr + batch * stride_az + m[:, None] * K + k[None, :]
    b = b_ptr + batch * stride_bz + n[None, :] * K + k[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        x = tl.load(a, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        y = tl.load(b, mask=(n[None, :] < N) & (k[:, None] < left), other=0.0)
        acc = tl.dot(x, y, acc)
        a += BLOCK_K
        b += BLOCK_K
    c = c_ptr + batch * stride_cz + m[:, None] * N + n[None, :]
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@wl.jit
def known_k(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: tl.constexpr, stride_az: Any,
    stride_bz: Any, stride_cz: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """The same with K known while compiling."""
    one_tile(
        a_ptr, b_ptr, c_ptr, M, N, K, stride_az, stride_bz, stride_cz, BLOCK_M, BLOCK_N, BLOCK_K
    )
