"""A function of libdevice: from Triton's own copy, and from a file that the launch names."""

from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def asin_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, libdevice.asin(x), mask=mask)


def check(device="cuda", n=98432):
    torch.manual_seed(0)
    x = torch.rand(n, device=device)
    y = torch.zeros_like(x)
    asin_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK_SIZE=1024)
    torch.testing.assert_close(y, torch.asin(x))
    y.zero_()
    folder = Path(triton.__file__).parent / "backends" / "nvidia" / "lib"
    extern_libs = {"libdevice": str(folder / "libdevice.10.bc")}
    asin_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK_SIZE=1024, extern_libs=extern_libs)
    torch.testing.assert_close(y, torch.asin(x))
