"""triton.tools.experimental_descriptor: descriptors made of addresses, as before Triton 3.3."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from warploom.runtime.args import TensorDescriptor

_TYPES = {1: "|u1", 2: "<f2", 4: "<f4", 8: "<f8"}


def create_2d_tma_descriptor(
    ptr: int, dim1: int, dim0: int, block_dim1: int, block_dim0: int, element_size: int
) -> TensorDescriptor:
    """Boxes of block_dim1×block_dim0 of the array of dim1×dim0 elements at an address, rows adjacent."""
    return _at(ptr, (dim1, dim0), (block_dim1, block_dim0), element_size)


def create_1d_tma_descriptor(
    ptr: int, dim: int, block_dim: int, element_size: int
) -> TensorDescriptor:
    """Boxes of block_dim elements of the array of dim elements at an address."""
    return _at(ptr, (dim,), (block_dim,), element_size)


def _at(ptr: int, shape: tuple[int, ...], block: tuple[int, ...], size: int) -> TensorDescriptor:
    fields = {"data": (ptr, False), "shape": shape, "typestr": _TYPES[size], "version": 3}
    torch = sys.modules.get("torch")
    on_gpu = torch is not None and torch.cuda.is_available()
    name = "__cuda_array_interface__" if on_gpu else "__array_interface__"
    base = SimpleNamespace(**{name: fields})
    strides = (shape[1], 1) if len(shape) == 2 else (1,)
    return TensorDescriptor(base, shape, strides, block)
