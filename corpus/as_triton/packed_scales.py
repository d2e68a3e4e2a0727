"""Scaled products whose scales lie in the order of a tensor core that reads them: those of 128 rows and four groups
of numbers together, loaded as rows of 512 bytes, in five axes, or through a descriptor of five axes."""

import torch
import triton
import triton.language as tl
from triton.tools.mxfp import MXFP4Tensor, MXScaleTensor
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def packed_scales_kernel(
    a_desc, a_scale, b_desc, b_scale, c_desc, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    stride_rows: tl.constexpr, stride_part: tl.constexpr, stride_32: tl.constexpr, stride_4: tl.constexpr,
    PER_BYTE_A: tl.constexpr, PER_BYTE_B: tl.constexpr, GROUP: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, NUM_STAGES: tl.constexpr, BY: tl.constexpr,
):  # fmt: skip
    """BY: "rows" of bytes, "axes" or a "descriptor"."""
    REP_M: tl.constexpr = BLOCK_M // 128
    REP_N: tl.constexpr = BLOCK_N // 128
    REP_K: tl.constexpr = BLOCK_K // GROUP // 4
    pid = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tile_m, tile_n = pid % tiles_m, pid // tiles_m
    at_a = 0
    at_b = 0
    at_scale = 0
    if BY == "rows":
        inner = tl.arange(0, REP_K * 512)
        a_scale_ptr = (
            a_scale + (tile_m * REP_M + tl.arange(0, REP_M))[:, None] * stride_rows + inner[None, :]
        )
        b_scale_ptr = (
            b_scale + (tile_n * REP_N + tl.arange(0, REP_N))[:, None] * stride_rows + inner[None, :]
        )
    elif BY == "axes":
        part = tl.arange(0, REP_K)[None, :, None, None, None] * stride_part
        of_32 = tl.arange(0, 32)[None, None, :, None, None] * stride_32
        four = tl.arange(0, 4)
        inner = (
            part
            + of_32
            + four[None, None, None, :, None] * stride_4
            + four[None, None, None, None, :]
        )
        rows_a = tile_m * REP_M + tl.arange(0, REP_M)
        rows_b = tile_n * REP_N + tl.arange(0, REP_N)
        a_scale_ptr = a_scale + rows_a[:, None, None, None, None] * stride_rows + inner
        b_scale_ptr = b_scale + rows_b[:, None, None, None, None] * stride_rows + inner
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in tl.range(0, tl.cdiv(K, BLOCK_K), num_stages=NUM_STAGES):
        a = a_desc.load([tile_m * BLOCK_M, at_a])
        b = b_desc.load([tile_n * BLOCK_N, at_b])
        if BY == "descriptor":
            scale_a = a_scale.load([0, tile_m * REP_M, at_scale, 0, 0])
            scale_b = b_scale.load([0, tile_n * REP_N, at_scale, 0, 0])
        else:
            scale_a = tl.load(a_scale_ptr)
            scale_b = tl.load(b_scale_ptr)
        scale_a = (
            scale_a.reshape(REP_M, REP_K, 32, 4, 4)
            .trans(0, 3, 2, 1, 4)
            .reshape(BLOCK_M, BLOCK_K // GROUP)
        )
        scale_b = (
            scale_b.reshape(REP_N, REP_K, 32, 4, 4)
            .trans(0, 3, 2, 1, 4)
            .reshape(BLOCK_N, BLOCK_K // GROUP)
        )
        if PER_BYTE_A == 1 and PER_BYTE_B == 2:
            acc = tl.dot_scaled(a, scale_a, "e4m3", b.T, scale_b, "e2m1", acc)
        elif PER_BYTE_A == 2:
            acc = tl.dot_scaled(a, scale_a, "e2m1", b.T, scale_b, "e2m1", acc)
        else:
            acc = tl.dot_scaled(a, scale_a, "e4m3", b.T, scale_b, "e4m3", acc)
        at_a += BLOCK_K // PER_BYTE_A
        at_b += BLOCK_K // PER_BYTE_B
        at_scale += REP_K
        if BY != "descriptor":
            a_scale_ptr += REP_K * stride_part
            b_scale_ptr += REP_K * stride_part
    c_desc.store([tile_m * BLOCK_M, tile_n * BLOCK_N], acc.to(tl.float16))


def check_packed(device, m, n, k, formats, group, by):
    """formats: of A and B, "e4m3" or "e2m1"."""
    block_m, block_n, block_k = 128, 128, 256 if formats[0] == "e2m1" else 128

    def operand(rows, how):
        """The numbers in bytes, and what they mean."""
        four = MXFP4Tensor(size=(rows, k), device=device).random()
        wide = four.to(torch.float32)
        return (
            four.to_packed_tensor(dim=1) if how == "e2m1" else wide.to(torch.float8_e4m3fn)
        ), wide

    def scales(rows):
        """In their order, and one for each number."""
        given = torch.rand((rows // 128, k // group // 4, 32, 4, 4), device=device) + 1e-8
        scale = given.to(torch.float8_e4m3fn) if group == 16 else MXScaleTensor(given)
        wide = scale.to(torch.float32).reshape(given.shape).permute(0, 3, 2, 1, 4)
        wide = wide.reshape(rows, k // group).repeat_interleave(group, 1)
        return (scale if group == 16 else scale.data).reshape(given.shape), wide

    (a, a_wide), (b, b_wide) = operand(m, formats[0]), operand(n, formats[1])
    (a_scale, a_factors), (b_scale, b_factors) = scales(m), scales(n)
    per_byte = [2 if f == "e2m1" else 1 for f in formats]
    c = torch.empty((m, n), device=device, dtype=torch.float16)
    a_desc = TensorDescriptor.from_tensor(a, [block_m, block_k // per_byte[0]])
    b_desc = TensorDescriptor.from_tensor(b, [block_n, block_k // per_byte[1]])
    c_desc = TensorDescriptor.from_tensor(c, [block_m, block_n])
    given_scales = [a_scale, b_scale]
    if by == "descriptor":
        given_scales = [
            TensorDescriptor.from_tensor(
                x.reshape(1, *x.shape[:2], 2, 256), [1, block // 128, block_k // group // 4, 2, 256]
            )
            for x, block in ((a_scale, block_m), (b_scale, block_n))
        ]
    packed_scales_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n), 1)](
        a_desc, given_scales[0], b_desc, given_scales[1], c_desc, m, n, k, *a_scale.stride()[:4], *per_byte, group,
        block_m, block_n, block_k, 2, by, num_warps=8,
    )  # fmt: skip
    want = (a_wide * a_factors) @ (b_wide * b_factors).T
    torch.testing.assert_close(c.float(), want.half().float(), atol=1e-3, rtol=2e-3)


def check(device="cuda", n=512):
    torch.manual_seed(0)
    for formats, group, by in (
        (("e4m3", "e4m3"), 32, "rows"),
        (("e4m3", "e2m1"), 32, "descriptor"),
        (("e2m1", "e2m1"), 32, "axes"),
        (("e2m1", "e2m1"), 16, "descriptor"),
    ):
        check_packed(device, n // 2, n, n, formats, group, by)
