"""C = (A·Bᵀ) scaled by rows, from 8-bit floats, as a Triton-style kernel:

    c[i, j] = scale_a[i] · scale_b[j] · Σ a[i, k]·b[j, k]

A is (M, K), B (N, K), each e4m3 or e5m2, C (M, N), all row-major and without gaps; the scales are f32, one
for each row of A and of B.  With A_TRANSPOSED A is stored as (K, M), with B_TRANSPOSED B as (K, N): orders
that wgmma does not take, so a task of its own transposes them on their way.

The tensor core sums 8-bit products with fewer bits than f32 has.  Without PROMOTE the sum is left to it (fast
accumulation); with it, sums of 128 of K are added up in f32.

    fp8_gemm_rowwise   the kernel, persistent as the products of `gemm.py`
    fp8_gemm           tuned: the fastest of its configs is found at the first call; fast accumulation
    fp8_gemm_promoted  tuned, promoting
"""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl
from warploom.kernels.entry import BYTES, FLOATS, Entry, Given
from warploom.kernels.gemm import config, grouped_tile, in_order_config


@wl.jit
def fp8_gemm_rowwise(
    a_ptr: Any,
    b_ptr: Any,
    scale_a_ptr: Any,
    scale_b_ptr: Any,
    c_ptr: Any,
    M: Any,
    N: Any,
    K: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    PROMOTE: tl.constexpr = False,
    A_TRANSPOSED: tl.constexpr = False,
    B_TRANSPOSED: tl.constexpr = False,
    SERPENTINE: tl.constexpr = False,
) -> None:
    """C (M×N) = (A·Bᵀ) · scale_a[:, None] · scale_b[None, :].

    A (M×K; with A_TRANSPOSED stored K×M) and B (N×K; with B_TRANSPOSED stored K×N) are dense, of 8-bit
    floats; scale_a (M) and scale_b (N) f32; C dense, of its pointer's dtype.  PROMOTE: partial sums of 128 of
    K are added up in f32; else the tensor core's sums keep fewer bits.  Persistent (`persistent_grid`)."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        pid_m, pid_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M, SERPENTINE)
        m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(0, tl.cdiv(K, BLOCK_K)):
            k = step * BLOCK_K + tl.arange(0, BLOCK_K)
            a_mask = (m[:, None] < M) & (k[None, :] < K)
            b_mask = (k[:, None] < K) & (n[None, :] < N)
            a_at = m[:, None] + k[None, :] * M if A_TRANSPOSED else m[:, None] * K + k[None, :]
            b_at = k[:, None] * N + n[None, :] if B_TRANSPOSED else k[:, None] + n[None, :] * K
            a = tl.load(a_ptr + a_at, mask=a_mask, other=0.0)
            b = tl.load(b_ptr + b_at, mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc, max_num_imprecise_acc=128 if PROMOTE else None)
        by_row = tl.load(scale_a_ptr + m, mask=m < M, other=0.0)
        by_column = tl.load(scale_b_ptr + n, mask=n < N, other=0.0)
        c = acc * by_row[:, None] * by_column[None, :]
        c_mask = (m[:, None] < M) & (n[None, :] < N)
        c_at = c_ptr + m[:, None] * N + n[None, :]
        tl.store(c_at, c.to(c_ptr.dtype.element_ty), mask=c_mask)


# Slots hold 128 of K: rows of 128 bytes.  Walking back pays where B outgrows what C leaves it of the L2.
FP8_CONFIGS = [
    config(128, 256, 128, band, 2, 3, whole=True, task=True, SERPENTINE=back)
    for band, back in ((16, True), (8, True), (8, False))
]
# A consumer's totals and the product under way share its registers: 192 columns have the longest products
# that fit whole, 256 (in halves) fewer bytes to load.
FP8_PROMOTED_CONFIGS = [
    config(128, columns, 128, band, 2, depth, task=True, PROMOTE=True)
    for columns, depth in ((192, 4), (256, 3))
    for band in (16, 8)
]

# With an operand to transpose there is a warp group more, and slots on both sides of it.
FP8_TRANSPOSED_CONFIGS = [
    config(rows, columns, 128, band, 2, depth, B_TRANSPOSED=True)
    for rows, columns, depth in ((256, 128, 3), (128, 192, 3), (128, 128, 4))
    for band in (16, 8)
]
# Chips whose products are done in registers (sm_89, sm_120a); *_TRANSPOSED is for wgmma alone.
FP8_IN_ORDER_CONFIGS = [
    in_order_config(128, 128, 64, 8, 8, 3),
    in_order_config(128, 128, 64, 8, 4, 3),
    in_order_config(64, 64, 128, 8, 4, 3),
]
FP8_PROMOTED_IN_ORDER_CONFIGS = [
    in_order_config(128, 64, 128, 8, 8, 2, PROMOTE=True),
    in_order_config(64, 64, 128, 8, 4, 3, PROMOTE=True),
]


def check_fp8(given: Given) -> None:
    """A, B, C and the scales are dense, in the order that A_TRANSPOSED and B_TRANSPOSED say, C apart
    from the others.  Raises LaunchError."""
    m, n, k = (given.number(name) for name in "MNK")
    given.dense("a_ptr", (k, m) if given.named.get("A_TRANSPOSED") else (m, k), BYTES)
    given.dense("b_ptr", (k, n) if given.named.get("B_TRANSPOSED") else (n, k), BYTES)
    given.dense("scale_a_ptr", (m,), ("f32",))
    given.dense("scale_b_ptr", (n,), ("f32",))
    given.dense("c_ptr", (m, n), FLOATS, written=True)
    given.apart("c_ptr")


def _tuned(name: str, configs: list[wl.Config], in_order: list[wl.Config]) -> Entry:
    return Entry(name, fp8_gemm_rowwise, check_fp8, configs, key=["M", "N", "K"], in_order=in_order)


fp8_gemm = _tuned("fp8_gemm", FP8_CONFIGS, FP8_IN_ORDER_CONFIGS)
"""Fast accumulation: `fp8_gemm[persistent_grid(M, N, sms)](a, b, scale_a, scale_b, c, M, N, K)`."""

fp8_gemm_promoted = _tuned("fp8_gemm_promoted", FP8_PROMOTED_CONFIGS, FP8_PROMOTED_IN_ORDER_CONFIGS)
"""As fp8_gemm, with sums promoted to f32 every 128 of K."""
