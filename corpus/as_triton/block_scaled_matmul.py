"""Products of operands with a scale for each 32 elements of a row: floats of 8 bits, and of 4, two in a byte."""

import torch
import triton
import triton.language as tl
from triton.tools.mxfp import MXFP4Tensor, MXScaleTensor


@triton.jit
def block_scaled_kernel(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, NUM_STAGES: tl.constexpr, FORMAT: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    SCALES: tl.constexpr = BLOCK_K // 32
    BYTES: tl.constexpr = BLOCK_K // PACK
    row_bytes = K // PACK
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, row_bytes], [row_bytes, 1], [BLOCK_M, BYTES])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, row_bytes], [row_bytes, 1], [BLOCK_N, BYTES])
    pid = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    row = (pid % tiles_m) * BLOCK_M
    column = (pid // tiles_m) * BLOCK_N
    rows, columns = row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)
    parts = tl.arange(0, SCALES)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, tl.cdiv(K, BLOCK_K), num_stages=NUM_STAGES):
        a = a_desc.load([row, k * BYTES])
        b = b_desc.load([column, k * BYTES])
        at = k * SCALES + parts[None, :]
        a_scale = tl.load(a_scale_ptr + rows[:, None] * (K // 32) + at)
        b_scale = tl.load(b_scale_ptr + columns[:, None] * (K // 32) + at)
        acc = tl.dot_scaled(a, a_scale, FORMAT, b.T, b_scale, FORMAT, acc)
    c_ptrs = c_ptr + rows[:, None] * N + columns[None, :]
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty))


def check(device="cuda", n=512):
    torch.manual_seed(0)
    triton.set_allocator(
        lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=device)
    )
    m, k = n // 2, n

    def operand(rows, pack):
        """The bytes, the scales, and the numbers that both mean."""
        scale = MXScaleTensor(size=(rows, k // 32), device=device).random(low=0.25, high=4)
        if pack == 2:
            four = MXFP4Tensor(size=(rows, k), device=device).random()
            x, wide = four.to_packed_tensor(dim=1), four.to(torch.float32)
        else:
            x = (torch.randint(-8, 9, (rows, k), device=device) / 4).to(torch.float8_e4m3fn)
            wide = x.float()
        return x, scale.data, wide * scale.to(torch.float32).repeat_interleave(32, 1)

    block = {"BLOCK_M": 128, "BLOCK_N": 128, "NUM_STAGES": 2}
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, 128),)
    for pack, how in ((1, "e4m3"), (2, "e2m1")):
        a, a_scale, a_wide = operand(m, pack)
        b, b_scale, b_wide = operand(n, pack)
        c = torch.empty((m, n), device=device, dtype=torch.float32)
        block_scaled_kernel[grid](
            a, a_scale, b, b_scale, c, m, n, k, **block, BLOCK_K=64 * pack, FORMAT=how, PACK=pack
        )
        torch.testing.assert_close(c, a_wide @ b_wide.T, atol=1e-3, rtol=1e-3)
