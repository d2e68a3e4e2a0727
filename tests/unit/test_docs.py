"""Every Python block of the README and of docs/ runs; later blocks of a file see what earlier ones made.

The README's `text` blocks are what its Python prints: "…" stands for what is left out of a line, or for lines.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def blocks(page: Path) -> str:
    """The page's Python blocks as one module, each on the lines it has in the page."""
    text = page.read_text()
    lines = [""] * text.count("\n")
    for match in BLOCK.finditer(text):
        first = text.count("\n", 0, match.start(1))
        body = match.group(1).splitlines()
        lines[first : first + len(body)] = body
    return "\n".join(lines) + "\n"


WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


def test_the_readme_has_code() -> None:
    assert ROOT / "README.md" in WITH_CODE


def run(source: str, name: str) -> None:
    module = Path(f"{name}.py").resolve()  # a file, as kernels need one: their source is read
    module.write_text(source)
    runpy.run_path(str(module), run_name="__main__")


def prints(text: str, printed: str) -> None:
    """Fails at the first line of `text` that what was printed lacks, or has in another order."""
    rest = iter(printed.splitlines())
    for line in text.splitlines():
        if line.strip() != "…":
            said = re.compile(re.escape(line.strip()).replace("…", ".*"))
            assert any(said.search(other) for other in rest), f"not printed (here): {line}"


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(blocks(page), page.stem)
    if page == ROOT / "README.md":
        *shown, _ = TEXT.findall(page.read_text())
        prints("".join(shown), capsys.readouterr().out)


@pytest.mark.slow
def test_the_readme_shows_what_its_script_says_when_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "README.md"
    wait, release = "self.wgmma.wait_group(0)\n", 'self.mbarrier.arrive(empty[slot], by="warp")\n'
    head, script = blocks(page).split("class Product")
    right = wait + 16 * " " + release
    assert right in script
    broken = script.replace(right, release + 16 * " " + wait).partition("\n\nc[:] = 0")[0]
    imports = "\n".join(line for line in head.splitlines() if line.startswith(("import", "from")))
    arguments = "*[np.zeros((64, 64), ml_dtypes.bfloat16)] * 3, 64, 64, 64"
    check = f"print(Product().check({arguments}).diagnostics[0])"
    run(f"{imports}\nclass Product{broken}\n\n{check}\n", "broken")
    prints(TEXT.findall(page.read_text())[-1], capsys.readouterr().out)


def test_blocks_keep_their_lines() -> None:
    text = (ROOT / "README.md").read_text().splitlines()
    made = blocks(ROOT / "README.md").splitlines()
    line = next(i for i, t in enumerate(text) if t == "@wl.jit")
    assert made[line] == "@wl.jit"


def test_links_to_headings_lead_somewhere() -> None:
    def anchors(page: Path) -> set[str]:
        heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}

    for page in PAGES:
        for file, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
            there = page.parent / file if file else page
            assert anchor in anchors(there), f"{page.name}: {file}#{anchor}"


def test_the_table_of_passes_is_current() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "pass_table.py"))
    assert tool["page"]() == (ROOT / "docs" / "architecture.md").read_text(), (
        "run tools/pass_table.py"
    )


def test_the_architecture_is_a_short_page() -> None:
    """Two pages and the table of passes: what else there is to say stands in docs/internals."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    before, after = text.split("<!-- passes")[0], text.split("<!-- /passes -->")[1]
    assert len((before + after).split()) < 1_500


def test_the_files_that_pages_name_exist() -> None:
    missing = [
        f"{page.name}: {name}"
        for page in PAGES
        for name in re.findall(r"`((?:\w+/)+\w+\.(?:py|md|ir|cu|json))`", page.read_text())
        if name not in ("passes/name.py", "third_party/nvidia/backend/compiler.py")
        and not any(
            (ROOT / base / name).exists() for base in ("", "warploom", "docs", "benchmarks")
        )
        and not list(ROOT.glob(f"warploom/*/{name}"))
    ]
    assert not missing


def test_every_decision_and_pass_is_in_the_architecture() -> None:
    pages = [ROOT / "docs" / "architecture.md", *(ROOT / "docs" / "internals").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    files = [
        f
        for d in ("passes", "schedule", "analysis")
        for f in (ROOT / "warploom" / d).rglob("[a-z]*.py")
    ]
    assert not [f.stem for f in files if not re.search(rf"\b{f.stem}\b", text)]


def test_links_to_files_lead_somewhere() -> None:
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        prose = re.sub(r"`[^`\n]*`", "", prose)
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
