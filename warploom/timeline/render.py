"""Timelines as pictures (SVG, PNG: by matplotlib, without a display) and as a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warploom.analysis.cost import UNITS
from warploom.timeline.rows import WAIT, TimelineRows

# Colours that stay apart for colour-blind readers (Okabe and Ito's palette); dark text reads on each.
_PALETTE = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#F0E442", "#0072B2")
_MAX_LABELLED = 400  # boxes with text; more of them would only be a smudge
_ROW_INCHES, _WIDTH_INCHES, _LABEL_POINTS = 0.42, 9.0, 6.5


def save(timelines: Sequence[TimelineRows], path: Path) -> None:
    """`draw` or `write_trace`, as the suffix says.  Raises ValueError on any but .svg, .png and .json."""
    if path.suffix == ".json":
        write_trace(timelines, path)
    elif path.suffix in (".svg", ".png"):
        draw(timelines, path)
    else:
        raise ValueError(f"a timeline is saved as .svg, .png or .json, not '{path.name}'")


def draw(timelines: Sequence[TimelineRows], path: Path, *, stacked: bool = False) -> None:
    """Writes the timelines on one scale, side by side or one below the other, as `path`'s suffix says (.svg
    or .png).

    A row an agent or engine, a box an op, waits hatched.  The folder is made where it is missing.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    units = _units(timelines)
    known = [*UNITS, *(unit for unit in units if unit not in UNITS)]  # the same in every figure
    colours = {unit: _PALETTE[i % len(_PALETTE)] for i, unit in enumerate(known)}
    rows = [max(1, len(t.rows)) for t in timelines]
    if stacked:
        height = 0.8 * len(rows) + _ROW_INCHES * sum(rows)
        figure = Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
        axes = figure.subplots(
            len(rows), 1, squeeze=False, sharex=True, height_ratios=[row + 0.5 for row in rows]
        )[:, 0]
    else:
        height = 1.6 + _ROW_INCHES * max(rows, default=1)
        figure = Figure(figsize=(_WIDTH_INCHES * len(rows), height), layout="constrained")
        axes = figure.subplots(1, len(rows), squeeze=False, sharex=True)[0]
    start = min((b.start for t in timelines for r in t.rows for b in r.boxes), default=0.0)
    end = max((b.end for t in timelines for r in t.rows for b in r.boxes), default=1.0)
    for axis, timeline in zip(axes, timelines, strict=True):
        _draw_one(axis, timeline, colours, end - start)
        axis.set_xlim(start, end)
    handles = [Patch(facecolor=colours[u], label=u) for u in units]
    handles.append(Patch(facecolor="white", edgecolor="0.5", hatch="////", label=WAIT))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw_one(axis: Any, timeline: TimelineRows, colours: dict[str, str], span: float) -> None:
    for i, row in enumerate(timeline.rows):
        work = [b for b in row.boxes if b.unit != WAIT]
        waits = [b for b in row.boxes if b.unit == WAIT]
        axis.broken_barh(
            [(b.start, b.end - b.start) for b in waits],
            (i - 0.4, 0.8),
            facecolor="none",
            edgecolor="0.6",
            hatch="////",
            linewidth=0.3,
        )
        axis.broken_barh(
            [(b.start, b.end - b.start) for b in work],
            (i - 0.4, 0.8),
            facecolor=[colours[b.unit] for b in work],
            edgecolor="white",
            linewidth=0.5,
        )
        if sum(len(r.boxes) for r in timeline.rows) > _MAX_LABELLED:
            continue
        for box in work:
            # A character takes about 0.6 of the font's height; a label that won't fit is left out.
            inches = (box.end - box.start) / span * _WIDTH_INCHES * 0.8
            text = box.label.rsplit("/", 1)[-1]
            if len(text) * _LABEL_POINTS * 0.6 / 72 < inches:
                middle = (box.start + box.end) / 2
                axis.text(
                    middle, i, text, ha="center", va="center", fontsize=_LABEL_POINTS, clip_on=True
                )
    axis.set_yticks(range(len(timeline.rows)), [row.name for row in timeline.rows])
    axis.set_ylim(len(timeline.rows) - 0.4, -0.6)  # the first row on top
    axis.set_title(summary(timeline), loc="left", fontsize=10)
    if axis.get_subplotspec().is_last_row():
        axis.set_xlabel(f"cycles, {timeline.origin}")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)


def summary(timeline: TimelineRows) -> str:
    """What a figure says above a timeline: its length, and how busy the tensor cores are."""
    busy = timeline.utilisation("tensor")
    share = f", tensor cores busy {busy:.0%}" if busy else ""
    return f"{timeline.title}: {timeline.cycles:,.0f} cycles{share}"


def _units(timelines: Sequence[TimelineRows]) -> list[str]:
    boxes = (box for timeline in timelines for row in timeline.rows for box in row.boxes)
    return list(dict.fromkeys(box.unit for box in boxes if box.unit != WAIT))


def trace(timelines: Sequence[TimelineRows]) -> dict[str, Any]:
    """The timelines in Chrome's trace format, which Perfetto and chrome://tracing open.

    A process a timeline, a thread a row.  The format counts time, not cycles: one cycle is written as
    one nanosecond (the field is in microseconds).
    """
    events: list[dict[str, Any]] = []
    for pid, timeline in enumerate(timelines):
        events.append(_name("process_name", pid, 0, timeline.title))
        for tid, row in enumerate(timeline.rows):
            events.append(_name("thread_name", pid, tid, row.name))
            events.append(
                {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid}
                | {"args": {"sort_index": tid}}
            )
            for box in row.boxes:
                event = {
                    "ph": "X",
                    "name": f"wait: {box.cause}" if box.unit == WAIT else box.label,
                    "cat": box.unit,
                    "ts": box.start / 1000,
                    "dur": (box.end - box.start) / 1000,
                    "pid": pid,
                    "tid": tid,
                    "args": {"op": box.label, "unit": box.unit}
                    | ({"for": box.cause} if box.cause else {}),
                }
                events.append(event)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def write_trace(timelines: Sequence[TimelineRows], path: Path) -> None:
    """Writes `trace` as JSON.  The folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(trace(timelines)) + "\n")
