"""What docs/performance.md and docs/log say of the records: tables and charts, made from benchmarks/results.

    python -m benchmarks.page      # writes the pages' tables, the log's index and the figures; needs no GPU

A table stands between two marks that name it.  `tests/unit/test_benchmarks.py` holds that it is what the
records say.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import overview, targets
from benchmarks.cases import Attention, Case, Dual, Fp8, Gemm
from benchmarks.chart import draw
from benchmarks.groups import GROUPS
from benchmarks.records import Record, current
from benchmarks.report import MARGIN, geometric_mean, median

DOCS = Path(__file__).parents[1] / "docs"
PAGE, LOG, FIGURES = DOCS / "performance.md", DOCS / "log", DOCS / "figures"

# One H200: 4096 operations of bf16 a clock and SM (8192 of e4m3), 132 SMs, 1.98 GHz (NVIDIA H200 data sheet:
# 989 at the boost clock of 1.83 GHz); memory as a copy reaches it, read plus written.
PEAK = {"bf16": 1070.0, "fp16": 1070.0, "e4m3": 2140.0}
MEMORY = 4.28

FLOORS: tuple[tuple[Case, str], ...] = (
    (Gemm(8192, 8192, 8192), "warploom"),
    (Gemm(4096, 4096, 4096), "warploom"),
    (Gemm(2048, 2048, 2048), "warploom"),
    (Gemm(8192, 8192, 512), "warploom"),
    (Gemm(64, 8192, 8192), "warploom"),
    (Fp8(8192, 8192, 8192), "warploom fp8"),
    (Dual(8192, 8192, 8192), "warploom dual"),
    (Attention(1, 16, 16384, 128, False), "warploom, automatic"),
    (Attention(4, 16, 4096, 128, True), "warploom, automatic"),
    (Attention(4, 32, 4096, 64, False), "warploom, automatic"),
)


def moved(case: Case) -> int:
    """Bytes that a case moves at least: every operand and result once."""
    match case:
        case Gemm():
            return 2 * (case.m * case.k + case.n * case.k + case.m * case.n)
        case Fp8():
            return case.k * (case.m + case.n) + 2 * case.m * case.n
        case Dual():
            size = 1 if case.dtype == "e4m3" else 2
            return size * case.k * (case.m + 2 * case.n) + 2 * case.m * case.n
        case Attention():
            return 4 * 2 * case.batch * case.heads * case.seq * case.d
    raise ValueError(f"no floor is known of {case.name}")


def floors() -> str:
    """A row a case: what the card allows, and what was measured."""
    found = targets.last()
    lines = [
        "| case | tensor cores, µs | memory, µs | measured, µs | of the floor |",
        "|---|---:|---:|---:|---:|",
    ]
    for case, ours in FLOORS:
        dtype = "e4m3" if isinstance(case, Fp8) else case.dtype
        compute, memory = case.flops / PEAK[dtype] / 1e6, moved(case) / MEMORY / 1e6
        us = case.flops / median(found[case.name][ours]) / 1e6
        figures = f"{compute:.1f} | {memory:.1f} | {us:.1f} | {max(compute, memory) / us:.0%}"
        lines.append(f"| {case.name} | {figures} |")
    return "\n".join(lines)


def standing() -> str:
    return targets.table(targets.last())


def judged() -> str:
    text, _ = targets.judged(targets.last())
    return text


def others() -> str:
    """A row a family of kernels that were written for Triton: the time of Triton's build to that of ours."""
    plain, corpus = current("plain").by_case(), current("corpus").by_case()
    families = {
        "kernels without a product, and Triton's tutorials": plain,
        "attention, decoding, backward passes, states": {
            name: records for name, records in corpus.items() if not name.startswith("product ")
        },
        "products: decoded weights, experts, split K, convolutions …": {
            name: records for name, records in corpus.items() if name.startswith("product ")
        },
    }
    lines = [
        "| kernels written for Triton | both right | Triton's time to ours | at 1.0 or above | least |",
        "|---|---:|---:|---:|---|",
    ]
    for family, cases in families.items():
        found = faster(cases)
        least = min(found, key=lambda case: found[case])
        reached = sum(r >= 1 - MARGIN for r in found.values())
        figures = f"{len(found)} | {geometric_mean(list(found.values())):.2f} | {reached}"
        lines.append(
            f"| {family} | {figures} | {found[least]:.2f}, {least.removeprefix('product ')} |"
        )
    return "\n".join(lines)


