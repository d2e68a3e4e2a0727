"""What an agent does at barriers: of its group, named, of the cluster, and mbarriers."""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.ir.core import Op
from warploom.ir.ops import cluster, grid, mbarrier, smem
from warploom.ir.types import u8
from warploom.sim.accesses import reach, read_now, write_now
from warploom.sim.agent import LAGS, Agent, Block, Steps
from warploom.sim.barriers import CountedBarrier, MBarrier, Together, Waiter
from warploom.sim.cluster import PeerAccess
from warploom.sim.order import Array, Participant, joined
from warploom.sim.outline import step
from warploom.sim.shared import Place


@step(grid.grid_wait)
@step(grid.grid_release)
def _grid(a: Agent, o: Op) -> None:
    """Nothing: a program is run by itself.  What may come before the wait: Outline.unwaited."""


@step(smem.group_sync)
def _group_sync(a: Agent, o: Op) -> Steps:
    if a.is_solo:
        raise a.error("sync-in-elect", "one thread can't pass a barrier of its whole replica", o)
    scope = o.attrs["scope"]
    _take(a, o)
    if scope == "replica" or (scope == "task" and a.replicas == 1):
        return (yield from _sync_replica(a, o))
    yield from a.settle(o)
    is_task = scope == "task"
    barrier = a.cta.sync_barrier(a.name if is_task else None)
    warps = a.warps * a.replicas if is_task else a.cta.warps
    return (yield from _counted(a, o, barrier, a.cta.target.warp_size * warps, True))


def _take(a: Agent, o: Op, index: int = 0) -> None:
    """Takes the barrier that an op names for the threads that meet there: no others of the CTA may."""
    if not o.attrs.get("id"):
        return
    owner = "named_barrier"
    if o.kind is not smem.named_barrier:
        is_task = o.attrs.get("scope") == "task" and a.replicas > 1
        owner, index = (a.name, 0) if is_task else (a.label, a.replica)
    at = o.attrs["id"] + index
    other = a.cta.met.setdefault(at, owner)
    if other != owner:
        where = f"comes to barrier {at}, which is that of {other}"
        raise a.error("named-barrier", where, o, "each group meets at barriers of its own")


def _sync_replica(a: Agent, o: Op) -> Steps:
    """A barrier of an agent's warps."""
    yield from a.settle(o)
    a.clock[:] = joined(a.known())
    a.released()
    a.time += a.cta.cost.barrier
    return ()


@step(smem.exchange)
def _exchange(a: Agent, o: Op, s: Place) -> Steps:
    if a.is_solo:
        raise a.error(
            "sync-in-elect", "one thread can't exchange elements with its whole replica", o
        )
    _take(a, o)
    if o.attrs.get("guarded"):
        yield from _sync_replica(a, o)
    cta = write_now(a, o, s)
    if cta.has_data:  # which bytes its op leaves there nobody may count on
        cta.shared.write(s.addresses, np.full(s.addresses.shape, 0xFF, np.uint8), u8, False)
    for _ in range(1 + o.attrs.get("twice", False)):
        yield from _sync_replica(a, o)
    read_now(a, o, s)
    return ()


@step(smem.named_barrier)
def _named_barrier(a: Agent, o: Op, index: Any = 0) -> Steps:
    if a.is_solo:
        raise a.error("sync-in-elect", "a named barrier counts whole warps", o)
    yield from a.settle(o)
    which = a.number(index)
    if not 0 <= which < o.attrs.get("n", 1):
        raise a.error(
            "barrier-index",
            f"named barrier {which} of {o.attrs.get('n', 1)}",
            o,
            "n= is how many barriers index chooses from",
        )
    _take(a, o, which)
    barrier = a.cta.named_barriers[o.attrs["id"] + which]
    return (yield from _counted(a, o, barrier, o.attrs["threads"], not o.attrs["arrive"]))


