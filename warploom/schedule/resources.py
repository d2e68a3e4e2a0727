"""Registers and shared memory that a schedule may spend.  Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.errors import CompileError, Loc
from warploom.schedule.model import TaskPlan
from warploom.target import Target

_SLACK = 2048  # barriers, alignment, and scratch of reductions and layout conversions

# What a producer does, the lightest first: `target.registers.producers` says what registers it takes.
WORK = (
    "issues",  # TMA: scalars only
    "copies",  # cp.async: addresses of every thread
    "holds",  # boxes through registers, piece by piece
    "loads",  # whole tiles by pointers
)


def transpose_registers(item_bytes: int, target: Target) -> int:
    """Registers a thread of transpose warps that hold items of so many bytes, one at a time (NVRTC 13.5: up
    to 48 words are transposed with 32 registers beside them, 64 need more, none takes less than 56)."""
    words = item_bytes // (4 * target.group_threads)
    return max(56, -(-(words + (32 if words <= 48 else 40)) // 8) * 8)


@dataclass(frozen=True)
class Headroom:
    """Registers a thread that the tasks get beyond the estimate: what is tried after ptxas spilled.  shared:
    bytes of shared memory left for what only layouts show.  few_registers: dots in registers hold less.
    partial_sectors: tiles stay in layouts whose accesses fill sectors in part, as shared memory has no room
    for an exchange."""

    producer: int = 0
    consumer: int = 0
    transpose: int = 0
    shared: int = 0
    few_registers: bool = False
    partial_sectors: bool = False

    def gives_nothing(self, tasks: tuple[TaskPlan, ...]) -> bool:
        """Does it give more only to tasks that there aren't, or whose threads keep what they begin with?"""
        given = self.producer and any(t.registers is not None for t in tasks)
        moved = self.transpose and any(t.role == "transpose" for t in tasks)
        only = self == Headroom(producer=self.producer, transpose=self.transpose)
        return only and not (given or moved)


_KNOB = {"consumer": "reg_inc_consumer", "producer": "reg_dec_producer"}  # by a task's role


def budgets(
    replicas: int,
    work: str,
    target: Target,
    need: int = 0,
    headroom: Headroom | None = None,
    transpose: int = 0,
    lean: bool = False,
) -> tuple[int, int] | None:
    """(producer, consumer) registers that use up the pool of a producer and `replicas` consumer groups, for
    consumers that need so many; None where there are none.  Both are what a thread is launched with where
    reallocation brings nothing: with one consumer group each thread has all that it can address.
    transpose: registers of transpose warps, 0 where there is none.  lean: the producer gets what it
    manages with."""
    entry = target.entry_registers((replicas + 1 + bool(transpose)) * target.group_threads)
    if target.registers.reallocation is None:
        return (entry, entry) if entry >= max(need, transpose) else None
    pool = (replicas + 1 + bool(transpose)) * entry - transpose
    takes = target.registers.producers[work]
    usual, least = (n + (headroom.producer if headroom else 0) for n in (takes.usual, takes.least))
    for low in range(least if lean else usual, least - 1, -8):
        high = min((pool - low) // replicas // 8 * 8, target.registers.per_thread // 8 * 8)
        if high <= entry:
            return (entry, entry) if entry >= max(need, transpose) else None
        if high >= need:
            return pool - replicas * high, high
    return None


def check_registers(tasks: tuple[TaskPlan, ...], target: Target, loc: Loc | None) -> None:
    """Σ threads · budget must not exceed threads · entry registers: setmaxnreg.inc waits for registers
    that nobody will release.  Raises CompileError."""
    asked = [(t, t.registers) for t in tasks if t.registers is not None]
    for t, n in asked:
        if target.registers.reallocation is None:
            raise CompileError(
                "registers",
                f"task {t.name} asks for {n} registers a thread; warps of {target.name} keep those that "
                "they were launched with",
                loc,
                help=f"leave {_KNOB.get(t.role, 'registers')} out",
            )
        low, high, unit = target.registers.reallocation
        if n % unit or not low <= n <= high:
            raise CompileError(
                "registers",
                f"task {t.name} asks for {n} registers a thread; setmaxnreg takes multiples of {unit} "
                f"from {low} to {high}",
                loc,
                help=f"{_KNOB.get(t.role, 'registers')}={max(low, min(high, n // unit * unit))} "
                "is the nearest",
            )
    if not asked:
        return
    warp = target.warp_size
    each = {t: warp * t.warps * t.replicas for t in tasks}
    threads = sum(each.values())
    entry = target.entry_registers(threads)
    pool = threads * entry
    need = sum(n * (t.registers or entry) for t, n in each.items())
    if need > pool:
        parts = " + ".join(
            f"{n} threads of {t.name} x {t.registers or entry}" for t, n in each.items()
        )
        raise CompileError(
            "registers",
            f"the tasks ask for {need} registers, {need - pool} more than the {pool} that "
            f"{threads} threads are launched with ({entry} each): {parts}",
            loc,
            help="lower reg_inc_consumer or reg_dec_producer"
            + (", or raise maxnreg" if target.entry_limit is not None else ""),
        )


def fits(rings: int, staging: int, other: int, target: Target) -> bool:
    """Do so many bytes of slots, store staging and other buffers fit in shared memory?"""
    return excess(rings, staging, other, target) <= 0


def excess(rings: int, staging: int, other: int, target: Target) -> int:
    """Bytes over the limit."""
    return rings + staging + other + _SLACK - target.shared_bytes
