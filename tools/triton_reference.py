"""Writes the tables of docs/triton.md: Triton's names, and what each is here (warploom/triton/names.py).

python tools/triton_reference.py            write the page
python tools/triton_reference.py --check    exit 1 where it is not current
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from warploom.triton.names import MODULES, Module

FILE = Path(__file__).parents[1] / "docs" / "triton.md"
BEGIN, END = "<!-- names: tools/triton_reference.py -->", "<!-- /names -->"


def table(name: str, module: Module) -> Iterator[str]:
    """A module's section: the names that are the same in a line, the others in a table."""
    same = [n for n in module.all if module.status(n)[0] == "same"]
    yield f"### {name}"
    yield ""
    yield f"Same ({len(same)}): {', '.join(f'`{n}`' for n in same)}."
    yield ""
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


def page() -> str:
    """docs/triton.md with current tables."""
    before, _, rest = FILE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [line for name, module in MODULES.items() for line in table(name, module)]
    return f"{before}{BEGIN}\n{chr(10).join(lines).rstrip()}\n{END}{after}"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        current = text == FILE.read_text(encoding="utf-8")
        print("current" if current else "run tools/triton_reference.py")
        return 0 if current else 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
