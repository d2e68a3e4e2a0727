"""Linear attention in chunks, as its libraries write it: the output of a chunk, and decays inside of one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import F32, Case, blocks, ints, nan


@wl.jit
def chunk_output(q_ptr, k_ptr, v_ptr, h_ptr, o_ptr, T, K, V, BLOCK_T: tl.constexpr,
                 BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr):  # fmt: skip
    """o = q·h + tril(q·kᵀ)·v of a chunk, where h is the state before it (K×V)."""
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    v = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    inside = t[:, None] < T
    out = tl.zeros((BLOCK_T, BLOCK_V), tl.float32)
    scores = tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        at = t[:, None] * K + k[None, :]
        q = tl.load(q_ptr + at, mask=inside & (k[None, :] < K), other=0.0)
        keys = tl.load(k_ptr + at, mask=inside & (k[None, :] < K), other=0.0)
        h_at = (tl.program_id(0).to(tl.int64) * K + k[:, None]) * V + v[None, :]
        h = tl.load(h_ptr + h_at, mask=(k[:, None] < K) & (v[None, :] < V), other=0.0)
        out = tl.dot(q, h, out)
        scores = tl.dot(q, tl.trans(keys), scores)
    scores = tl.where(t[:, None] >= t[None, :], scores, 0.0).to(v_ptr.dtype.element_ty)
    values = tl.load(v_ptr + t[:, None] * V + v[None, :], mask=inside & (v[None, :] < V), other=0.0)
    out = tl.dot(scores, values, out)
    tl.store(o_ptr + t[:, None] * V + v[None, :], out, mask=inside & (v[None, :] < V))


@wl.jit
def decayed_scores(q_ptr, k_ptr, g_ptr, a_ptr, T, K: tl.constexpr, BLOCK_T: tl.constexpr):
    """Scores of a chunk under a decay of each channel: Σ q[i]·k[j]·2^(g[i] - g[j]) for j <= i."""
    i, c = tl.arange(0, BLOCK_T), tl.arange(0, K)
    first = tl.program_id(0) * BLOCK_T
    at = (first + i)[:, None] * K + c[None, :]
    inside = (first + i)[:, None] < T
    q = tl.load(q_ptr + at, mask=inside, other=0.0)
    k = tl.load(k_ptr + at, mask=inside, other=0.0)
    g = tl.load(g_ptr + at, mask=inside, other=0.0)
    scores = tl.zeros((BLOCK_T, BLOCK_T), tl.float32)
    for j in range(0, tl.minimum(BLOCK_T, T - first)):
        index = tl.full((1, K), j, tl.int16)
        decay = tl.exp2(g - tl.gather(g, index, 0))
        column = tl.sum(q * tl.gather(k, index, 0) * decay, axis=1)
        scores += tl.where((i[None, :] == j) & (i[:, None] >= j), column[:, None], 0.0)
    tl.store(a_ptr + (first + i)[:, None] * BLOCK_T + i[None, :], scores, mask=inside)


def cases() -> Iterator[Case]:
    T, K, V, block = 100, 96, 72, 64
    chunks = blocks(T, block)
    q, k, v, h = ints(T, K), ints(T, K)[::-1].copy(), ints(T, V), ints(chunks, K, V, low=-1, high=2)
    want = np.zeros((T, V))
    for n in range(chunks):
        part = slice(n * block, (n + 1) * block)
        a, b, c = (x[part].astype(np.float64) for x in (q, k, v))
        want[part] = a @ h[n].astype(np.float64) + np.tril(a @ b.T) @ c
    args = (q, k, v, h, nan(T, V, dtype=F32), T, K, V)
    meta = {"BLOCK_T": block, "BLOCK_K": 32, "BLOCK_V": 64}
    for groups in (1, 0):
        knobs = {"num_consumer_groups": groups}
        grid = chunks, blocks(V, 64)
        yield Case(
            f"chunk-output-{groups}", chunk_output, args, grid, meta, {4: want}, 1e-2, False, knobs
        )
    T, K, block = 24, 32, 16
    q, k = ints(T, K, dtype=F32), ints(T, K, dtype=F32)[::-1].copy()
    g = -np.cumsum(ints(T, K, dtype=F32, low=0, high=2), axis=0)
    want = np.zeros((T, block))
    for i in range(T):
        for j in range(i // block * block, i + 1):
            want[i, j % block] = (q[i] * k[j] * np.exp2(g[i].astype(np.float64) - g[j])).sum()
    args = (q, k, g, nan(T, block, dtype=F32), T)
    meta = {"K": K, "BLOCK_T": block}
    yield Case("decayed-scores", decayed_scores, args, blocks(T, block), meta, {3: want}, 1e-6)
