"""Attributes and methods of values: x.dtype, x.T, x.to(…), desc.load(…), dtype.is_floating()."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.frontend.coerce import Const, Emitter, describe, is_literal
from warploom.frontend.language import memory, shape
from warploom.frontend.language.core import METHODS, BlockPointer, Descriptor
from warploom.frontend.refuse import did_you_mean, refuse
from warploom.ir.core import Value
from warploom.ir.types import DType, Pointer, i1


@dataclass(frozen=True)
class Method:
    """x.name, waiting for its call."""

    fn: Callable[..., Any]
    receiver: Any


def attribute(emitter: Emitter, x: Any, name: str) -> Any:
    """x.name of a run-time value, a dtype or a handle."""
    match x:
        case DType() if name in DTYPE_ATTRIBUTES:
            return DTYPE_ATTRIBUTES[name](x)
        case Pointer() if name == "element_ty":
            return x.dtype
        case Descriptor() if name in ("dtype", "block_shape", "shape", "strides"):
            return getattr(x, name)
        case BlockPointer() if name == "advance":
            return Method(memory.advance, x)
        case Descriptor() if name == "load":
            return Method(memory.load_tensor_descriptor, x)
        case Descriptor() if name == "store":
            return Method(memory.store_tensor_descriptor, x)
    if isinstance(x, Value | Const) or is_literal(x):
        elem = emitter.dtype(x)
        match name:
            case "dtype":
                return elem
            case "type" if not emitter.shape(x):  # p.type.element_ty of a pointer
                return elem
            case "shape":
                return emitter.shape(x)
            case "numel":
                return math.prod(emitter.shape(x))
            case "T":
                return shape.trans(x)
        if name in METHODS:
            return Method(METHODS[name], x)
        refuse(
            "attribute",
            f"{describe(x)} has no attribute {name}",
            did_you_mean(
                name,
                [*METHODS, "dtype", "shape", "T"],
                "tiles have dtype, shape, T and methods such as to()",
            ),
        )
    if isinstance(x, tuple) and hasattr([], name):
        refuse(
            "attribute",
            "a list can't change in a kernel",
            "build it at once, as in [a, b] or xs + (x,)",
        )
    refuse("attribute", f"{describe(x)} has no attribute {name}", "check what the name stands for")


def _constant(value: Any) -> Callable[[], Any]:
    def call() -> Any:
        return value

    call.__warploom_builtin__ = True  # type: ignore[attr-defined]
    return call


DTYPE_ATTRIBUTES: dict[str, Callable[[DType], Any]] = {
    "primitive_bitwidth": lambda d: 1 if d is i1 else d.bits,
    "itemsize": lambda d: d.bytes,
    "name": lambda d: d.name,
    "scalar": lambda d: d,
    "is_floating": lambda d: _constant(d.is_float),
    "is_int": lambda d: _constant(d.is_int),
    "is_int_signed": lambda d: _constant(d.kind == "int"),
    "is_int_unsigned": lambda d: _constant(d.kind in ("uint", "bool")),
    "is_fp8": lambda d: _constant(d.is_fp8),
    "is_ptr": lambda d: _constant(False),
}
