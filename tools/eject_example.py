"""Writes the example of docs/eject.md: its first Python block, run and ejected, is its second one.

python tools/eject_example.py            write the file
python tools/eject_example.py --check    exit 1 where the file is not current
"""

from __future__ import annotations

import re
import runpy
import sys
import tempfile
from pathlib import Path

FILE = Path(__file__).parents[1] / "docs" / "eject.md"
BLOCK = re.compile(r"(?<=^```python\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)


def page() -> str:
    """The text of docs/eject.md."""
    text = FILE.read_text(encoding="utf-8")
    source, example, *_ = BLOCK.finditer(text)
    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "eject.py"  # the block on the lines that it has in the page
        module.write_text("\n" * text.count("\n", 0, source.start()) + source.group())
        ejected: str = runpy.run_path(str(module))["ejected"]
    return text[: example.start()] + ejected + text[example.end() :]


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        current = FILE.read_text(encoding="utf-8") == page()
        if not current:
            print(f"{FILE} is not current: run python tools/eject_example.py")
        return 0 if current else 1
    FILE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
