"""tests/kept.py: bytecode that outlives its clone."""

from __future__ import annotations

import os
import py_compile
import shutil
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from tests import kept


def test_bytecode_serves_another_clone_as_long_as_the_source_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESTS_NVRTC_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)

    def clone(name: str, **texts: str) -> Path:
        monkeypatch.setattr(kept, "ROOT", tmp_path / name)
        folder = tmp_path / name / "warploom"
        folder.mkdir(parents=True)
        for stem, text in texts.items():
            (folder / f"{stem}.py").write_text(text)
        return folder

    first = clone("first", same="x = 1", other="x = 1", stale="x = 1")
    for source in first.glob("*.py"):
        os.utime(source, (1, 1))
        py_compile.compile(str(source))
    (first / "stale.py").write_text("x = 2")
    kept.keep_bytecode()
    shutil.rmtree(tmp_path / "first")
    second = clone("second", same="x = 1", other="x = 3", stale="x = 2")
    os.utime(second / "same.py", (1, 1))
    kept.restore_bytecode()
    (found,) = (second / "__pycache__").iterdir()
    assert found.name.startswith("same.")
    monkeypatch.setattr(SourceFileLoader, "source_to_code", None)  # is not called
    code = SourceFileLoader("same", str(second / "same.py")).get_code("same")
    assert code is not None and code.co_filename == str(second / "same.py")
