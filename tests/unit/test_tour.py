"""docs/tour.py runs, and prints what it says it prints: each `# |` block after the title that it begins with."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.unit.test_docs import prints

ROOT = Path(__file__).parents[2]
TOUR = ROOT / "docs" / "tour.py"


def expected(text: str) -> list[str]:
    """The blocks of lines that begin with `# |`."""
    lines = [line for line in text.splitlines() if line.startswith("# |")]
    blocks = "\n".join(line[3:].strip() for line in lines).split("== ")
    return [f"== {block}" for block in blocks if block]


def test_the_tour_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(TOUR), run_name="__main__")
    printed = capsys.readouterr().out
    sections = {text.partition("\n")[0]: f"== {text}" for text in printed.split("\n== ")[1:]}
    blocks = expected(TOUR.read_text(encoding="utf-8"))
    assert len(blocks) == len(sections) >= 10
    for block in blocks:
        title = block.partition("\n")[0].removeprefix("== ")
        assert title in sections, title
        prints(block, sections[title])


def test_the_tour_leads_somewhere() -> None:
    text = TOUR.read_text(encoding="utf-8")
    named = re.findall(r"(?:docs|warploom|tests)/[\w/.]+\w", text)
    assert len(named) >= 6
    for name in named:
        assert (ROOT / name).exists(), name
    assert "docs/tour.py" in (ROOT / "README.md").read_text(encoding="utf-8")
