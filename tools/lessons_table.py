"""Writes docs/lessons/README.md: the lessons, and what each measured (docs/lessons/measured.json).

    python tools/lessons_table.py [--check]

measured.json, written by the GPU run: {"device": …, "shapes": ["8192x8192x8192", …], "tflops": {"01_naive":
[…], …}}; without it the table says that nothing is measured yet.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "lessons"


def page() -> str:
    """The README's text."""
    measured = FOLDER / "measured.json"
    data = json.loads(measured.read_text()) if measured.exists() else None
    shapes = data["shapes"] if data else ["TFLOP/s"]
    lines = [
        "# The Hopper ladder",
        "",
        "Seven steps from the naive matrix product to the fastest, each a program that runs, is proved and "
        "is tested (`tests/explicit/test_lessons.py`). Read them in order; each says what changed and why.",
        "",
        f"| step | what it adds | {' | '.join(shapes)} |",
        f"| --- | --- | {' | '.join(['---:'] * len(shapes))} |",
    ]
    for path in sorted(FOLDER.glob("0*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        title = doc.splitlines()[0].partition(": ")[2].rstrip(".")
        row = data["tflops"].get(path.stem) if data else None
        cells = [f"{x:.0f}" for x in row] if row else ["not measured yet"] * len(shapes)
        lines.append(f"| [{path.stem}]({path.name}) | {title} | {' | '.join(cells)} |")
    if data:
        lines += ["", f"bf16, {data['device']}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    target = FOLDER / "README.md"
    if "--check" in sys.argv:
        return int(not target.exists() or target.read_text(encoding="utf-8") != page())
    target.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
