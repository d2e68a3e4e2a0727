"""Modules of the corpus that import triton or tilus, with both served from here while they are loaded."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

from warploom.runtime import serve


@functools.cache
def served(name: str) -> Any:
    """The module, loaded so.  Another Triton that a test of this process has loaded is out of sight meanwhile."""
    others = {m: sys.modules.pop(m) for m in [*sys.modules] if m.partition(".")[0] in serve.SERVED}
    serve.serve()
    try:
        return importlib.import_module(name)
    finally:
        serve.stop()
        sys.modules.update(others)
