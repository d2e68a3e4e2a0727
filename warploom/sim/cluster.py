"""What the CTAs of a cluster have in common: the cluster's barrier, and accesses that outlive a CTA.

PTX ISA, "barrier.cluster": a generation is complete when all threads of the cluster that have not ended
have arrived; a thread arrives once a generation.  CUDA C++ programming guide, 10.4: shared memory of
another CTA may be accessed while that CTA exists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warploom.sim.barriers import Barrier, Transition
from warploom.sim.order import Array, Participant, covers
from warploom.sim.report import ProtocolError


@dataclass(frozen=True, eq=False)
class PeerAccess:
    """An access to another CTA's shared memory or barriers.  It is over for whoever knows the epochs of the
    components of one of the `proofs`."""

    party: Participant
    what: str
    proofs: tuple[tuple[Array, Array], ...] = ()

    def is_over(self, known: Array) -> bool:
        return any(covers(known[components], epochs) for components, epochs in self.proofs)


class ClusterBarrier(Barrier):
    """barrier.cluster: counts the warps of all CTAs of the cluster.

    A warp's number is that in its CTA plus those of the CTAs of lower rank.  `component`: of the clocks;
    `width`: of a clock's row."""

    name = "the cluster's barrier"

    def __init__(
        self, component: int, width: int, warps: int, touched: list[Transition] | None = None
    ) -> None:
        self.component, self.touched = component, touched
        self.generation = 0
        self.arrived = np.zeros(warps, np.bool_)
        self.ended = np.zeros(warps, np.bool_)
        self.owes = np.full(warps, -1)  # generation that a warp arrived in and has not waited for
        self.stamp: Array = np.zeros(width, np.int64)
        self.done: Array = np.zeros(width, np.int64)
        self.time = self.done_time = 0.0

    def arrive(self, warps: Array, party: Participant, stamp: Array, time: float) -> None:
        """All warps of an agent arrive; `stamp`: what they release.  Raises ProtocolError."""
        if (self.owes[warps] >= 0).any():
            raise ProtocolError(
                "cluster-arrive",
                f"{party.who} arrives at the cluster's barrier twice without waiting in between",
                party.op.loc,
                help="each thread arrives once, then waits",
            )
        mine = self.generation
        self.owes[warps] = mine
        self.arrived[warps] = True
        np.maximum(self.stamp, stamp, out=self.stamp)
        self.time = max(self.time, time)
        self._advance()
        self.touch("arrive", mine, party, self.generation > mine)

    def wait(self, warps: Array, party: Participant) -> int:
        """The generation that an agent waits for.  Raises ProtocolError where it has not arrived."""
        mine = int(self.owes[warps].min())
        if mine < 0:
            raise ProtocolError(
                "cluster-arrive",
                f"{party.who} waits for the cluster without having arrived",
                party.op.loc,
                help="call self.cluster.arrive() first, or self.cluster.sync() for both",
            )
        return mine

    def passed(self, warps: Array, party: Participant) -> None:
        """An agent's wait is over."""
        self.touch("pass", int(self.owes[warps].max()), party)
        self.owes[warps] = -1

    def leave(self, warps: Array) -> None:
        """The threads of an agent end."""
        self.ended[warps] = True
        self._advance()

    def _advance(self) -> None:
        if self.arrived.any() and (self.arrived | self.ended).all():
            self.generation += 1
            self.done, self.done_time = self.stamp, self.time
            self.done[[self.component, self.component + self.done.size // 2]] = self.generation
            self.stamp = np.zeros_like(self.done)
            self.arrived[:] = False

    def missing(self) -> str:
        """Who has not arrived, in words."""
        here = self.arrived | self.ended
        return f"{int(here.sum())} of {here.size} warps of the cluster arrived"
