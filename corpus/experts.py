"""A mixture of experts whose weights are MXFP4: tokens sorted by expert, a block of them times its matrix."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import F32, Case, blocks, ints, nan
from corpus.microscaling import elements, scales


@wl.jit
def expert_rows(x_ptr, token_ptr, expert_ptr, w_ptr, scale_ptr, out_ptr, T, N, K, BLOCK_T: tl.constexpr,
                BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """out[i] = x[token[i]] · w[expert of i's block]ᵀ, with a scale for each 32 of K; tokens from T on are none."""
    expert = tl.load(expert_ptr + tl.program_id(0)).to(tl.int64)
    i = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    token = tl.load(token_ptr + i)
    acc = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + token[:, None] * K + k[None, :], mask=token[:, None] < T, other=0.0)
        two = start // 2 + tl.arange(0, BLOCK_K // 2)
        rows = expert * N + n
        w = tl.load(w_ptr + rows[None, :] * (K // 2) + two[:, None], mask=n[None, :] < N, other=0)
        s = start // 32 + tl.arange(0, BLOCK_K // 32)
        scale = tl.load(
            scale_ptr + rows[:, None] * (K // 32) + s[None, :], mask=n[:, None] < N, other=0
        )
        acc = tl.dot_scaled(x, None, "bf16", w, scale, "e2m1", acc)
    tl.store(out_ptr + i[:, None] * N + n[None, :], acc, mask=n[None, :] < N)


def cases() -> Iterator[Case]:
    T, N, K, experts, block = 20, 40, 128, 3, 16
    rng = np.random.default_rng(1)
    x = ints(T, K)
    kept, w = elements(rng, experts * N, K, "e2m1")
    stored, by = scales(rng, experts * N, K, 32)
    w = (w * by).reshape(experts, N, K)
    expert = np.array([2, 0], np.int32)
    token = np.full(len(expert) * block, T, np.int32)
    token[:9], token[block : block + 11] = np.arange(9), np.arange(9, 20)
    rows = np.concatenate([x.astype(np.float64), np.zeros((1, K))])[token]
    want = np.concatenate([rows[i * block :][:block] @ w[e].T for i, e in enumerate(expert)])
    args = (x, token, expert, kept, stored, nan(len(token), N, dtype=F32), T, N, K)
    meta = {"BLOCK_T": block, "BLOCK_N": 32, "BLOCK_K": 64}
    grid = len(expert), blocks(N, 32)
    yield Case(
        "experts", expert_rows, args, grid, meta, {5: want}, tasks=False, knobs={"num_warps": 4}
    )
