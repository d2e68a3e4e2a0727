"""C = A · B: persistent programs over tiles of C, written as one would for Triton.

The same source serves all operand orders (by strides), all shapes (by masks), and both kinds of
schedule: `num_consumer_groups=0` compiles it with uniform warps, 1 or 2 specializes it.
"""

from __future__ import annotations

import warploom as wl
import warploom.language as tl


@wl.jit
def gemm(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """C[M,N] = A[M,K] · B[K,N], accumulated in float32.

    C's rows are contiguous.  The grid is any number of programs; they share the tiles out, in bands
    of GROUP_M tile rows, column after column, so that neighbours in time share operands in the L2.
    """
    m_tiles = tl.cdiv(M, BLOCK_M)
    n_tiles = tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), m_tiles * n_tiles, tl.num_programs(0)):
        band = tile // (GROUP_M * n_tiles)
        in_band = tile % (GROUP_M * n_tiles)
        rows = tl.minimum(m_tiles - band * GROUP_M, GROUP_M)
        m = (band * GROUP_M + in_band % rows) * BLOCK_M + tl.arange(0, BLOCK_M)
        n = (in_band // rows) * BLOCK_N + tl.arange(0, BLOCK_N)
        k = tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
        b_ptrs = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            left = K - step * BLOCK_K
            a = tl.load(a_ptrs, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
            b = tl.load(b_ptrs, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc)
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        c_ptrs = c_ptr + m[:, None] * stride_cm + n[None, :]
        c = acc.to(c_ptr.dtype.element_ty)
        tl.store(c_ptrs, c, mask=(m[:, None] < M) & (n[None, :] < N))
