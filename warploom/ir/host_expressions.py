"""Numbers that a launch's arguments give: as expressions that the host computes, and sums of them.

An expression is closed, picklable data: ("arg", i) is argument i of the kernel as its user passes it (for
a pointer its address), ("const", n) a number, (kind, dtype, x, y) or (kind, dtype, x) an op of ir/ops/arith
on integers of that dtype.  codegen/host.py writes them as Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from warploom.errors import InternalError
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith
from warploom.ir.types import Pointer, dtype_of

Expr: TypeAlias = tuple[Any, ...]
Number: TypeAlias = int | Expr  # known, or of a launch


def plus(x: Number, y: Number) -> Number:
    """x + y."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if isinstance(x, int):
        x, y = y, x
    match x, y:
        case ("add", "i64", of, ("const", n)), int():
            return plus(of, n + y)
    return x if y == 0 else _of_two("add", x, y)


def times(x: Number, y: Number) -> Number:
    """x * y."""
    if isinstance(x, int) and isinstance(y, int):
        return x * y
    if isinstance(x, int):
        x, y = y, x
    return x if y == 1 else 0 if y == 0 else _of_two("mul", x, y)


def least(x: Number, y: Number) -> Number:
    """The smaller of the two."""
    if isinstance(x, int) and isinstance(y, int):
        return min(x, y)
    return _of_two("minimum", x, y)


def quotient(x: Number, y: int) -> Number:
    """x / y of positive numbers, rounded up."""
    if isinstance(x, int):
        return -(-x // y)
    return x if y == 1 else _of_two("idiv", plus(x, y - 1), y)


def expr(x: Number) -> Expr:
    """A number as an expression."""
    return ("const", x) if isinstance(x, int) else x


def _of_two(kind: str, x: Number, y: Number) -> Expr:
    return (kind, "i64", expr(x), expr(y))


class Expressions:
    """Expressions of values that depend on launch arguments alone."""

    def __init__(self, params: Sequence[Value], definitions: Mapping[Value, Op]) -> None:
        self._args = {v: i for i, v in enumerate(params)}
        self._definitions = definitions

    def definition(self, v: Value) -> Op:
        if v not in self._definitions:
            raise InternalError(
                f"codegen: {v.hint or v.type} has no definition that the host can follow"
            )
        return self._definitions[v]

    def expression(self, v: Value) -> Expr:
        if v in self._args:
            return ("arg", self._args[v])
        o = self.definition(v)
        if o.kind is arith.const:
            return ("const", o.attrs["value"])
        operands = [self.expression(x) for x in o.operands]
        if o.kind is arith.addptr:
            assert isinstance(v.type, Pointer)
            size = ("const", v.type.dtype.bytes)
            return ("add", "i64", operands[0], ("mul", "i64", operands[1], size))
        if not arith.is_of_host(o):
            raise InternalError(
                f"codegen: the host can't compute {v.hint or v.type} of a tensor map: it comes from"
                f" {o.kind.name}"
            )
        return (o.kind.name, dtype_of(o.operands[0].type).name, *operands, *_extra(o))


def _extra(o: Op) -> tuple[str, ...]:
    return (o.attrs["dtype"].name,) if o.kind is arith.cast else ()
