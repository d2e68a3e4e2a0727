"""Timelines, predicted (the simulator's clock) and measured (clock stamps): rows, pictures and traces."""

from warploom.timeline.model import Timeline, from_report
from warploom.timeline.rows import Box, Row

__all__ = ["Box", "Row", "Timeline", "from_report"]
