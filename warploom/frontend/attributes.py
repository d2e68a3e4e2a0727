"""Attributes and methods of values: x.dtype, x.T, x.to(…), desc.load(…), dtype.is_floating()."""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from warploom.frontend.coerce import Const, Emitter, describe, is_literal, known
from warploom.frontend.language import memory, shape
from warploom.frontend.language.core import (
    METHODS,
    Aggregate,
    BlockPointer,
    Descriptor,
    Handle,
    Table,
    builtin,
)
from warploom.frontend.language.descriptors import DESCRIPTOR_METHODS
from warploom.frontend.reads import MISSING
from warploom.frontend.refuse import did_you_mean, refuse
from warploom.frontend.scope import admit
from warploom.ir.core import Value
from warploom.ir.types import DTYPE_PREDICATES, DTYPE_PROPERTIES, TRITON_NAMES, DType, Pointer


@dataclass(frozen=True)
class Method:
    """x.name, waiting for its call."""

    fn: Callable[..., Any]
    receiver: Any


@dataclass(frozen=True)
class BlockType:
    """x.type of a tile; what Triton's block_type tells, beside what its element does."""

    elem: DType | Pointer
    shape: tuple[int, ...]


BLOCK_TYPE: dict[str, Callable[[BlockType], Any]] = {
    "shape": lambda t: t.shape,
    "numel": lambda t: math.prod(t.shape),
    "scalar": lambda t: t.elem,
    "element_ty": lambda t: t.elem,
    "is_block": lambda t: _constant(True),
    "is_ptr": lambda t: _constant(False),
    "get_block_shapes": lambda t: _constant(t.shape),
}


def _member(emitter: Emitter, x: Aggregate, name: str) -> Any:
    """A field of an aggregate, or what its class has of that name; of a function a method of it."""
    fields = x.as_dict()
    if name in fields:
        return fields[name]
    found = emitter.reads.attribute(x.kind, name)
    if found is MISSING:
        names = [*fields, *(n for n in vars(x.kind) if not n.startswith("_"))]
        refuse(
            "attribute",
            f"{x.kind.__name__} has no attribute {name}",
            did_you_mean(name, names, f"its fields are {', '.join(fields)}"),
        )
    value = admit(name, found)
    return Method(value, x) if callable(value) and not isinstance(value, type) else value


_NOTHING = object()


def _of_type(x: Any, name: str) -> Any:
    """An attribute of a dtype, pointer type or block type; _NOTHING where it has none of the name."""
    match x:
        case DType() if name == "name":
            return TRITON_NAMES[x.name]
        case DType() if name in DTYPE_PROPERTIES:
            return DTYPE_PROPERTIES[name](x)
        case DType() if name in DTYPE_PREDICATES:
            return _constant(DTYPE_PREDICATES[name](x))
        case Pointer() if name in ("element_ty", "scalar"):
            return x.dtype if name == "element_ty" else x
        case Pointer() if name in DTYPE_PREDICATES:
            return _constant(name == "is_ptr")
        case BlockType() if name in BLOCK_TYPE:
            return BLOCK_TYPE[name](x)
        case BlockType():
            return _of_type(x.elem, name)
    return _NOTHING


def attribute(emitter: Emitter, x: Any, name: str) -> Any:
    """x.name of a run-time value, a dtype or a handle."""
    match x:
        case enum.Enum() if name in ("value", "name"):
            return admit(f"{x}.{name}", getattr(x, name))
        case _ if name == "value" and not isinstance(x, Value | Const | Handle):
            return x  # a constexpr is its value
        case DType() | Pointer() | BlockType() if (found := _of_type(x, name)) is not _NOTHING:
            return found
        case tuple() if name in getattr(x, "_fields", ()) and _is_plain(type(x), name):
            return x[x._fields.index(name)]  # type: ignore[attr-defined]
        case type():
            found = emitter.reads.attribute(x, name)
            if found is not MISSING:
                return admit(f"{x.__name__}.{name}", found)
        case Aggregate():
            return _member(emitter, x, name)
        case Table() if name in TABLE:
            return Method(TABLE[name], x)
        case BlockPointer() if name in ("type", "dtype"):
            return Pointer(x.dtype)
        case Descriptor() if name == "type":
            return BlockType(x.dtype, x.block_shape)
        case Descriptor() if name in ("dtype", "block_shape", "shape", "strides"):
            return getattr(x, name)
        case BlockPointer() if name == "advance":
            return Method(memory.advance, x)
        case Descriptor() if name in DESCRIPTOR_METHODS:
            return Method(DESCRIPTOR_METHODS[name], x)
    if isinstance(x, Value | Const) or is_literal(x):
        return _of_number(emitter, x, name)
    if isinstance(x, tuple) and hasattr([], name):
        refuse(
            "attribute",
            "a list can't change in a kernel",
            "build it at once, as in [a, b] or xs + (x,)",
        )
    refuse("attribute", f"{describe(x)} has no attribute {name}", "check what the name stands for")


def _of_number(emitter: Emitter, x: Any, name: str) -> Any:
    """x.name of a number, a pointer or a tile of them."""
    elem, sizes = emitter.dtype(x), emitter.shape(x)
    match name:
        case "dtype":
            return elem
        case "type":
            return BlockType(elem, sizes) if sizes else elem
        case "value" if not isinstance(x, Value):
            return known(x)
        case "shape":
            return sizes
        case "numel":
            return math.prod(sizes)
        case "T":
            return shape.trans(x)
    if name in METHODS:
        return Method(METHODS[name], x)
    what = f"{describe(x)} has no attribute {name}"
    otherwise = "tiles have dtype, shape, T and methods such as to()"
    refuse("attribute", what, did_you_mean(name, [*METHODS, "dtype", "shape", "T"], otherwise))


def _is_plain(kind: type, name: str) -> bool:
    """Is it the item that a field of a named tuple stands for?  A class may have put a property there."""
    return type(inspect.getattr_static(kind, name)) is type(inspect.getattr_static(_Pair, "first"))


class _Pair(NamedTuple):
    first: int


# Methods of dicts.
TABLE: dict[str, Callable[..., Any]] = {
    "keys": builtin(lambda table: table.keys),
    "values": builtin(lambda table: table.values),
    "items": builtin(lambda table: tuple(table.as_dict().items())),
    "get": builtin(lambda table, key, default=None: table.as_dict().get(key, default)),
}


def _constant(value: Any) -> Callable[[], Any]:
    def call() -> Any:
        return value

    call.__warploom_builtin__ = True  # type: ignore[attr-defined]
    return call
