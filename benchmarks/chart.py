"""A report as a picture: a group of bars a case, a bar an implementation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.records import Record

OURS = ("#b3410e", "#e07b39", "#f0b27a", "#f7d9b9")
OTHERS = (
    "#1f4e79", "#2e75b6", "#5b9bd5", "#9dc3e6", "#3b7d6b", "#7fb8a6", "#7f7f7f", "#a6a6a6", "#c9c9c9",
)  # fmt: skip


def is_ours(peer: str) -> bool:
    """Whether warploom compiled it."""
    return peer.startswith(("warploom", "explicit"))


def burst(record: Record) -> float:
    """The median burst of a record; 0 for one that failed."""
    return 0.0 if math.isnan(record.median) else record.median


def draw(records: Sequence[Record], title: str, file: Path) -> None:
    """Draws the records of a report into a .svg, .png or .pdf file.  Whiskers: slowest and fastest burst."""
    from matplotlib.figure import Figure

    cases = list(dict.fromkeys(record.case for record in records))
    peers = list(dict.fromkeys(record.peer for record in records if burst(record)))
    peers.sort(key=lambda peer: not is_ours(peer))  # ours first, else as measured
    ours = sum(map(is_ours, peers))
    by_name = {(record.case, record.peer): record for record in records}
    figure = Figure(figsize=(max(7.0, 1.2 + 0.16 * len(cases) * (len(peers) + 2)), 4.8))
    axes = figure.add_subplot()
    width = 0.84 / max(1, len(peers))
    for i, peer in enumerate(peers):
        found = [(at, by_name.get((case, peer))) for at, case in enumerate(cases)]
        bars = [(at, record) for at, record in found if record is not None and burst(record)]
        heights = [burst(record) for _, record in bars]
        spread = [
            [height - min(record.burst) for height, (_, record) in zip(heights, bars, strict=True)],
            [max(record.burst) - height for height, (_, record) in zip(heights, bars, strict=True)],
        ]
        axes.bar(
            [at + (i - (len(peers) - 1) / 2) * width for at, _ in bars],
            heights,
            0.92 * width,
            yerr=spread,
            error_kw={"linewidth": 0.6},
            color=OURS[i % len(OURS)] if i < ours else OTHERS[(i - ours) % len(OTHERS)],
            label=peer,
        )
    axes.set_xticks(range(len(cases)), [_broken(case) for case in cases], fontsize=7)
    axes.set_ylabel("TFLOP/s, burst")
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize=7, ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    save(figure, file)


def save(figure: Any, file: Path) -> None:
    """The same picture is the same .svg file."""
    from matplotlib import rc_context

    dated = {"Date": None} if file.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "warploom"}):
        figure.savefig(file, bbox_inches="tight", metadata=dated)


def _broken(case: str) -> str:
    """A case's name in two or three lines."""
    words = case.split()
    middle = (len(words) + 1) // 2
    return "\n".join((" ".join(words[:middle]), " ".join(words[middle:])))
