"""triton.runtime.jit."""

from __future__ import annotations

import functools
import inspect
import textwrap
from abc import ABCMeta
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from warploom.errors import LaunchError
from warploom.frontend.language.core import constexpr_function as _constexpr_function
from warploom.runtime.args import NOTHING, fields_of, spec_of
from warploom.runtime.args import Mock as MockTensor
from warploom.runtime.args import inspect as inspect_array
from warploom.runtime.dtypes import ITEM_BYTES
from warploom.runtime.jit import JITFunction, jit
from warploom.runtime.launched import Launched

__all__ = [
    "ConstexprFunction",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "TensorWrapper",
    "constexpr_function",
    "jit",
    "mangle_type",
    "native_specialize_impl",
    "reinterpret",
]


def constexpr_function(fn: Callable[..., Any]) -> Any:
    """Decorator: a Python function that kernels may call with constexprs; it runs while compiling.  It has
    Triton's `fn`, and its text without decorators as `src`, which Inductor copies beside a user's kernel."""
    made: Any = _constexpr_function(fn)
    try:
        text = textwrap.dedent(inspect.getsource(fn))
    except (OSError, TypeError):  # a function without a file, or of C
        text = ""
    made.fn, made.src = fn, text[max(0, text.find("def ")) :]
    return made


class _OfConstexprFunctions(type):
    def __instancecheck__(cls, x: object) -> bool:
        return hasattr(x, "__warploom_constexpr__") and hasattr(x, "src")


class ConstexprFunction(metaclass=_OfConstexprFunctions):
    """What `constexpr_function` makes is an instance."""


def native_specialize_impl(
    backend: Any, arg: Any, is_const: bool, specialize_value: bool, align: bool
) -> tuple[str, str | None]:
    """An argument's type, and "D" where it is a multiple of 16."""
    return mangle_type(arg), None


def mangle_type(arg: Any) -> str:
    """An argument's entry in a signature, without what its value adds."""
    if arg is None:
        return "constexpr"
    spec = spec_of(arg, fields_of("", arg)[0].array, "")
    return str(spec if spec.kind == "descriptor" else replace(spec, fact=NOTHING))


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


class TensorWrapper:
    """An array of a dtype that neither torch nor NumPy has (float8e4b15), in the memory of `base`."""

    def __init__(self, base: Any, dtype: Any) -> None:
        array = inspect_array(base)
        if array is None or ITEM_BYTES[array.dtype] != dtype.bytes:
            what = type(base).__name__ if array is None else f"{array.dtype} array"
            raise LaunchError(
                "argument-type",
                f"a {what} as {dtype}, of elements of {8 * dtype.bytes} bits",
                help="reinterpret an array of int8 or uint8",
            )
        self.base, self.dtype = base, dtype
        self.shape, self.strides = array.shape, array.strides
        self.device = getattr(base, "device", "cpu")

    def data_ptr(self) -> int:
        """The address of `base`, which may be resized."""
        array = inspect_array(self.base)
        assert array is not None
        return array.pointer

    def stride(self, dim: int | None = None) -> Any:
        """In elements: of all axes, or of one."""
        return self.strides if dim is None else self.strides[dim]

    def cpu(self) -> TensorWrapper:
        """A copy in the host's memory, of a tensor of torch."""
        return TensorWrapper(self.base.cpu(), self.dtype)


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """The same memory as an array of another dtype of the same size: a tensor of torch, or a NumPy array; of
    float8e4b15, which these lack, a TensorWrapper.

    x = triton.reinterpret(np.arange(256).astype(np.uint8), tl.float8e4b15)
    """
    if isinstance(tensor, TensorWrapper):
        tensor = tensor.base
    if dtype.name == "f8e4b15":
        return TensorWrapper(tensor, dtype)
    if hasattr(tensor, "data_ptr"):
        import torch

        return tensor.view(getattr(torch, dtype.numpy.name))
    return tensor.view(dtype.numpy)
