"""docs/tilus.md's tables: complete, current, and true of the package."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path
from typing import Any

import pytest

from warploom.explicit import elements
from warploom.explicit.script import Instructions
from warploom.explicit.surface import NAMESPACES
from warploom.frontend.language.core import METHODS
from warploom.tilus.names import MODULES

ROOT = Path(__file__).parents[2]
NAMESPACE_OF_SELF = ("attrs", "blockIdx", "gridDim", *NAMESPACES)
CURRENT = ("current_num_threads", "current_thread_begin", "current_thread_end")
STOPS = {"self.clc", "self.tcgen05"}  # whose instructions are there, to say that they are not


def has(module: str, name: str) -> bool:
    if module.startswith("tilus"):
        return hasattr(importlib.import_module(f"warploom.{module}"), name)
    if module == "self":
        return hasattr(Instructions, name) or name in (*NAMESPACE_OF_SELF, *CURRENT)
    if module.startswith("self."):
        return hasattr(NAMESPACES[module.removeprefix("self.")], name)
    if module == "register tensors":
        return name in METHODS or name in ("dtype", "shape", "transpose") or hasattr(elements, name)
    return name in ("dtype", "nbytes", "permute", "shape", "transpose")


def test_the_page_is_current() -> None:
    tool: Any = runpy.run_path(str(ROOT / "tools" / "door_reference.py"))
    file = ROOT / "docs" / "tilus.md"
    assert tool["page"](file, MODULES) == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("module", MODULES)
def test_what_is_there_exists_and_what_is_missing_does_not(module: str) -> None:
    table = MODULES[module]
    assert not table.different.keys() & table.missing.keys()
    assert all(len(why) > 5 for why in (*table.different.values(), *table.missing.values()))
    for name in table.all:
        is_missing = table.status(name)[0] == "missing"
        is_stub = is_missing and module.startswith("self")  # refused with what to write instead
        assert has(module, name) is not (is_missing and not is_stub), f"{module}.{name}"
