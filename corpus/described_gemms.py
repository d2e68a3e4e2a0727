"""The library's GEMM with tensor descriptors instead of pointers: made by the host, or in the kernel."""

from __future__ import annotations

from typing import Any

import warploom as wl
import warploom.language as tl
from warploom.kernels.gemm import grouped_tile


@wl.jit
def gemm_host_descriptors(
    a_desc: Any,
    b_desc: Any,
    c_desc: Any,
    M: Any,
    N: Any,
    K: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
) -> None:
    """C = A·B by descriptors.

    a_desc describes A (M×K, blocks BLOCK_M×BLOCK_K), with TRANS_A its transpose (K×M, blocks
    BLOCK_K×BLOCK_M); b_desc B (K×N), with TRANS_B its transpose (N×K); c_desc C, blocks BLOCK_M×BLOCK_N.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        pid_m, pid_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M)
        m = pid_m * BLOCK_M
        n = pid_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(0, tl.cdiv(K, BLOCK_K)):
            k = step * BLOCK_K
            a = a_desc.load([k, m]).T if TRANS_A else a_desc.load([m, k])
            b = b_desc.load([n, k]).T if TRANS_B else b_desc.load([k, n])
            acc += tl.dot(a, b)
        c_desc.store([m, n], acc.to(c_desc.dtype))


@wl.jit
def gemm_device_descriptors(
    a_ptr: Any,
    b_ptr: Any,
    c_ptr: Any,
    M: Any,
    N: Any,
    K: Any,
    lda: Any,
    ldb: Any,
    ldc: Any,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    TRANS_A: tl.constexpr = False,
    TRANS_B: tl.constexpr = False,
) -> None:
    """C = A·B with descriptors made here.  lda, ldb, ldc: elements from row to row of what is stored (of
    the transpose of A with TRANS_A, of B with TRANS_B)."""
    if TRANS_A:
        a = tl.make_tensor_descriptor(a_ptr, [K, M], [lda, 1], [BLOCK_K, BLOCK_M])
    else:
        a = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
    if TRANS_B:
        b = tl.make_tensor_descriptor(b_ptr, [N, K], [ldb, 1], [BLOCK_N, BLOCK_K])
    else:
        b = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
    c = tl.make_tensor_descriptor(c_ptr, [M, N], [ldc, 1], [BLOCK_M, BLOCK_N])
    gemm_host_descriptors(
        a, b, c, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, TRANS_A=TRANS_A, TRANS_B=TRANS_B
    )
