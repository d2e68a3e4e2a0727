"""Pauses Python's garbage collector while trees of ops are made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pauses = 0  # that are under way, of all threads
_was_enabled = False  # before the first of these


@contextmanager
def paused_collector() -> Iterator[None]:
    """Leaves cycles to later passes of the collector.

    Compilations and runs leave few, and a full pass looks at all that the process has: half a second where
    torch is loaded, which a pass for the many objects of one kernel would take again and again."""
    global _pauses, _was_enabled
    with _lock:
        if not _pauses:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _was_enabled:
                gc.enable()
