"""Products of several sizes in one launch: the addresses of the operands come from an array, for pointers, or for
descriptors that the kernel makes when it comes to a product (of B transposed)."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "NUM_SM": 84}),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "NUM_SM": 128}),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "NUM_SM": 84}),
    ],
    key=["group_size"],
)
@triton.jit
def grouped_matmul_kernel(
    a_addresses, b_addresses, c_addresses, sizes, strides, group_size,
    NUM_SM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    done = 0
    for g in range(group_size):
        m = tl.load(sizes + g * 3)
        n = tl.load(sizes + g * 3 + 1)
        k = tl.load(sizes + g * 3 + 2)
        tiles_m = tl.cdiv(m, BLOCK_M)
        tiles_n = tl.cdiv(n, BLOCK_N)
        tiles = tiles_m * tiles_n
        while tile >= done and tile < done + tiles:
            lda = tl.load(strides + g * 3)
            ldb = tl.load(strides + g * 3 + 1)
            ldc = tl.load(strides + g * 3 + 2)
            a_ptr = tl.load(a_addresses + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_addresses + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_addresses + g).to(tl.pointer_type(tl.float16))
            in_product = tile - done
            tile_m = in_product // tiles_n
            tile_n = in_product % tiles_n
            rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            depth = tl.arange(0, BLOCK_K)
            a_ptrs = a_ptr + rows[:, None] * lda + depth[None, :]
            b_ptrs = b_ptr + depth[:, None] * ldb + columns[None, :]
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for _ in range(0, tl.cdiv(k, BLOCK_K)):
                tl.multiple_of(a_ptrs, [16, 16])
                tl.multiple_of(b_ptrs, [16, 16])
                a = tl.load(a_ptrs)
                b = tl.load(b_ptrs)
                acc += tl.dot(a, b)
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K * ldb
            c_ptrs = c_ptr + ldc * rows[:, None] + columns[None, :]
            tl.store(c_ptrs, acc.to(tl.float16))
            tile += NUM_SM
        done = done + tiles


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 128, "BLOCK_N": n, "BLOCK_K": 64}, num_stages=3, num_warps=w)
        for n, w in ((128, 4), (128, 8), (256, 8))
    ],
    key=["group_size"],
)
@triton.jit
def described_kernel(
    a_addresses, b_addresses, c_addresses, sizes, strides, group_size,
    NUM_SM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    dtype = tl.float8e4nv if FP8 else tl.float16
    tile = tl.program_id(0)
    done = 0
    for g in range(group_size):
        m = tl.load(sizes + g * 3)
        n = tl.load(sizes + g * 3 + 1)
        k = tl.load(sizes + g * 3 + 2)
        tiles_n = tl.cdiv(n, BLOCK_N)
        tiles = tl.cdiv(m, BLOCK_M) * tiles_n
        if tile >= done and tile < done + tiles:
            lda = tl.load(strides + g * 3)
            ldb = tl.load(strides + g * 3 + 1)
            ldc = tl.load(strides + g * 3 + 2)
            a_ptr = tl.load(a_addresses + g).to(tl.pointer_type(dtype))
            b_ptr = tl.load(b_addresses + g).to(tl.pointer_type(dtype))
            c_ptr = tl.load(c_addresses + g).to(tl.pointer_type(dtype))
            a_desc = tl.make_tensor_descriptor(
                a_ptr, shape=[m, k], strides=[lda, 1], block_shape=[BLOCK_M, BLOCK_K]
            )
            b_desc = tl.make_tensor_descriptor(
                b_ptr, shape=[n, k], strides=[ldb, 1], block_shape=[BLOCK_N, BLOCK_K]
            )
            c_desc = tl.make_tensor_descriptor(
                c_ptr, shape=[m, n], strides=[ldc, 1], block_shape=[BLOCK_M, BLOCK_N]
            )
            while tile >= done and tile < done + tiles:
                row = (tile - done) // tiles_n * BLOCK_M
                column = (tile - done) % tiles_n * BLOCK_N
                acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
                for kk in range(0, tl.cdiv(k, BLOCK_K)):
                    a = a_desc.load([row, kk * BLOCK_K])
                    b = b_desc.load([column, kk * BLOCK_K])
                    acc += tl.dot(a, b.T)
                c_desc.store([row, column], acc.to(dtype))
                tile += NUM_SM
        done = done + tiles


def grouped_matmul(pairs, described=False):
    """The products of pairs of matrices; described: the second ones transposed."""
    device = pairs[0][0].device
    outs = [
        torch.empty((a.shape[0], b.shape[0 if described else 1]), device=device, dtype=a.dtype)
        for a, b in pairs
    ]
    sizes = [n for (a, _), c in zip(pairs, outs, strict=True) for n in (*c.shape, a.shape[1])]
    strides = [
        n
        for (a, b), c in zip(pairs, outs, strict=True)
        for n in (a.stride(0), b.stride(0), c.stride(0))
    ]

    def addresses(tensors):
        return torch.tensor([t.data_ptr() for t in tensors], device=device)

    def numbers(values):
        return torch.tensor(values, dtype=torch.int32, device=device)

    given = [addresses([a for a, _ in pairs]), addresses([b for _, b in pairs]), addresses(outs)]
    given += [numbers(sizes), numbers(strides), len(pairs)]
    if described:
        triton.set_allocator(
            lambda size, align, stream: torch.empty(size, dtype=torch.int8, device=device)
        )
        fp8 = outs[0].dtype == torch.float8_e4m3fn
        described_kernel[(programs(device),)](*given, NUM_SM=programs(device), FP8=fp8)
    else:
        grouped_matmul_kernel[lambda meta: (meta["NUM_SM"],)](*given)
    return outs


def programs(device):
    if torch.device(device).type == "cpu":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count


def check(device="cuda", n=1024):
    torch.manual_seed(0)
    pairs = []
    for i in range(3):
        m = n >> i
        a = torch.rand((m, m), device=device, dtype=torch.float16)
        b = torch.rand((m, m), device=device, dtype=torch.float16)
        pairs.append((a, b))
    for out, (a, b) in zip(grouped_matmul(pairs), pairs, strict=True):
        torch.testing.assert_close(
            out, torch.matmul(a.float(), b.float()).half(), atol=1e-2, rtol=1e-2
        )
    pairs = [(a, b.T.contiguous()) for a, b in pairs]
    for dtype, off in ((torch.float16, 1e-2), (torch.float8_e4m3fn, 0.1)):
        pairs = [(a.to(dtype), b.to(dtype)) for a, b in pairs]
        for out, (a, b) in zip(grouped_matmul(pairs, described=True), pairs, strict=True):
            want = torch.matmul(a.float(), b.float().T)
            want = want.clamp(max=torch.finfo(dtype).max)
            torch.testing.assert_close(out.float(), want, atol=off, rtol=off)
