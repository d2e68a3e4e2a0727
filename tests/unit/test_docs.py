"""Every Python block of the README and of docs/ runs; later blocks of a file see what earlier ones made."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / f"{page.stem}.py"  # a file, as kernels need one: their source is read
    module.write_text(blocks(page))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(module), run_name="__main__")


def test_blocks_keep_their_lines() -> None:
    text = (ROOT / "README.md").read_text().splitlines()
    made = blocks(ROOT / "README.md").splitlines()
    line = next(i for i, t in enumerate(text) if t == "@wl.jit")
    assert made[line] == "@wl.jit"


def test_links_to_files_lead_somewhere() -> None:
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
