"""Python's own functions inside kernels."""

from __future__ import annotations

import builtins
import math
import types
from collections.abc import Callable
from functools import reduce
from typing import Any

from warploom.frontend import language
from warploom.frontend.attributes import attribute
from warploom.frontend.coerce import (
    Const,
    current,
    describe,
    is_literal,
    known,
    static_bool,
    static_int,
)
from warploom.frontend.language import debug
from warploom.frontend.language import math as elementwise
from warploom.frontend.language.core import Aggregate, Table
from warploom.frontend.reads import MISSING
from warploom.frontend.refuse import Refusal, refuse
from warploom.frontend.scope import admit
from warploom.ir.core import Value
from warploom.ir.types import Pointer, Tile


def _extreme(static: Callable[..., Any], dynamic: Callable[..., Any]) -> Callable[..., Any]:
    """Python's min or max of two or more values."""

    def call(*args: Any) -> Any:
        if len(args) < 2:
            what = "min and max take two or more values"
            refuse("call-arguments", what, "reduce a tile with tl.min or tl.max")
        return static(args) if all(map(is_literal, args)) else reduce(dynamic, args)

    return call


def _python_len(x: Any) -> int:
    if isinstance(x, tuple | str):
        return len(x)
    if isinstance(x, Table):
        return len(x.keys)
    if isinstance(x, Value) and isinstance(x.type, Tile):
        return x.type.shape[0]
    refuse("operand-type", f"len of {describe(x)}", "len takes tuples and tiles")


def _static_number(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def call(x: Any = 0) -> Any:
        if isinstance(x, Value):
            refuse(
                "constexpr-required",
                f"{convert.__name__}() of {describe(x)}",
                "convert run-time values with .to(dtype)",
            )
        try:
            return convert(known(x) if isinstance(x, Const) else x)
        except (TypeError, ValueError, OverflowError) as e:
            refuse("constant", f"{convert.__name__}({describe(x)}): {e}", "pass a number")

    return call


def _of_number(static: Callable[[Any], Any], dynamic: Callable[..., Any]) -> Callable[[Any], Any]:
    """A function of Python's math: of known numbers its own, else the language's."""

    def call(x: Any) -> Any:
        return static(known(x)) if is_literal(x) or isinstance(x, Const) else dynamic(x)

    return call


def _python_print(*args: Any) -> None:
    prefix = args[0] if args and isinstance(args[0], str) else ""
    debug.device_print(prefix, *(args[1:] if prefix else args))


def _python_isinstance(x: Any, kind: Any) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(x, Aggregate):
        return any(isinstance(k, type) and issubclass(x.kind, k) for k in kinds)
    return isinstance(x, tuple(k for k in kinds if isinstance(k, type)))


def _sequence(x: Any) -> tuple[Any, ...]:
    """What Python's functions of iterables get."""
    match x:
        case tuple():
            return tuple(x)
        case Table():
            return x.keys
        case language.range() | language.static_range():
            return tuple(range(*(static_int(b, "a bound") for b in x.bounds)))
    refuse("iterate", f"can't iterate over {describe(x)}", "give a tuple, or a range of constexprs")


def _python_dict(*pairs: Any, **entries: Any) -> Table:
    given = dict(_sequence(pairs[0])) if pairs else {}
    given |= entries
    return Table(tuple(given), tuple(given.values()))


def _python_zip(*xs: Any, strict: Any = False) -> tuple[Any, ...]:
    many = [_sequence(x) for x in xs]
    if static_bool(strict, "strict") and len({len(x) for x in many}) > 1:
        refuse("iterate", "zip(strict=True) of different lengths", "give sequences of one length")
    return tuple(zip(*many, strict=False))


def _python_enumerate(x: Any, start: Any = 0) -> tuple[Any, ...]:
    return tuple(enumerate(_sequence(x), static_int(start, "enumerate's start")))


def _python_slice(*bounds: Any) -> slice:
    return slice(*(None if b is None else static_int(b, "a slice bound") for b in bounds))


_NOTHING, _ABSENT = object(), object()


def _python_getattr(x: Any, name: Any, default: Any = _NOTHING) -> Any:
    emitter = current()
    try:
        if isinstance(x, types.ModuleType):
            value = emitter.reads.attribute(x, name)
            if value is not MISSING:
                return admit(name, value)
            refuse("attribute", f"{x.__name__} has no {name}", "check the name")
        return attribute(emitter, x, name)
    except Refusal:
        if default is _NOTHING:
            raise
        return default


PYTHON_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    builtins.range: language.range,
    builtins.min: _extreme(builtins.min, elementwise.minimum),
    builtins.max: _extreme(builtins.max, elementwise.maximum),
    builtins.abs: lambda x: abs(x) if is_literal(x) else elementwise.abs(x),
    builtins.len: _python_len,
    builtins.int: _static_number(int),
    builtins.float: _static_number(float),
    builtins.bool: _static_number(bool),
    builtins.print: _python_print,
    builtins.isinstance: _python_isinstance,
    builtins.list: _sequence,
    builtins.tuple: _sequence,
    builtins.dict: _python_dict,
    builtins.zip: _python_zip,
    builtins.enumerate: _python_enumerate,
    builtins.reversed: lambda x: _sequence(x)[::-1],
    builtins.all: lambda x: all(static_bool(v, "what all() tests") for v in _sequence(x)),
    builtins.slice: _python_slice,
    builtins.any: lambda x: any(static_bool(v, "what any() tests") for v in _sequence(x)),
    **{
        getattr(math, name): _of_number(getattr(math, name), getattr(elementwise, name))
        for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "floor", "ceil")
    },
    builtins.getattr: _python_getattr,
    builtins.hasattr: lambda x, name: _python_getattr(x, name, _ABSENT) is not _ABSENT,
}
for _fn in PYTHON_FUNCTIONS.values():
    _fn.__warploom_builtin__ = True  # type: ignore[attr-defined]

CLASSES: frozenset[Any] = frozenset(
    {language.range, language.static_range, language.async_task, language.constexpr} | {Pointer}
)
