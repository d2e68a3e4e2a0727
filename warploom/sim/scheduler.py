"""What happens next: an agent's next step, or an engine's action."""

from __future__ import annotations

import random

from warploom.sim.agent import Agent
from warploom.sim.barriers import Transition
from warploom.sim.engines import Action, Lane

ORDERS = ("seeded", "late", "reverse", "early", "timed")
Choice = Agent | Lane
Heads = list[tuple[Lane, Action]]


class Scheduler:
    """Picks what happens next; a subclass says how.  tick: the number of the step.  `touched`: where the run
    keeps what its steps did to what is shared, if anywhere."""

    touched: list[Transition] | None = None
    engines_first = False  # no agent is picked while an engine has something to do

    max_trips: int | None = None  # of any loop, in any agent

    def __init__(self, max_steps: int | None = None) -> None:
        self.max_steps = max_steps
        self.tick = 0

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
            case "early":
                if not heads:
                    return ready[self.tick % len(ready)]
                return heads[0][0] if len(heads) == 1 else min(heads, key=lambda h: h[1].serial)[0]
            case "late":
                return ready[0] if ready else min(heads, key=lambda h: h[1].serial)[0]
            case "reverse":
                return ready[-1] if ready else max(heads, key=lambda h: h[1].serial)[0]
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
