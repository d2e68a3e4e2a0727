"""What happens next: an agent's next step, or an engine's action."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from warploom.sim.agent import Agent
from warploom.sim.barriers import Touch
from warploom.sim.engines import Action, Lane
from warploom.sim.report import StepLimit

if TYPE_CHECKING:
    from warploom.sim.machine import Machine

ORDERS = ("seeded", "late", "reverse", "early", "timed")
Choice = Agent | Lane
Heads = list[tuple[Lane, Action]]


class Scheduler:
    """Runs a program step by step; a subclass picks.  `touched`: where the run keeps what its steps did to
    what is shared, if anywhere."""

    touched: list[Touch] | None = None
    engines_first = False  # no agent is picked while an engine has something to do

    max_trips: int | None = None  # of any loop, in any agent

    def __init__(self, max_steps: int | None = None) -> None:
        self.max_steps = max_steps
        self.turn = 0

    def run(self, machine: Machine) -> None:
        """Runs agents and engines until all agents have ended and all actions are done."""
        going, engine = machine.going, machine.engine
        engine.max_turns, engine.max_trips = self.max_steps, self.max_trips
        while True:
            heads = engine.heads()
            ready = []
            if not (heads and self.engines_first):
                ready = [a for a in going if a.block is None or a.block.ready()]
            if not ready and not heads:
                if going:
                    raise machine.deadlock()
                return
            self.turn += 1
            if self.max_steps is not None and self.turn > self.max_steps:
                raise StepLimit("step-limit", f"the program takes more than {self.max_steps} steps")
            engine.turn = self.turn
            choice = self.pick(ready, heads)
            if isinstance(choice, Agent):
                try:
                    next(going[choice])
                except StopIteration:
                    del going[choice]
                    choice.cta.ended(choice)
            else:
                engine.perform(choice)

    def pick(self, ready: list[Agent], heads: Heads) -> Choice:
        """One of the agents that are ready, or the lane of one of the actions that may happen."""
        raise NotImplementedError


class Ordered(Scheduler):
    """One of the orders of `simulate`."""

    def __init__(
        self,
        order: str,
        rng: random.Random,
        max_steps: int | None = None,
        max_trips: int | None = None,
    ) -> None:
        super().__init__(max_steps)
        self.max_trips = max_trips
        self.order, self.rng = order, rng
        self.engines_first = order == "early"
        self.priorities: dict[Choice, float] = {}

    def pick(self, ready: list[Agent], heads: Heads) -> Choice:
        match self.order:
            case "late":
                return ready[0] if ready else min(heads, key=lambda h: h[1].serial)[0]
            case "reverse":
                return ready[-1] if ready else max(heads, key=lambda h: h[1].serial)[0]
            case "early":
                if heads:
                    return min(heads, key=lambda h: h[1].serial)[0]
                return ready[self.turn % len(ready)]
            case "timed":
                times: list[tuple[float, int, int, Choice]]
                times = [(a.time, 1, a.index, a) for a in ready]
                times += [(h[1].time, 0, h[1].serial, h[0]) for h in heads]
                return min(times, key=lambda t: t[:3])[3]
        if self.rng.random() < 0.02:
            self.priorities.clear()
        options: list[Choice] = [*ready, *(lane for lane, _ in heads)]
        return max(options, key=self._priority)

    def _priority(self, option: Choice) -> float:
        if option not in self.priorities:
            self.priorities[option] = self.rng.random()
        return self.priorities[option]
