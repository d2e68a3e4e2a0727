"""Kernels whose loop several CTAs can share: sums of products of many kinds, and what follows them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import BF16, E4M3, F16, F32, Case, blocks, ints, nan, product, strides
from corpus.plain import matmul, matmul_hinted, of


@wl.jit
def gated(x_ptr, g_ptr, u_ptr, bias_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
          BLOCK_K: tl.constexpr):  # fmt: skip
    """y += (x·gᵀ + bias) · (x·uᵀ): two sums, and an end that reads what it writes."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        rk = k + tl.arange(0, BLOCK_K)
        x = tl.load(
            x_ptr + rm[:, None] * K + rk[None, :],
            mask=(rm[:, None] < M) & (rk[None, :] < K),
            other=0.0,
        )
        weights = (rn[None, :] < N) & (rk[:, None] < K)
        g = tl.load(g_ptr + rn[None, :] * K + rk[:, None], mask=weights, other=0.0)
        u = tl.load(u_ptr + rn[None, :] * K + rk[:, None], mask=weights, other=0.0)
        gate = tl.dot(x, g, gate)
        up = tl.dot(x, u, up)
    inside = (rm[:, None] < M) & (rn[None, :] < N)
    y_ptrs = y_ptr + rm[:, None] * N + rn[None, :]
    bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0)
    y = tl.load(y_ptrs, mask=inside) + (gate + bias[None, :]) * up
    tl.store(y_ptrs, y, mask=inside)


def pair(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Case:
    x, g, u = ints(m, k), ints(n, k), ints(n, k, low=-1, high=2)
    bias, y = ints(n, dtype=F32), ints(m, n, dtype=F32)
    want = y + (product(x, g.T) + bias.astype(float)) * product(x, u.T)
    rows, columns, depth = tile
    meta = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}
    grid = (blocks(m, rows), blocks(n, columns))
    return Case("pair", gated, (x, g, u, bias, y, m, n, k), grid, meta, {4: want}, 1e-6)


@wl.jit
def normalized(x_ptr, rows_ptr, w_ptr, y_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
               BLOCK_K: tl.constexpr):  # fmt: skip
    """y = x[rows]·w over the root of the mean of squares of the rows: a sum of numbers beside one of products,
    and pointers that move along."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = tl.arange(0, BLOCK_K)
    row = tl.load(rows_ptr + rm, mask=rm < M, other=0)
    x_ptrs = x_ptr + row[:, None] * K + rk[None, :]
    w_ptrs = w_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    squares = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        x = tl.load(x_ptrs, mask=rk[None, :] < left, other=0.0)
        w = tl.load(w_ptrs, mask=(rk[:, None] < left) & (rn[None, :] < N), other=0.0)
        squares += tl.sum(x.to(tl.float32) * x.to(tl.float32), 1)
        acc += tl.dot(x, w)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * N
    y = acc / tl.sqrt(squares / K + 1.0)[:, None]
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], y, mask=(rm[:, None] < M) & (rn[None, :] < N))


def rows(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Case:
    x, w = ints(40, k), ints(k, n)
    chosen = np.random.default_rng(0).integers(0, 40, m).astype(np.int32)
    there = x[chosen].astype(float)
    want = product(there, w) / np.sqrt((there**2).mean(1) + 1)[:, None]
    height, columns, depth = tile
    meta = {"BLOCK_M": height, "BLOCK_N": columns, "BLOCK_K": depth}
    grid = (blocks(m, height), blocks(n, columns))
    args = (x, chosen, w, nan(m, n, dtype=F32), m, n, k)
    return Case("rows", normalized, args, grid, meta, {3: want}, 1e-5)


@wl.jit
def windows(x_ptr, w_ptr, c_ptr, y_ptr, M, N, K, TAPS, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
            BLOCK_K: tl.constexpr):  # fmt: skip
    """y = c + the sum of x[tap:]·w[tap] over the taps: a loop in the loop, and a sum that begins at c."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rm[:, None] < M) & (rn[None, :] < N)
    acc = tl.load(c_ptr + rm[:, None] * N + rn[None, :], mask=inside, other=0.0)
    for tap in range(TAPS):
        for k in range(0, K, BLOCK_K):
            rk = k + tl.arange(0, BLOCK_K)
            x = tl.load(x_ptr + (rm + tap)[:, None] * K + rk[None, :],
                        mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)  # fmt: skip
            w = tl.load(w_ptr + (tap * K + rk)[:, None] * N + rn[None, :],
                        mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)  # fmt: skip
            acc = tl.dot(x, w, acc)
    tl.store(y_ptr + rm[:, None] * N + rn[None, :], acc, mask=inside)


