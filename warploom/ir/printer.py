"""IR as text; `ir/parser.py` reads it back.  The syntax is described in docs/internals/ir.md.

Names are the values' hints, made unique among the values that are visible together; values without a
hint are numbered through the function.  The text depends on the function alone, so dumps can be diffed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from warploom.errors import InternalError, Loc
from warploom.ir.analysis import reads
from warploom.ir.core import Fact, Func, Op, Region, Type, Value
from warploom.ir.types import DType, Scalar
from warploom.layout import Layout

_NOT_IN_NAMES = re.compile(r"\W+", re.ASCII)


def print_func(func: Func, locs: bool = False) -> str:
    """The function as text that parses; with `locs`, every op is followed by its source location."""
    printer = _Printer(locs)
    names: dict[Value, str] = {}
    params = printer.params(func.params, names, set())
    attrs = f" {{{print_attrs(func.attrs)}}}" if func.attrs else ""
    loc = _loc(func.loc) if locs and func.loc is not None else ""
    printer.lines.append(f"func @{func.name}({params}) level={func.level.name}{attrs}{loc} {{")
    printer.region(func.body, names, 1)
    printer.lines.append("}\n")
    return "\n".join(printer.lines)


def print_op(op: Op) -> str:
    """One op as text, regions included; operands from outside it are called by their hints."""
    printer = _Printer(locs=False)
    known: dict[Value, str] = {}
    taken: set[str] = set()
    for value in reads(op):
        if value not in known:
            printer.name(value, known, taken)
    printer.op(op, known, taken, 0)
    return "\n".join(printer.lines)


def print_attr(value: Any) -> str:
    """One attribute value, as the parser reads it.  InternalError on a type that has no text."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int():
            return int.__repr__(value)
        case float():
            return float.__repr__(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple():
            inner = ", ".join(map(print_attr, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case Scalar():  # as an attribute, `f32` is the dtype
            return f"scalar<{value}>"
        case DType() | Type():
            return str(value)
        case Fact():
            known = "" if value.value is None else f", {value.value}"
            return f"fact<{value.divisible}{known}>"
        case Layout():
            return f"#layout<{value}>"
    raise InternalError(f"an attribute can't be {value!r} ({type(value).__name__})")


def print_attrs(attrs: Mapping[str, Any]) -> str:
    """`key=value, …` without the braces."""
    return ", ".join(f"{key}={print_attr(value)}" for key, value in attrs.items())


def _loc(loc: Loc) -> str:
    places: list[str] = []
    at: Loc | None = loc
    while at is not None:
        file = json.dumps(at.file, ensure_ascii=False)
        places.append(f"{file}:{at.line}:{at.col}-{at.end_col}")
        at = at.caller
    return f" loc({' from '.join(places)})"


class _Printer:
    def __init__(self, locs: bool) -> None:
        self.locs = locs
        self.lines: list[str] = []
        self.unnamed = 0

    def name(self, value: Value, names: dict[Value, str], taken: set[str]) -> str:
        """A name for a new value; `taken` are the names that are visible where it is defined."""
        base = _NOT_IN_NAMES.sub("_", value.hint)
        if not base or base.isdigit():
            while str(self.unnamed) in taken:
                self.unnamed += 1
            name = str(self.unnamed)
            self.unnamed += 1
        else:
            name, n = base, 0
            while name in taken:
                n += 1
                name = f"{base}_{n}"
        taken.add(name)
        names[value] = name
        return name

    def params(self, params: Iterable[Value], names: dict[Value, str], taken: set[str]) -> str:
        return ", ".join(f"%{self.name(v, names, taken)}: {v.type}" for v in params)

    def region(self, region: Region, names: dict[Value, str], depth: int) -> None:
        taken = set(names.values())
        for op in region.ops:
            self.op(op, names, taken, depth)

    def op(self, op: Op, names: dict[Value, str], taken: set[str], depth: int) -> None:
        indent = "  " * depth
        # A dump of broken IR must not fail: what is out of scope prints as %?hint, which doesn't parse.
        operands = ", ".join([f"%{names[v] if v in names else '?' + v.hint}" for v in op.operands])
        text = f"{op.kind.name}({operands})"
        if op.results:
            text = ", ".join([f"%{self.name(v, names, taken)}" for v in op.results]) + " = " + text
        if op.attrs:
            text += f" {{{print_attrs(op.attrs)}}}"
        if op.id:
            text += f" #{op.id}"
        if op.tasks:
            text += f" @{{{', '.join(sorted(op.tasks))}}}"
        if op.results:
            text += " : " + ", ".join([str(v.type) for v in op.results])
        if self.locs and op.loc is not None:
            text += _loc(op.loc)
        for region in op.regions:
            inner = {**names}
            params = self.params(region.params, inner, set(names.values()))
            self.lines.append(f"{indent}{text} do {f'({params}) ' if params else ''}{{")
            self.region(region, inner, depth + 1)
            indent, text = "  " * depth, "}"
        self.lines.append(indent + text)
