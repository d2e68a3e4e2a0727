"""Format strings of printf: taken apart, checked against the values, and written out.

A directive is % flags width .precision conversion, as in C (flags - + space 0; conversions d i u x X o c for
integers, e E f F g G for floating-point numbers), or %%.  Length modifiers (l, ll, h …) are read and mean
nothing: the value's dtype says how wide it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warploom.ir.core import require
from warploom.ir.types import DType

_DIRECTIVE = re.compile(r"%(?:%|([-+ 0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|j|z|t|L)?([a-zA-Z])|)")
SIGNED, UNSIGNED, REAL = "di", "uxXo", "eEfFgG"
_CODE = "print-format"


@dataclass(frozen=True)
class Directive:
    """How one value is printed: `how` is flags, width and precision."""

    how: str
    conversion: str

    def number(self, value: Any, dtype: DType) -> Any:
        """The Python number that is printed."""
        if dtype.is_float:
            return float(value)
        n = int(value)
        return n % (1 << dtype.bits) if self.conversion in UNSIGNED else n

    def text(self, value: Any, dtype: DType) -> str:
        """The value as the GPU prints it."""
        conversion = "d" if self.conversion in "iu" else self.conversion
        return str(f"%{self.how}{conversion}" % self.number(value, dtype))

    @property
    def c(self) -> str:
        """The directive for C's printf, given a 64-bit integer, an int (of c) or a double."""
        wide = "ll" if self.conversion in SIGNED + UNSIGNED else ""
        return f"%{self.how}{wide}{self.conversion}"


def parse(format: str) -> tuple[str | Directive, ...]:
    """Plain text and directives in turn.  Raises RuleError on what is no directive."""
    out: list[str | Directive] = []
    at = 0
    for m in _DIRECTIVE.finditer(format):
        out.append(format[at : m.start()])
        at = m.end()
        how, conversion = m.groups()
        if m.group() == "%%":
            out.append("%")
            continue
        known = conversion is not None and conversion in SIGNED + UNSIGNED + REAL + "c"
        rest = format[m.start() : m.start() + 6]
        require(known, f"printf knows no directive at {rest!r}", _CODE)
        out.append(Directive(how, conversion))
    return (*out, format[at:])


def check(format: str, dtypes: Sequence[DType]) -> None:
    """Raises RuleError where the directives don't fit values of these dtypes."""
    directives = [p for p in parse(format) if isinstance(p, Directive)]
    counts = f"{format!r} prints {len(directives)} values, there are {len(dtypes)}"
    require(len(directives) == len(dtypes), counts, _CODE)
    for i, (d, dtype) in enumerate(zip(directives, dtypes, strict=True), 1):
        fits = dtype.is_float == (d.conversion in REAL)
        use = "%f, %e or %g" if dtype.is_float else "%d, %u, %x or %c"
        require(fits, f"%{d.conversion} can't print value {i}, a {dtype}: use {use}", _CODE)


def render(format: str, values: Sequence[tuple[Any, DType]]) -> str:
    """The text that printf prints."""
    rest = iter(values)
    return "".join(p if isinstance(p, str) else p.text(*next(rest)) for p in parse(format))