def taps(m: int, n: int, k: int, count: int, tile: tuple[int, int, int]) -> Case:
    x, w, c = ints(m + count, k), ints(count, k, n), ints(m, n, dtype=F32)
    want = c.astype(float) + sum(product(x[i : i + m], w[i]) for i in range(count))
    height, columns, depth = tile
    meta = {"BLOCK_M": height, "BLOCK_N": columns, "BLOCK_K": depth}
    grid = (blocks(m, height), blocks(n, columns))
    args = (x, w.reshape(count * k, n), c, nan(m, n, dtype=F32), m, n, k, count)
    return Case("taps", windows, args, grid, meta, {3: want})


def hinted(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Case:
    """Rows and columns that wrap."""
    a, b, c = ints(m, k), ints(k, n), nan(m, n)
    height, columns, depth = tile
    meta = {"BLOCK_M": height, "BLOCK_N": columns, "BLOCK_K": depth, "EVEN_K": False, "GROUP_M": 2}
    grid = (blocks(m, height) * blocks(n, columns),)
    args = (a, b, c, m, n, k, *strides(a, b, c))
    return Case("hinted", matmul_hinted, args, grid, meta, {2: product(a, b)})


def plain(
    m: int, n: int, k: int, tile: tuple[int, int, int], dtype: Any, orders: str, **knobs: Any
) -> Case:
    case = of("", matmul, m, n, k, tile, dtype, F32, orders)
    case.knobs.update(knobs)
    return case


# Steps that CTAs can't share equally, and fewer than there are CTAs; sizes that nothing divides.
CASES: dict[str, tuple[int, Callable[[], Case]]] = {
    "few-rows": (2, functools.partial(plain, 16, 200, 150, (16, 64, 32), BF16, "rc")),
    "few-rows-in-eight": (8, functools.partial(plain, 20, 130, 344, (16, 64, 32), F16, "rr")),
    "two-groups": (2, functools.partial(plain, 130, 70, 150, (128, 64, 32), BF16, "rc")),
    "fewer-steps": (8, functools.partial(plain, 16, 70, 90, (16, 64, 32), BF16, "rc")),
    "uniform": (4, functools.partial(plain, 70, 70, 200, (64, 64, 32), F16, "cr", num_consumer_groups=0)),
    "in-order": (2, functools.partial(plain, 30, 40, 200, (16, 32, 32), BF16, "rr", num_warps=2)),
    "bytes": (2, functools.partial(plain, 64, 64, 320, (64, 64, 64), E4M3, "rc")),
    "pair": (4, functools.partial(pair, 30, 136, 200, (32, 64, 32))),
    "rows": (2, functools.partial(rows, 37, 72, 264, (64, 64, 32))),
    "taps": (2, functools.partial(taps, 20, 70, 72, 5, (16, 64, 32))),
    "hinted": (4, functools.partial(hinted, 30, 136, 200, (64, 64, 32))),
}  # fmt: skip


def made(name: str) -> Case:
    """A case, with the CTAs that share its loop."""
    ctas, make = CASES[name]
    case = make()
    case.knobs["split_k"] = ctas
    return case
