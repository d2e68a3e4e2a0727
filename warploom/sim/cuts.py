"""In which orders of events a pool of registers can run dry.

A tracked run's exchanges (sim/registers.py), with what each warp knew at each of them, are a partial order
that all orders of events share.  A state is a set of exchanges that are over, closed under this order;
registers run dry where every exchange that could come next asks for more than is free.  The search goes
through all states that can be reached, but for choices that make no difference:

  - what gives registers back comes at once: it only helps, and every stuck state has it behind it;
  - what has enough, whoever else may come before it, comes at once: no stuck state is without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warploom.sim.report import Array, Exchange

MAX_STATES = 20_000


@dataclass(frozen=True)
class Stuck:
    """A state in which nothing can go on: how many exchanges of each warp are over, what is free, which
    exchanges wait, and one order that leads here.  Without any that wait: the search was given up."""

    done: tuple[int, ...]
    free: int
    waiting: list[Exchange]
    path: list[Exchange]


def find_stuck(
    sequences: Sequence[Sequence[Exchange]], max_states: int = MAX_STATES
) -> Stuck | None:
    """A reachable state that is stuck, of exchanges by warp in program order and a pool that is empty at
    first; None where there is none."""
    return _Search(sequences).run(max_states)


class _Search:
    def __init__(self, sequences: Sequence[Sequence[Exchange]]) -> None:
        self.sequences = sequences

    @cached_property
    def needs(self) -> list[Array]:
        """For each warp (exchange, other warp): how many of the other's exchanges come before."""
        epochs = [np.array([e.epoch for e in s], np.int64) for s in self.sequences]
        out = []
        for w, sequence in enumerate(self.sequences):
            need = np.zeros((len(sequence), len(epochs)), np.int64)
            for i, e in enumerate(sequence):
                for v, theirs in enumerate(epochs):
                    need[i, v] = i if v == w else np.searchsorted(theirs, e.known[v], "right")
            out.append(need)
        return out

    @cached_property
    def asked(self) -> list[Array]:
        """For each warp what its first i exchanges take from the pool, not counting what they give back."""
        return [np.cumsum([0, *(max(0, e.asks) for e in s)]) for s in self.sequences]

    def is_plenty(self) -> bool:
        """Whether what is given back at once, by warps that wait for nobody, is enough for all that is asked
        for: so it is where tasks begin with their budgets."""
        firsts = np.array([s[0].epoch if s else np.iinfo(np.int64).max for s in self.sequences])
        free = 0
        for w, s in enumerate(self.sequences):
            if s and s[0].asks < 0 and (np.delete(s[0].known < firsts, w)).all():
                free -= s[0].asks
        return free >= sum(max(0, e.asks) for s in self.sequences for e in s)

    def run(self, max_states: int) -> Stuck | None:
        if self.is_plenty():
            return None
        start = ((0,) * len(self.sequences), 0)
        todo, seen = deque([(start, list[Exchange]())]), set()
        while todo:  # the shortest first
            (state, free), path = todo.popleft()
            done = list(state)
            path = path.copy()
            ready = self._advance(done, path)
            free = -sum(e.asks for e in path)
            if tuple(done) in seen or not ready:
                continue
            seen.add(tuple(done))
            if len(seen) > max_states:
                return Stuck(tuple(done), free, [], path)
            fit = [w for w in ready if self.sequences[w][done[w]].asks <= free]
            if not fit:
                waiting = [self.sequences[w][done[w]] for w in ready]
                return Stuck(tuple(done), free, waiting, path)
            for w in fit:
                after = tuple(n + (v == w) for v, n in enumerate(done))
                todo.append(((after, free), [*path, self.sequences[w][done[w]]]))
        return None

    def _advance(self, done: list[int], path: list[Exchange]) -> list[int]:
        """Takes what makes no difference; gives the warps whose next exchange asks and could come now."""
        free = -sum(e.asks for e in path)
        while True:
            at = np.array(done)
            ready = [
                w
                for w, s in enumerate(self.sequences)
                if done[w] < len(s) and (self.needs[w][done[w]] <= at).all()
            ]
            taken = [
                w
                for w in ready
                if self.sequences[w][done[w]].asks <= 0 or free >= self._rivals(w, done)
            ][:1]
            if not taken:
                return ready
            (w,) = taken
            e = self.sequences[w][done[w]]
            path.append(e)
            free -= e.asks
            done[w] += 1

    def _rivals(self, w: int, done: list[int]) -> int:
        """What a warp's next exchange, and all that may come before it, ask for at most."""
        i, total = done[w], self.sequences[w][done[w]].asks
        for v, asked in enumerate(self.asked):
            if v != w:
                before = int(np.searchsorted(self.needs[v][:, w], i, "right"))
                total += int(asked[max(before, done[v])] - asked[done[v]])
        return total
