"""Python's own functions inside kernels: min, max, abs, len, int, float, bool, range, print, isinstance."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from warploom.frontend import language
from warploom.frontend.coerce import Const, describe, is_literal, known
from warploom.frontend.language import debug
from warploom.frontend.language import math as elementwise
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.types import Tile


def _python_min(*args: Any) -> Any:
    return _fold_extreme(builtins.min, elementwise.minimum, args)


def _python_max(*args: Any) -> Any:
    return _fold_extreme(builtins.max, elementwise.maximum, args)


def _fold_extreme(
    static: Callable[..., Any], dynamic: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """Python's min and max of two or more values."""
    if len(args) < 2:
        refuse(
            "call-arguments",
            "min and max take two or more values",
            "reduce a tile with tl.min or tl.max",
        )
    if all(is_literal(a) for a in args):
        return static(args)
    out = args[0]
    for a in args[1:]:
        out = dynamic(out, a)
    return out


def _python_len(x: Any) -> int:
    if isinstance(x, tuple | str):
        return len(x)
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
        except (TypeError, ValueError) as e:
            refuse("constant", f"{convert.__name__}({describe(x)}): {e}", "pass a number")

    return call


def _python_abs(x: Any) -> Any:
    return abs(x) if is_literal(x) else elementwise.abs(x)


def _python_print(*args: Any) -> None:
    prefix = args[0] if args and isinstance(args[0], str) else ""
    debug.device_print(prefix, *(args[1:] if prefix else args))


def _python_isinstance(x: Any, kind: Any) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return isinstance(x, tuple(k for k in kinds if isinstance(k, type)))


PYTHON_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    builtins.range: language.range,
    builtins.min: _python_min,
    builtins.max: _python_max,
    builtins.abs: _python_abs,
    builtins.len: _python_len,
    builtins.int: _static_number(int),
    builtins.float: _static_number(float),
    builtins.bool: _static_number(bool),
    builtins.print: _python_print,
    builtins.isinstance: _python_isinstance,
}
for _fn in PYTHON_FUNCTIONS.values():
    _fn.__warploom_builtin__ = True  # type: ignore[attr-defined]

CLASSES: frozenset[Any] = frozenset(
    {language.range, language.static_range, language.async_task, language.constexpr}
)
