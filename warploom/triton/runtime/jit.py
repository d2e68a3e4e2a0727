"""triton.runtime.jit."""

from __future__ import annotations

import functools
from abc import ABCMeta
from collections.abc import Callable
from typing import Any

from warploom.frontend.language.core import constexpr_function
from warploom.runtime.args import Mock as MockTensor
from warploom.runtime.jit import JITFunction, jit
from warploom.runtime.launched import Launched

__all__ = [
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "constexpr_function",
    "jit",
    "reinterpret",
]


class KernelInterface(metaclass=ABCMeta):
    """What libraries derive their own tuners from: `run` launches, and `kernel[grid](…)` calls it.  Kernels,
    and the decorators above them, are instances."""

    run: Callable[..., Any]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid, warmup=False)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> Any:
        """Compiles, and launches nothing."""
        return self.run(*args, grid=grid, warmup=True, **kwargs)


KernelInterface.register(Launched)  # type: ignore[type-abstract]


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """The same memory as an array of another dtype of the same size: a tensor of torch, or a NumPy array."""
    if hasattr(tensor, "data_ptr"):
        import torch

        return tensor.view(getattr(torch, dtype.numpy.name))
    return tensor.view(dtype.numpy)
