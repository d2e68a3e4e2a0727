"""Tilus files under warploom.tilus."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from warploom.errors import CompileError

HERE = Path(__file__).parent


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_blackwell_kernel_parses_and_stops_at_tcgen05() -> None:
    kernel = load(HERE / "tilus_blackwell.py").Matmul()
    assert len(kernel.schedules) == 4  # two decorators of two rows
    with pytest.raises(CompileError) as e:
        kernel.compile(["i32:16"] + ["*fp16:16"] * 3, {"n_size": 4096, "k_size": 4096})
    assert e.value.code == "not-yet"
    assert e.value.loc is not None
    line = (HERE / "tilus_blackwell.py").read_text().splitlines()[e.value.loc.line - 1]
    assert "tcgen05.alloc" in line
