"""Sums over the CTAs of a cluster, through the shared memory of CTA 0 (part of partition_code).

before:  %sum = cluster_sum(%x)
after:   %sum = if(eq(%cta, 0)) do {
           mbarrier_wait(%met, %replica, 0) {scope="cluster"}
           … add(%x, shared_load(shared_slot(%parts, %replica, 0))) …
         } do {
           shared_store(shared_slot(peer(%parts, 0), %replica, sub(%cta, 1)), %x)
           mbarrier_arrive(peer(%met, 0), %replica)
         }

Every task says at its start that its CTA has begun; who adds up waits once, before its first sum, until all
have.  A CTA ends when it has sent its part; CTA 0 waits for all parts, so that it is there as long as others
write to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from warploom.ir import build
from warploom.ir.core import Builder, Func, Op, Region, Value
from warploom.ir.ops import arith, cluster, mbarrier, smem
from warploom.ir.types import Tile
from warploom.schedule.model import Schedule


@dataclass(frozen=True, eq=False)
class Meeting:
    """Where the parts of one sum meet.  is_first: of the sums that a task makes."""

    rank: Value
    parts: Value
    met: Value
    others: int
    is_first: bool


def declare(func: Func, schedule: Schedule, top: Builder) -> Mapping[Op, Meeting]:
    """What each sum of the function needs, before the tasks: in CTA 0 a slot for the part of each other
    CTA and replica."""
    sums = func.body.by_kind.get(cluster.cluster_sum, [])
    if not sums:
        return {}
    main, others = schedule.tasks[0], math.prod(cluster.cluster_of(func)) - 1
    rank = cluster.cta_rank(top, hint="cta")
    found, names = {}, {str(o.attrs["name"]) for o in top.ops if "name" in o.attrs}
    for i, o in enumerate(sums):
        t = o.result.typed(Tile)
        lead, each = (main.replicas, others), others * main.warps
        parts = build.slots(top, t, lead, build.unique("parts", names), "parts_smem")
        met = build.barriers(top, build.unique("met", names), main.replicas, each, "met")
        found[o] = Meeting(rank, parts, met, others, i == 0)
    return found


def announced(region: Region) -> Region:
    """A task that says first that its CTA has begun: its barriers are initialised."""
    b = Builder()
    cluster.cluster_arrive(b, sem="relaxed")
    return Region(region.params, (*b.ops, *region.ops))


def cluster_sum(b: Builder, at: Meeting, x: Value, replica: Value) -> Value:
    """The parts' sum in CTA 0; x elsewhere."""
    if at.is_first:
        cluster.cluster_wait(b)

    def add_up(inner: Builder) -> Iterable[Value]:
        mbarrier.mbarrier_wait(inner, at.met, replica, build.const(inner, 0), scope="cluster")
        total = x
        for i in range(at.others):
            place = smem.shared_slot(inner, at.parts, replica, build.const(inner, i), hint="part")
            total = arith.add(inner, total, smem.shared_load(inner, place), hint=x.hint)
        return (total,)

    def send(inner: Builder) -> Iterable[Value]:
        to = build.const(inner, 0)
        mine = arith.sub(inner, at.rank, build.const(inner, 1))
        theirs = cluster.peer(inner, at.parts, to, hint="parts")
        smem.shared_store(inner, smem.shared_slot(inner, theirs, replica, mine, hint="part"), x)
        met = cluster.peer(inner, at.met, to, hint="met")
        mbarrier.mbarrier_arrive(inner, met, replica, by="warp")
        return (x,)

    first = arith.eq(b, at.rank, build.const(b, 0), hint="first")
    (total,) = build.if_(b, first, add_up, send)
    return total
