"""docs/ops.md is what the declarations say, and every op has a docstring."""

import subprocess
import sys
from pathlib import Path

from warploom.ir.core import KINDS

ROOT = Path(__file__).parents[2]


def test_the_reference_is_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "op_reference.py"), "--check"]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={"PYTHONPATH": "."}
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_op_is_in_it_and_documented() -> None:
    text = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8")
    for name, kind in KINDS.items():
        assert kind.doc.strip(), f"{name} has no docstring"
        assert text.count(f"\n### `{name}(") == 1
