"""Pauses Python's garbage collector while trees of ops are made."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses: list[int] = []  # the threads of those that are under way
_was_enabled = False  # before the first of these


@contextmanager
def paused_collector() -> Iterator[None]:
    """Leaves cycles to later passes of the collector.

    Compilations and runs leave few, and a full pass looks at all that the process has: half a second where
    torch is loaded, which a pass for the many objects of one kernel would take again and again."""
    global _was_enabled
    own = threading.get_ident()
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses.append(own)
    try:
        yield
    finally:
        with _lock:
            _end(own)


def _end(pause: int) -> None:
    _pauses.remove(pause)
    if not _pauses and _was_enabled:
        gc.enable()


def _in_child() -> None:
    """Of a process that forks, as data loaders do, other threads and their pauses are not in the child."""
    global _lock
    _lock = threading.Lock()
    for pause in _pauses[:]:
        if pause != threading.get_ident():
            _end(pause)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
