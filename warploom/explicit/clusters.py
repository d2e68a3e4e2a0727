"""self.cluster, and whose CTA an instruction means."""

from __future__ import annotations

import math
from typing import Any

from warploom.explicit.handles import Barrier, Dim3, Evaluated
from warploom.explicit.operands import index_of, known_int, ordering, program, whole_group
from warploom.frontend.coerce import Operand, current, describe, static_int
from warploom.frontend.language import shape as shapes
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import refuse
from warploom.ir.build import if_
from warploom.ir.core import Builder, Value
from warploom.ir.ops import cluster
from warploom.ir.types import Barriers, Shared


class Cluster:
    """self.cluster: the CTAs that self.attrs.cluster_blocks puts together."""

    blockRank = Evaluated(lambda: _own(cluster.cta_rank), "This CTA's rank in the cluster.")
    blockIdx = Dim3(
        lambda axis: _own(cluster.cta_id, axis=axis), "This CTA's index in the cluster."
    )
    clusterDim = Dim3(lambda axis: program().cluster[axis], "CTAs of a cluster along an axis.")
    clusterIdx = Dim3(shapes.program_id, "This cluster's index in the grid of clusters.")
    gridDim = Dim3(shapes.num_programs, "Clusters along an axis.")

    @builtin
    def sync(self) -> None:
        """The barrier of all threads of the cluster that have not ended: every group of each CTA comes to it.
        Ordinary accesses before it come before those after it."""
        whole_group("cluster.sync")
        current().emit(cluster.cluster_arrive)
        current().emit(cluster.cluster_wait)

    @builtin
    def arrive(self, sem: str = "release") -> None:
        """Arrives at the cluster's barrier without waiting.  'relaxed' orders the initialisation of
        mbarriers, but no ordinary accesses."""
        whole_group("cluster.arrive")
        current().emit(cluster.cluster_arrive, **ordering(sem, "release"))

    @builtin
    def wait(self) -> None:
        """Waits for the cluster's barrier, at which the group has arrived."""
        whole_group("cluster.wait")
        current().emit(cluster.cluster_wait)

    @builtin
    def map_shared_addr(self, addr: Any, target_rank: Operand) -> Any:
        """The same shared tensor (or part of one), or the same barriers, in the CTA of that rank.

        load_shared and store_shared access it, arrivals reach its barriers; TMA, wgmma and waits do not."""
        rank, x = rank_of(target_rank), addr
        if isinstance(x, Barrier):
            return at_rank(x, rank)
        if isinstance(x, Value) and isinstance(x.type, Shared | Barriers):
            out = current().emit(cluster.peer, x, rank, hint=x.hint)
            return program().derived(x, out)
        refuse(
            "not-shared",
            f"expected a shared tensor or barriers, found {describe(x)}",
            "pass a shared_tensor or what mbarrier.alloc gave",
        )


def _own(kind: Any, **attrs: Any) -> Any:
    program().is_cluster_fixed = True
    return current().emit(kind, **attrs)


def block_index(axis: int) -> Any:
    """self.blockIdx: this CTA's index in the grid."""
    first = _in_ctas(shapes.program_id(axis), axis)
    if program().cluster[axis] == 1:
        return first
    return current().binary("+", first, _own(cluster.cta_id, axis=axis))


def grid_size(axis: int) -> Any:
    """self.gridDim: CTAs along an axis."""
    return _in_ctas(shapes.num_programs(axis), axis)


def _in_ctas(programs: Any, axis: int) -> Any:
    p = program()
    p.is_cluster_fixed = True
    n = p.cluster[axis]
    return programs if n == 1 else current().binary("*", programs, n)


def rank_of(x: Operand) -> Value:
    """A CTA's rank as an i32.  Refuses a constant outside the cluster."""
    ctas = math.prod(program().cluster)
    if not isinstance(x, Value) and not 0 <= static_int(x, "a rank") < ctas:
        refuse(
            "cluster-rank",
            f"CTA {known_int(x)} of a cluster of {ctas}",
            "set self.attrs.cluster_blocks, and count CTAs from 0",
        )
    program().is_cluster_fixed = True
    return index_of(x)


def mask_of(x: Operand) -> Value:
    """A mask of CTAs as an i32.  Refuses a constant with bits outside the cluster."""
    ctas = math.prod(program().cluster)
    if not isinstance(x, Value) and not 0 < static_int(x, "a mask") < 1 << ctas:
        refuse(
            "multicast-mask",
            f"the mask {known_int(x):#b} in a cluster of {ctas} CTAs",
            "set self.attrs.cluster_blocks; bit r of the mask stands for the CTA of rank r",
        )
    program().is_cluster_fixed = True
    return index_of(x)


def at_rank(b: Barrier, rank: Value) -> Barrier:
    return Barrier(current().emit(cluster.peer, b.array, rank, hint=b.array.hint), b.index)


def each_cta(mask: Operand, emit: Any) -> None:
    """Emits once for each CTA of a mask."""
    emitter = current()
    bits = mask_of(mask)
    for rank in range(math.prod(program().cluster)):
        if not isinstance(mask, Value):
            if static_int(mask, "a mask") >> rank & 1:
                emit(rank_of(rank))
            continue

        def arm(b: Builder, rank: int = rank) -> None:
            with emitter.inside(b):
                emit(rank_of(rank))

        there = emitter.binary("&", emitter.binary(">>", bits, rank), 1)
        emitter.builder.loc = emitter.loc
        if_(emitter.builder, emitter.truth(there), arm)
