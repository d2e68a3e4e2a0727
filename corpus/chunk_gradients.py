"""Gradients of linear attention in chunks: by the states at a chunk's ends, and of scores under a decay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import F32, Case, blocks, ints, nan


@wl.jit
def by_states(v_ptr, do_ptr, h_ptr, dh_ptr, dq_ptr, dk_ptr, T, K, V, BLOCK_T: tl.constexpr,
              BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr):  # fmt: skip
    """dq = do·hᵀ and dk = v·dhᵀ of a chunk: h is the state before it, dh the gradient of the one after (K×V,
    float32)."""
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    k = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = t[:, None] < T
    dq = tl.zeros((BLOCK_T, BLOCK_K), tl.float32)
    dk = tl.zeros((BLOCK_T, BLOCK_K), tl.float32)
    for start in range(0, V, BLOCK_V):
        c = start + tl.arange(0, BLOCK_V)
        at = t[:, None] * V + c[None, :]
        v = tl.load(v_ptr + at, mask=inside & (c[None, :] < V), other=0.0)
        do = tl.load(do_ptr + at, mask=inside & (c[None, :] < V), other=0.0)
        h_at = (tl.program_id(0).to(tl.int64) * K + k[None, :]) * V + c[:, None]
        h_mask = (k[None, :] < K) & (c[:, None] < V)
        h = tl.load(h_ptr + h_at, mask=h_mask, other=0.0)
        dh = tl.load(dh_ptr + h_at, mask=h_mask, other=0.0)
        dq = tl.dot(do, h.to(do.dtype), dq)
        dk = tl.dot(v, dh.to(v.dtype), dk)
    at = t[:, None] * K + k[None, :]
    tl.store(dq_ptr + at, dq, mask=inside & (k[None, :] < K))
    tl.store(dk_ptr + at, dk, mask=inside & (k[None, :] < K))


@wl.jit
def by_decayed_scores(ds_ptr, k_ptr, g_ptr, dq_ptr, T, K: tl.constexpr, BLOCK_T: tl.constexpr):
    """dq[i] = Σ ds[i, j]·k[j]·2^(g[i] - g[j]) for j <= i of a chunk."""
    i, c = tl.arange(0, BLOCK_T), tl.arange(0, K)
    first = tl.program_id(0) * BLOCK_T
    inside = (first + i)[:, None] < T
    at = (first + i)[:, None] * K + c[None, :]
    k = tl.load(k_ptr + at, mask=inside, other=0.0)
    g = tl.load(g_ptr + at, mask=inside, other=0.0)
    ds = tl.load(ds_ptr + (first + i)[:, None] * BLOCK_T + i[None, :], mask=inside, other=0.0)
    dq = tl.zeros((BLOCK_T, K), tl.float32)
    for j in range(0, tl.minimum(BLOCK_T, T - first)):
        row = tl.full((1, K), j, tl.int16)
        column = tl.gather(ds, tl.full((BLOCK_T, 1), j, tl.int16), 1)
        part = column * tl.gather(k, row, 0) * tl.exp2(g - tl.gather(g, row, 0))
        dq += tl.where(i[:, None] >= j, part, 0.0)
    tl.store(dq_ptr + at, dq, mask=inside)


def cases() -> Iterator[Case]:
    T, K, V, block = 100, 64, 96, 64
    chunks = blocks(T, block)
    v, do = ints(T, V), ints(T, V)[::-1].copy()
    h, dh = (ints(chunks, K, V, dtype=F32, low=-n, high=n + 1) for n in (1, 2))
    dq, dk = np.zeros((T, K)), np.zeros((T, K))
    for n in range(chunks):
        part = slice(n * block, (n + 1) * block)
        dq[part] = do[part].astype(np.float64) @ h[n].T
        dk[part] = v[part].astype(np.float64) @ dh[n].T
    args = (v, do, h, dh, nan(T, K, dtype=F32), nan(T, K, dtype=F32), T, K, V)
    meta = {"BLOCK_T": block, "BLOCK_K": 64, "BLOCK_V": 32}
    for warps in (4, 8):
        knobs = {"num_consumer_groups": 0, "num_warps": warps}
        grid = chunks, blocks(K, 64)
        yield Case(
            f"by-states-{warps}", by_states, args, grid, meta, {4: dq, 5: dk}, 0.0, False, knobs
        )
    T, K, block = 24, 32, 16
    k, ds = ints(T, K, dtype=F32), ints(T, block, dtype=F32)
    g = -np.cumsum(ints(T, K, dtype=F32, low=0, high=2), axis=0)
    dq = np.zeros((T, K))
    for i in range(T):
        for j in range(i // block * block, i + 1):
            dq[i] += ds[i, j % block] * k[j] * np.exp2(g[i].astype(np.float64) - g[j])
    args = (ds, k, g, nan(T, K, dtype=F32), T)
    meta = {"K": K, "BLOCK_T": block}
    yield Case("by-decayed-scores", by_decayed_scores, args, blocks(T, block), meta, {3: dq}, 1e-6)
