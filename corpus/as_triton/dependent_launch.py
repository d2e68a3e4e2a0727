"""Programmatic dependent launch: a kernel that waits for the one before it itself."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr, USE_GDC: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    if USE_GDC:
        tl.extra.cuda.gdc_wait()
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    if USE_GDC:
        tl.extra.cuda.gdc_launch_dependents()
    tl.store(out_ptr + offsets, x + y, mask=mask)


def check(device="cuda", n=98432):
    torch.manual_seed(0)
    x, y = torch.rand(n, device=device), torch.rand(n, device=device)
    out, twice = torch.empty_like(x), torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)  # noqa: E731
    for a, b, c in ((x, y, out), (out, out, twice)):
        add_kernel[grid](a, b, c, n, BLOCK_SIZE=1024, USE_GDC=True, launch_pdl=True)
    torch.testing.assert_close(twice, 2 * (x + y))
