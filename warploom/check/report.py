"""What `check` says of a program: the verdict, what it rests on, what is wrong, and what is left open."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

from warploom.check.interleaving import Interleaving
from warploom.errors import Loc, excerpt
from warploom.sim.report import SimError


class Verdict(enum.Enum):
    """PROVED: the report's claim holds for every input that its hypotheses allow.  BROKEN: an input and an
    order of events are known in which the program fails.  NOT_PROVED: neither; the report says why."""

    PROVED = "proved"
    NOT_PROVED = "not proved"
    BROKEN = "broken"


@dataclass(frozen=True)
class Unproved:
    """Something that no analysis could decide.  reason: a clause, as "the arrival depends on a word of
    memory"; loc: where."""

    reason: str
    loc: Loc | None = None

    def __str__(self) -> str:
        at = f"\n{excerpt(self.loc)}" if self.loc else ""
        return f"not proved: {self.reason}{at}"


@dataclass(frozen=True)
class Run:
    """One case that was run: its words, and the trip counts of each loop (by its source line)."""

    case: str
    trips: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Explored:
    """One program of a case that was explored, or all together, and why they had to be."""

    case: str
    why: str
    interleavings: int
    states: int
    is_complete: bool


@dataclass(frozen=True)
class Failure:
    """What is wrong, and an order of events in which it shows (None: it could not be repeated)."""

    error: SimError
    interleaving: Interleaving | None = None

    def __post_init__(self) -> None:
        self.error.story = str(self.interleaving or "")

    def save(self, path: str | Path) -> None:
        """Writes the interleaving to a file, which `replay` runs again.  Raises ValueError without one."""
        if self.interleaving is None:
            raise ValueError(f"there is no interleaving of {self.error.code} to save")
        self.interleaving.save(path)


@dataclass
class CheckReport:
    """What was proved and under which hypotheses, what is wrong (each with both parties), and what is open.

    Each analysis appends: `failures` make the verdict *broken*, `unproved` without failures *not proved*;
    `claims` are sentences that hold where the verdict is *proved*, each with its own hypotheses.
    of_launch: where global memory is decided for one launch only, what is open there (of `unproved`).
    bound: arrivals, copies and waits that were bound to one phase.  seconds: that it took."""

    name: str
    runs: list[Run] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    unproved: list[Unproved] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    of_launch: list[Unproved] | None = None  # open in the launch that was asked about; None: in all
    explored: list[Explored] = field(default_factory=list)
    recurring: dict[str, int] = field(default_factory=dict)  # loop -> period in iterations
    taken: dict[str, bool] = field(default_factory=dict)  # conditions that no input flipped
    sizes: tuple[str, ...] = ()  # arguments that are taken not to be negative
    runs_at_most: dict[str, int] = field(default_factory=dict)  # loop -> trips, of many inputs
    not_recurring: list[str] = field(default_factory=list)
    too_short: list[str] = field(
        default_factory=list
    )  # loops that given inputs did not run long enough
    notes: list[str] = field(default_factory=list)
    bound: int = 0
    seconds: float = 0.0

    @property
    def diagnostics(self) -> list[SimError]:
        """What is wrong."""
        return [f.error for f in self.failures]

    @property
    def verdict(self) -> Verdict:
        """Proved, not proved or broken."""
        if self.failures:
            return Verdict.BROKEN
        return Verdict.PROVED if self.runs and not self.unproved else Verdict.NOT_PROVED

    @property
    def ok(self) -> bool:
        """The verdict is *proved*."""
        return self.verdict is Verdict.PROVED

    def __str__(self) -> str:
        lines = []
        for f in self.failures:
            lines += [str(f.error), ""]
        match self.verdict:
            case Verdict.BROKEN:
                lines.append(f"{self.name}: broken: {len(self.failures)} problem(s) found")
            case Verdict.NOT_PROVED:
                lines.append(f"{self.name}: not proved; nothing that was run fails")
                lines += [str(u) for u in self.unproved]
                lines += [] if self.runs else ["not proved: no input was found that runs it"]
            case Verdict.PROVED:
                lines += self._proved()
        return "\n".join(lines + [f"  note: {n}" for n in self.notes])

    def _proved(self) -> list[str]:
        lines = [
            f"{self.name}: proved: no deadlock, and no race on shared memory, in any order of events, "
            "at these trip counts:"
        ]
        seen: dict[str, set[int]] = {}
        for run in self.runs:
            for loop, trips in run.trips.items():
                seen.setdefault(loop, set()).update(trips)
        lines += [f"  {loop}: {', '.join(map(str, sorted(t)))}" for loop, t in seen.items()]
        if self.bound:
            lines.append(
                f"  ({len(self.runs)} inputs; {self.bound} arrivals, copies and waits, each bound to one "
                f"full phase; {self.seconds:.1f} s)"
            )
        for why in dict.fromkeys(e.why for e in self.explored):
            those = [e for e in self.explored if e.why == why]
            n, m = sum(e.interleavings for e in those), sum(e.states for e in those)
            left_out = sum(not e.is_complete for e in those)
            end = f"{left_out} cut short; none fails" if left_out else "complete; none fails"
            lines.append(f"  {len(those)} explored ({why}): {n} interleavings, {m} states, {end}")
        if self.sizes:
            lines.append(f"  where not negative: {', '.join(self.sizes)}")
        for loop, period in self.recurring.items():
            often = f"{period} iterations" if period > 1 else "iteration"
            lines.append(f"  {loop}: the state recurs every {often}: longer loops too")
        for loop, most in self.runs_at_most.items():
            lines.append(f"  {loop}: taken to run for {most} iterations at most, as at many inputs")
        for where, outcome in self.taken.items():
            words = str(outcome).lower()
            lines.append(
                f"  the condition at {where} is taken to be {words} always, as at many inputs"
            )
        for loop in self.not_recurring:
            lines.append(f"  {loop}: no recurrence was seen; longer loops are not proved")
        for loop in self.too_short:
            lines.append(f"  {loop}: too few iterations were run to say anything of longer loops")
        return lines + [f"  {claim}" for claim in self.claims]
