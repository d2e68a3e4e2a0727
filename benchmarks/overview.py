"""The figure of the README: what the records say of each kernel, in one picture (`benchmarks.bars --write`).

Geometric means, over a group's cases, of burst throughput relative to the vendor's library.  A bar has the
cases in which its implementation was measured, or recorded, beside the library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.chart import save
from benchmarks.groups import Group
from benchmarks.report import CUBLAS, CUBLAS_GATED, CUDNN, Results, best_of, geometric_mean, median

SERIES = {
    "warploom, Triton-style source": "#b3410e",
    "warploom, by hand": "#f0b27a",
    "cuBLAS, cuDNN": "#1f4e79",
    "best of Triton": "#7fb8a6",
    "best of FlashAttention-3, Gluon, quack …": "#a6a6a6",
}
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


def draw(shown: Mapping[str, Mapping[str, float]], title: str, file: Path) -> None:
    """`shown`: heights by group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 3.2))
    axes = figure.add_subplot()
    width = 0.84 / len(SERIES)
    for at, found in enumerate(shown.values()):
        for i, (series, height) in enumerate(found.items()):
            left = at + (i - (len(found) - 1) / 2) * width
            axes.bar(left, height, 0.92 * width, color=SERIES[series])
            axes.text(left, height + 0.01, f"{height:.2f}", ha="center", fontsize=6)
    for series, colour in SERIES.items():
        axes.bar(0, 0, color=colour, label=series)
    axes.axhline(1.0, color=SERIES["cuBLAS, cuDNN"], linewidth=0.6, zorder=0)
    axes.set_xticks(range(len(shown)), list(shown), fontsize=7.5)
    axes.set_ylabel("throughput, library = 1", fontsize=8)
    axes.set_title(title, fontsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=7, ncols=5, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)
    save(figure, file)
