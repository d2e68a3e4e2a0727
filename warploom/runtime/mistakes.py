"""Where the compiler ends for its users: a mistake of theirs leaves it without its frames.

What they read is their own line, then the message with its place in the kernel.  `WARPLOOM_TRACEBACK=1` keeps
the frames, for work on the compiler; bugs of ours (InternalError) always have them.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from warploom import options
from warploom.errors import ReportedError, WarploomWarning

P = ParamSpec("P")
T = TypeVar("T")


def user_facing(fn: Callable[P, T]) -> Callable[P, T]:
    """A function of the interface: the ReportedErrors that leave it begin there."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return fn(*args, **kwargs)
        except ReportedError as error:
            if _keeps_frames():
                raise
            raise error.with_traceback(None)  # noqa: B904 - the same error, its causes as they are

    return call


def _keeps_frames() -> bool:
    try:
        return options.get().traceback
    except ReportedError:  # an option is what is wrong
        return False


def warn(text: str) -> None:
    """A WarploomWarning at the line of the user's that led to it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("warploom."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, WarploomWarning, stacklevel=level)
