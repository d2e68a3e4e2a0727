"""A persistent product whose programs draw their tiles from a counter: whoever is done takes the next one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import BF16, Case, ints, nan, product


@wl.jit
def drawn_tiles(a_ptr, b_ptr, c_ptr, counter_ptr, M, N, K, BLOCK_M: tl.constexpr,
                BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """C (M×N) = A (M×K) · Bᵀ (N×K), bf16."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * tiles_n
    t = tl.program_id(0)
    while t < tiles:
        m = t // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
        n = t % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            a = tl.load(a_ptr + m[:, None] * K + k[None, :],
                        mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)  # fmt: skip
            b = tl.load(b_ptr + n[None, :] * K + k[:, None],
                        mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)  # fmt: skip
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(c_ptr.dtype.element_ty),
                 mask=(m[:, None] < M) & (n[None, :] < N))  # fmt: skip
        drawn = tl.atomic_add(counter_ptr, 1, sem="relaxed")
        tl.assume(drawn >= 0)
        t = tl.num_programs(0) + drawn


def cases() -> Iterator[Case]:
    M, N, K, programs = 200, 136, 96, 2
    a, b = ints(M, K), ints(N, K)
    args = (a, b, nan(M, N, dtype=BF16), np.zeros(1, np.int32), M, N, K)
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    wants = {2: product(a, b.T)}
    for groups in (1, 0):
        knobs = {"num_consumer_groups": groups}
        name = f"drawn-{groups}"
        yield Case(name, drawn_tiles, args, programs, tile, wants, 0.0, bool(groups), knobs)
