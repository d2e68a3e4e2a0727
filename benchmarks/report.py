"""Results as markdown: a table of bursts, one of sustained figures, and perhaps ratios to one peer.

    python -m benchmarks.report results/gemm.json …
    python -m benchmarks.report results/fp8.json … --ours NAME --against PEER --bar RATIO

A peer that did not run beside ours counts as its recorded ratio to cuBLAS (`recorded.json`) times this run's
cuBLAS; of the gated pair of products to cuBLAS and a pass of silu·mul, of attention to cuDNN.  The bars
of the project: `benchmarks/bars.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded.json")
CUBLAS_GATED = "cuBLAS, then silu·mul"
CUBLAS, CUDNN, OURS = "cuBLAS", "cuDNN", "warploom"
OWN = ("warploom", "explicit", "yardstick", "WARP text")
MARGIN = 0.005
Results = dict[str, dict[str, dict[str, Any]]]  # case -> peer -> record


def load(paths: Iterable[Path]) -> Results:
    """Records by case and peer; a later file's record of the same peer replaces an earlier one's."""
    results: Results = {}
    for path in paths:
        for record in json.loads(path.read_text())["results"]:
            results.setdefault(record["case"], {})[record["peer"]] = record
    return results


def median(record: dict[str, Any] | None, key: str = "burst") -> float:
    """TFLOP/s; NaN for a peer that failed or is absent."""
    if not record or record["error"] or not record[key]:
        return math.nan
    return float(statistics.median(record[key]))


def table(results: Results, key: str) -> str:
    """A row a peer, a column a case; the best of a column in bold, the spread in brackets."""
    peers = list(dict.fromkeys(peer for records in results.values() for peer in records))
    lines = [
        "| TFLOP/s, " + key + " | " + " | ".join(results) + " |",
        "|---" * (len(results) + 1) + "|",
    ]
    for peer in peers:
        cells = []
        for records in results.values():
            value = median(records.get(peer), key)
            if math.isnan(value):
                cells.append("failed" if peer in records else "-")
                continue
            best = max(m for r in records.values() if not math.isnan(m := median(r, key)))
            mark = "**" if value == best else ""
            low, high = min(records[peer][key]), max(records[peer][key])
            cells.append(f"{mark}{value:.0f}{mark} ({low:.0f}..{high:.0f})")
        lines.append(f"| {peer} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recorded(case: str, records: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The figures of this run that peers count with which did not run: by their recorded ratios."""
    known = json.loads(RECORDED.read_text())
    cublas = records.get(CUBLAS, records.get(CUBLAS_GATED))
    anchors = (("burst_to_cublas", cublas), ("burst_to_cudnn", records.get(CUDNN)))
    return {
        name: ratio * median(anchor)
        for key, anchor in anchors
        for name, ratio in known[key].get(case, {}).items()
    }


def best_of(
    case: str, records: dict[str, dict[str, Any]], peers: Sequence[str] = ()
) -> tuple[str, float]:
    """The name and burst of the strongest of the implementations whose names begin so, run or recorded; of
    all that are not warploom's where none are named.  NaN if there is none."""

    def counts(name: str) -> bool:
        return name.startswith(tuple(peers)) if peers else not name.startswith(OWN)

    figures = {name: median(record) for name, record in records.items() if counts(name)}
    for name, figure in recorded(case, records).items():
        if counts(name) and math.isnan(figures.get(name, math.nan)):
            figures[f"{name} (recorded)"] = figure
    figures = {name: value for name, value in figures.items() if not math.isnan(value)}
    name = max(figures, key=lambda n: figures[n], default="")
    return name, figures.get(name, math.nan)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def against(results: Results, ours: str, peer: str, bar: float) -> tuple[str, bool]:
    """The ratios of ours to one peer, run or recorded; whether their geometric mean meets the bar."""
    lines = [f"| case | {ours} | {peer} | ratio |", "|---|---|---|---|"]
    ratios = []
    for case, records in results.items():
        mine, other = median(records.get(ours)), median(records.get(peer))
        if math.isnan(other):
            other = recorded(case, records).get(peer, math.nan)
        lines.append(f"| {case} | {mine:.0f} | {other:.0f} | {mine / other:.3f} |")
        ratios.append(mine / other)
    mean = geometric_mean(ratios)
    met = mean >= bar - MARGIN
    lines += ["", f"Geometric mean: **{mean:.3f}** (bar {bar}: {'met' if met else 'MISSED'})"]
    return "\n".join(lines), met


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Benchmark results as markdown")
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--ours", default=OURS, help=f"whose ratio (default {OURS})")
    parser.add_argument("--against", help="the ratio to this peer as well")
    parser.add_argument("--bar", type=float, default=1.0, help="what that ratio has to reach")
    args = parser.parse_args(argv)
    results = load(args.results)
    print(*(table(results, key) for key in ("burst", "sustained")), sep="\n\n")
    if not args.against:
        return 0
    text, met = against(results, args.ours, args.against, args.bar)
    print(f"\n{text}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
