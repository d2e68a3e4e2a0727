"""What commands share: consoles, exit codes, progress.

Colours and progress appear only on a terminal (rich sees to that, and honours NO_COLOR); results go
to stdout and everything about them to stderr, so that output can be piped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from rich.console import Console


class EXIT(IntEnum):
    """Exit codes; `warploom.cli` says what each means."""

    ok = 0
    found = 1
    usage = 2
    compile = 3
    lacking = 4
    bug = 70


class UsageError(Exception):
    """The command line asks for something that isn't there."""


def stdout() -> Console:
    """For results.  Made anew each time: tests replace sys.stdout."""
    return Console(highlight=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def say(text: object, style: str | None = None, end: str = "\n") -> None:
    """Prints a result, as it is: nothing in it is markup, and no line is broken."""
    stdout().print(str(text), style=style, end=end, markup=False, soft_wrap=True)


def remark(text: object, style: str | None = None) -> None:
    """Prints what is to be said about the results."""
    stderr().print(str(text), style=style, markup=False, soft_wrap=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows that something takes a while, where somebody can see it."""
    console = stderr()
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        yield
