"""A program's timeline, and how it is made of what a run reports."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from warploom.sim.report import Event, SimReport
from warploom.timeline.render import save
from warploom.timeline.rows import WAIT, Box, Row, TimelineRows


@dataclass(frozen=True)
class Timeline(TimelineRows):
    """One program, simulated or measured."""

    def __str__(self) -> str:
        """The length, how busy each unit is, and what each agent waits for."""
        units = dict.fromkeys(b.unit for row in self.rows for b in row.boxes if b.unit != WAIT)
        busy = ", ".join(f"{unit} {self.utilisation(unit):.0%}" for unit in units)
        lines = [f"{self.title}: {self.origin} {self.cycles:,.0f} cycles; busy: {busy}"]
        for agent in dict.fromkeys(row.agent for row in self.rows):
            waits = {cause: n for (cause, a), n in self.stalls().items() if a == agent}
            longest = sorted(waits, key=lambda cause: -waits[cause])
            found = ", ".join(f"{cause} {waits[cause]:,.0f}" for cause in longest)
            lines.append(f"  {agent} waits for {found or 'nothing'}")
        return "\n".join(lines)

    def save(self, path: Path | str) -> None:
        """Writes a picture (.svg, .png) or a trace for Perfetto (.json), as the suffix says."""
        save([self], Path(path))

    def window(self, start: float, end: float) -> Timeline:
        """The part between two times, boxes clipped; times stay those of the whole."""
        rows = []
        for row in self.rows:
            boxes = tuple(
                replace(box, start=max(box.start, start), end=min(box.end, end))
                for box in row.boxes
                if box.end > start and box.start < end
            )
            rows.append(replace(row, boxes=boxes))
        return replace(self, rows=tuple(rows))

    def stalls(self) -> dict[tuple[str, str], float]:
        """Cycles that each agent waited for each barrier (an array of them counts as one), wgmma, or its
        stores: (barrier, agent) -> cycles."""
        found: dict[tuple[str, str], float] = {}
        for row in self.rows:
            for box in row.boxes:
                if box.unit == WAIT:
                    key = re.sub(r"\[\d+\]", "", box.cause), row.agent
                    found[key] = found.get(key, 0.0) + box.end - box.start
        return found


def from_report(
    report: SimReport, title: str, program: int = 0, origin: str = "predicted"
) -> Timeline:
    """The timeline of one program of a simulation, or of a measurement in the same form.

    Agents come in the order in which they begin to work.  Each has a row of its own, with its waits
    and what it does itself, and one more for each engine that works for it meanwhile (TMA, tensor
    core).  That an engine works meanwhile is seen from the events: a unit whose boxes overlap the
    agent's other boxes gets its own row.
    """
    events = [e for e in report.events if e.program == program and e.end > e.start]
    rows: list[Row] = []
    first: dict[str, float] = {}  # when each agent begins to work; waits don't count
    for e in events:
        first.setdefault(e.agent, math.inf)
        if e.unit != WAIT:
            first[e.agent] = min(first[e.agent], e.start)
    for agent in sorted(first, key=lambda a: (first[a], a)):
        mine = [e for e in events if e.agent == agent]
        own = [e for e in mine if e.unit == WAIT]
        apart: list[Row] = []
        for unit in dict.fromkeys(e.unit for e in mine if e.unit != WAIT):
            using = [e for e in mine if e.unit == unit]
            if _disjoint(own + using):
                own += using
            else:
                apart += [Row(agent, unit, lane) for lane in _lanes(using)]
        if own:
            rows.append(Row(agent, "", _boxes(own)))
        rows += apart
    last = max((e.end for e in events), default=0.0)
    return Timeline(title, tuple(rows), report.cycles if report.programs == 1 else last, origin)


def _boxes(events: Iterable[Event]) -> tuple[Box, ...]:
    ordered = sorted(events, key=lambda e: (e.start, e.end))
    return tuple(Box(e.start, e.end, e.unit, e.op, e.cause) for e in ordered)


def _disjoint(events: Iterable[Event]) -> bool:
    ordered = sorted(events, key=lambda e: (e.start, e.end))
    return all(a.end <= b.start for a, b in pairwise(ordered))


def _lanes(events: Iterable[Event]) -> list[tuple[Box, ...]]:
    """As few rows as hold the boxes without overlap, each box in the first row that is free."""
    lanes: list[list[Box]] = []
    for box in _boxes(events):
        free = next((lane for lane in lanes if lane[-1].end <= box.start), None)
        if free is None:
            lanes.append(free := [])
        free.append(box)
    return [tuple(lane) for lane in lanes]
