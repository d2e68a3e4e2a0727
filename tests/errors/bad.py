"""Kernels with one mistake each.

The faulty line carries `# error[code]: text`; `@bad(types, **constexprs)` registers the kernel.  Types
are written as Triton's signatures: "*f16" a pointer, "i32" a scalar.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warploom.ir.core import Type
from warploom.ir.types import DTYPES, Pointer, Scalar

MARK = re.compile(r"# error\[([\w-]+)\]: (.*)$")


@dataclass(frozen=True)
class Case:
    """A kernel, how it is called, and the error that it must give."""

    fn: Callable[..., Any]
    types: tuple[Type, ...]
    constexprs: dict[str, Any]
    file: str
    line: int
    code: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.code}/{self.fn.__name__}"


CASES: list[Case] = []


def parse_type(text: str) -> Type:
    return Pointer(DTYPES[text[1:]]) if text.startswith("*") else Scalar(DTYPES[text])


def bad(types: str = "", *, of: Any = None, **constexprs: Any) -> Callable[[Any], Any]:
    """Registers a kernel; `of` is the helper whose source holds the marked line, where it is not the
    kernel's own."""

    def register(fn: Any) -> Any:
        source = getattr(of, "fn", of) or fn
        lines, first = inspect.getsourcelines(source)
        marks = [(first + i, m) for i, line in enumerate(lines) if (m := MARK.search(line))]
        assert len(marks) == 1, f"{fn.__name__} needs one marked line"
        line, mark = marks[0]
        file = inspect.getsourcefile(source)
        assert file is not None
        found = tuple(parse_type(t) for t in types.split())
        CASES.append(Case(fn, found, constexprs, file, line, mark[1], mark[2].strip()))
        return fn

    return register
