"""In the idioms of triton-shared's examples: small kernels for machines without a GPU."""

import torch
import triton
import triton.language as tl


@triton.jit
def swizzled_kernel(out_ptr, size_i, size_j, GROUP: tl.constexpr):
    """Which program of a grid of rows comes to which place."""
    i, j = tl.program_id(0), tl.program_id(1)
    new_i, new_j = tl.swizzle2d(i, j, size_i, size_j, GROUP)
    tl.store(out_ptr + new_i * size_j + new_j, i * size_j + j)


@triton.jit
def reduced_kernel(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * stride + tl.arange(0, BLOCK))
    tl.store(out_ptr + row * 3, tl.sum(x, axis=0))
    tl.store(out_ptr + row * 3 + 1, tl.max(x, axis=0))
    tl.store(out_ptr + row * 3 + 2, tl.argmin(x, axis=0).to(tl.float32))


@triton.jit
def transposed_kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr):
    """By block pointers that advance."""
    row = tl.program_id(0) * BLOCK
    source = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (row, 0), (BLOCK, BLOCK), order=(1, 0))
    target = tl.make_block_ptr(out_ptr, (N, M), (M, 1), (0, row), (BLOCK, BLOCK), order=(1, 0))
    for _ in range(0, tl.cdiv(N, BLOCK)):
        x = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, tl.trans(x), boundary_check=(0, 1))
        source = tl.advance(source, (0, BLOCK))
        target = tl.advance(target, [BLOCK, 0])


@triton.jit
def conditional_kernel(in_ptr, out_ptr, n, INCREMENT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if n > 100:
        x = tl.load(in_ptr + at, mask=at < n)
        if tl.program_id(0) == 0:  # noqa: SIM108 - as it is written
            x = x + INCREMENT
        else:
            x = x - INCREMENT
        tl.store(out_ptr + at, x, mask=at < n)
    else:
        tl.store(out_ptr + at, tl.zeros((BLOCK,), tl.float32), mask=at < n)


def check(device="cuda", n=128):
    torch.manual_seed(0)
    places = torch.full((5, 7), -1, device=device, dtype=torch.int32)
    swizzled_kernel[(5, 7)](places, 5, 7, GROUP=3)
    assert sorted(places.flatten().tolist()) == list(range(35)) and places[1, 0] == 1
    x = torch.randn((4, n), device=device)
    out = torch.empty((4, 3), device=device)
    reduced_kernel[(4,)](x, out, x.stride(0), BLOCK=n)
    want = torch.stack([x.sum(1), x.max(1).values, x.argmin(1).float()], 1)
    torch.testing.assert_close(out, want)
    x = torch.randn((100, 70), device=device)
    y = torch.empty((70, 100), device=device)
    transposed_kernel[(4,)](x, y, 100, 70, BLOCK=32)
    torch.testing.assert_close(y, x.T.contiguous())
    for size in (200, 60):
        x, y = torch.randn(size, device=device), torch.empty(size, device=device)
        conditional_kernel[(2,)](x, y, size, INCREMENT=2, BLOCK=128)
        sign = torch.where(torch.arange(size, device=device) < 128, 2.0, -2.0)
        torch.testing.assert_close(y, x + sign if size > 100 else torch.zeros_like(x))
