"""Kernels from source through the frontend into the oracle, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.frontend.translate import translate
from warploom.ir.core import Func, Type
from warploom.ir.parser import parse_func
from warploom.ir.printer import print_func
from warploom.ir.types import DTYPES, Pointer, Scalar, f32, i1, i32, i64
from warploom.ir.verify import verify
from warploom.sim.oracle import run

DTYPE_OF = {d.numpy: d for d in DTYPES.values()}


def type_of(x: Any) -> Type:
    """The IR type that a launch would give an argument."""
    match x:
        case np.ndarray():
            return Pointer(DTYPE_OF[x.dtype])
        case np.generic():
            return Scalar(DTYPE_OF[x.dtype])
        case bool():
            return Scalar(i1)
        case int():
            return Scalar(i32 if -(2**31) <= x < 2**31 else i64)
        case float():
            return Scalar(f32)
    raise AssertionError(f"no type for {x!r}")


def trace(kernel: Any, *args: Any, **constexprs: Any) -> Func:
    """The kernel at TILE for these arguments; verified, and equal to its own text parsed."""
    func = translate(kernel.fn, [type_of(a) for a in args], constexprs)
    verify(func)
    text = print_func(func)
    assert print_func(parse_func(text)) == text
    return func


def launch(kernel: Any, grid: int | tuple[int, ...], *args: Any, **constexprs: Any) -> Func:
    """Run the kernel in the oracle; arrays are written in place."""
    func = trace(kernel, *args, **constexprs)
    run(func, list(args), grid)
    return func


def kinds(func: Func) -> list[str]:
    """Names of all op kinds in the function, in order."""
    from warploom.ir.core import walk

    return [o.kind.name for o in walk(func.body)]
