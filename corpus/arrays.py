"""Arrays that kernels of the corpus are launched with: between guards, with NaN where nobody may read; and
the same on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom import TensorDescriptor

GUARD = 128  # bytes before and after an array, which nothing may change


def array(shape: tuple[int, ...], dtype: Any, order: str = "r", pad: int = 0) -> Any:
    """An array of NaN (integers: 119) whose rows start at multiples of 16 bytes, plus `pad` elements.

    order: 'r' row-major, 'c' column-major.  It lies in a larger buffer, aligned and with guards."""
    dtype = np.dtype(dtype)
    stored = shape if order == "r" else shape[::-1]
    unit = max(1, 16 // dtype.itemsize)
    row = max(1, -(-stored[-1] // unit)) * unit + pad
    lead = stored[:-1]
    size = int(np.prod(lead, dtype=np.int64)) * row * dtype.itemsize
    owner = np.full(size + 2 * GUARD + 128, 119, np.uint8)
    at = GUARD + -(owner.ctypes.data + GUARD) % 128
    whole = owner[at : at + size].view(dtype).reshape(*lead, row)
    if dtype.kind not in "iu":
        whole[...] = np.float32(np.nan).astype(dtype)
    rows = whole[..., : stored[-1]]
    return rows if order == "r" else rows.T


def filled(data: Any, dtype: Any, order: str = "r", pad: int = 0) -> Any:
    """`data` in an array as above; the padding stays NaN, so that whoever uses it shows."""
    found = array(data.shape, dtype, order, pad)
    found[...] = data.astype(dtype)
    return found


def around(a: Any) -> Any:
    """The bytes of an array of this module with what lies between its rows, and a guard on both sides."""
    reach = sum(s * (n - 1) for n, s in zip(a.shape, a.strides, strict=True))
    owner = a
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    at = a.ctypes.data - owner.ctypes.data
    return owner[at - GUARD : at + reach + a.itemsize + GUARD]


def upload(x: Any) -> Any:
    """An array (of the same strides) on the GPU; descriptors of one; numbers as they are."""
    import torch

    if isinstance(x, TensorDescriptor):
        return TensorDescriptor.from_tensor(upload(x.base), x.block_shape)
    if not isinstance(x, np.ndarray):
        return x
    types = {
        "bfloat16": torch.bfloat16,
        "float8_e4m3fn": torch.float8_e4m3fn,
        "float8_e5m2": torch.float8_e5m2,
    }
    dense = np.ascontiguousarray(x)
    raw = torch.from_numpy(dense.view(f"i{x.itemsize}") if x.dtype.name in types else dense)
    like = [s // x.itemsize for s in x.strides]
    there = torch.empty_strided(x.shape, like, dtype=raw.dtype, device="cuda").copy_(raw)
    return there.view(types[x.dtype.name]) if x.dtype.name in types else there


def download(x: Any, dtype: Any) -> Any:
    import torch

    if isinstance(x, TensorDescriptor):
        x = x.base
    x = x.detach().cpu().contiguous()
    if x.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        return x.view({1: torch.uint8, 2: torch.int16}[x.element_size()]).numpy().view(dtype)
    return x.numpy()
