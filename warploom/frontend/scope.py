"""Names: what they are bound to, which a piece of code assigns, and values as lists of IR values.

A loop or an `if` carries *variables*; the IR carries SSA values.  A variable may be one value, a number, a
tuple or a handle (block pointer, descriptor): `leaves` and `rebuild` go back and forth, `skeleton` is
what has to stay the same on the way.
"""

from __future__ import annotations

import ast
import enum
import types
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from warploom.errors import Loc
from warploom.frontend.coerce import Const, Emitter, describe, is_literal
from warploom.frontend.language.core import Constexpr, Handle, Table
from warploom.frontend.refuse import refuse
from warploom.ir.core import Type, Value
from warploom.ir.types import DType, Scalar


@dataclass(frozen=True)
class Binding:
    """What a variable holds, and where it was assigned."""

    value: Any
    loc: Loc


Scope = dict[str, Binding]


def assigned_names(body: Iterable[ast.stmt]) -> set[str]:
    """Names that some statement assigns, at any depth."""
    return set().union(*map(_assigned, body))


_known: weakref.WeakKeyDictionary[ast.stmt, set[str]] = weakref.WeakKeyDictionary()


def _assigned(statement: ast.stmt) -> set[str]:
    """Those that one statement assigns: looked for once, as loops stand in loops and kernels are translated
    several times."""
    found = _known.get(statement)
    if found is None:
        found, todo = set(), list(ast.iter_child_nodes(statement))
        for node in todo:  # which grows on the way
            if isinstance(node, ast.stmt):
                found |= _assigned(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            else:
                todo += ast.iter_child_nodes(node)
        _known[statement] = found
    return found


def tuple_like(x: tuple[Any, ...], parts: Iterable[Any]) -> tuple[Any, ...]:
    """A tuple of other parts; of a named tuple's class where x is one."""
    return type(x)._make(parts) if hasattr(x, "_make") else tuple(parts)


def leaves(x: Any) -> list[Any]:
    """The Values, Consts and numbers that make up x, in order."""
    match x:
        case tuple():
            return [leaf for part in x for leaf in leaves(part)]
        case Handle():
            return [leaf for part in x.parts() for leaf in leaves(part)]
        case Value() | Const() | bool() | int() | float():
            return [x]
    return []


def rebuild(x: Any, values: Iterator[Value]) -> Any:
    """x with its leaves replaced, in order, from `values`."""
    match x:
        case tuple():
            return tuple_like(x, (rebuild(part, values) for part in x))
        case Handle():
            return x.with_parts(tuple(rebuild(part, values) for part in x.parts()))
        case Value() | Const() | bool() | int() | float():
            return next(values)
    return x


def skeleton(x: Any) -> Any:
    """All of x but its leaves; equal skeletons can be carried in place of each other."""
    match x:
        case tuple():
            return (type(x), *map(skeleton, x))
        case Handle():
            return x.static()
        case Value() | Const() | bool() | int() | float():
            return "value"
    return ("static", x)


def types_of(emitter: Emitter, x: Any) -> tuple[Type, ...]:
    """The IR types of x's leaves."""
    out: list[Type] = []
    for leaf in leaves(x):
        if isinstance(leaf, Value):
            out.append(leaf.type)
        else:
            out.append(Scalar(emitter.number(leaf)))
    return tuple(out)


def summary(emitter: Emitter, x: Any) -> str:
    """x in a message about its type."""
    types_ = types_of(emitter, x)
    if isinstance(x, tuple | Handle):
        inner = ", ".join(map(str, types_))
        return f"{describe(x)} ({inner})" if inner else describe(x)
    return str(types_[0]) if types_ else describe(x)


def same(x: Any, y: Any) -> bool:
    """True where x and y are the very same values, so that nothing has to be merged."""
    a, b = leaves(x), leaves(y)
    return (
        skeleton(x) == skeleton(y)
        and len(a) == len(b)
        and all(
            p is q or (not isinstance(p, Value) and type(p) is type(q) and p == q)
            for p, q in zip(a, b, strict=True)
        )
    )


def admit(name: str, value: Any) -> Any:
    """A Python object from outside the kernel (a global, a default) as a value inside it."""
    if isinstance(value, Constexpr):
        value = value.value
    if isinstance(value, tuple):
        return tuple_like(value, (admit(name, v) for v in value))
    if isinstance(value, list):
        return tuple(admit(name, v) for v in value)
    if isinstance(value, dict):
        return Table(tuple(value), tuple(admit(f"{name}[{k!r}]", v) for k, v in value.items()))
    if (
        value is None
        or is_literal(value)
        or isinstance(value, str | DType | Type | types.ModuleType | enum.Enum)
    ):
        return value
    if callable(value):
        return value
    refuse(
        "global-value",
        f"{name} is a {type(value).__name__}, which a kernel can't use",
        "kernels reach numbers, strings, dtypes, tuples, modules and functions; pass the rest as arguments",
    )
