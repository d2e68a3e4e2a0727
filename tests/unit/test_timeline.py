"""Timelines: rows without overlap, windows, utilisation, pictures and traces."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from warploom.sim.report import Event, SimReport
from warploom.timeline.model import Timeline, from_report
from warploom.timeline.render import draw, trace, write_trace


def report() -> SimReport:
    """A producer and a consumer: TMA runs while the producer waits, wgmma while the consumer does."""
    events = []
    for k in range(3):
        t = 100.0 * k
        events += [
            Event(0, "producer", "issue", "tma_load", t, t + 10),
            Event(0, "producer", "tma", "loop0/load0", t + 10, t + 120),  # overlaps the next one
            Event(0, "producer", "wait", "mbarrier_wait", t + 10, t + 100, "empty[0]"),
            Event(0, "consumer[0]", "wait", "mbarrier_wait", t, t + 60, "full[0]"),
            Event(0, "consumer[0]", "tensor", "loop0/dot0", t + 60, t + 110),
            Event(0, "consumer[0]", "wait", "wgmma_wait", t + 70, t + 100, "wgmma group"),
        ]
    events.append(Event(1, "producer", "tma", "loop0/load0", 0, 1000))  # another program
    events.append(Event(0, "producer", "issue", "empty", 5, 5))  # takes no time: not drawn
    return SimReport(events, 1000.0, 2)


@pytest.fixture
def timeline() -> Timeline:
    return from_report(report(), "specialized")


def test_rows_are_agents_and_the_engines_that_work_meanwhile(timeline: Timeline) -> None:
    names = [row.name for row in timeline.rows]
    assert names == [
        "producer",
        "producer · tma",
        "producer · tma",
        "consumer[0]",
        "consumer[0] · tensor",
    ]
    assert timeline.cycles == 320  # of program 0 alone


def test_boxes_of_a_row_never_overlap_and_none_is_lost(timeline: Timeline) -> None:
    for row in timeline.rows:
        for before, after in zip(row.boxes, row.boxes[1:], strict=False):
            assert before.end <= after.start
    assert sum(len(row.boxes) for row in timeline.rows) == 18


def test_utilisation_counts_a_moment_once(timeline: Timeline) -> None:
    assert timeline.utilisation("tma") == pytest.approx(310 / 320)  # 10..120, 110..220, 210..320
    assert timeline.utilisation("tensor") == pytest.approx(150 / 320)
    assert timeline.utilisation("absent") == 0


def test_window_clips(timeline: Timeline) -> None:
    part = timeline.window(100, 200)
    boxes = [box for row in part.rows for box in row.boxes]
    assert boxes and all(100 <= b.start < b.end <= 200 for b in boxes)
    assert len(part.rows) == len(timeline.rows)


def test_empty_report_has_no_rows() -> None:
    empty = from_report(SimReport(), "nothing")
    assert empty.rows == () and empty.cycles == 0 and empty.utilisation("tma") == 0


def test_one_program_takes_as_long_as_its_report_says() -> None:
    several = report()
    alone = replace(several, programs=1)
    assert from_report(alone, "x").cycles == alone.cycles == 1000
    assert from_report(several, "x").cycles < 1000  # until its last event


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("suffix", [".svg", ".png"])
@pytest.mark.each(3)
def test_draws_without_a_display(
    timeline: Timeline, tmp_path: Path, suffix: str, stacked: bool
) -> None:
    path = tmp_path / "sub" / f"timeline{suffix}"
    draw([from_report(report(), "uniform"), timeline], path, stacked=stacked)
    if suffix == ".png":
        assert path.read_bytes().startswith(b"\x89PNG")
    else:
        text = path.read_text()
        ET.fromstring(text)
        assert "specialized" in text and "uniform" in text and "pattern" in text  # hatching


def test_trace_opens_in_perfetto(timeline: Timeline, tmp_path: Path) -> None:
    write_trace([timeline], tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    assert data == json.loads(json.dumps(trace([timeline])))
    spans = [e for e in data["traceEvents"] if e["ph"] == "X"]
    assert len(spans) == 18
    assert {"ts", "dur", "pid", "tid", "name", "cat"} <= spans[0].keys()
    names = {e["tid"]: e["args"]["name"] for e in data["traceEvents"] if e["name"] == "thread_name"}
    wait = next(e for e in spans if e["name"] == "wait: full[0]")
    assert names[wait["tid"]] == "consumer[0]" and wait["dur"] == 0.06


def test_save_goes_by_the_suffix(timeline: Timeline, tmp_path: Path) -> None:
    timeline.save(tmp_path / "t.json")
    timeline.save(str(tmp_path / "t.svg"))
    assert "traceEvents" in (tmp_path / "t.json").read_text()
    assert "<svg" in (tmp_path / "t.svg").read_text()
    with pytest.raises(ValueError, match=r"not 't\.gif'"):
        timeline.save(tmp_path / "t.gif")
