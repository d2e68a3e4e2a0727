"""The kernels of benchmarks/choice.py: as users write them, their specialization left to the chooser."""

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


@wl.jit
def add(x_ptr: Any, y_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total, mask=at < n)


@wl.jit
def softmax(x_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = (e / tl.sum(e, axis=0)).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * columns + at, y, mask=at < columns)


@wl.jit
def layernorm(
    x_ptr: Any, w_ptr: Any, b_ptr: Any, out_ptr: Any, columns: Any, BLOCK: tl.constexpr
) -> None:
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    w = tl.load(w_ptr + at, mask=inside).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside).to(tl.float32)
    y = (centred * scale * w + b).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * columns + at, y, mask=inside)