def faster(cases: Mapping[str, Mapping[str, Record]]) -> dict[str, float]:
    """Of each case that both have right: Triton's time to ours."""
    found = {}
    for case, records in cases.items():
        if "triton" in records and "warploom" in records:
            ratio = records["triton"].median / records["warploom"].median
            if not math.isnan(ratio):
                found[case] = ratio
    return found


def tool() -> str:
    """What launching and compiling cost."""
    found = current("host").by_case()
    launch = found["launch"]
    lines = ["| | |", "|---|---:|"]
    for name in ("prepared", "call", "call, tuned", "new pointers"):
        lines.append(f"| launch: {name} | {launch[name].median:.1f} µs |")
    for name in ("import", "from the cache"):
        lines.append(f"| {name} | {found[name]['warploom'].median * 1e3:.0f} ms |")
    ours, theirs = found["compile"]["warploom"].median, found["compile"]["Triton"].median
    lines.append(f"| compile a GEMM, cache empty | {ours:.2f} s (Triton: {theirs:.2f} s) |")
    for kernel, seconds in compiling(found).items():
        count = f"{len(seconds)} configurations"
        lines.append(f"| compile {kernel}, {count} | {min(seconds):.2f} to {max(seconds):.2f} s |")
    return "\n".join(lines)


def compiling(found: Mapping[str, Mapping[str, Record]]) -> dict[str, list[float]]:
    """Seconds of the processor for each configuration of the library's kernels, by kernel."""
    seconds: dict[str, list[float]] = {}
    for case, records in found.items():
        kernel, config, _ = case.partition(": ")
        if config:
            seconds.setdefault(kernel.partition(",")[0], []).append(records["warploom"].median)
    return seconds


def front_matter(file: Path) -> dict[str, str]:
    """What stands between the two lines `---` at the top of an experiment's page, and its title.  Raises
    ValueError where that is not so."""
    match = re.match(r"---\n(.*?)\n---\n+# ([^\n]*)\n", file.read_text(encoding="utf-8"), re.DOTALL)
    if match is None:
        raise ValueError(f"{file.name} has no front matter and title")
    pairs = (line.partition(": ") for line in match[1].splitlines())
    return {key: value.strip() for key, _, value in pairs} | {"title": match[2]}


def experiments() -> list[Path]:
    """The pages with front matter, by date."""
    return [file for file in _pages() if file.read_text(encoding="utf-8").startswith("---\n")]


def notes() -> list[Path]:
    """The other pages: what was thought through and not measured."""
    return [file for file in _pages() if file not in experiments()]


def _pages() -> list[Path]:
    return sorted(LOG.glob("[0-9]*.md"))


def index() -> str:
    """A row an experiment, then a line a note."""
    lines = ["| | experiment | predicted | outcome |", "|---|---|---|---|"]
    for file in experiments():
        told = front_matter(file)
        link = f"[{told['title']}]({file.name})"
        lines.append(f"| {file.name[5:10]} | {link} | {told['prediction']} | {told['outcome']} |")
    for file in notes():
        title = file.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"| {file.name[5:10]} | [{title}]({file.name}) | a note | |")
    return "\n".join(lines)


TABLES: dict[Path, dict[str, Callable[[], str]]] = {
    PAGE: {
        "standing": standing,
        "floors": floors,
        "others": others,
        "tool": tool,
        "targets": judged,
    },
    LOG / "README.md": {"index": index},
}


def put(page: str, name: str, text: str) -> str:
    """The page with the text between the marks of this name.  Raises ValueError where it has none."""
    begin, end = f"<!-- {name}: python -m benchmarks.page -->\n", f"<!-- /{name} -->"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"no place for {name}")
    return f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}"


def written(page: Path) -> str:
    """The page as it is to be."""
    text = page.read_text(encoding="utf-8")
    for name, made in TABLES[page].items():
        text = put(text, name, made())
    return text


def draw_charts() -> None:
    """A chart of each group's cases, and the README's."""
    found = targets.last()
    for name in dict.fromkeys(group.record for group in GROUPS):
        cases = [c.name for g in GROUPS if g.record == name for c in g.shapes]
        records = [r for case in dict.fromkeys(cases) for r in found.get(case, {}).values()]
        devices = [run.device for run in current(name.partition("_")[0]).runs.values()]
        draw(records, ", ".join(dict.fromkeys(devices)), FIGURES / f"bench_{name}.svg")
    overview.draw(overview.groups(found), FIGURES / "overview.svg")


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0]).parse_args()
    for page in TABLES:
        page.write_text(written(page), encoding="utf-8")
    draw_charts()
    return 0


if __name__ == "__main__":
    sys.exit(main())
