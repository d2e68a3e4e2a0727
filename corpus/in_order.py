"""Products for which no warp group is the right size: few rows and columns, one, two or eight warps, dots of what
was just computed.  They are done in registers (mma.sync)."""

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
def chunk(q_ptr, k_ptr, v_ptr, o_ptr, T, CHUNK: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr):
    """Linear attention within a chunk: (Q·Kᵀ, lower triangle)·V, a program a chunk, in strides of its own."""
    t = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    d, e = tl.arange(0, DK), tl.arange(0, DV)
    q = tl.load(q_ptr + t[:, None] * DK + d[None, :], mask=t[:, None] < T, other=0.0)
    k = tl.load(k_ptr + t[:, None] * DK + d[None, :], mask=t[:, None] < T, other=0.0)
    v = tl.load(v_ptr + t[:, None] * DV + e[None, :], mask=t[:, None] < T, other=0.0)
    s = tl.dot(q, tl.trans(k))
    s = tl.where(t[:, None] >= t[None, :], s, 0.0)
    o = tl.dot(s.to(v.dtype), v)
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


def product(
    m: int, n: int, k: int, tile: tuple[int, int, int], dtype: Any, orders: str, warps: int
) -> Case:
    """C = A·B in f32; orders: of A and B in memory."""
    case = of("", matmul, m, n, k, tile, dtype, F32, orders)
    return replace(case, knobs={**case.knobs, "num_warps": warps}, tasks=False)


def chunks(t: int, chunk_rows: int, dk: int, dv: int, dtype: Any, warps: int) -> Case:
    q, k, v = (stored(ints(t, d, dtype=dtype), "r") for d in (dk, dk, dv))
    q = q[::-1].copy()
    o = nan(t, dv, dtype=F32)
    wide = [x.astype(np.float64) for x in (q, k, v)]
    want = np.zeros((t, dv))
    for at in range(0, t, chunk_rows):
        a, b, c = (x[at : at + chunk_rows] for x in wide)
        s = np.tril(a @ b.T).astype(dtype).astype(np.float64)
        want[at : at + chunk_rows] = s @ c
    meta = {"CHUNK": chunk_rows, "DK": dk, "DV": dv}
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
}

CASES: dict[str, Callable[[], Case]] = {
    **{name: functools.partial(product, *shape) for name, shape in SHAPES.items()},
    "chunk-16-one": functools.partial(chunks, 40, 16, 64, 32, BF16, 1),
    "chunk-32-four": functools.partial(chunks, 70, 32, 32, 64, F16, 4),
    "chunk-64-two": functools.partial(chunks, 100, 64, 32, 32, BF16, 2),
    "state-two": functools.partial(states, 100, 32, 32, 64, BF16, 2),
    "state-four": functools.partial(states, 70, 16, 32, 32, F16, 4),
}
