"""Products of operands in block-scaled formats: MXFP8, MXFP4, NVFP4, and weights in them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import warploom as wl
import warploom.language as tl
from corpus.case import BF16, E4M3, E5M2, F16, F32, Case, blocks, nan

Array = Any


@wl.jit
def mx_matmul(a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K,
              LHS: tl.constexpr, RHS: tl.constexpr, GROUP: tl.constexpr, SCALED: tl.constexpr, ALONG_K: tl.constexpr,
              BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    """C = (A · its scales) @ (B · its scales); B is kept by columns, or (not ALONG_K) by rows, in pairs."""
    pairs_a: tl.constexpr = 2 if LHS == "e2m1" else 1
    pairs_b: tl.constexpr = 2 if RHS == "e2m1" else 1
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        ka = start // pairs_a + tl.arange(0, BLOCK_K // pairs_a)
        a = tl.load(a_ptr + m[:, None] * (K // pairs_a) + ka[None, :], mask=m[:, None] < M, other=0)
        if ALONG_K:
            kb = start // pairs_b + tl.arange(0, BLOCK_K // pairs_b)
            b = tl.load(
                b_ptr + n[None, :] * (K // pairs_b) + kb[:, None], mask=n[None, :] < N, other=0
            )
        else:
            kb = start + tl.arange(0, BLOCK_K)
            nb = tl.program_id(1) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
            b = tl.load(
                b_ptr + kb[:, None] * (N // 2) + nb[None, :], mask=nb[None, :] < N // 2, other=0
            )
        s = start // GROUP + tl.arange(0, BLOCK_K // GROUP)
        b_scale = tl.load(
            b_scale_ptr + n[:, None] * (K // GROUP) + s[None, :], mask=n[:, None] < N, other=0
        )
        a_scale = None
        if SCALED:
            a_scale = tl.load(
                a_scale_ptr + m[:, None] * (K // GROUP) + s[None, :], mask=m[:, None] < M, other=0
            )
        total = tl.dot_scaled(a, a_scale, LHS, b, b_scale, RHS, total, rhs_k_pack=ALONG_K)
    c_ptrs = c_ptr + m[:, None] * N + n[None, :]
    tl.store(c_ptrs, total, mask=(m[:, None] < M) & (n[None, :] < N))


STORED = {"e4m3": E4M3, "e5m2": E5M2, "bf16": BF16, "fp16": F16}


def elements(rng: Any, rows: int, k: int, format: str) -> tuple[Array, Array]:
    """(as it is stored, what it stands for) of a row-major operand."""
    if format != "e2m1":
        kept = rng.integers(-4, 5, (rows, k)).astype(np.float32).astype(STORED[format])
        return kept, kept.astype(np.float64)
    fours = rng.integers(0, 16, (rows, k)).astype(np.uint8)
    value = fours.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    return fours[:, ::2] | fours[:, 1::2] << 4, value


def scales(rng: Any, rows: int, k: int, group: int) -> tuple[Array, Array]:
    """(as they are stored, one for each element): powers of two for groups of 32, else ue4m3."""
    shape = (rows, k // group)
    if group == 32:
        kept = rng.integers(124, 130, shape).astype(np.uint8)
        value = np.exp2(kept.astype(np.float64) - 127)
    else:
        kept = rng.choice([0.5, 0.75, 1, 1.5, 3], shape).astype(E4M3)
        value = kept.astype(np.float64)
    return kept, np.repeat(value, group, axis=1)


def product(
    m: int, n: int, k: int, tile: tuple[int, int, int], lhs: str, rhs: str, group: int = 32, warps: int = 4, *,
    scaled: bool = True, along_k: bool = True, tasks: bool = False,
) -> Case:  # fmt: skip
    """Sums are exact in f32."""
    rng = np.random.default_rng(m + n + k)
    a, left = elements(rng, m, k, lhs)
    sa, by = scales(rng, m, k, group)
    left = left * by if scaled else left
    b, right = elements(rng, n, k, rhs)
    if not along_k:
        b, right = elements(rng, k, n, rhs)
        right = right.T
    sb, by = scales(rng, n, k, group)
    right = right * by
    meta = {"LHS": lhs, "RHS": rhs, "GROUP": group, "SCALED": scaled, "ALONG_K": along_k}
    meta |= dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True))
    args = (a, sa, b, sb, nan(m, n, dtype=F32), m, n, k)
    grid = (blocks(m, tile[0]), blocks(n, tile[1]))
    knobs = {"num_warps": warps}
    return Case("", mx_matmul, args, grid, meta, {4: left @ right.T}, tasks=tasks, knobs=knobs)


CASES: dict[str, Callable[[], Case]] = {
    "mxfp8": functools.partial(product, 70, 40, 256, (32, 32, 128), "e4m3", "e5m2"),
    "mxfp8-short": functools.partial(product, 40, 24, 96, (16, 8, 32), "e5m2", "e4m3", 32, 1),
    "mxfp4": functools.partial(product, 100, 56, 384, (64, 32, 128), "e2m1", "e2m1"),
    "mxfp4-two": functools.partial(product, 40, 24, 128, (32, 16, 64), "e2m1", "e2m1", 32, 2),
    "nvfp4": functools.partial(product, 70, 72, 256, (32, 48, 128), "e2m1", "e2m1", 16),
    "nvfp4-eight": functools.partial(product, 64, 130, 128, (32, 128, 64), "e2m1", "e2m1", 16, 8),
    "mixed": functools.partial(product, 70, 40, 128, (32, 32, 64), "e4m3", "e2m1"),
    "weights": functools.partial(product, 70, 72, 128, (64, 64, 64), "bf16", "e2m1", scaled=False),
    "weights-f16": functools.partial(
        product, 20, 40, 128, (16, 32, 32), "fp16", "e2m1", 16, scaled=False
    ),
    "activations": functools.partial(
        product, 40, 40, 128, (32, 32, 64), "e4m3", "e4m3", scaled=False
    ),
    "weights-deep": functools.partial(
        product, 70, 72, 256, (64, 64, 128), "bf16", "e2m1", scaled=False
    ),
    "mixed-deep": functools.partial(product, 40, 40, 256, (32, 32, 128), "e4m3", "fp16"),
    "along-n": functools.partial(product, 40, 64, 128, (32, 32, 64), "e4m3", "e2m1", along_k=False),
    "along-n-bf16": functools.partial(
        product, 70, 64, 96, (64, 32, 32), "bf16", "e2m1", scaled=False, along_k=False
    ),
}
