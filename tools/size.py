"""The size of the code, held against a budget that may only fall.

    python tools/size.py                 # the table, and what is over the budget (exit code 1)
    python tools/size.py --write         # takes the present sizes as the budget, where they are smaller
    python tools/size.py --raise PART…   # … of these parts or files where larger: a reviewer sees the diff

A *code line* is one that is not blank, comment or docstring.  The budget (tools/size.json) has the code
lines of each part of the package, files of more than 400 lines and functions of more than 60, each with its
size; and `since`: what there was before there was a budget.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

ROOT = Path(__file__).resolve().parents[1]
BUDGET = Path(__file__).with_suffix(".json")
PACKAGE = "warploom"
MOST_LINES = 400  # of a file, all of them
MOST_IN_FUNCTION = 60

Sizes = dict[str, dict[str, int]]  # "code lines", "long files", "long functions" -> name -> lines


def code_lines(tree: ast.Module, lines: Sequence[str]) -> int:
    """Lines that hold code, of a module and its text."""
    held = {i for i, line in enumerate(lines, 1) if line.strip() and line.lstrip()[0] != "#"}
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and _is_text(first.value):
                docstrings.update(_lines_of(first))
        elif _is_text(node) and _TRIPLE.match(lines[node.lineno - 1], node.col_offset):
            held.update(_lines_of(node))  # blank ones too, and those that look like comments
    return len(held - docstrings)


_TRIPLE = re.compile(r"""[a-zA-Z]*(\"{3}|'{3})""")


def _is_text(node: ast.AST) -> TypeGuard[ast.Constant | ast.JoinedStr]:
    is_constant = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return is_constant or isinstance(node, ast.JoinedStr)


def _lines_of(node: ast.stmt | ast.expr) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(name with its classes, lines from `def` to the end) of each function."""

    def visit(node: ast.AST, path: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{path}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, len(_lines_of(child))
                yield from visit(child, f"{name}.")
            elif not isinstance(child, ast.expr):  # which hold no functions
                yield from visit(child, path)

    return visit(tree, "")


def measured(root: Path = ROOT) -> Sizes:
    """The sizes of the package under `root`."""
    found: Sizes = {"code lines": {}, "long files": {}, "long functions": {}}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        inner = path.relative_to(root / PACKAGE)
        part = inner.parts[0].removesuffix(".py")
        found["code lines"][part] = found["code lines"].get(part, 0) + code_lines(
            tree, text.splitlines()
        )
        if (lines := text.count("\n")) > MOST_LINES:
            found["long files"][str(inner)] = lines
        for name, lines in functions(tree):
            if lines > MOST_IN_FUNCTION:
                found["long functions"][f"{inner}:{name}"] = lines
    return found


def over(found: Sizes, budget: Sizes) -> list[str]:
    """What is larger than the budget allows; it allows nothing to what it does not name."""
    wrong = []
    for what, sizes in found.items():
        for name, lines in sizes.items():
            limit = budget[what].get(name, 0)
            if lines > limit:
                had = f"the budget has {limit}" if limit else "the budget has none"
                wrong.append(f"{what}: {name} has {lines}, {had}")
    return wrong


def lowered(found: Sizes, budget: Sizes, raised: Sequence[str] = ()) -> Sizes:
    """The budget with what has become smaller, and gone; larger only of the parts and files `raised`."""

    def limit(what: str, name: str, lines: int) -> int:
        if any(name == part or name.startswith((f"{part}/", f"{part}:")) for part in raised):
            return lines
        return min(lines, budget[what].get(name, 0))

    kept = {
        what: {name: limit(what, name, lines) for name, lines in sizes.items()}
        for what, sizes in found.items()
    }
    return {what: {n: x for n, x in sizes.items() if x} for what, sizes in kept.items()}


def table(found: Sizes) -> str:
    rows = sorted(found["code lines"].items(), key=lambda row: -row[1])
    lines = [f"{lines:6} {part}" for part, lines in rows]
    lines.append(f"{sum(found['code lines'].values()):6} code lines in all")
    lines.append(f"{len(found['long files']):6} files over {MOST_LINES} lines")
    lines.append(f"{len(found['long functions']):6} functions over {MOST_IN_FUNCTION} lines")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--raise", dest="raised", nargs="+", default=(), metavar="PART")
    args = parser.parse_args()
    found = measured()
    budget: dict[str, Any] = json.loads(BUDGET.read_text())
    if args.write or args.raised:
        budget = {"since": budget["since"], **lowered(found, budget, args.raised)}
        BUDGET.write_text(json.dumps(budget, indent=1, sort_keys=True) + "\n")
    print(table(found))
    print(
        f"{sum(budget['since']['code lines'].values()):6} code lines at {budget['since']['commit']}"
    )
    wrong = over(found, budget)
    for text in wrong:
        print(text, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
