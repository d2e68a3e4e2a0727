"""Errors, and the only place that formats a message for users.

`ReportedError` is the user's: `CompileError` (with a source excerpt wherever a line is known), `LaunchError`
(arguments, device) and what the simulator finds (`sim/report.py`).  `InternalError` is ours: it names the
pass and a reproducer.
A *code* is stable and kebab-case (`dot-shape`); tests and documentation refer to it.
"""

from __future__ import annotations

import linecache
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Loc:
    """A span of the user's source.  Lines and columns count from 1; `end_col` is exclusive.

    `caller` is the call's location where a helper function was inlined.
    """

    file: str
    line: int
    col: int = 1
    end_col: int = 1
    caller: Loc | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"


@dataclass(frozen=True)
class Note:
    """A further place that a message points at: where a value was made, the other party of a race."""

    message: str
    loc: Loc | None = None


_texts: dict[str, Sequence[str]] = {}  # files as they were when kernels were read from them


def keep_text(file: str, lines: Sequence[str]) -> None:
    """Lets messages quote a file as it is now, though it may be edited before they are written."""
    _texts[file] = lines


def source_line(file: str, line: int) -> str:
    """A line of a file, from 1; empty where it can't be read."""
    lines = _texts.get(file) or linecache.getlines(file)
    return lines[line - 1].rstrip("\n") if 1 <= line <= len(lines) else ""


def excerpt(loc: Loc) -> str:
    """The source line of `loc` with its span underlined; empty where the file can't be read."""
    text = source_line(loc.file, loc.line)
    arrow = f" --> {loc}"
    if not text:
        return arrow
    number = str(loc.line)
    gutter = " " * len(number)
    stop = min(max(loc.end_col, loc.col + 1), len(text) + 1)
    underline = " " * (loc.col - 1) + "^" * max(1, stop - loc.col)
    return f"{gutter}{arrow}\n{gutter} |\n{number} | {text}\n{gutter} | {underline}"


def format_message(
    kind: str, code: str, message: str, loc: Loc | None, notes: tuple[Note, ...], help: str | None
) -> str:
    """`error[code]: message`, the excerpt, notes with their excerpts, one line of help."""
    lines = [f"{kind}[{code}]: {message}"]
    if loc is not None:
        lines.append(excerpt(loc))
        caller = loc.caller
        while caller is not None:
            line = f"note: called from here\n{excerpt(caller)}"
            if lines[-1] != line:  # a function that calls itself is told of once
                lines.append(line)
            caller = caller.caller
    for note in notes:
        lines.append(f"note: {note.message}")
        if note.loc is not None:
            lines.append(excerpt(note.loc))
    if help:
        lines.append(f"help: {help}")
    return "\n".join(lines)


class WarploomError(Exception):
    """Base of everything that warploom raises on purpose."""


@dataclass(eq=False)
class ReportedError(WarploomError):
    """A mistake of the user's, told with its place, other parties and advice."""

    code: str
    message: str
    loc: Loc | None = None
    notes: tuple[Note, ...] = ()
    help: str | None = None

    def __str__(self) -> str:
        return format_message("error", self.code, self.message, self.loc, self.notes, self.help)


class CompileError(ReportedError):
    """The kernel, its arguments or its knobs are at fault: says where, what, and what to do."""


class SharedMemoryError(CompileError):
    """Shared memory is short.  unplanned: bytes that the chooser couldn't know of when it dealt it out by
    `schedule`; widest: ids of loads without whose slots there might be room, None where a knob asks for too
    much."""

    unplanned: int = 0
    schedule: Any = None
    widest: tuple[str, ...] | None = None


class LaunchError(ReportedError):
    """A launch that can't be made: wrong arguments, devices, grid."""


def whole_number(name: str, value: object, least: int | None = None) -> int:
    """The value of an option that counts or numbers something.  Raises LaunchError `option-value` where it is
    no integer, or less than `least`."""
    try:
        n = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        n = None
    if n is None or isinstance(value, bool) or (least is not None and n < least):
        wanted = "an integer" if least is None else f"an integer from {least} on"
        raise LaunchError(
            "option-value", f"{name}={value!r} is not {wanted}", help=f"give {name} {wanted}"
        )
    return n


class InternalError(WarploomError):
    """A bug of warploom.  The message names the pass and says how to reproduce it."""


class WarploomWarning(UserWarning):
    """A request that was not honoured as asked; the text has the same form as an error's."""
