"""Results as markdown: a table of bursts, one of sustained figures, and perhaps ratios to one peer.

    python -m benchmarks.report out/gemm.jsonl …
    python -m benchmarks.report out/fp8.jsonl … --ours NAME --against PEER --target RATIO

A peer that did not run beside ours counts as its recorded ratio to cuBLAS (`recorded.json`) times this run's
cuBLAS; of the gated pair of products to cuBLAS and a pass of silu·mul, of attention to cuDNN.  The targets
of the project: `benchmarks/targets.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.records import Record, read

RECORDED = Path(__file__).with_name("recorded.json")
CUBLAS_GATED = "cuBLAS, then silu·mul"
CUBLAS, CUDNN, OURS = "cuBLAS", "cuDNN", "warploom"
OWN = ("warploom", "explicit", "reference", "WARP text")
MARGIN = 0.005
Results = dict[str, dict[str, Record]]  # case -> peer -> record


def load(paths: Iterable[Path]) -> Results:
    """Records by case and peer; a later file's record of the same peer replaces an earlier one's."""
    return read(*paths).by_case()


def median(record: Record | None) -> float:
    """TFLOP/s in bursts; NaN for a peer that failed or is absent."""
    return record.median if record else math.nan


def figures(record: Record | None, key: str) -> list[float]:
    """The burst or sustained figures; none of a peer that failed."""
    return [] if record is None or record.error else getattr(record, key)


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
            found = figures(records.get(peer), key)
            if not found:
                cells.append("failed" if peer in records else "-")
                continue
            value = statistics.median(found)
            best = max(statistics.median(x) for r in records.values() if (x := figures(r, key)))
            mark = "**" if value == best else ""
            cells.append(f"{mark}{value:.0f}{mark} ({min(found):.0f}..{max(found):.0f})")
        lines.append(f"| {peer} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recorded(case: str, records: dict[str, Record]) -> dict[str, float]:
    """The figures of this run that peers count with which did not run: by their recorded ratios."""
    known = json.loads(RECORDED.read_text())
    cublas = records.get(CUBLAS, records.get(CUBLAS_GATED))
    anchors = (("burst_to_cublas", cublas), ("burst_to_cudnn", records.get(CUDNN)))
    return {
        name: ratio * median(anchor)
        for key, anchor in anchors
        for name, ratio in known[key].get(case, {}).items()
    }


def best_of(case: str, records: dict[str, Record], peers: Sequence[str] = ()) -> tuple[str, float]:
    """The name and burst of the strongest of the implementations whose names begin so, run or recorded; of
    all that are not warploom's where none are named.  NaN if there is none."""

    def counts(name: str) -> bool:
        return name.startswith(tuple(peers)) if peers else not name.startswith(OWN)

    found = {name: median(record) for name, record in records.items() if counts(name)}
    for name, figure in recorded(case, records).items():
        if counts(name) and math.isnan(found.get(name, math.nan)):
            found[f"{name} (recorded)"] = figure
    found = {name: value for name, value in found.items() if not math.isnan(value)}
    name = max(found, key=lambda n: found[n], default="")
    return name, found.get(name, math.nan)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def against(results: Results, ours: str, peer: str, target: float) -> tuple[str, bool]:
    """The ratios of ours to one peer, run or recorded; whether their geometric mean meets the target."""
    lines = [f"| case | {ours} | {peer} | ratio |", "|---|---|---|---|"]
    ratios = []
    for case, records in results.items():
        mine, other = median(records.get(ours)), median(records.get(peer))
        if math.isnan(other):
            other = recorded(case, records).get(peer, math.nan)
        lines.append(f"| {case} | {mine:.0f} | {other:.0f} | {mine / other:.3f} |")
        ratios.append(mine / other)
    mean = geometric_mean(ratios)
    met = mean >= target - MARGIN
    lines += ["", f"Geometric mean: **{mean:.3f}** (target {target}: {'met' if met else 'MISSED'})"]
    return "\n".join(lines), met


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Benchmark results as markdown")
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--ours", default=OURS, help=f"whose ratio (default {OURS})")
    parser.add_argument("--against", help="the ratio to this peer as well")
    parser.add_argument("--target", type=float, default=1.0, help="what that ratio has to reach")
    args = parser.parse_args(argv)
    results = load(args.results)
    print(*(table(results, key) for key in ("burst", "sustained")), sep="\n\n")
    if not args.against:
        return 0
    text, met = against(results, args.ours, args.against, args.target)
    print(f"\n{text}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
