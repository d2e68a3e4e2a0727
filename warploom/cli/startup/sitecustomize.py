"""Serves `import triton` in the processes that a program under `warploom run` starts, where warploom is a
checkout, for which Python reads no warploom.pth; after what else is called sitecustomize."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

others = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
if (spec := PathFinder.find_spec("sitecustomize", others)) and spec.loader:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
if os.environ.get("WARPLOOM_AS_TRITON") == "1":
    import warploom  # noqa: F401
