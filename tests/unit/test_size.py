"""tools/size.py: what counts as a line of code, and that a budget only falls."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools import size

TEXT = '''"""A docstring
of two lines."""

import os  # counts


class A:
    """Not this."""

    # nor this
    def f(self, x):
        """Nor this."""
        return (
            x
            + 1
        )

    text = """this

    # does"""
'''
TREE = ast.parse(TEXT)


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings() -> None:
    # import, class, def, return with four lines, text with three
    assert size.code_lines(TREE, TEXT.splitlines()) == 10


def test_functions_are_named_with_their_classes() -> None:
    assert list(size.functions(TREE)) == [("A.f", 6)]


def test_a_budget_names_what_is_over_it_and_only_falls() -> None:
    budget = {
        "code lines": {"ir": 10, "sim": 5},
        "long files": {"ir/a.py": 500},
        "long functions": {},
    }
    found = {
        "code lines": {"ir": 9, "sim": 6, "new": 1},
        "long files": {},
        "long functions": {"ir/b.py:f": 70},
    }
    assert size.over(found, budget) == [
        "code lines: sim has 6, the budget has 5",
        "code lines: new has 1, the budget has none",
        "long functions: ir/b.py:f has 70, the budget has none",
    ]
    fallen = size.lowered(found, budget)
    assert fallen == {"code lines": {"ir": 9, "sim": 5}, "long files": {}, "long functions": {}}
    assert size.lowered(found, budget, ["sim"])["code lines"] == {"ir": 9, "sim": 6}
    assert size.lowered(found, budget, ["ir/b.py"])["long functions"] == {"ir/b.py:f": 70}


def test_no_file_of_the_package_is_long() -> None:
    files = [p for p in (size.ROOT / size.PACKAGE).rglob("*") if p.suffix in (".py", ".cuh")]
    assert len(files) > 400
    assert not [p.name for p in files if len(p.read_text().splitlines()) > 600]


@pytest.mark.thorough  # `make check` runs it
def test_it_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/size.py"],
        cwd=size.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    budget = json.loads(size.BUDGET.read_text())
    wrong = size.over(size.measured(), budget)
    assert done.returncode == bool(wrong) and done.stderr.splitlines() == wrong
    assert f"code lines at {budget['since']['commit']}" in done.stdout
