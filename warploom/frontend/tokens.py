"""Tokens: what stands for a value in the record of a translation, and what it says of it.

A token is a nested tuple of strings and numbers, which survives JSON.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from warploom.frontend.follow import is_compiled, is_own

Token = tuple[Any, ...]

LITERALS = (type(None), bool, int, float, str, bytes, complex, type(Ellipsis))
_PROCESS = os.urandom(8).hex()
LITERAL_NAMES = frozenset(kind.__name__ for kind in LITERALS)


def unwrapped(value: Any) -> Any:
    """tl.constexpr(x) as x."""
    core = sys.modules.get("warploom.frontend.language.core")
    return value.value if core is not None and isinstance(value, core.Constexpr) else value


def exact(value: Any) -> Any:
    """A compile-time value as part of a key in a process: 1 is not True, 0.0 is not -0.0."""
    kind = type(value)
    if kind is float or (kind.__module__ == "numpy" and getattr(value, "shape", None) == ()):
        return kind, repr(value)
    if isinstance(value, tuple):
        return (kind, *map(exact, value))
    return kind, value if (inner := unwrapped(value)) is value else distinct(inner)


def distinct(value: Any) -> Any:
    """`exact`, where equal objects that have something else to be read are told apart."""
    kind: Any = type(value)
    if isinstance(value, tuple):
        return (kind, *map(distinct, value))
    return key_of_class(kind)(value)


@functools.lru_cache(1024)
def key_of_class(kind: Any) -> Callable[[Any], Any]:
    """`distinct` of the objects of a class: of one that says itself which are equal, perhaps by a part of
    what they hold, by all of it."""
    by_identity = kind in LITERALS or kind.__eq__ is object.__eq__ or is_own(kind)
    is_number = any(c.__module__ == "numpy" and c.__name__ == "generic" for c in kind.__mro__)
    return exact if by_identity or is_number else _Distinct


class _Distinct:
    """An object as a key, equal to those that are `alike`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Distinct):
            return False
        return self.value is other.value or alike(self.value, other.value)


def alike(x: Any, y: Any) -> bool:
    """Whether two values are one, or equal in all that can be read of them; False where that isn't known."""
    kind: Any = type(x)
    if x is y or kind is not type(y):
        return x is y
    if kind in LITERALS:
        return repr(x) == repr(y)
    if kind is tuple or kind is list:
        return len(x) == len(y) and all(map(alike, x, y))
    if not _is_its_state(kind):  # type: ignore[arg-type]
        return False
    mine, others = vars(x), vars(y)
    names = mine.keys() == others.keys()
    return names and all(v is others[n] or alike(v, others[n]) for n, v in mine.items())


@functools.lru_cache(1024)
def _is_its_state(kind: Any) -> bool:
    """Whether objects of a class are what their variables are."""
    if kind.__eq__ is object.__eq__:
        return False
    return not any(is_compiled(c) or "__slots__" in vars(c) for c in kind.__mro__[:-1])


def function_of(value: Any) -> Any:
    """The plain function behind a kernel or a constexpr function; anything else as it is."""
    for mark in ("__warploom_fn__", "__warploom_constexpr__"):
        inner = getattr(value, mark, None)
        if isinstance(inner, types.FunctionType):
            return inner
    return value


def is_object(value: Any) -> bool:
    """Something that more can be read of."""
    return callable(value) or isinstance(value, types.ModuleType)


def changes(value: Any) -> bool:
    """Whether a value can change and stay the same object: a list, a tl.constexpr."""
    if isinstance(value, tuple):
        return any(map(changes, value))
    return isinstance(value, list | dict) or unwrapped(value) is not value


def public_name(value: Any) -> tuple[str, str] | None:
    """Module and name of what is of warploom, Python or a compiled library; None for what is the user's."""
    if isinstance(value, types.ModuleType):
        return (value.__name__, "") if is_own(value) else None
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    if hasattr(value, "__warploom_builtin__"):
        # `__module__` may name a served one (runtime/serve.py)
        module = getattr(value, "__globals__", {}).get("__name__", module)
    compiled = isinstance(value, types.BuiltinFunctionType) or module == "builtins"
    if not (compiled or is_own(value)):
        return None
    try:
        return (module, name) if resolve(module, name) is value else None
    except (AttributeError, ImportError):
        return None


def resolve(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split(".") if name else ():
        found = getattr(found, part)
    return found


def label(value: Any) -> tuple[str, str]:
    """Kind and name of an object: what a translation can tell without reading more of it."""
    for mark, kind in (
        ("__warploom_fn__", "kernel"),
        ("__warploom_constexpr__", "constexpr function"),
        ("__warploom_builtin__", "builtin"),
    ):
        if isinstance(getattr(value, mark, None), types.FunctionType | bool):
            return kind, getattr(value, "__qualname__", "")
    if isinstance(value, types.ModuleType):
        return "module", value.__name__
    if isinstance(value, type):
        return "class", value.__qualname__
    if isinstance(value, types.FunctionType):
        return "function", value.__qualname__
    return type(value).__qualname__, _shown(value)


def _shown(value: Any) -> str:
    """An object by its repr; one that says an address only is like no object of another process."""
    text = repr(value)
    return f"{text} {_PROCESS}" if " at 0x" in text else text


def in_words(token: Token) -> str:
    """A token in words."""
    match token:
        case ("object", _, kind, name):
            return f"the {kind} {name}"
        case ("named", module, name):
            return f"{module}.{name}" if name else module
        case ("list" | "tuple" as kind, *items):
            inner = ", ".join(map(in_words, items))
            return f"[{inner}]" if kind == "list" else f"({inner}{',' * (len(items) == 1)})"
        case ("dict", *items):
            return f"{{{', '.join(map(in_words, items))}}}"
        case ("named tuple", name, _, inner):
            return f"{name}{in_words(inner)}"
        case ("value", _, text) | (_, text):
            return str(text)
    return token[0]  # type: ignore[no-any-return]


def frozen(x: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(map(frozen, x)) if isinstance(x, list) else x
