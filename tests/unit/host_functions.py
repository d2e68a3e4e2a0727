"""Expressions of `codegen/host.py` as functions, to be called."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warploom.codegen.host import Expr, python_text
from warploom.runtime.plan import NAMES


def compile_expressions(expressions: Sequence[Expr]) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """A function from the kernel's arguments (integers; addresses for pointers) to the values of all
    expressions, in order."""
    body = ", ".join(map(python_text, expressions))
    code = f"lambda a: ({body}{',' if len(expressions) == 1 else ''})"
    made: Callable[[Sequence[int]], tuple[int, ...]] = eval(code, dict(NAMES))
    return made