def _counted(a: Agent, o: Op, barrier: CountedBarrier, threads: int, waits: bool) -> Steps:
    mine = barrier.arrive(a.party(o), a.cta.target.warp_size * a.warps, threads, a.known(), a.time)
    a.log(o, barrier.name, mine)
    a.released()
    if not waits:
        yield None
        return ()
    if barrier.generation > mine:
        yield None  # as it will stay
    else:
        yield from a.wait_until(_generation_block(o, barrier, mine, threads))
    barrier.touch("pass", mine, a.party(o))
    np.maximum(a.clock, barrier.done, out=a.clock)
    a.stall(barrier.done_time, o, barrier.name)
    return ()


def _generation_block(o: Op, barrier: CountedBarrier, mine: int, threads: int) -> Block:
    return Block(
        lambda: barrier.generation > mine,
        o,
        f"{barrier.name}, generation {mine}",
        lambda: f"{barrier.arrived} of {threads} threads arrived",
        lambda: (
            f"{threads - barrier.arrived} threads never come: an arrival that nobody makes or that goes "
            "to another barrier, a branch that not all warps take, or a count that is wrong"
        ),
    )


@step(cluster.cluster_arrive)
def _cluster_arrive(a: Agent, o: Op) -> Steps:
    yield from a.settle(o)
    program, stamp = a.cta.program, joined(a.known())
    stamp = program.relaxed(stamp) if _is_relaxed(o) else stamp
    program.barrier.arrive(a.own_warps, a.party(o), stamp, a.time)
    a.released()
    a.time += a.cta.cost.sync
    yield None
    return ()


def _is_relaxed(o: Op) -> bool:
    return bool(o.attrs.get("sem") == "relaxed")


@step(cluster.cluster_wait)
def _cluster_wait(a: Agent, o: Op) -> Steps:
    barrier = a.cta.program.barrier
    mine = barrier.wait(a.own_warps, a.party(o))
    yield from a.wait_until(
        Block(
            lambda: barrier.generation > mine,
            o,
            f"{barrier.name}, generation {mine}",
            barrier.missing,
            lambda: "not every thread of the cluster arrives, or ends",
        )
    )
    barrier.passed(a.own_warps, a.party(o))
    np.maximum(a.clock, barrier.done, out=a.clock)
    a.stall(barrier.done_time, o, "cluster")
    return ()


@step(mbarrier.mbarrier_wait)
def _mbarrier_wait(a: Agent, o: Op, barriers: list[MBarrier], index: Any, phase: Any) -> Steps:
    b, parity, party, rows = a.barrier(o, barriers, index), a.number(phase), a.party(o), a.rows
    if parity not in (0, 1):
        raise a.error(
            "parity",
            f"waits for parity {parity} of {b.name}",
            o,
            "a phase is 0 or 1: flip it by phase ^ 1, or let self.ring_next do so",
        )
    if a.cta.is_tracked:
        target = b.target(party, rows, parity)
    else:
        target = b.phases - 1 if b.phases % 2 != parity else b.phases
    a.log(o, b.name, target)
    b.blocked[party] = target
    if b.bound and b.tracked and b.phases > target:
        yield None  # as it will stay
    else:
        yield from a.wait_until(_phase_block(o, b, target, parity))
    del b.blocked[party]
    a.passed = b, target, o
    b.touch("wait", b.phases, party)
    if not b.bound:
        target = b.phases - 1
    b.waited.append(Waiter(party, a.program_order[: len(rows)], a.epochs()))
    if b.phases == target + 1 and target >= 0:
        acquired = b.wide_done if o.attrs.get("scope", "cta") == "cluster" else b.done
        if _is_relaxed(o):
            acquired = a.cta.program.relaxed(acquired)
        np.maximum(rows, acquired, out=rows)
        a.stall(b.done_time, o, b.name)
    if not b.bound:
        yield None  # others may go on between this and what follows
    return ()


def _phase_block(o: Op, b: MBarrier, target: int, parity: int) -> Block:
    is_bound = b.bound and b.tracked
    return Block(
        lambda: b.phases > target if is_bound else b.phases % 2 != parity,
        o,
        f"phase {target} of {b.name} (parity {parity})",
        lambda: f"phase {b.phases} still lacks {b.outstanding()}",
        b.cause,
        parties=b.parties,
    )


