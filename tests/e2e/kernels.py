"""Triton-style kernels that are no GEMM: other data flow, other control flow, or no dot at all."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl


@wl.jit
def gated(
    a_ptr: Any, b_ptr: Any, g_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C = max(A·G, 0) · (A·B), elementwise: two dots that share A."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    value = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        ka = k + tl.arange(0, BLOCK_K)[None, :]
        kb = k + tl.arange(0, BLOCK_K)[:, None]
        a = tl.load(a_ptr + m * lda + ka, mask=(m < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * ldb + n, mask=(kb < K) & (n < N), other=0.0)
        g = tl.load(g_ptr + kb * ldb + n, mask=(kb < K) & (n < N), other=0.0)
        value = tl.dot(a, b, value)
        gate = tl.dot(a, g, gate)
    c = (value * tl.maximum(gate, 0.0)).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m * ldc + n, c, mask=(m < M) & (n < N))


@wl.jit
def block_sparse(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, keep_ptr: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    BY_DATA: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B over the K blocks that are kept: every third is left out, or those that `keep` says are."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        wanted = tl.load(keep_ptr + step) != 0 if BY_DATA else step % 3 != 1
        if wanted:
            ka = step * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
            kb = step * BLOCK_K + tl.arange(0, BLOCK_K)[:, None]
            a = tl.load(a_ptr + m * lda + ka, mask=(m < M) & (ka < K), other=0.0)
            b = tl.load(b_ptr + kb * ldb + n, mask=(kb < K) & (n < N), other=0.0)
            acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m * ldc + n, acc.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


@wl.jit
def product_and_sums(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, sums_ptr: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B and the row sums of A: one load with two uses.  Persistent over rows of tiles."""
    n = tl.arange(0, BLOCK_N)[None, :]
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.num_programs(0)):
        rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        m = rows[:, None]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        sums = tl.zeros((BLOCK_M,), tl.float32)
        for k in range(0, K, BLOCK_K):
            ka = k + tl.arange(0, BLOCK_K)[None, :]
            kb = k + tl.arange(0, BLOCK_K)[:, None]
            a = tl.load(a_ptr + m * lda + ka, mask=(m < M) & (ka < K), other=0.0)
            b = tl.load(b_ptr + kb * ldb + n, mask=(kb < K) & (n < N), other=0.0)
            acc = tl.dot(a, b, acc)
            sums += tl.sum(a.to(tl.float32), axis=1)
        tl.store(c_ptr + m * ldc + n, acc.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))
        tl.store(sums_ptr + rows, sums, mask=rows < M)


@wl.jit
def gathered(
    a_ptr: Any, rows_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, lda: Any, ldb: Any,
    ldc: Any, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C = A[rows]·B, persistent: rows of A that an index names, as a mixture of experts has them."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tiles_n, tl.num_programs(0)):
        m = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
        n = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
        rows = tl.load(rows_ptr + m, mask=m < M, other=0)
        a = a_ptr + rows[:, None] * lda + ks[None, :]
        b = b_ptr + ks[:, None] * ldb + n[None, :]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            x = tl.load(a, mask=(m[:, None] < M) & (ks[None, :] < K - k), other=0.0)
            y = tl.load(b, mask=(ks[:, None] < K - k) & (n[None, :] < N), other=0.0)
            acc = tl.dot(x, y, acc)
            a += BLOCK_K
            b += BLOCK_K * ldb
        c = c_ptr + m[:, None] * ldc + n[None, :]
        tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@wl.jit
def batched(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C[i] = A[i]·B[i] + 1 for contiguous batches; the batch is the grid's last axis."""
    batch = tl.program_id(2)
    a_ptr += batch * M * K
    b_ptr += batch * K * N
    c_ptr += batch * M * N
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.full((BLOCK_M, BLOCK_N), 1.0, tl.float32)
    for k in range(0, K, BLOCK_K):
        ka = k + tl.arange(0, BLOCK_K)[None, :]
        kb = k + tl.arange(0, BLOCK_K)[:, None]
        a = tl.load(a_ptr + m * K + ka, mask=(m < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * N + n, mask=(kb < K) & (n < N), other=0.0)
        acc += tl.dot(a, b)
    tl.store(c_ptr + m * N + n, acc.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


@wl.jit
def attention(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, o_ptr: Any, scale: Any, QUERIES: Any, KEYS: Any,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, HEAD: tl.constexpr, SOFTMAX: tl.constexpr,
) -> None:  # fmt: skip
    """O = softmax(Q·Kᵀ·scale)·V, row by row rescaled; without SOFTMAX max(Q·Kᵀ, 0)·V, exact on integers."""
    d = tl.arange(0, HEAD)
    rows = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    q_at = q_ptr + rows[:, None] * HEAD + d[None, :]
    q = tl.load(q_at, mask=rows[:, None] < QUERIES, other=0.0)
    acc = tl.zeros((BLOCK_Q, HEAD), tl.float32)
    top = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    for start in range(0, KEYS, BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        k_at = k_ptr + keys[:, None] * HEAD + d[None, :]
        k = tl.load(k_at, mask=keys[:, None] < KEYS, other=0.0)
        v = tl.load(v_ptr + keys[:, None] * HEAD + d[None, :], mask=keys[:, None] < KEYS, other=0.0)
        s = tl.dot(q, k.T)
        if SOFTMAX:
            s = tl.where(keys[None, :] < KEYS, s * scale, float("-inf"))
            higher = tl.maximum(top, tl.max(s, axis=1))
            p = tl.exp(s - higher[:, None])
            shrink = tl.exp(top - higher)
            total = total * shrink + tl.sum(p, axis=1)
            acc = acc * shrink[:, None]
            top = higher
        else:
            p = tl.maximum(s, 0.0)
        acc = tl.dot(p.to(v_ptr.dtype.element_ty), v, acc)
    if SOFTMAX:
        acc = acc / total[:, None]
    o_at = o_ptr + rows[:, None] * HEAD + d[None, :]
    tl.store(o_at, acc.to(o_ptr.dtype.element_ty), mask=rows[:, None] < QUERIES)


@wl.jit
def add(x_ptr: Any, y_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(x_ptr + at, mask=inside) + tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, total, mask=inside)


@wl.jit
def softmax_rows(x_ptr: Any, out_ptr: Any, rows: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    """A row a turn; rows are dealt to programs in turn."""
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=float("-inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=at < columns)


@wl.jit
def statistics(
    x_ptr: Any, sums_ptr: Any, most_ptr: Any, where_ptr: Any, M: Any, N: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    """Of each row its sum, its largest element and where that is; each column's sum by atomics."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=-1000)
    tl.store(most_ptr + rows, tl.max(x, axis=1), mask=rows < M)
    tl.store(where_ptr + rows, tl.argmax(x, axis=1), mask=rows < M)
    kept = tl.where(inside, x, 0)
    tl.store(sums_ptr + rows, tl.sum(kept, axis=1), mask=rows < M)
    tl.atomic_add(sums_ptr + M + columns, tl.sum(kept, axis=0), mask=columns < N)


@wl.jit
def histogram(x_ptr: Any, counts_ptr: Any, n: Any, BINS: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """Every element adds 1 at counts[x % BINS], and the largest is kept behind them."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(counts_ptr + x % BINS, 1, mask=at < n)
    tl.atomic_max(counts_ptr + BINS, tl.max(x, axis=0))
