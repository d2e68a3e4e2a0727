"""docs/eject.md shows what is ejected now; the command line prints the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_docs import blocks
from warploom.cli import main
from warploom.cli.console import EXIT

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "eject.md"


def test_the_page_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "eject_example.py"), "--check"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "WARPLOOM_CACHE": "off"}
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = blocks(PAGE)
    source = "\n".join(text.split("\n")[: text[: text.index("# mypy")].count("\n")])
    (tmp_path / "eject.py").write_text(source)
    arguments = ["eject", f"{tmp_path / 'eject.py'}:matmul", "--signature"]
    arguments += ["*bf16:16 *bf16:16 *bf16:16 i32:16 i32:16 i32:16"]
    for fixed in ("BLOCK_M=128", "BLOCK_N=256", "BLOCK_K=64"):
        arguments += ["--constexpr", fixed]
    assert main(arguments) == EXIT.ok
    printed = capsys.readouterr().out
    assert printed in PAGE.read_text()
    assert main([*arguments, "-o", str(tmp_path / "owned.py")]) == EXIT.ok
    assert (tmp_path / "owned.py").read_text() == printed
