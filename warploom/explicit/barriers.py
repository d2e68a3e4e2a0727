"""self.mbarrier, self.named_barrier and self.fence: how threads wait for each other."""

from __future__ import annotations

from typing import Any

from warploom.explicit.clusters import at_rank, each_cta, mask_of, rank_of
from warploom.explicit.handles import Barrier, BarrierList
from warploom.explicit.operands import barrier_of, index_of, ordering, program, whole_group
from warploom.frontend.coerce import Operand, current, static_int, static_ints
from warploom.frontend.language.core import builtin
from warploom.frontend.refuse import one_of, refuse
from warploom.ir.core import Value
from warploom.ir.ops import mbarrier, smem


class Mbarrier:
    """self.mbarrier: barriers in shared memory that count arrivals and bytes; a phase completes when all
    its arrivals and all expected bytes are in, then the next one begins."""

    producer_initial_phase = 1  # a wait for it passes at once on a fresh barrier
    consumer_initial_phase = 0

    @builtin
    def alloc(self, counts: Any = 1, count: Any = None) -> Any:
        """Barriers that expect so many arrivals a phase: one for each number in `counts`.  They are
        initialised before any group starts, wherever the call stands."""
        p, emitter = program(), current()
        many = static_ints(counts if count is None else count, "an arrival count")
        for n in many:
            _check_count(n, f"a barrier for {n} arrivals")
        name = p.target or "barrier"

        def made(n: int, count: int) -> Value:
            return p.declare(
                mbarrier.mbarrier_alloc,
                (),
                emitter.loc,
                name,
                name=p.unique(name),
                n=n,
                count=count,
            )

        if len(set(many)) == 1:
            return made(len(many), many[0])
        return BarrierList(tuple(made(1, n) for n in many))

    @builtin
    def wait(self, barrier: Any, phase: Operand, sem: str = "acquire", scope: str = "cta") -> None:
        """Until the phase of this parity is complete: passes where the barrier's running phase has the other.

        sem: 'relaxed' is enough where only TMA and wgmma follow (which is what rings of these want); what the
        group loads and stores itself needs 'acquire'.  scope: with 'cluster' also what threads of other
        CTAs wrote by ordinary stores before they arrived."""
        how = ordering(sem, "acquire")
        if _scope(scope) == "cluster":
            how["scope"] = "cluster"
        b = barrier_of(barrier)
        current().emit(mbarrier.mbarrier_wait, b.array, index_of(b.index), index_of(phase), **how)

    @builtin
    def arrive(
        self,
        barrier: Any,
        count: Any = 1,
        sem: str = "release",
        scope: str = "cta",
        by: str = "thread",
    ) -> None:
        """One arrival of every thread of the group (by='thread'), of every warp (by='warp': lane 0 after
        the warp's own __syncwarp), or one for the group (by='one': only where the group has
        synchronised before).  It releases, in the CTA or (at another CTA's barrier) in the cluster.

        count: as how many arrivals each of them counts.  All of them together count in one phase.
        sem: 'relaxed' is enough where only asynchronous reads (wgmma's, after their wait) come before;
        ordinary loads and stores of shared memory need 'release'."""
        _scope(scope)
        _arrive(barrier_of(barrier), by, sem, count)

    @builtin
    def arrive_and_expect_tx(
        self, barrier: Any, transaction_bytes: Any, sem: str = "release", scope: str = "cta"
    ) -> None:
        """Expects so many bytes more in this phase, then arrives once.  The copies that bring the bytes
        do not raise the expectation: they count it down.  sem: as arrive's."""
        _scope(scope)
        _expect(barrier_of(barrier), transaction_bytes, sem)

    @builtin
    def arrive_remote(
        self,
        barrier: Any,
        target_rank: Operand,
        sem: str = "release",
        scope: str = "cluster",
        by: str = "thread",
        count: Any = 1,
    ) -> None:
        """An arrival at the same barrier in the CTA of that rank of the cluster; sem, count as arrive's."""
        _scope(scope)
        _arrive(at_rank(barrier_of(barrier), rank_of(target_rank)), by, sem, count)

    @builtin
    def arrive_multicast(
        self,
        barrier: Any,
        mask: Operand,
        sem: str = "release",
        scope: str = "cluster",
        by: str = "thread",
        count: Any = 1,
    ) -> None:
        """An arrival at the same barrier in each CTA of the mask (bit r: rank r), as arrive_remote."""
        _scope(scope)
        _arrive(barrier_of(barrier), by, sem, count, mask_of(mask))

    @builtin
    def arrive_and_expect_tx_remote(
        self,
        barrier: Any,
        transaction_bytes: Any,
        target_rank: Operand,
        sem: str = "release",
        scope: str = "cluster",
    ) -> None:
        """As arrive_and_expect_tx, at the same barrier in the CTA of that rank."""
        _scope(scope)
        _expect(at_rank(barrier_of(barrier), rank_of(target_rank)), transaction_bytes, sem)

    @builtin
    def arrive_and_expect_tx_multicast(
        self,
        barrier: Any,
        transaction_bytes: Any,
        multicast_mask: Operand,
        sem: str = "release",
        scope: str = "cluster",
    ) -> None:
        """As arrive_and_expect_tx, at the same barrier in each CTA of the mask."""
        _scope(scope)
        b = barrier_of(barrier)
        each_cta(multicast_mask, lambda rank: _expect(at_rank(b, rank), transaction_bytes, sem))


