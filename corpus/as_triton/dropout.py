"""Dropout: by a mask in memory, and by random numbers that a seed gives."""

import torch
import triton
import triton.language as tl


@triton.jit
def dropout_kernel(x_ptr, keep_ptr, out_ptr, n_elements, p, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.load(keep_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def seeded_dropout_kernel(x_ptr, out_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


@triton.jit
def seeds_for_rows_kernel(
    x_ptr, out_ptr, seeds_ptr, M, N, p, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """A matrix with a seed for each row."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    seeds = tl.load(seeds_ptr + rows, mask=rows < M, other=0)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    at = rows[:, None] * N + columns[None, :]
    x = tl.load(x_ptr + at, mask=mask)
    keep = tl.rand(seeds[:, None], at) > p
    tl.store(out_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def check(device="cuda", n=1000):
    torch.manual_seed(0)
    x = torch.randn(n, device=device)
    keep = (torch.rand(n, device=device) > 0.5).to(torch.int32)
    out, grid = torch.empty_like(x), (triton.cdiv(n, 256),)
    dropout_kernel[grid](x, keep, out, n, 0.5, BLOCK_SIZE=256)
    torch.testing.assert_close(out, torch.where(keep > 0, x * 2, torch.zeros_like(x)))
    found = []
    for seed in (123, 123, 512):
        y = torch.empty_like(x)
        seeded_dropout_kernel[grid](x, y, n, 0.5, seed, BLOCK_SIZE=256)
        found.append(y)
        assert bool(((y == 0) | ((y - 2 * x).abs() < 1e-6)).all())
        assert 0.4 < float((y == 0).float().mean()) < 0.6
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    x = torch.randn(6, 100, device=device)
    out, seeds = torch.empty_like(x), torch.arange(6, device=device, dtype=torch.int32)
    seeds_for_rows_kernel[(2, 2)](x, out, seeds, 6, 100, 0.25, ROWS=4, BLOCK=64)
    assert 0.15 < float((out == 0).float().mean()) < 0.35
