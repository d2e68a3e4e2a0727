"""Writes the table of passes into docs/architecture.md, from the pipeline and the passes' docstrings.

python tools/pass_table.py            write it
python tools/pass_table.py --check    exit 1 where it is not current
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

from warploom.ir.core import Level
from warploom.passes.pipeline import PIPELINE, Pass

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- passes: tools/pass_table.py -->\n", "<!-- /passes -->\n"


def table() -> str:
    """A row a pass, in the order in which they first run: file, level after it, first sentence."""
    lines = ["| pass | level after it | what it does |", "|---|---|---|"]
    after: dict[str, list[Level]] = {}
    for row in PIPELINE:
        if isinstance(row, Pass):
            after.setdefault(row.name, []).append(row.after)
    for name, levels in after.items():
        module = importlib.import_module(_modules()[name])
        paragraph = " ".join(inspect.cleandoc(module.__doc__ or "").split("\n\n")[0].split())
        sentence = re.split(r"(?<=[.])\s", paragraph)[0].rstrip(".")
        file = Path(inspect.getfile(module)).relative_to(ROOT)
        reached = ", ".join(dict.fromkeys(level.name for level in levels))
        lines.append(f"| [`{name}`](../{file}) | {reached} | {sentence} |")
    return "\n".join(lines) + "\n"


def _modules() -> dict[str, str]:
    folder = ROOT / "warploom" / "passes"
    files = {f.stem: f for f in folder.glob("*/*.py") if f.stem != "__init__"}
    files |= {f.parent.name: f for f in folder.glob("*/*/__init__.py")}
    return {
        name: ".".join(f.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name, f in files.items()
    }


def page() -> str:
    """docs/architecture.md with the table as it should be."""
    text = FILE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{behind}"


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        return int(FILE.read_text(encoding="utf-8") != wanted)
    FILE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
