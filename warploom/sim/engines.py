"""The asynchronous engines: actions that were issued and happen some time later.

An action stands in a lane; lanes are first-in first-out (one agent's wgmmas, its cp.asyncs), and nothing
orders one lane against another: every TMA copy has a lane of its own.  When an action runs is the
scheduler's choice, within what waits and barriers force.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warploom.ir.core import Op
from warploom.options import FOR_TRIPS, MAX_TRIPS
from warploom.sim.shared import Place


class Lane(NamedTuple):
    """Actions that happen one after the other: their kind, the agent that issues them, and a number."""

    kind: str
    agent: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.number} of {self.agent}"


@dataclass(eq=False)
class Action:
    """Something that an engine will do.  `time`: when it is finished on the predicted timeline."""

    kind: (
        str  # "tma_load", "tma_store", "copy" (by cp.async), its "arrival", "wgmma", "lagging warp"
    )
    run: Callable[[], None]
    time: float
    serial: int
    tick: int  # of the scheduler, in which it was issued


class Engine:
    """All pending actions of one CTA."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, deque[Action]] = {}
        self.serial = 0
        self.tick = 0  # the scheduler's
        self.max_iterations = MAX_TRIPS  # of a `while`, which may take no step of the scheduler
        self.max_counted = FOR_TRIPS * MAX_TRIPS  # of all `for`s of an agent
        self.max_trips: int | None = None  # of any loop

    def issue(self, kind: str, run: Callable[[], None], time: float, lane: Lane) -> Action:
        """Queues an action."""
        self.serial += 1
        action = Action(kind, run, time, self.serial, self.tick)
        queue = self.lanes.get(lane)
        if queue is None:
            queue = self.lanes[lane] = deque()
        queue.append(action)
        return action

    def heads(self) -> list[tuple[Lane, Action]]:
        """What may happen next."""
        return [(lane, queue[0]) for lane, queue in self.lanes.items()]

    def perform(self, lane: Lane) -> Action:
        """Runs a lane's first action."""
        queue = self.lanes[lane]
        action = queue.popleft()
        if not queue:
            del self.lanes[lane]
        action.run()
        return action

    def pending(self, lane: Lane) -> bool:
        return lane in self.lanes


@dataclass(eq=False)
class Fresh:
    """An accumulator that no wgmma has written: from a tile, or without contents (value None)."""

    value: Any
    born: int  # the agent's op count when its registers were last touched


@dataclass(eq=False)
class Product:
    """One issued wgmma op; its accumulator is poison until it is done."""

    op: Op
    a: Place | Any
    b: Place
    acc: Fresh | Product
    use_acc: bool
    group: int
    value: Any = None
    is_done: bool = False
    end: float = 0.0


@dataclass
class WgmmaQueue:
    """One warp group's wgmmas: `committed` groups; products issued and not done."""

    committed: int = 0
    unfinished: deque[Product] = field(default_factory=deque)  # in order of their groups
    last_fence: int = -1  # the agent's op count at its last wgmma.fence
    known: int = 0  # groups that a wait has covered
    last_op: Op | None = None  # what issued or committed last

    def finished(self, group: int) -> bool:
        return not self.unfinished or self.unfinished[0].group > group


@dataclass
class Copies:
    """One agent's cp.asyncs, counted from 1, and their groups."""

    issued: int = 0
    arrived: int = 0
    end: float = 0.0  # when the last of them is over
    groups: list[tuple[int, float]] = field(default_factory=list)  # of each (issued, end) so far
    waited: int = 0  # groups that a wait has covered
    known: int = 0  # copies that each thread knows to be over, its own alone
    fenced: int = 0  # those of them that a proxy fence covers


@dataclass
class BulkStores:
    """One thread's bulk groups of TMA stores, counted from 1."""

    committed: int = 0
    open: int = 0  # stores not yet committed
    unread: dict[int, int] = field(default_factory=dict)  # group -> stores still reading
    unwritten: dict[int, int] = field(default_factory=dict)
    ends: dict[int, tuple[float, float]] = field(
        default_factory=dict
    )  # group -> when read, written
    known: int = 0  # groups that a wait has covered
    last_op: Op | None = None

    @staticmethod
    def over(left: dict[int, int], group: int) -> bool:
        return all(g > group for g in left)

    @staticmethod
    def one_less(left: dict[int, int], group: int) -> None:
        left[group] -= 1
        if not left[group]:
            del left[group]
