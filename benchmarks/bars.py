"""The bars as data, and where the committed records stand against them.

    python -m benchmarks.bars                   # both tables, from results/*_last*.json
    python -m benchmarks.bars out/fp8.json …    # from other records
    python -m benchmarks.bars --write           # puts them into docs/performance.md and draws its charts

A ratio "≥ r" holds if the ratio of burst medians is ≥ r − 0.005.  A peer that did not run beside ours
counts as its recorded ratio (`benchmarks/report.py`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import overview
from benchmarks.chart import draw
from benchmarks.groups import GROUPS, Bar, Group
from benchmarks.report import (
    MARGIN,
    Results,
    best_of,
    geometric_mean,
    load,
    median,
)

HERE = Path(__file__).parent
LAST = HERE / "results"
RECORDS = "*_last*.json"
PAGE = HERE.parent / "docs" / "performance.md"
FIGURES = PAGE.parent / "figures"
BEGIN, END = "<!-- benchmarks.bars -->", "<!-- /benchmarks.bars -->"


def ratios(results: Results, ours: str, peers: Sequence[str]) -> dict[str, float]:
    """Of each case that has both: ours to the best of the peers."""
    found = {}
    for case, records in results.items():
        _, best = best_of(case, records, peers)
        mine = median(records.get(ours))
        if not math.isnan(mine / best):
            found[case] = mine / best
    return found


def summary(found: dict[str, float]) -> str:
    """Geometric mean and worst."""
    if not found:
        return ""
    return f"{geometric_mean(list(found.values())):.3f} ({min(found.values()):.3f})"


def verdict(group: Group, results: Results, bar: Bar) -> tuple[str, bool]:
    """What was found, and whether it meets the bar; a case without a figure of ours misses it."""
    found = ratios(results, bar.ours, bar.peers)
    absent = [
        case
        for case in group.shapes
        if math.isnan(median(results.get(case.name, {}).get(bar.ours)))
    ]
    if not found:
        return "not measured", False
    met = not absent and geometric_mean(list(found.values())) >= bar.mean - MARGIN
    low = [f"{case} {r:.3f}" for case, r in found.items() if r < bar.each - MARGIN]
    text = "; ".join((summary(found), *low))
    if absent:
        text += f"; {len(absent)} of {len(group.shapes)} cases not measured"
    return text, met and not low


def table(found: Results) -> str:
    """A row a group."""
    lines = [
        "| | automatic, of the best peer | of the best Triton | of by hand | by hand, of the best peer |"
    ]
    lines.append("|---" * 5 + "|")
    for group in GROUPS:
        results = group.cases(found)
        if results:
            pairs = [(group.ours, group.peers), (group.ours, group.triton)]
            if group.by_hand:
                pairs += [(group.ours, (group.by_hand,)), (group.by_hand, group.peers)]
            cells = [summary(ratios(results, ours, peers)) for ours, peers in pairs]
            cells += [""] * (4 - len(cells))
            lines.append(f"| {group.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def bars(found: Results) -> tuple[str, bool]:
    """A row a bar; all met?"""
    lines = ["| bar | asked: mean, each | found: mean (worst) | |", "|---|---|---|---|"]
    all_met = True
    for group in GROUPS:
        results = group.cases(found)
        for bar in group.bars if results else ():
            text, met = verdict(group, results, bar)
            all_met &= met
            asked = ", ".join(f"{x:g}" if x else "–" for x in (bar.mean, bar.each))
            what = f"{group.name}: {bar.ours} of {bar.of}"
            lines.append(f"| {what} | {asked} | {text} | {'met' if met else '**missed**'} |")
    return "\n".join(lines), all_met


def standing(found: Results) -> tuple[str, bool]:
    """Both tables; whether all bars are met."""
    judged, met = bars(found)
    return f"{table(found)}\n\n{judged}\n", met


def put(page: str, text: str) -> str:
    """The page with the text between its marks."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}"


def chart(name: str, files: Sequence[Path]) -> None:
    """Draws a record into docs/figures."""
    reports = [json.loads(file.read_text()) for file in files]
    records = [record for report in reports for record in report["results"]]
    draw(records, _title(files), FIGURES / f"bench_{name}.svg")


def _title(files: Sequence[Path]) -> str:
    machines = [json.loads(file.read_text())["machine"] for file in files]
    commits = ", ".join(dict.fromkeys(where["commit"][:7] for where in machines))
    return f"{machines[0]['device']}, {machines[0]['date'][:10]}, {commits}"


def draw_overview(files: Sequence[Path], file: Path) -> None:
    """The README's figure: all groups in one."""
    found = load(files)
    shown = {
        group.name: overview.heights(group, group.cases(found)) for group in GROUPS[:1] + GROUPS[2:]
    }
    overview.draw({name: bars for name, bars in shown.items() if bars}, _title(files), file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="into the documentation")
    args = parser.parse_args()
    if args.write and args.results:
        parser.error("only the committed records go into the documentation")
    text, met = standing(load(args.results or sorted(LAST.glob(RECORDS))))
    print(text)
    if args.write:
        PAGE.write_text(put(PAGE.read_text(), text))
        for name in dict.fromkeys(group.record for group in GROUPS):
            chart(name, sorted(LAST.glob(f"{name}_last*.json")))
        draw_overview(sorted(LAST.glob(RECORDS)), FIGURES / "overview.svg")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
