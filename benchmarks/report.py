"""Results as markdown: a table of bursts, one of sustained figures, and the bars with pass or fail.

    python -m benchmarks.report results/gemm.json … [--ours NAME]
    python -m benchmarks.report results/fp8.json … --ours NAME --against PEER --bar RATIO

A ratio "≥ r" holds if the ratio of burst medians is ≥ r − 0.005.  A peer that did not run beside ours
counts as its recorded ratio to cuBLAS (`recorded.json`) times this run's cuBLAS; of the gated pair of
products to cuBLAS and a pass of silu·mul, of attention to cuDNN.
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
CUBLAS, OURS, UNIFORM = "cuBLAS", "warploom", "warploom, uniform"
CUDNN, FA3 = "cuDNN", "FlashAttention-3"
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
    return statistics.median(record[key])


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


def best_peer(case: str, records: dict[str, dict[str, Any]], ours: str) -> tuple[str, float]:
    """The name and burst of the strongest implementation that is not ours, run or recorded."""
    figures = {
        name: median(record)
        for name, record in records.items()
        if not name.startswith(ours) and not name.startswith("yardstick")
    }
    for name, figure in recorded(case, records).items():
        if math.isnan(figures.get(name, math.nan)):
            figures[f"{name} (recorded)"] = figure
    figures = {name: value for name, value in figures.items() if not math.isnan(value)}
    name = max(figures, key=lambda n: figures[n])
    return name, figures[name]


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values))


def bars(results: Results, ours: str = OURS) -> tuple[str, bool]:
    """The ratios of ours to cuBLAS, to each Triton kernel, to uniform and to the best peer; all met?"""
    lines = ["| case | ours | of cuBLAS | of the best Triton | of uniform | best peer | of it |"]
    lines.append("|---" * 7 + "|")
    to_cublas, to_best, failures = [], [], []
    for case, records in results.items():
        mine = median(records.get(ours))
        if math.isnan(mine):
            failures.append(f"{case}: no figure of {ours}")
            continue
        cublas = mine / median(records.get(CUBLAS))
        triton = [mine / median(r) for name, r in records.items() if name.startswith("Triton")]
        triton = [ratio for ratio in triton if not math.isnan(ratio)]
        uniform = mine / median(records.get(UNIFORM))
        name, figure = best_peer(case, records, ours)
        to_cublas.append(cublas)
        to_best.append(mine / figure)
        if cublas < 0.95 - MARGIN:
            failures.append(f"{case}: {cublas:.3f} × cuBLAS is under 0.95")
        if triton and min(triton) < 1 - MARGIN:
            failures.append(f"{case}: {min(triton):.3f} × the best Triton kernel is under 1.0")
        if uniform < 1 - MARGIN:
            failures.append(f"{case}: {uniform:.3f} × the uniform kernel is under 1.0")
        best_triton = f"{min(triton):.3f}" if triton else "-"
        of_uniform = "-" if math.isnan(uniform) else f"{uniform:.3f}"
        lines.append(
            f"| {case} | {mine:.0f} | {cublas:.3f} | {best_triton} | {of_uniform} "
            f"| {name} {figure:.0f} | {mine / figure:.3f} |"
        )
    if to_cublas:
        for label, ratios, bar in (("cuBLAS", to_cublas, 1.0), ("the best peer", to_best, 0.98)):
            mean = geometric_mean(ratios)
            verdict = "met" if mean >= bar - MARGIN else "MISSED"
            lines += ["", f"Geometric mean, of {label}: **{mean:.3f}** (bar {bar}: {verdict})"]
            if verdict != "met":
                failures.append(f"geometric mean of {label}")
    lines += ["", *(f"- MISSED: {failure}" for failure in failures)]
    return "\n".join(lines).rstrip(), not failures


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


def attention_bars(results: Results, ours: str) -> tuple[str, bool]:
    """Head size 128: ours to FlashAttention-3 (mean ≥ 1.0, each ≥ 0.98) and above cuDNN; head size 64: to
    the best peer (mean ≥ 1.03)."""
    lines = ["| case | ours | of FlashAttention-3 | of cuDNN | best peer | of it |"]
    lines.append("|---" * 6 + "|")
    ratios: dict[int, list[float]] = {}
    failures = []
    for case, records in results.items():
        d = 128 if "D128" in case else 64
        mine = median(records.get(ours))
        if math.isnan(mine):
            failures.append(f"{case}: no figure of {ours}")
            continue
        fa3, cudnn = (mine / median(records.get(name)) for name in (FA3, CUDNN))
        name, figure = best_peer(case, records, "warploom")
        ratios.setdefault(d, []).append(fa3 if d == 128 else mine / figure)
        if d == 128 and fa3 < 0.98 - MARGIN:
            failures.append(f"{case}: {fa3:.3f} × FlashAttention-3 is under 0.98")
        if d == 128 and cudnn <= 1:
            failures.append(f"{case}: {cudnn:.3f} × cuDNN")
        lines.append(
            f"| {case} | {mine:.0f} | {fa3:.3f} | {cudnn:.3f} | {name} {figure:.0f} "
            f"| {mine / figure:.3f} |"
        )
    for d, what, bar in ((128, "FlashAttention-3", 1.0), (64, "the best peer", 1.03)):
        if d in ratios:
            mean = geometric_mean(ratios[d])
            met = mean >= bar - MARGIN
            verdict = "met" if met else "MISSED"
            lines += ["", f"Geometric mean, D{d}, of {what}: **{mean:.3f}** (bar {bar}: {verdict})"]
            failures += [] if met else [f"geometric mean of D{d}"]
    lines += ["", *(f"- MISSED: {failure}" for failure in failures)]
    return "\n".join(lines).rstrip(), not failures


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Benchmark results as markdown")
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--ours", default=OURS, help=f"the implementation judged (default {OURS})")
    parser.add_argument("--against", help="judge by the ratio to this peer alone")
    parser.add_argument("--bar", type=float, default=1.0, help="what that ratio has to reach")
    args = parser.parse_args(argv)
    results = load(args.results)
    if args.against:
        verdicts = [against(results, args.ours, args.against, args.bar)]
    else:
        attention = {case: records for case, records in results.items() if "attention" in case}
        gemm = {case: records for case, records in results.items() if case not in attention}
        verdicts = [bars(gemm, args.ours)] if gemm else []
        if attention:
            verdicts.append(attention_bars(attention, f"{args.ours}, explicit"))
    tables = (table(results, key) for key in ("burst", "sustained"))
    print(*tables, *(text for text, _ in verdicts), sep="\n\n")
    return 0 if all(met for _, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
