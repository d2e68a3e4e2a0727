"""Products of batches: one dot of tiles of three axes, the batch first."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import BF16, E4M3, E5M2, F16, F32, Case, ints, nan, product, strides


@wl.jit
def batches(a_ptr, b_ptr, c_ptr, B, M, N, K, stride_ab, stride_am, stride_ak, stride_bb, stride_bk, stride_bn,
            stride_cb, stride_cm, stride_cn, BLOCK_B: tl.constexpr, BLOCK_M: tl.constexpr,
            BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr = None):  # fmt: skip
    """C[b] = A[b]·B[b], some batches a program."""
    b = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)[:, None, None]
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :, None]
    n = tl.program_id(2) * BLOCK_N + tl.arange(0, BLOCK_N)[None, None, :]
    total = tl.zeros((BLOCK_B, BLOCK_M, BLOCK_N), c_ptr.dtype.element_ty)
    for at in range(0, K, BLOCK_K):
        k = at + tl.arange(0, BLOCK_K)
        row, column = k[None, :, None], k[None, None, :]
        x = tl.load(
            a_ptr + b * stride_ab + m * stride_am + column * stride_ak,
            mask=(b < B) & (m < M) & (column < K),
            other=0,
        )
        y = tl.load(
            b_ptr + b * stride_bb + row * stride_bk + n * stride_bn,
            mask=(b < B) & (row < K) & (n < N),
            other=0,
        )
        total = tl.dot(x, y, total, input_precision=PRECISION)
    tl.store(
        c_ptr + b * stride_cb + m * stride_cm + n * stride_cn,
        total,
        mask=(b < B) & (m < M) & (n < N),
    )


@wl.jit
def heads(q_ptr, k_ptr, v_ptr, o_ptr, H, T, BLOCK_H: tl.constexpr, BLOCK_T: tl.constexpr,
          D: tl.constexpr):  # fmt: skip
    """Linear attention within a block of rows, of some heads at once: (Q·Kᵀ, lower triangle)·V."""
    h = tl.program_id(0) * BLOCK_H + tl.arange(0, BLOCK_H)[:, None, None]
    t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    at = (h * T + t[None, :, None]) * D + tl.arange(0, D)[None, None, :]
    inside = (h < H) & (t[None, :, None] < T)
    q = tl.load(q_ptr + at, mask=inside, other=0.0)
    k = tl.load(k_ptr + at, mask=inside, other=0.0)
    v = tl.load(v_ptr + at, mask=inside, other=0.0)
    s = tl.dot(q, tl.permute(k, (0, 2, 1)))
    s = tl.where((t[:, None] >= t[None, :])[None, :, :], s, 0.0)
    tl.store(o_ptr + at, tl.dot(s.to(v.dtype), v), mask=inside)


SUMS = {np.float64: np.float64, np.int8: np.int32, np.uint8: np.int32}


def laid(x: Any, order: str) -> Any:
    """Batches of matrices in row-major ('r') or column-major ('c') memory."""
    return x if order == "r" else np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)


def of(
    size: tuple[int, int, int, int],
    tile: tuple[int, int, int, int],
    dtype: Any,
    orders: str = "rr",
    warps: int = 4,
    precision: str | None = None,
) -> Case:
    """Batches, M, N, K of the arrays and of a program's tile; orders: of A and B in memory."""
    n_b, m, n, k = size
    reach = {"low": -5000, "high": 5000} if precision == "ieee" else {}
    a = laid(ints(n_b, m, k, dtype=dtype, **reach), orders[0])
    b = laid(ints(n_b, k, n, dtype=dtype), orders[1])
    c = nan(n_b, m, n, dtype=SUMS.get(dtype, F32))
    args = (a, b, c, *size, *strides(a, b, c))
    meta = dict(zip(("BLOCK_B", "BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
    grid = tuple(-(-x // y) for x, y in zip(size[:3], tile[:3], strict=True))
    if precision is not None:
        meta |= {"PRECISION": precision}
    wants = {2: product(a, b)}
    return Case("", batches, args, grid, meta, wants, knobs={"num_warps": warps})


def heads_case(n: int, t: int, d: int, tile: tuple[int, int], dtype: Any, warps: int = 4) -> Case:
    q, k, v = (ints(n, t, d, dtype=dtype) for _ in range(3))
    q = q[:, ::-1].copy()
    o = nan(n, t, d, dtype=F32)
    want = np.zeros((n, t, d))
    for at in range(0, t, tile[1]):
        a, b, c = (x[:, at : at + tile[1]].astype(np.float64) for x in (q, k, v))
        want[:, at : at + tile[1]] = np.tril(a @ b.swapaxes(1, 2)) @ c
    grid = (-(-n // tile[0]), -(-t // tile[1]))
    meta = {"BLOCK_H": tile[0], "BLOCK_T": tile[1], "D": d}
    return Case("", heads, (q, k, v, o, n, t), grid, meta, {3: want}, knobs={"num_warps": warps})


CASES: dict[str, Callable[[], Case]] = {
    "bf16": functools.partial(of, (5, 40, 24, 72), (4, 32, 32, 32), BF16),
    "f16-rc": functools.partial(of, (3, 20, 40, 40), (2, 16, 32, 16), F16, "rc"),
    "bf16-cr": functools.partial(of, (3, 40, 20, 64), (2, 32, 16, 32), BF16, "cr", 2),
    "odd-batch": functools.partial(of, (7, 20, 20, 40), (3, 16, 16, 16), F16, "cc"),
    "one-batch": functools.partial(of, (2, 20, 20, 40), (1, 16, 16, 16), F16, "rr"),
    "one-warp": functools.partial(of, (3, 16, 8, 40), (2, 16, 8, 16), BF16, "rr", 1),
    "eight-warps": functools.partial(of, (6, 64, 40, 40), (4, 64, 32, 32), BF16, "rc", 8),
    "tf32": functools.partial(of, (3, 20, 40, 36), (2, 16, 32, 16), F32, "rc"),
    "i8": functools.partial(of, (3, 20, 30, 72), (2, 16, 16, 32), np.int8, "rc"),
    "u8": functools.partial(of, (3, 20, 30, 70), (2, 16, 16, 32), np.uint8, "rr", 2),
    "e4m3": functools.partial(of, (3, 20, 30, 72), (2, 16, 16, 32), E4M3, "rc"),
    "e5m2": functools.partial(of, (3, 20, 30, 72), (2, 16, 16, 32), E5M2, "rr"),
    "f64": functools.partial(of, (3, 20, 30, 12), (2, 16, 16, 8), np.float64, "rc"),
    "ieee": functools.partial(of, (3, 20, 30, 20), (2, 16, 16, 8), F32, "rc", precision="ieee"),
    "tf32x3": functools.partial(of, (3, 20, 30, 20), (2, 16, 16, 8), F32, "rc", precision="tf32x3"),
    "few-deep": functools.partial(of, (4, 32, 40, 12), (2, 32, 32, 4), np.float64),
    "pieces": functools.partial(of, (3, 70, 50, 70), (2, 64, 64, 32), np.uint8),
    "one-row": functools.partial(of, (5, 3, 40, 40), (4, 1, 32, 16), BF16, "rc"),
    "few-both": functools.partial(of, (3, 10, 6, 40), (2, 4, 4, 16), F16, "cr", 8),
    "few-rows": functools.partial(of, (4, 8, 40, 40), (4, 8, 32, 16), BF16),
    "heads": functools.partial(heads_case, 5, 40, 32, (4, 32), F16),
    "heads-two": functools.partial(heads_case, 3, 24, 16, (2, 16), BF16, 2),
}