def _arrive(b: Barrier, by: str, sem: str, count: Any, *mask: Value) -> None:
    how, n = ordering(sem, "release"), static_int(count, "an arrival count")
    _check_count(n, f"an arrival that counts {n} times")
    if n > 1:
        how["count"] = n
    current().emit(mbarrier.mbarrier_arrive, b.array, index_of(b.index), *mask, by=by, **how)


def _check_count(n: int, what: str) -> None:
    if not 1 <= n < 1 << 20:
        refuse("arrival-count", what, "give 1 to 2**20 - 1")


def _expect(b: Barrier, transaction_bytes: Any, sem: str) -> None:
    here = program().here
    if here.kind != "one":
        refuse(
            "expect-tx-threads",
            f"{here} would each expect the bytes and arrive",
            "put it under `with self.single_thread():`",
        )
    n = static_int(transaction_bytes, "the number of bytes")
    how = ordering(sem, "release")
    current().emit(mbarrier.mbarrier_expect, b.array, index_of(b.index), bytes=n, **how)


class Fence:
    """self.fence: order between ordinary accesses and those of TMA and wgmma (the async proxy)."""

    @builtin
    def proxy_async(self, space: str = "shared") -> None:
        """This thread's ordinary accesses to shared memory so far come before later accesses of the async
        proxy that a barrier orders after it.  space: 'global' does the same for global memory, which TMA is
        to read after ordinary stores."""
        one_of("fence-space", "space", space, "shared", "global")
        how = {"space": "global"} if space == "global" else {}
        current().emit(smem.fence_async, **how)

    @builtin
    def proxy_async_release(self) -> None:
        """As proxy_async of shared memory."""
        current().emit(smem.fence_async)

    @builtin
    def mbarrier_init(self) -> None:
        """Nothing: barriers are made visible before any group starts."""


class NamedBarrier:
    """self.named_barrier: the 16 hardware barriers of a CTA, by number."""

    @builtin
    def sync(self, id: Any, threads: Any, index: Operand = None, n: Any = None) -> None:
        """Arrives at barrier `id` (1 to 15) and waits until `threads` have arrived.  index: a run-time number
        below n that is added to id."""
        _named(id, threads, index, n, False)

    @builtin
    def arrive(self, id: Any, threads: Any, index: Operand = None, n: Any = None) -> None:
        """Arrives without waiting."""
        _named(id, threads, index, n, True)


def _scope(scope: str) -> str:
    one_of("scope", "scope", scope, *mbarrier.SCOPES)
    return scope


def _named(id: Any, threads: Any, index: Operand, n: Any, arrive: bool) -> None:
    whole_group("a named barrier")
    attrs: dict[str, Any] = {"id": static_int(id, "the barrier's number"), "arrive": arrive}
    attrs["threads"] = static_int(threads, "the number of threads")
    operands = []
    if index is not None:
        operands = [index_of(index)]
        attrs["n"] = static_int(n, "n, the bound of index")
    current().emit(smem.named_barrier, *operands, **attrs)
