"""Products for which no warp group is the right size: few rows and columns, one, two or eight warps, dots of what
was just computed.  They are done in registers (mma.sync), and with all bits of float32 by the threads (fma)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import BF16, E4M3, E5M2, F16, F32, Case, ints, nan, stored
from corpus.plain import matmul, of


@wl.jit
def chunk(q_ptr, k_ptr, v_ptr, o_ptr, T, CHUNK: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
          PRECISION: tl.constexpr = None):  # fmt: skip
    """Linear attention within a chunk: (Q·Kᵀ, lower triangle)·V, a program a chunk, in strides of its own."""
    t = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    d, e = tl.arange(0, DK), tl.arange(0, DV)
    q = tl.load(q_ptr + t[:, None] * DK + d[None, :], mask=t[:, None] < T, other=0.0)
    k = tl.load(k_ptr + t[:, None] * DK + d[None, :], mask=t[:, None] < T, other=0.0)
    v = tl.load(v_ptr + t[:, None] * DV + e[None, :], mask=t[:, None] < T, other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION)
    s = tl.where(t[:, None] >= t[None, :], s, 0.0)
    o = tl.dot(s.to(v.dtype), v, input_precision=PRECISION)
    tl.store(o_ptr + t[:, None] * DV + e[None, :], o, mask=t[:, None] < T)


@wl.jit
def state(k_ptr, v_ptr, s_ptr, T, CHUNK: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    """The state of linear attention, S = Σ Kᵀ·V over chunks, one program."""
    d, e = tl.arange(0, DK), tl.arange(0, DV)
    total = tl.zeros((DK, DV), tl.float32)
    for start in range(0, T, CHUNK):
        t = start + tl.arange(0, CHUNK)
        k = tl.load(k_ptr + t[:, None] * DK + d[None, :], mask=t[:, None] < T, other=0.0)
        v = tl.load(v_ptr + t[:, None] * DV + e[None, :], mask=t[:, None] < T, other=0.0)
        total = tl.dot(tl.trans(k), v, total)
    tl.store(s_ptr + d[:, None] * DV + e[None, :], total)


@wl.jit
def summed(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
           BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
           PRECISION: tl.constexpr = None):  # fmt: skip
    """Sums of the result's own dtype."""
    columns = tl.cdiv(N, BLOCK_N)
    m = tl.program_id(0) // columns * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(0) % columns * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), c_ptr.dtype.element_ty)
    for at in range(0, K, BLOCK_K):
        k = at + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + m * stride_am + k[None, :] * stride_ak, mask=(m < M) & (k[None, :] < K), other=0
        )
        b = tl.load(
            b_ptr + k[:, None] * stride_bk + n * stride_bn, mask=(k[:, None] < K) & (n < N), other=0
        )
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(c_ptr + m * stride_cm + n * stride_cn, total, mask=(m < M) & (n < N))


def wholes(m: int, n: int, k: int, tile: tuple[int, int, int], orders: str, warps: int) -> Case:
    """Numbers whose lowest bits tf32 drops; each product and sum is exact in f32."""
    case = of("", summed, m, n, k, tile, F32, F32, orders)
    a, b, *rest = case.args
    a[...] = ints(m, k, dtype=F32, low=-5000, high=5000)
    want = a.astype(np.float64) @ b.astype(np.float64)
    meta = {**case.meta, "PRECISION": "ieee"}
    knobs = {"num_warps": warps}
    return replace(case, args=(a, b, *rest), meta=meta, wants={2: want}, knobs=knobs, tasks=False)


SUMS = {F32: F32, np.float64: np.float64, np.int8: np.int32, np.uint8: np.int32}


def product(
    m: int, n: int, k: int, tile: tuple[int, int, int], dtype: Any, orders: str, warps: int
) -> Case:
    """C = A·B in f32, of integers in i32, of f64 in f64; orders: of A and B in memory."""
    kernel = summed if dtype in SUMS else matmul
    case = of("", kernel, m, n, k, tile, dtype, SUMS.get(dtype, F32), orders)
    return replace(case, knobs={**case.knobs, "num_warps": warps}, tasks=False)


