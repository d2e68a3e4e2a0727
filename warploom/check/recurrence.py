"""Longer loops: where the state recurs, what was proved for the trip counts that were run holds beyond them.

In a confluent program each agent's steps are the same in every order, and which of them follow from which
is settled by the barriers and phases that they name.  So iterations of a loop are compared step by step: the
op, the slot or barrier that it takes, how many of the agent's wgmma groups and TMA stores are under way
(their age), and the phase.  All that an iteration does follows from these: where iterations i and i + p agree
in all of it, and each barrier has moved on by one even number of phases (so that parities are the same), for
all i but the first, which has nothing to release, and the last ones, which have nothing to fetch ahead, the
state of cursors and barriers at i + p is that at i: a longer loop repeats these iterations, and who waits for
whom in them.
"""

from __future__ import annotations

from collections.abc import Sequence

from warploom.ir.core import Op
from warploom.sim.report import SimReport, SyncStep

Turn = list[SyncStep]


def loop_name(o: Op) -> str:
    """A loop in words: its variable and its line."""
    hint = o.regions[-1].params[0].hint if o.regions[-1].params else ""
    return f"loop over {hint or 'i'}" + (f" at {o.loc.file}:{o.loc.line}" if o.loc else "")


class Recurrences:
    """Collects runs; `depth` is that of the deepest ring.  trips: the most iterations of each loop so far."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.trips: dict[Op, int] = {}
        self._turns: dict[Op, list[list[Turn]]] = {}  # of each run of a loop, without its ends
        self._busy: set[Op] = set()  # loops in which something shared is touched
        self._periods: dict[Op, int] = {}

    def add(self, result: SimReport) -> None:
        """A tracked run."""
        for loop, counts in result.trips.items():
            self.trips[loop] = max(self.trips.get(loop, 0), *counts)
        for loop, turns in _by_iteration(result.steps):
            self._busy.add(loop)
            middle = turns[1 : len(turns) - self.depth]
            if len(middle) > 1:
                self._turns.setdefault(loop, []).append(middle)

    def period(self, loop: Op) -> int | None:
        """After how many iterations the state recurs; None: that was not seen, in a long run in which the
        loop does all that it does in any."""
        if loop not in self._busy:
            return 1
        runs = self._turns.get(loop, [])
        done = [frozenset(s.op for turn in run for s in turn) for run in runs]
        everything = frozenset().union(*done)
        full = (len(run) for run, ops in zip(runs, done, strict=True) if ops == everything)
        longest = max(full, default=0)
        if longest <= 2 * self.depth:
            return None
        start = self._periods.get(loop, 1)  # runs are only added: shorter ones stay refuted
        found = (p for p in range(start, longest) if all(_recurs(r, p) for r in runs))
        period = next(found, None)
        if period is not None:
            self._periods[loop] = period
        return period


def _by_iteration(steps: Sequence[SyncStep]) -> list[tuple[Op, list[Turn]]]:
    """For each run of each loop (of an agent, in its outer iterations) the steps of its iterations."""
    out: dict[tuple[str, Op, tuple[tuple[Op, int], ...]], list[Turn]] = {}
    for s in steps:
        for i, (loop, turn) in enumerate(s.loops):
            turns = out.setdefault((s.agent, loop, s.loops[:i]), [])
            while len(turns) <= turn:
                turns.append([])
            turns[turn].append(s)
    return [(loop, turns) for (_, loop, _), turns in out.items()]


def _recurs(turns: list[Turn], period: int) -> bool:
    """Whether all iterations are those `period` before, with every barrier moved on by one even number."""
    moved: dict[str, int] = {}
    for earlier, later in zip(turns, turns[period:], strict=False):
        if len(earlier) != len(later):
            return False
        for a, b in zip(earlier, later, strict=True):
            by = b.phase - a.phase
            if (a.op, a.thing, a.age) != (b.op, b.thing, b.age) or by % 2:
                return False
            if moved.setdefault(a.thing, by) != by:
                return False
    return True
