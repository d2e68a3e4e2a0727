"""A product whose programs are clusters of CTAs: num_ctas, by descriptors that the host makes and by pointers.
A block of the grid is the cluster's; each of its CTAs has a part."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def grouped(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = pid // in_group * GROUP_M
    rows = min(tiles_m - first, GROUP_M)
    return first + pid % in_group % rows, pid % in_group // rows


def set_blocks(nargs):
    m, n, k = nargs["BLOCK_M"], nargs["BLOCK_N"], nargs["BLOCK_K"]
    nargs["a_desc"].block_shape = [m, k]
    nargs["b_desc"].block_shape = [k, n]
    nargs["c_desc"].block_shape = [m, n]


@triton.autotune(
    configs=[
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64, "GROUP_M": 8},
            num_stages=3, num_warps=4, num_ctas=ctas, pre_hook=set_blocks,
        )
        for m, n, ctas in ((128, 128, 1), (256, 128, 2), (128, 256, 2))
    ],
    key=["M", "N", "K"],
)  # fmt: skip
@triton.jit
def descriptors_kernel(
    a_desc, b_desc, c_desc, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = grouped(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        a = a_desc.load([row, k])
        b = b_desc.load([k, column])
        acc = tl.dot(a, b, acc)
    c_desc.store([row, column], acc.to(tl.float16))


@triton.jit
def pointers_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = grouped(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + depth[None, :]
    b_ptrs = b_ptr + depth[:, None] * stride_bk + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = c_ptr + rows[:, None] * stride_cm + columns[None, :]
    tl.store(c_ptrs, acc.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


def check(device="cuda", n=512):
    torch.manual_seed(0)
    m, k = 2 * n, n // 2
    a = torch.randn((m, k), device=device).half()
    b = torch.randn((k, n), device=device).half()
    want = (a.float() @ b.float()).half()
    c = torch.empty_like(want)
    grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)  # noqa: E731
    descriptors = [TensorDescriptor(x, x.shape, x.stride(), [1, 1]) for x in (a, b, c)]
    descriptors_kernel[grid](*descriptors, m, n, k)
    torch.testing.assert_close(c, want, atol=2e-2, rtol=1e-2)
    for block_m, block_n, ctas in ((128, 128, 1), (256, 128, 2), (256, 256, 4)):
        c.zero_()
        block = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 64, "GROUP_M": 4}
        pointers_kernel[grid](
            a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), **block, num_ctas=ctas, num_warps=4
        )  # fmt: skip
        torch.testing.assert_close(c, want, atol=2e-2, rtol=1e-2)
