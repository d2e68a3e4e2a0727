"""mbarriers: objects in shared memory that threads and engines arrive at and threads wait for.

A phase completes when `count` arrivals and all expected bytes are in.  Semantics follow the PTX ISA.
"""

from __future__ import annotations

from warploom.ir.core import HARDWARE, Effect, Family, Op, Runs, Type, Value, op, require
from warploom.ir.types import Barriers, Scalar, i32

SCOPES = ("cta", "cluster")


@op(Family.PLACE, levels=HARDWARE)
def mbarrier_alloc(*, name: str, n: int, count: int, offset: int | None = None) -> Barriers:
    """n mbarriers that expect `count` arrivals a phase, initialised (with fence.mbarrier_init and a CTA
    barrier) before any task starts."""
    require(count >= 1, f"an mbarrier expects at least one arrival, not {count}")
    return Barriers(n)


def check_barrier(b: Type, *numbers: Type, peer: bool = False) -> None:
    """The rule of ops on a barrier of an array: peer, may it be another CTA's?"""
    require(isinstance(b, Barriers), f"expected mbarriers, got {b}")
    require(
        peer or not getattr(b, "peer", False), "another CTA's barrier takes arrivals only", "peer"
    )
    require(all(n == Scalar(i32) for n in numbers), "barrier index and phase are i32")


def barrier_of(o: Op) -> tuple[Value, Value] | None:
    """(array, index) of the mbarrier that an op waits for or signals; None where it takes none."""
    at = next((i for i, (_, t) in enumerate(o.kind.operands) if t is Barriers), None)
    return None if at is None else (o.operands[at], o.operands[at + 1])


@op(Family.WAIT, levels=HARDWARE, effect=Effect.SYNC)
def mbarrier_wait(
    b: Barriers, index: Scalar, phase: Scalar, *, sem: str = "acquire", scope: str = "cta"
) -> None:
    """Blocks while the barrier's current phase has parity `phase`: returns once that phase completed.

    mbarrier.try_wait.parity: on a fresh barrier (phase 0 running) a wait for parity 1 passes at once.
    It acquires in `scope`: what other CTAs of the cluster wrote by ordinary stores before their arrivals is
    seen with 'cluster' only.

    sem: 'relaxed', it acquires nothing: what follows comes after the phase for asynchronous operations (TMA
    may write what wgmmas have read; wgmma and TMA may read what TMA brought), but no ordinary access is
    ordered with anything.
    """
    check_barrier(b, index, phase)
    require(sem in ("acquire", "relaxed"), f"a wait is acquire or relaxed, not {sem}", "sem")
    require(scope in SCOPES, f"the scope is one of {SCOPES}, not {scope}")


@op(Family.SIGNAL, levels=HARDWARE, effect=Effect.SYNC)
def mbarrier_arrive(
    b: Barriers,
    index: Scalar,
    *mask: Scalar,
    by: str = "warp",
    sem: str = "release",
    count: int = 1,
    synced: bool = True,
) -> None:
    """mbarrier.arrive: once a 'thread', once a 'warp' (lane 0, after __syncwarp), or 'one' for the whole
    replica (its elected thread; only where the replica was synchronised before).  Inside elect it is one
    arrival whatever `by` says.  With a mask (i32) it is one at b[index] of each CTA of the cluster in it, bit
    r for rank r.

    sem: a 'release' orders what the thread did before, in the CTA (of a peer's barrier, or with a mask, in
    the cluster); 'relaxed' orders asynchronous operations that are over (wgmma's reads), but no ordinary
    accesses.  synced=False: lane 0 arrives for its warp without __syncwarp, and releases no ordinary accesses
    of its warp.  count: as how many arrivals each of them counts.  All arrivals of one op count in one
    phase."""
    check_barrier(b, index, *mask, peer=not mask)
    require(len(mask) <= 1, "one mask")
    require(1 <= count < 1 << 20, f"an arrival counts 1 to 2**20 - 1 times, not {count}")
    require(by in ("thread", "warp", "one"), f"unknown arrival {by}")
    _release(sem)


@op(Family.SIGNAL, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ONE)
def mbarrier_expect(b: Barriers, index: Scalar, *, bytes: int, sem: str = "release") -> None:
    """mbarrier.arrive.expect_tx: expects `bytes` more in this phase, then arrives once (inside elect).
    sem: as of mbarrier_arrive."""
    check_barrier(b, index, peer=True)
    _release(sem)


def _release(sem: str) -> None:
    require(sem in ("release", "relaxed"), f"an arrival is release or relaxed, not {sem}", "sem")


@op(Family.SIGNAL, levels=HARDWARE, effect=Effect.SYNC, runs=Runs.ALL)
def cp_async_arrive(b: Barriers, index: Scalar) -> None:
    """cp.async.mbarrier.arrive.noinc by every thread: each arrives when its own copies so far are done."""
    check_barrier(b, index)
