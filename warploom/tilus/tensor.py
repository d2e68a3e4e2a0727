"""tilus.Tensor: arrays of any dtype on the host, those of fewer than 8 bits packed in bytes.

Their memory is torch's: on the GPU where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warploom.errors import LaunchError
from warploom.explicit.narrow import Narrow
from warploom.ir.types import DType, f32, i32, u8
from warploom.tilus.utils import dtype_from_torch, dtype_to_torch


@dataclass(frozen=True)
class Tensor:
    """`storage`: a torch tensor, of the dtype or of its bytes (uint8).

    >>> from_torch(torch.tensor([-3.2, 1.0, 9.0])).to(tilus.int4b).to(tilus.int32).torch()
    tensor([-3,  1,  7], dtype=torch.int32)
    """

    dtype: DType
    shape: tuple[int, ...]
    storage: Any

    def torch(self) -> Any:
        """As a torch tensor.  Raises LaunchError where torch has no such dtype."""
        if isinstance(self.dtype, Narrow):
            raise LaunchError(
                "argument-type",
                f"torch has no {self.dtype}",
                help="convert it, .to(tilus.float32), or pass its .storage, which are bytes",
            )
        return self.storage.view(dtype_to_torch(self.dtype)).reshape(self.shape)

    def to(self, dtype: DType) -> Tensor:
        """Converted by value; to fewer than 8 bits by the host, to the nearest number."""
        if not isinstance(self.dtype, Narrow) and not isinstance(dtype, Narrow):
            return Tensor(dtype, self.shape, self.torch().to(dtype_to_torch(dtype)))
        import torch

        if isinstance(self.dtype, Narrow):
            values = self.dtype.unpack(self.storage.cpu().numpy(), self.shape)
        else:
            values = self.torch().cpu().double().numpy()
        made = dtype.pack(values) if isinstance(dtype, Narrow) else values
        held = torch.from_numpy(made).to(self.storage.device)
        return Tensor(
            dtype, self.shape, held if isinstance(dtype, Narrow) else held.to(dtype_to_torch(dtype))
        )

    def view(self, *, dtype: DType | None = None, shape: Sequence[int] | None = None) -> Tensor:
        """The same bits as another dtype, of another shape.  Raises LaunchError where they don't fit."""
        to = dtype or self.dtype
        if shape is None:
            last = self.shape[-1] * self.dtype.bits
            shape = (*self.shape[:-1], last // to.bits)
        return view_torch(self.storage, dtype=to, shape=shape)

    def clone(self) -> Tensor:
        """A copy."""
        return Tensor(self.dtype, self.shape, self.storage.clone())

    def data_ptr(self) -> int:
        """The address of its memory."""
        return int(self.storage.data_ptr())

    def __str__(self) -> str:
        wide = f32 if self.dtype.is_float else i32
        return f"{self.dtype}{list(self.shape)}:\n{self.to(wide).torch()}"


def from_torch(torch_tensor: Any) -> Tensor:
    """A torch tensor, as it is."""
    dtype = dtype_from_torch(torch_tensor.dtype)
    assert dtype is not None
    return Tensor(dtype, tuple(torch_tensor.shape), torch_tensor)


def view_torch(torch_tensor: Any, *, dtype: DType, shape: Sequence[int]) -> Tensor:
    """The bits of a torch tensor as a dtype.  Raises LaunchError where these are not so many elements."""
    needed = -(-math.prod(shape) * dtype.bits // 8)
    if torch_tensor.nbytes != needed:
        raise LaunchError(
            "argument-type",
            f"{dtype}{list(shape)} has {needed} bytes, the tensor has {torch_tensor.nbytes}",
            help="give the shape that its bytes hold",
        )
    return Tensor(dtype, tuple(shape), torch_tensor)


def empty(shape: Sequence[int], dtype: DType = f32) -> Tensor:
    """A tensor of unknown contents."""
    nbytes = -(-math.prod(shape) * dtype.bits // 8)
    storage = _torch().empty([nbytes], dtype=dtype_to_torch(u8), device=_device())
    return Tensor(dtype, tuple(shape), storage)


def full(shape: Sequence[int], fill_value: float, dtype: DType = f32) -> Tensor:
    """A tensor of one number."""
    return from_torch(_torch().full(tuple(shape), float(fill_value), device=_device())).to(dtype)


def zeros(shape: Sequence[int], dtype: DType = f32) -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


def ones(shape: Sequence[int], dtype: DType = f32) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype)


def rand(shape: Sequence[int], dtype: DType = f32) -> Tensor:
    """Random numbers, uniform in [0, 1)."""
    return from_torch(_torch().rand(tuple(shape), device=_device())).to(dtype)


def randn(shape: Sequence[int], dtype: DType = f32) -> Tensor:
    """Random numbers of the normal distribution."""
    return from_torch(_torch().randn(tuple(shape), device=_device())).to(dtype)


def randint(low: int, high: int, shape: Sequence[int], dtype: DType = i32) -> Tensor:
    """Random integers from low to high - 1."""
    made = _torch().randint(low, high, tuple(shape), dtype=dtype_to_torch(i32), device=_device())
    return from_torch(made).to(dtype)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise LaunchError(
            "argument-type",
            "tensors of tilus are torch's, which isn't installed",
            help="pip install torch",
        ) from None
    return torch


def _device() -> str:
    return "cuda" if _torch().cuda.is_available() else "cpu"
