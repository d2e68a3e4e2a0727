"""Boxes of time, in rows: what timelines are made of."""

from __future__ import annotations

from dataclasses import dataclass

WAIT = "wait"


@dataclass(frozen=True)
class Box:
    """`label` (an op) held `unit` from `start` to `end`, in cycles since the program's start.

    Where `unit` is "wait", nothing was done; `cause` names what was waited for.
    """

    start: float
    end: float
    unit: str
    label: str
    cause: str = ""


@dataclass(frozen=True)
class Row:
    """Boxes of one agent that never overlap, in order of time."""

    agent: str
    unit: str  # "" for the agent's own row: its waits and what it does itself
    boxes: tuple[Box, ...]

    @property
    def name(self) -> str:
        return f"{self.agent} · {self.unit}" if self.unit else self.agent

    def busy(self) -> float:
        """Cycles in which this row was not waiting."""
        return sum(box.end - box.start for box in self.boxes if box.unit != WAIT)


@dataclass(frozen=True)
class TimelineRows:
    """What a picture shows of a program.  `cycles`: until its last agent ends, as the report has it; of one
    program among several, until its last event."""

    title: str
    rows: tuple[Row, ...]
    cycles: float
    origin: str = "predicted"  # or "measured"

    def utilisation(self, unit: str) -> float:
        """The share of the cycles during which `unit` worked for at least one agent, 0 to 1."""
        spans = sorted((b.start, b.end) for row in self.rows for b in row.boxes if b.unit == unit)
        busy, reached = 0.0, 0.0
        for start, end in spans:
            busy += max(0.0, end - max(start, reached))
            reached = max(reached, end)
        return busy / self.cycles if self.cycles else 0.0
