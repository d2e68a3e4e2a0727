"""Clusters: CTAs that run together and reach each other's shared memory.

`func.attrs["cluster"]` is the cluster's shape (x, y, z) in CTAs; without it a program is one CTA.  A
program is then the whole cluster: `program_id` counts clusters, every CTA runs all the tasks, and each has
shared memory and barriers of its own.  Semantics follow the PTX ISA ("mapa", "barrier.cluster", "Cluster
of Cooperative Thread Arrays").
"""

from __future__ import annotations

from dataclasses import replace

from warploom.ir.core import (
    HARDWARE,
    SEQUENTIAL,
    Effect,
    Family,
    Func,
    RuleError,
    Runs,
    Type,
    op,
    require,
)
from warploom.ir.ops import arith
from warploom.ir.types import Barriers, Scalar, Shared, Tile, i32

MAX_CTAS = (
    8  # the largest cluster that every launch may ask for (CUDA C++ programming guide, 5.2.1)
)


def cluster_of(func: Func) -> tuple[int, int, int]:
    """The cluster's shape in CTAs, (1, 1, 1) where a program is one CTA."""
    x, y, z = func.attrs.get("cluster", (1, 1, 1))
    return x, y, z


@op(Family.NUMBER)
def cta_rank() -> Scalar:
    """This CTA's number in its cluster (%cluster_ctarank): x + y·X + z·X·Y of its position.

    At the sequential levels an interpreter runs a program through for each CTA in turn."""
    return Scalar(i32)


@op(Family.WAIT, levels=SEQUENTIAL, effect=Effect.SYNC, axes=arith.alike)
def cluster_sum(x: Tile) -> Tile:
    """In CTA 0 the sum of all CTAs' tiles, added in the order of their ranks; in the others x.

    At the sequential levels an interpreter runs CTA 0 last.  `partition_code` makes it of stores to CTA 0's
    shared memory and of an mbarrier there."""
    require(isinstance(x, Tile), f"cluster_sum adds up tiles, not {x}")
    return x


@op(Family.NUMBER, levels=HARDWARE)
def cta_id(*, axis: int) -> Scalar:
    """This CTA's position in its cluster along axis 0, 1 or 2 (%cluster_ctaid)."""
    require(axis in (0, 1, 2), f"a cluster has axes 0, 1 and 2, not {axis}")
    return Scalar(i32)


@op(Family.PLACE, levels=HARDWARE)
def peer(x: Type, rank: Scalar) -> Type:
    """The same shared memory, or the same mbarriers, in the CTA of that rank (mapa.shared::cluster).

    Peers' memory is read and written by shared_load and shared_store; peers' barriers take arrivals and
    expectations, nobody waits for them.  The other CTA has to have begun (its barriers are initialised then)
    and must not have ended: cluster barriers, or what is known of its barriers, say so.
    """
    require(rank == Scalar(i32), f"a rank is an i32, not {rank}")
    if isinstance(x, Shared | Barriers):
        return replace(x, peer=True)
    raise RuleError(f"expected shared memory or mbarriers, got {x}")


@op(Family.SIGNAL, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def cluster_arrive(*, sem: str = "release") -> None:
    """barrier.cluster.arrive by every thread of the replica, 'release' or 'relaxed'.  The lanes of each warp
    meet first (.aligned: all of a warp execute it together; one may come from an elect).

    The barrier's generation is complete when all threads of the cluster that have not ended have arrived.  A
    thread arrives once a generation: between two arrivals it waits.  Relaxed, it orders the initialisation of
    mbarriers (with their fence at entry) and what asynchronous copies and wgmmas have done, but no ordinary
    accesses.
    """
    require(sem in ("release", "relaxed"), f"an arrival is release or relaxed, not {sem}")


@op(Family.WAIT, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def cluster_wait() -> None:
    """barrier.cluster.wait (acquire) by every thread of the replica, for the generation it arrived in."""
