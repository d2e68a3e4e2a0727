"""Timelines, predicted (the simulator's clock) and measured (clock stamps): rows, pictures and traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warploom.timeline.model import Box, Row, Timeline, from_report

if TYPE_CHECKING:
    from warploom.runtime.compiled import CompiledKernel

__all__ = ["Box", "Row", "Timeline", "from_report", "timeline"]


def timeline(
    kernel: CompiledKernel, *args: Any, grid: Any, program: int = 0, **options: Any
) -> Timeline:
    """The predicted timeline of one program of a launch, which is simulated with these arguments.

    options: the simulator's; `order="timed"`, by the cost table's clock, unless said otherwise.
    """
    report = kernel.simulate(*args, grid=grid, **{"order": "timed", **options})
    kind = "specialized" if kernel.schedule.specialized else "uniform"
    return from_report(report, f"{kernel.name}, {kind}", program)
