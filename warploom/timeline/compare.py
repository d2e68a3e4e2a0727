"""The predicted and the measured timeline of one program, side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from warploom.timeline.model import Timeline
from warploom.timeline.render import save


@dataclass(frozen=True)
class Comparison:
    """plain_ms, stamped_ms: median time of a launch of the kernel, and of the kernel with its clock stamps
    (CUDA events).  is_cut: an agent made more stamps than there was room for."""

    predicted: Timeline
    measured: Timeline
    plain_ms: float
    stamped_ms: float
    is_cut: bool = False

    def __post_init__(self) -> None:
        """Agents stand in the same order in both."""
        order = list(dict.fromkeys(r.agent for r in (*self.predicted.rows, *self.measured.rows)))
        rows = sorted(self.measured.rows, key=lambda r: order.index(r.agent))
        object.__setattr__(self, "measured", replace(self.measured, rows=tuple(rows)))

    @property
    def overhead(self) -> float:
        """What the stamps cost: 0.02 is 2 % of the kernel's time."""
        return self.stamped_ms / self.plain_ms - 1

    def save(self, path: Path | str) -> None:
        """Writes a picture of both (.svg, .png) or a trace for Perfetto (.json), as the suffix says."""
        save([self.predicted, self.measured], Path(path))

    def window(self, cycles: float) -> Comparison:
        """The first part of both, boxes clipped, without the rows in which nothing has happened yet."""
        parts = [t.window(0, cycles) for t in (self.predicted, self.measured)]
        begun = [replace(t, rows=tuple(r for r in t.rows if r.boxes)) for t in parts]
        return replace(self, predicted=begun[0], measured=begun[1])

    def stalls(self) -> str:
        """Cycles stalled at each barrier, by agent, as a table (Markdown); the longest measured first."""
        predicted, measured = self.predicted.stalls(), self.measured.stalls()
        keys = {**measured, **predicted}
        both = {key: (predicted.get(key, 0.0), measured.get(key, 0.0)) for key in keys}
        rows = sorted(both.items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))
        lines = [
            "| waits for | agent | predicted | measured | of its time |",
            "|---|---|---:|---:|---:|",
        ]
        for (barrier, agent), (p, m) in rows:
            share = m / self.measured.cycles if self.measured.cycles else 0.0
            lines.append(f"| {barrier} | {agent} | {p:,.0f} | {m:,.0f} | {share:.0%} |")
        return "\n".join(lines)

    def __str__(self) -> str:
        cut = "; the records were full before the end" if self.is_cut else ""
        return (
            f"{self.measured.title}: predicted {self.predicted.cycles:,.0f} cycles, measured "
            f"{self.measured.cycles:,.0f}{cut}\n"
            f"a launch takes {1e3 * self.plain_ms:.1f} µs, with stamps {1e3 * self.stamped_ms:.1f} µs "
            f"({self.overhead:+.1%})\n\n{self.stalls()}"
        )
