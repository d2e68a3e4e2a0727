"""Writes the tables of docs/triton.md and docs/tilus.md: their names, and what each is here.

They are those of warploom/triton/names.py and warploom/tilus/names.py.

python tools/door_reference.py            write the pages
python tools/door_reference.py --check    exit 1 where one is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from warploom.runtime.doors import Module
from warploom.tilus.names import MODULES as TILUS
from warploom.triton.names import MODULES as TRITON

DOCS = Path(__file__).parents[1] / "docs"
PAGES = {DOCS / "triton.md": TRITON, DOCS / "tilus.md": TILUS}
BEGIN, END = "<!-- names: tools/door_reference.py -->", "<!-- /names -->"


def table(name: str, module: Module) -> Iterator[str]:
    """A module's section: the names that are the same in a line, the others in a table."""
    same = [n for n in module.all if module.status(n)[0] == "same"]
    yield f"### {name}"
    yield ""
    if same:
        yield f"Same ({len(same)}): {', '.join(f'`{n}`' for n in same)}."
        yield ""
    if module.absent:
        named = f": {', '.join(f'`{n}`' for n in module.all)}" * bool(module.all)
        yield f"Missing, {module.absent}{named}."
        yield ""
        return
    others: dict[tuple[str, str], list[str]] = {}
    for n in module.all:
        if n not in same:
            others.setdefault(module.status(n), []).append(f"`{n}`")
    if others:
        yield "| name | here | why, or what instead |"
        yield "|---|---|---|"
        for (status, why), names in sorted(
            others.items(), key=lambda entry: (entry[0][0], entry[1])
        ):
            yield f"| {', '.join(names)} | {status} | {why} |"
        yield ""


def page(file: Path, modules: Mapping[str, Module]) -> str:
    """A page with current tables."""
    before, _, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [line for name, module in modules.items() for line in table(name, module)]
    return f"{before}{BEGIN}\n{chr(10).join(lines).rstrip()}\n{END}{after}"


def main() -> int:
    texts = {file: page(file, modules) for file, modules in PAGES.items()}
    if "--check" in sys.argv[1:]:
        current = all(text == file.read_text(encoding="utf-8") for file, text in texts.items())
        print("current" if current else "run tools/door_reference.py")
        return 0 if current else 1
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
