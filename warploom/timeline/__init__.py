"""Timelines, predicted (the simulator's clock) and measured (clock stamps): rows, pictures and traces."""

from warploom.timeline.model import Box, Row, Timeline, from_report

__all__ = ["Box", "Row", "Timeline", "from_report"]
