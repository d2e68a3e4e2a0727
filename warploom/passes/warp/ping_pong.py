"""Ping-pong between consumer warp groups by named barriers: one does what the others wait for, then passes
it on.  The part that expand_pipeline (to issue dots) and stagger_epilogues (to finish tiles) have in
common.

Group g waits at named barrier first + g, and arrives at the next group's when it passes the turn on.  Group 0
begins: the last group passes the turn on once, before all else.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.ir import build
from warploom.ir.core import Builder, Op, Region, Value
from warploom.ir.ops import arith, smem, task
from warploom.ir.types import Scalar, i32
from warploom.target import Target

# The quarter of the named barriers that each kind of turn has; before these are the groups' own.
ISSUE, END = 2, 3


@dataclass(eq=False)
class OrderBarrier:
    """replica: the id of the group that executes.  threads: of a group.  first: of the named barriers."""

    replica: Value
    groups: int
    threads: int
    first: int
    used: bool = False

    @staticmethod
    def of(region: Region, groups: int, warps: int, quarter: int, target: Target) -> OrderBarrier:
        """For the region of a task of so many groups, of so many warps each."""
        own = [o.result for o in region.ops if o.kind is task.replica_id]
        replica = own[0] if own else Value(Scalar(i32), "replica")
        first = quarter * target.sync.named_barriers // 4
        return OrderBarrier(replica, groups, warps * target.warp_size, first)

    def wait(self, b: Builder) -> None:
        """Waits for the turn."""
        self.used = True
        self._barrier(b, self.replica, arrive=False)

    def arrive(self, b: Builder) -> None:
        one = build.const(b, 1)
        if self.groups == 2:
            following = arith.sub(b, one, self.replica)
        else:
            is_last = arith.eq(b, self.replica, build.const(b, self.groups - 1))
            after = arith.add(b, self.replica, one)
            following = arith.select(b, is_last, build.const(b, 0), after)
        self._barrier(b, following, arrive=True)

    def begin(self, region: Region) -> Region:
        """The task's region, where turns are taken, with the first one passed on in front."""
        if not self.used:
            return region
        b = Builder()
        b.append(Op(task.replica_id, results=(self.replica,)))
        last = build.const(b, self.groups - 1)
        build.if_(b, arith.eq(b, self.replica, last), self.arrive)
        rest = [o for o in region.ops if o.kind is not task.replica_id]
        return Region(region.params, (*b.ops, *rest))

    def _barrier(self, b: Builder, group: Value, arrive: bool) -> None:
        """Complete with those who take the turn and those who pass it."""
        both = 2 * self.threads
        smem.named_barrier(b, group, id=self.first, arrive=arrive, threads=both, n=self.groups)
