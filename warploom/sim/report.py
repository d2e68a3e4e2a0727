"""What the oracle and the simulator raise, and what a simulation hands back.

Every error has the form of errors.py: a stable code, a message, the op's location, notes for the other
party, one line of help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from warploom.errors import ReportedError
from warploom.ir.core import Op
from warploom.options import FOR_TRIPS

Array = np.ndarray[Any, np.dtype[Any]]


class NeedsData(Exception):
    """A skeleton run met control flow that depends on tile data."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """One warp's setmaxnreg: `before` and `after` are registers a thread.

    who, label: the agent, with and without its iterations.  warp: of the CTA.  known: of each warp of the CTA
    the position that this one knows it to have passed.  epoch: its own position."""

    who: str
    label: str
    op: Op
    warp: int
    before: int
    after: int
    known: Array
    epoch: int

    @property
    def asks(self) -> int:
        """Registers that it takes from the pool; below zero: that it gives back."""
        return 32 * (self.after - self.before)


@dataclass(eq=False)
class SimError(ReportedError):
    """The simulated program did something that the hardware forbids, or that has no defined result."""

    program: int = 0  # of the grid, in which it happened
    story: str = ""  # an order of events in which it shows, where that was looked for

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{self.story}" if self.story else text


class MemoryFault(SimError):
    """An access outside a buffer, or a read of bytes that nothing wrote."""


class Race(SimError):
    """Two accesses that nothing orders, at least one of them a write; notes name both."""


class ProtocolError(SimError):
    """A barrier, group or register rule of the PTX ISA is broken."""


@dataclass(eq=False)
class Deadlock(SimError):
    """No agent can go on.  Notes tell task by task what is waited for and what is outstanding.

    order: where registers run dry in some orders only, the setmaxnregs of one of them until then."""

    order: tuple[Exchange, ...] = ()


class StepLimit(SimError):
    """The run took more steps than it was given."""


class TripLimit(StepLimit):
    """A loop runs more often than it may."""


def endless(o: Op, most: int) -> StepLimit:
    """What is said of a `while` that runs on after so many iterations."""
    return StepLimit(
        "step-limit",
        f"a loop runs for more than {most} iterations",
        o.loc,
        help="if it ends later, set WARPLOOM_MAX_TRIPS to more; one that waits for another program never "
        "ends here: without a GPU each program runs to its end before the next one begins",
    )


def trips_of(o: Op, first: int, stop: int, step: int) -> int:
    """The iterations of a `for`."""
    if step <= 0:
        raise SimError("loop-step", f"a loop's step is positive, not {step}", o.loc)
    return max(0, -((first - stop) // step))


def too_many(o: Op, trips: int, most: int) -> StepLimit:
    """What is said of a `for` with which a program has more iterations than it may."""
    return StepLimit(
        "step-limit",
        f"a loop of {trips:,} iterations: those of the program are more than {most:,} in all",
        o.loc,
        help="if that is meant, set WARPLOOM_MAX_TRIPS to more: without a GPU a program's `for` loops may "
        f"have {FOR_TRIPS} times as many iterations in all",
    )


@dataclass(frozen=True)
class Event:
    """One use of a unit on the predicted timeline.

    `agent` is the task's name ("consumer[1]" for replica 1) and `unit` what it occupied: one of the
    names of cost.UNITS, or "wait" for a stall, whose `cause` names the barrier or the group waited
    for.  `op` is the op's id where it has one, its kind otherwise.  Times are cycles since the CTA's
    start.
    """

    program: int
    agent: str
    unit: str
    op: str
    start: float
    end: float
    cause: str = ""


class SyncStep(NamedTuple):
    """What an agent did to a barrier, bound to a full phase (or generation), or to a slot (phase -1).

    loops: for each enclosing loop the op and the iteration, counted from 0.  thing: the barrier's name, or
    the slot's.  age: how many of the agent's wgmma groups, of its groups of TMA stores, and of its groups of
    cp.asyncs, it has committed and not waited for."""

    agent: str
    op: Op
    loops: tuple[tuple[Op, int], ...]
    thing: str
    phase: int
    age: tuple[int, int, int]


@dataclass
class SimReport:
    """A finished simulation: its events in order of start, and the cycles of its longest program.

    trips: how many iterations each loop was run for, in any agent.  steps: the protocol, in tracked runs.
    words: the words of global memory that were accessed by themselves: by which agents, and who wrote.
    outcomes: of the conditions that were watched, each with the last iteration that it was seen in.
    is_in_turn: the nth number that an agent got from a place in shared memory was the nth put there, always.
    ticks: of the scheduler, in the program that took most.
    """

    events: list[Event] = field(default_factory=list)
    cycles: float = 0.0
    programs: int = 0
    trips: dict[Op, set[int]] = field(default_factory=dict)
    steps: list[SyncStep] = field(default_factory=list)
    words: dict[str, dict[str, bool]] = field(default_factory=dict)
    outcomes: dict[tuple[Op, bool], int] = field(default_factory=dict)
    is_in_turn: bool = True
    ticks: int = 0

    def __str__(self) -> str:
        return f"{self.cycles:,.0f} cycles, {self.programs} programs, {len(self.events)} events"

    @cached_property
    def most_trips(self) -> Mapping[Op, int]:
        """The most iterations of each loop, in any agent, once the simulation is over."""
        return {loop: max(counts) for loop, counts in self.trips.items()}

    @property
    def shares_words(self) -> bool:
        """Did one agent write a word that another one accessed?"""
        return any(len(agents) > 1 and any(agents.values()) for agents in self.words.values())
