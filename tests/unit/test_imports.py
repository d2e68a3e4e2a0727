"""The import-direction rule of docs/architecture.md, read from the sources."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import warploom

ROOT = Path(warploom.__file__).parent

# Left to right as the document has it; parts in one set are siblings and never import each other.
ORDER: tuple[frozenset[str], ...] = tuple(
    frozenset(parts.split())
    for parts in (
        "errors",
        "options",
        "target",
        "layout",
        "ir",
        "analysis",
        "schedule",
        "frontend passes check sim codegen",
        "language explicit",
        "compile",
        "timeline explain eject",
        "runtime",
        "kernels tilus triton",
        "bench",
        "cli",
        "__main__",
    )
)
SIBLINGS_ALLOWED = {("check", "sim")}
FACE = "runtime"  # what `import warploom` itself brings in
CUDA_FROM = "runtime"


def test_the_page_has_this_order() -> None:
    page = (ROOT.parent / "docs" / "architecture.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("    errors, options"))
    parts = [frozenset(re.findall(r"\w+", group)) for group in re.split("<|,", line)]
    assert parts == list(ORDER)


def rank(part: str) -> int:
    for i, parts in enumerate(ORDER):
        if part in parts:
            return i
    raise AssertionError(
        f"warploom/{part} has no place in the import order of docs/architecture.md"
    )


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def blocks(node: ast.AST) -> list[ast.AST]:
    """The statements inside a statement, and what holds more of them; an expression imports nothing."""
    lists = (
        getattr(node, name, ()) for name in ("body", "handlers", "orelse", "finalbody", "cases")
    )
    return [x for each in lists if isinstance(each, list) for x in each]


@cache
def imports(path: Path) -> list[tuple[str, int, bool]]:
    """(dotted name, line, at module level) of everything that a file imports when it runs."""
    found: list[tuple[str, int, bool]] = []

    def visit(node: ast.AST, at_top: bool) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            found.extend((a.name, node.lineno, at_top) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            names = [node.module or ""]
            if node.module == "warploom":
                names = [f"warploom.{a.name}" for a in node.names]
            found.extend((name, node.lineno, at_top) for name in names)
        inside = at_top and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in blocks(node):
            visit(child, inside)

    visit(parsed(path), True)
    return found


def violations(part: str, path: Path, root: Path = ROOT.parent) -> list[str]:
    bad = []
    for name, line, at_top in imports(path):
        where = f"{path.relative_to(root)}:{line}"
        pieces = name.split(".")
        if pieces[0] == "warploom":
            other = pieces[1] if len(pieces) > 1 and pieces[1] in known_parts() else FACE
            allowed = rank(other) < rank(part) or (part, other) in SIBLINGS_ALLOWED
            if other != part and not allowed:
                bad.append(f"{where}: {part} imports {name}")
        elif pieces[0] == "cuda" and rank(part) < rank(CUDA_FROM):
            bad.append(f"{where}: CUDA left of {CUDA_FROM}")
        elif pieces[0] == "torch" and at_top:
            bad.append(f"{where}: torch at module level")
    return bad


@cache
def known_parts() -> set[str]:
    return {p.stem for p in ROOT.iterdir() if p.suffix == ".py" or p.is_dir()} - {"__init__"}


def files() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def test_imports_point_left() -> None:
    parts = {path: path.relative_to(ROOT).parts[0].removesuffix(".py") for path in files()}
    assert [v for path, part in parts.items() for v in violations(part, path)] == []


def test_kernels_of_the_corpus_import_neither_tests_nor_benchmarks() -> None:
    """Both take kernels from it; and what is measured does not come from the tests."""
    repository = ROOT.parent
    for folder, others in (("corpus", {"tests", "benchmarks"}), ("benchmarks", {"tests"})):
        for path in sorted((repository / folder).rglob("*.py")):
            found = {name.split(".")[0] for name, _, _ in imports(path)}
            assert not found & others, path.relative_to(repository)


def test_the_rule_finds_what_it_forbids(tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import torch\nfrom warploom.sim import machine\ndef f():\n    import torch, cuda.core\n"
        "if TYPE_CHECKING:\n    import warploom.runtime\nimport warploom\n"
    )
    assert imports(probe) == [
        ("torch", 1, True),
        ("warploom.sim", 2, True),
        ("torch", 4, False),
        ("cuda.core", 4, False),
        ("warploom", 7, True),
    ]
    found = [text.partition(": ")[2] for text in violations("passes", probe, tmp_path)]
    assert found == [
        "torch at module level",
        "passes imports warploom.sim",
        "CUDA left of runtime",
        "passes imports warploom",
    ]
    assert len(violations("cli", probe, tmp_path)) == 1  # torch at module level


def test_the_order_is_the_document_s() -> None:
    text = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    (line,) = (s for s in text.splitlines() if s.strip().startswith("errors, options, target <"))
    groups = [
        g.strip(" {}").replace("+", " ").replace("|", " ").replace(",", " ")
        for g in line.split("<")
    ]
    written = [set(g.split()) for g in groups]
    written[0:1] = [{"errors"}, {"options"}, {"target"}]  # these import each other in this order
    assert written == [set(parts) for parts in ORDER]


LEVELS = ("partition_values", "tile", "task", "warp", "placed", "pipeline")  # of passes/, in order


def test_passes_of_a_level_know_none_of_a_later_one() -> None:
    wrong = []
    for name, asked in needs("warploom").items():
        if name.startswith("warploom.passes."):
            own = LEVELS.index(name.split(".")[2])
            later = {x for x in asked if x.startswith("warploom.passes.")}
            wrong += [f"{name}: {x}" for x in later if LEVELS.index(x.split(".")[2]) > own]
    assert not wrong


def test_files_form_no_circle() -> None:
    """Imports for annotations count: who reads one file of a circle has to read them all."""
    assert circles(needs("warploom", "benchmarks", "corpus")) == []


@cache
def needs(*folders: str) -> dict[str, set[str]]:
    """Module -> modules that it imports anywhere."""
    paths = {}
    for folder in folders:
        for path in (ROOT.parent / folder).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
            paths[name.removesuffix(".__init__")] = path
    found: dict[str, set[str]] = {}
    for name, path in paths.items():
        asked = set()
        nodes: list[ast.AST] = [parsed(path)]
        for node in nodes:  # which grows on the way
            nodes += blocks(node)
            if isinstance(node, ast.Import):
                asked |= {a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{a.name}" for a in node.names}
                asked |= {x if x in paths else str(node.module) for x in inner}
        found[name] = {x for x in asked if x in paths and x != name}
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected parts of more than one node: who can be reached from each other."""
    reached = {}
    for start in graph:
        seen: set[str] = set()
        todo = [start]
        while todo:
            new = graph[todo.pop()] - seen
            seen |= new
            todo += new
        reached[start] = seen
    parts = {frozenset(y for y in reached[x] if x in reached[y]) for x in graph if x in reached[x]}
    return [set(part) for part in sorted(parts, key=sorted) if len(part) > 1]


def test_a_circle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(graph) == [{"b", "c"}]
