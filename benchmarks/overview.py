"""The README's figure: throughput of the library's kernels and their peers, relative to the vendor's library.

A panel a group of cases, a bar an implementation, the fastest first.  A bar is the geometric mean over the
cases in which its implementation was measured, or recorded, beside the vendor's library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.chart import save
from benchmarks.groups import GROUPS, Group
from benchmarks.report import CUBLAS, CUBLAS_GATED, CUDNN, Results, best_of, geometric_mean, median

SERIES = {
    "warploom, Triton-style": "#b3410e",
    "warploom, by hand": "#f0b27a",
    "cuBLAS or cuDNN": "#1f4e79",
    "best of Triton": "#7fb8a6",
    "best of the others": "#a6a6a6",
}
LIGHT = {"warploom, by hand", "best of Triton", "best of the others"}  # take dark figures
OTHERS = ("FlashAttention", "Gluon", "quack", "tilelang", "DeepGEMM", "fast.cu", "Mosaic")


def library(group: Group) -> str:
    """The vendor's implementation that a group is held against."""
    if group.record == "fp8":
        return "torch._scaled_mm, " + ("precise" if "promoted" in group.ours else "fast")
    return {"gemm": CUBLAS, "attention": CUDNN}.get(group.record, CUBLAS_GATED)


def heights(group: Group, results: Results) -> dict[str, float]:
    """The bars by series; what nothing was measured of is left out."""

    def relative(figures: Sequence[float]) -> list[float]:
        vendor = [median(records.get(library(group))) for records in results.values()]
        found = [x / y for x, y in zip(figures, vendor, strict=True)]
        return [x for x in found if not math.isnan(x)]

    def own(name: str) -> list[float]:
        return relative([median(records.get(name)) for records in results.values()])

    def best(peers: Sequence[str]) -> list[float]:
        return relative([best_of(case, records, peers)[1] for case, records in results.items()])

    ratios = (
        own(group.ours),
        own(group.by_hand),
        own(library(group)),
        best(group.triton),
        best(OTHERS),
    )
    return {
        series: geometric_mean(found) for series, found in zip(SERIES, ratios, strict=True) if found
    }


def groups(found: Results) -> dict[str, dict[str, float]]:
    """Heights by group.  The second group is part of the first one."""
    shown = {g.title: heights(g, g.cases(found)) for g in GROUPS[:1] + GROUPS[2:]}
    return {title: bars for title, bars in shown.items() if bars}


def draw(shown: Mapping[str, Mapping[str, float]], file: Path) -> None:
    """`shown`: heights by group.  Names stand beside the bars and figures in them, so that none collide."""
    from matplotlib.figure import Figure

    columns = 4
    rows = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(11, 0.4 + 1.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    longest = max(height for bars in shown.values() for height in bars.values())
    for axes in panels.flat:
        axes.set_axis_off()
    for axes, (title, bars) in zip(panels.flat, shown.items(), strict=False):
        axes.set_axis_on()
        ranked = sorted(bars.items(), key=lambda bar: -bar[1])
        for at, (series, height) in enumerate(ranked):
            axes.barh(at, height, 0.82, color=SERIES[series])
            ink = "black" if series in LIGHT else "white"
            bold = "bold" if at == 0 else "normal"
            where = {"va": "center", "ha": "right", "fontsize": 7.5}
            axes.text(height - 0.02, at, f"{height:.2f}", color=ink, weight=bold, **where)
        axes.axvline(1.0, color=SERIES["cuBLAS or cuDNN"], linewidth=0.5, zorder=0)
        axes.set_yticks(range(len(ranked)), [series for series, _ in ranked])
        axes.set_ylim(len(SERIES) - 0.5, -0.5)
        axes.set_xlim(0, 1.02 * longest)
        axes.set_xticks([])
        axes.tick_params(axis="y", labelsize=7, length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(title, fontsize=8.5, loc="left")
    figure.suptitle("Throughput on one H200, relative to cuBLAS or cuDNN", fontsize=10)
    save(figure, file)
