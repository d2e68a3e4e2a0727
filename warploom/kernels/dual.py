"""C = silu(A·B1ᵀ) · (A·B2ᵀ), the gated half of a transformer's feed-forward layer, as a Triton-style kernel.

A is (M, K), B1 and B2 are (N, K), C is (M, N), all row-major and without gaps; the weights are two arrays as
they are, not interleaved.  Sums are made in f32 and rounded once, to C's dtype.  A, B1 and B2 are bf16, f16
or 8-bit; scale1 and scale2 (f32) take the products back to their true size where operands were quantized by
tensor (else 1.0).

Persistent, as the products of `gemm.py`: a program takes tiles in turn, and each step along K loads one block
of A for two dots, of which the compiler makes one.

    dual_gemm_forward  the kernel
    dual_gemm          tuned: the fastest of its configs is found at the first call; 16-bit operands
    dual_gemm_fp8      tuned, for 8-bit operands
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import warploom as wl
import warploom.language as tl
from warploom.kernels.entry import BYTES, FLOATS, HALVES, Entry, Given
from warploom.kernels.gemm import config, grouped_tile, in_order_config


@wl.jit
def silu(x: Any) -> Any:
    """x / (1 + e^-x) of an f32 tile, elementwise."""
    return x / (1.0 + tl.exp(-x))


@wl.jit
def dual_gemm_forward(
    a_ptr: Any,
    b1_ptr: Any,
    b2_ptr: Any,
    c_ptr: Any,
    scale1: Any,
    scale2: Any,
    M: Any,
    N: Any,
    K: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
) -> None:
    """C (M×N) = silu(scale1 · A·B1ᵀ) · (scale2 · A·B2ᵀ).

    A (M×K), B1 and B2 (N×K) are dense, of one dtype of 16 bits or of 8-bit floats; sums, gate and the numbers
    scale1 and scale2 are f32; C is dense, of its pointer's dtype.  Persistent (`persistent_grid`)."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        pid_m, pid_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(0, tl.cdiv(K, BLOCK_K)):
            k = step * BLOCK_K + tl.arange(0, BLOCK_K)
            b_at = k[:, None] + n[None, :] * K
            b_mask = (k[:, None] < K) & (n[None, :] < N)
            a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
            b1 = tl.load(b1_ptr + b_at, mask=b_mask, other=0.0)
            b2 = tl.load(b2_ptr + b_at, mask=b_mask, other=0.0)
            gate = tl.dot(a, b1, gate)
            up = tl.dot(a, b2, up)
        c = silu(gate * scale1) * (up * scale2)
        c_mask = (m < M) & (n[None, :] < N)
        tl.store(c_ptr + m * N + n[None, :], c.to(c_ptr.dtype.element_ty), mask=c_mask)


# 16-bit operands.  Slots hold 64 of K of A and of both weights: 48 KiB.
DUAL_CONFIGS = [
    config(128, 128, 64, 16, 2, 4, task=True),
    config(128, 128, 64, 8, 2, 4, task=True),
    config(128, 128, 64, 16, 2, 3),
    config(128, 128, 64, 8, 2, 3),
]
# 8-bit operands: as many bytes are 128 of K.
DUAL_FP8_CONFIGS = [
    config(128, 128, 128, band, 2, depth, task=depth == 4 or None)
    for band in (16, 8)
    for depth in (4, 3)
]
# Two sums a thread: half of the columns that a product by itself has.
DUAL_IN_ORDER_CONFIGS = [
    in_order_config(128, 64, 32, 8, 4, 3),
    in_order_config(128, 64, 32, 8, 8, 3),
    in_order_config(64, 64, 32, 8, 4, 4),
]
DUAL_FP8_IN_ORDER_CONFIGS = [
    in_order_config(128, 64, 64, 8, 4, 3),
    in_order_config(128, 64, 64, 8, 8, 3),
]


def check_dual(given: Given, dtypes: Sequence[str]) -> None:
    """A (M×K), B1 and B2 (N×K) and C (M×N) are dense, the operands of one of these dtypes, C apart from them.
    Raises LaunchError."""
    m, n, k = (given.number(name) for name in "MNK")
    a = given.dense("a_ptr", (m, k), dtypes)
    given.dense("b1_ptr", (n, k), (a.dtype,))
    given.dense("b2_ptr", (n, k), (a.dtype,))
    given.dense("c_ptr", (m, n), FLOATS, written=True)
    given.apart("c_ptr")


def _tuned(
    name: str, configs: list[wl.Config], in_order: list[wl.Config], dtypes: Sequence[str]
) -> Entry:
    check = functools.partial(check_dual, dtypes=dtypes)
    return Entry(name, dual_gemm_forward, check, configs, key=["M", "N", "K"], in_order=in_order)


dual_gemm = _tuned("dual_gemm", DUAL_CONFIGS, DUAL_IN_ORDER_CONFIGS, HALVES)
"""16-bit operands: `dual_gemm[persistent_grid(M, N, sms)](a, b1, b2, c, 1.0, 1.0, M, N, K)`."""

dual_gemm_fp8 = _tuned("dual_gemm_fp8", DUAL_FP8_CONFIGS, DUAL_FP8_IN_ORDER_CONFIGS, BYTES)
"""8-bit operands, with the scales of their products."""
