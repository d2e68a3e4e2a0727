"""Operators: as Python's ast has them, what they give of known numbers, and the op kinds that they become."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from warploom.ir.core import OpKind
from warploom.ir.ops import arith

_TABLE: tuple[tuple[str, type[ast.AST], Callable[[Any, Any], Any], OpKind | None], ...] = (
    ("+", ast.Add, operator.add, arith.add),
    ("-", ast.Sub, operator.sub, arith.sub),
    ("*", ast.Mult, operator.mul, arith.mul),
    ("/", ast.Div, operator.truediv, arith.div),
    ("//", ast.FloorDiv, operator.floordiv, arith.idiv),
    ("%", ast.Mod, operator.mod, arith.rem),
    ("**", ast.Pow, operator.pow, None),
    ("@", ast.MatMult, operator.matmul, None),
    ("&", ast.BitAnd, operator.and_, arith.and_),
    ("|", ast.BitOr, operator.or_, arith.or_),
    ("^", ast.BitXor, operator.xor, arith.xor),
    ("<<", ast.LShift, operator.lshift, arith.shl),
    (">>", ast.RShift, operator.rshift, arith.shr),
    ("<", ast.Lt, operator.lt, arith.lt),
    ("<=", ast.LtE, operator.le, arith.le),
    (">", ast.Gt, operator.gt, arith.gt),
    (">=", ast.GtE, operator.ge, arith.ge),
    ("==", ast.Eq, operator.eq, arith.eq),
    ("!=", ast.NotEq, operator.ne, arith.ne),
)
SYMBOLS = {node: symbol for symbol, node, _, _ in _TABLE}
PYTHON = {symbol: function for symbol, _, function, _ in _TABLE}
KINDS = {symbol: kind for symbol, _, _, kind in _TABLE if kind is not None}
COMPARISONS = frozenset(symbol for symbol, kind in KINDS.items() if kind in arith.COMPARE)
# What classes call an operator's method, on the left and on the right.
METHOD_OF = {
    symbol: (f"__{name}__", f"__{mirrored}__")
    for symbol, name, mirrored in (
        *((s, n, f"r{n}") for s, n in (
            ("+", "add"), ("-", "sub"), ("*", "mul"), ("/", "truediv"), ("//", "floordiv"), ("%", "mod"),
            ("**", "pow"), ("@", "matmul"), ("&", "and"), ("|", "or"), ("^", "xor"), ("<<", "lshift"),
            (">>", "rshift"),
        )),
        ("<", "lt", "gt"), ("<=", "le", "ge"), (">", "gt", "lt"), (">=", "ge", "le"), ("==", "eq", "eq"),
        ("!=", "ne", "ne"),
    )
}  # fmt: skip
# One-bit integers wrap: + and - are exclusive or, * is and.
BIT_ARITHMETIC = {"+": arith.xor, "-": arith.xor, "*": arith.and_}