def _arrive(
    a: Agent,
    o: Op,
    b: MBarrier,
    party: Participant,
    known: Array,
    order: tuple[Array, Array] | None,
    n: int = 1,
    others: Together | None = None,
) -> None:
    """n arrivals of warps that know so much; `order`: their components and epochs, None for those of now;
    others: of the same op."""
    program = a.cta.program
    there, row = program.ctas[b.rank], known[0] if len(known) == 1 else joined(known)
    stamp, rows = row, known if a.cta.is_tracked else None
    if _is_relaxed(o):
        stamp = program.relaxed(row)
    if there is a.cta:
        b.arrive(party, stamp, a.time, rows, None, n, others)
        return
    what = f"an arrival at {b.name.partition(' of ')[0]}"
    reach(a, there, o, what, b.made)
    proofs = ((np.array([b.component]), np.array([b.phases + 1])), order or a.proof())
    there.reached[a, b] = PeerAccess(party, what, proofs)
    b.arrive(party, program.relaxed(row), a.time, rows, stamp, n, others)


@step(mbarrier.mbarrier_arrive)
def _mbarrier_arrive(
    a: Agent, o: Op, barriers: list[MBarrier], index: Any, mask: Any = None
) -> Steps:
    b, party, by = a.barrier(o, barriers, index), a.party(o), o.attrs.get("by", "warp")
    a.time += a.cta.cost.sync
    a.log(o, b.name, b.phases)
    targets = (
        [b] if mask is None else [same_barrier(a, b, r) for r in ranks_of(a, o, a.number(mask))]
    )
    warps = 1 if a.is_solo or by == "one" else a.warps
    times = (a.cta.target.warp_size if by == "thread" and not a.is_solo else 1) * o.attrs.get(
        "count", 1
    )
    # Where warps neither lag nor are told apart they arrive at once.
    at_once = a.cta.touched is None and not a.cta.lets_warps_lag
    order, together = None if at_once else a.proof(), Together(warps * times)
    is_synced = a.is_solo or by == "thread" or (by == "warp" and o.attrs.get("synced", True))
    known = (a.known() if is_synced else a.of_first_lanes())[:warps]
    if is_synced and by == "warp" and not a.is_solo:
        a.clock[:] = known
    if at_once:
        for target in targets:
            _arrive(a, o, target, party, known, order, times * warps, together)
    for w in range(0 if at_once else warps):
        some = known[w : w + 1].copy()

        def run(some: Array = some) -> None:
            for target in targets:
                _arrive(a, o, target, party, some, order, times, together)

        a.lag(w, run, LAGS[not is_synced])
    a.released()
    yield None
    return ()


@step(mbarrier.mbarrier_expect)
def _mbarrier_expect(a: Agent, o: Op, barriers: list[MBarrier], index: Any) -> Steps:
    b, party = a.barrier(o, barriers, index), a.party(o)
    a.need_solo(o, "every thread would expect the bytes", "put it inside elect")
    a.log(o, b.name, b.phases)
    a.time += a.cta.cost.sync
    b.expect(party, o.attrs["bytes"])
    _arrive(a, o, b, party, a.rows, None)
    a.released()
    yield None
    return ()


def same_barrier(a: Agent, b: MBarrier, rank: int) -> MBarrier:
    """The same barrier in the CTA of that rank."""
    if rank == b.rank:
        return b
    assert b.made is not None
    return a.cta.program.ctas[rank].arrays[b.made.attrs["name"]][b.index]


def ranks_of(a: Agent, o: Op, mask: int) -> list[int]:
    """The CTAs that a multicast goes to."""
    n = len(a.cta.program.ctas)
    if mask <= 0 or mask >> n:
        raise a.error(
            "multicast-mask",
            f"the mask {mask:#b} in a cluster of {n} CTAs",
            o,
            f"bit r names the CTA of rank r: from 1 to {(1 << n) - 1:#b}",
        )
    return [rank for rank in range(n) if mask >> rank & 1]
