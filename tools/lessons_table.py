"""Writes docs/lessons/README.md (the table of the lessons) and each lesson's line of what it measured.

    python tools/lessons_table.py [--check]

The figures are those of benchmarks/results/lessons.jsonl, which `python -m benchmarks.lessons --out …` writes
on a GPU.  --check: only say whether all texts are as they should be.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.records import current  # noqa: E402

FOLDER = ROOT / "docs" / "lessons"
MEASURED = re.compile(r"\n\nMeasured[:,].*?(?=\n\n|\n?\"\"\")", re.DOTALL)


def lessons() -> list[Path]:
    return sorted(FOLDER.glob("0*.py"))


def data() -> dict[str, Any]:
    """The device, the shapes, and of each lesson (and cuBLAS) the TFLOP/s at them."""
    report = current("lessons")
    cases = report.by_case()
    names = dict.fromkeys(record.peer for record in report.records)
    return {
        "device": ", ".join(dict.fromkeys(run.device for run in report.runs.values())),
        "shapes": [case.split()[-1] for case in cases],
        "tflops": {
            name: [records[name].median for records in cases.values()]
            for name in names
            if all(name in records for records in cases.values())
        },
    }


def page() -> str:
    """The README's text."""
    found = data()
    shapes = [s.replace("x", "×") for s in found["shapes"]]
    lines = [
        "# The Hopper ladder",
        "",
        "From the naive matrix product to the fastest, step by step: each a program that runs, is proved and "
        "is tested (`tests/explicit/test_lessons.py`). Read them in order; each says what changed and why.",
        "",
        f"| step | what it adds | {' | '.join(shapes)} |",
        f"| --- | --- | {' | '.join(['---:'] * len(shapes))} |",
    ]
    for path in lessons():
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        title = doc.splitlines()[0].partition(": ")[2].rstrip(".")
        row = found["tflops"].get(path.stem)
        cells = [f"{x:.0f}" for x in row] if row else ["not measured"] * len(shapes)
        lines.append(f"| [{path.stem}]({path.name}) | {title} | {' | '.join(cells)} |")
    if "cuBLAS" in found["tflops"]:
        cells = [f"{x:.0f}" for x in found["tflops"]["cuBLAS"]]
        lines.append(f"| | *cuBLAS beside them* | {' | '.join(cells)} |")
    lines += [
        "",
        f"TFLOP/s, bf16, A·Bᵀ, M×N×K, {found['device']}: medians of bursts (`benchmarks/lessons.py`).",
    ]
    return "\n".join(lines) + "\n"


def lesson(path: Path) -> str:
    """A lesson's text, its docstring ending with what was measured."""
    text, found = path.read_text(encoding="utf-8"), data()
    start = text.index('"""')
    end = text.index('"""', start + 3)
    doc = MEASURED.sub("", text[start:end] + '"""')[:-3].rstrip()
    row = found["tflops"].get(path.stem)
    if row:
        figures = ", ".join(f"{x:.0f} at {s}" for x, s in zip(row, found["shapes"], strict=True))
        doc += (
            f"\n\nMeasured, TFLOP/s on an {found['device']} at M×N×K:\n{figures.replace('x', '×')}."
        )
    return f"{text[:start]}{doc}\n{text[end:]}"


def main() -> int:
    wanted = {FOLDER / "README.md": page(), **{path: lesson(path) for path in lessons()}}
    if "--check" in sys.argv:
        return int(
            any(not p.exists() or p.read_text(encoding="utf-8") != t for p, t in wanted.items())
        )
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