def chunks(
    t: int, chunk_rows: int, dk: int, dv: int, dtype: Any, warps: int, precision: str | None = None
) -> Case:
    q, k, v = (stored(ints(t, d, dtype=dtype), "r") for d in (dk, dk, dv))
    q = q[::-1].copy()
    o = nan(t, dv, dtype=F32)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    want = np.zeros((t, dv))
    for at in range(0, t, chunk_rows):
        a, b, c = (x[at : at + chunk_rows] for x in wide)
        s = np.tril(a @ b.T).astype(dtype).astype(np.float64)
        want[at : at + chunk_rows] = s @ c
    meta = {"CHUNK": chunk_rows, "DK": dk, "DV": dv, "PRECISION": precision}
    grid = (-(-t // chunk_rows),)
    return Case(
        "", chunk, (q, k, v, o, t), grid, meta, {3: want}, tasks=False, knobs={"num_warps": warps}
    )


def states(t: int, chunk_rows: int, dk: int, dv: int, dtype: Any, warps: int) -> Case:
    k, v = (stored(ints(t, d, dtype=dtype), "r") for d in (dk, dv))
    s = nan(dk, dv, dtype=F32)
    want = k.astype(np.float64).T @ v.astype(np.float64)
    meta = {"CHUNK": chunk_rows, "DK": dk, "DV": dv}
    return Case(
        "", state, (k, v, s, t), (1,), meta, {2: want}, tasks=False, knobs={"num_warps": warps}
    )


# Nothing divides anything where it need not.
SHAPES = {
    "16x16-one": (40, 40, 72, (16, 16, 32), BF16, "rr", 1),
    "16x8-one": (24, 20, 40, (16, 8, 16), F16, "rc", 1),
    "32x32-two": (70, 72, 136, (32, 32, 64), F16, "rc", 2),
    "16x48-two": (20, 100, 96, (16, 48, 32), BF16, "cr", 2),
    "48x32-four": (50, 40, 64, (48, 32, 32), BF16, "cc", 4),
    "32x16-four": (40, 20, 70, (32, 16, 64), F16, "rr", 4),
    "32x96-eight": (60, 200, 64, (32, 96, 32), BF16, "rr", 8),
    "64x32-one": (70, 40, 96, (64, 32, 32), BF16, "rc", 1),
    "32x32-e4m3": (40, 50, 96, (32, 32, 32), E4M3, "rc", 4),
    "16x32-e5m2": (20, 40, 64, (16, 32, 64), E5M2, "rr", 2),
    "32x32-tf32": (40, 50, 72, (32, 32, 32), F32, "rc", 4),
    "16x40-tf32": (20, 50, 36, (16, 40, 16), F32, "rr", 2),
    "32x16-i8": (40, 30, 96, (32, 16, 64), np.int8, "rc", 2),
    "16x16-u8": (40, 30, 70, (16, 16, 32), np.uint8, "rr", 1),
    "32x32-f64": (40, 50, 40, (32, 32, 16), np.float64, "rc", 4),
    "64x64-f64": (70, 70, 24, (64, 64, 8), np.float64, "rr", 4),
    "16x8-f64": (20, 20, 12, (16, 8, 4), np.float64, "cr", 1),
}
# What fills no whole instruction.
IN_PART = {
    "8x8-one": (20, 20, 72, (8, 8, 32), BF16, "rr", 1),
    "1x64-four": (3, 130, 70, (1, 64, 32), BF16, "rc", 4),
    "64x1-four": (130, 3, 70, (64, 1, 32), BF16, "rr", 4),
    "4x32-two": (10, 70, 72, (4, 32, 32), F16, "cr", 2),
    "32x2-eight": (70, 5, 40, (32, 2, 16), F16, "cc", 8),
    "4x4-four": (10, 6, 40, (4, 4, 16), BF16, "rc", 4),
    "24x20-four": (50, 70, 40, (24, 20, 32), F16, "rr", 4),
    "8x4-e4m3": (20, 6, 96, (8, 4, 32), E4M3, "rc", 1),
    "2x16-e5m2": (6, 40, 96, (2, 16, 64), E5M2, "rr", 2),
    "4x8-tf32": (10, 20, 36, (4, 8, 16), F32, "rr", 2),
    "8x1-i8": (20, 3, 96, (8, 1, 32), np.int8, "rc", 1),
    "1x1-u8": (3, 2, 96, (1, 1, 32), np.uint8, "rr", 4),
    "4x2-f64": (10, 5, 20, (4, 2, 8), np.float64, "rc", 2),
}

CASES: dict[str, Callable[[], Case]] = {
    **{name: functools.partial(product, *shape) for name, shape in (SHAPES | IN_PART).items()},
    "ieee-32x32-four": functools.partial(wholes, 40, 50, 72, (32, 32, 32), "rc", 4),
    "ieee-64x64-four": functools.partial(wholes, 70, 70, 40, (64, 64, 16), "rr", 4),
    "ieee-16x16-one": functools.partial(wholes, 20, 30, 36, (16, 16, 16), "cr", 1),
    "ieee-100x24-four": functools.partial(wholes, 110, 50, 40, (100, 24, 12), "rc", 4),
    "ieee-8x40-two": functools.partial(wholes, 20, 90, 20, (8, 40, 8), "cc", 2),
    "ieee-64x128-eight": functools.partial(wholes, 70, 130, 40, (64, 128, 32), "cr", 8),
    "ieee-chunk-16-one": functools.partial(chunks, 40, 16, 32, 32, F32, 1, "ieee"),
    "ieee-chunk-32-four": functools.partial(chunks, 70, 32, 32, 64, F32, 4, "ieee"),
    "chunk-16-one": functools.partial(chunks, 40, 16, 64, 32, BF16, 1),
    "chunk-32-four": functools.partial(chunks, 70, 32, 32, 64, F16, 4),
    "chunk-64-two": functools.partial(chunks, 100, 64, 32, 32, BF16, 2),
    "state-two": functools.partial(states, 100, 32, 32, 64, BF16, 2),
    "state-four": functools.partial(states, 70, 16, 32, 32, F16, 4),
}
