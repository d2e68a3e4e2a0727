"""Registers and shared memory that a schedule may spend.  Decides nothing."""

from __future__ import annotations

from warploom.errors import CompileError, Loc
from warploom.schedule.model import TaskPlan
from warploom.target import Target

WARP_GROUP = 128  # threads
_SLACK = 2048  # barriers, alignment, and scratch of reductions and layout conversions

# Registers a thread of (producer, consumer), by number of consumer groups and by what the producer does:
# issue TMA (scalars only), copy boxes (addresses of every thread, a piece of a tile), or load whole tiles
# by pointers.  Each uses the whole pool: 384 threads are launched with 168 registers each, 512 with 128.
# The producer's parts are what NVRTC 13.5 needs without spills for tiles of 128x256x64.
_BUDGETS: dict[tuple[int, str], tuple[int, int]] = {
    (2, "issues"): (40, 232),
    (2, "copies"): (104, 200),
    (2, "loads"): (152, 176),
    (3, "issues"): (32, 160),
    (3, "copies"): (80, 144),
    (3, "loads"): (104, 136),
}
WORK = ("issues", "copies", "loads")  # of a producer, lightest first


_KNOB = {"consumer": "reg_inc_consumer", "producer": "reg_dec_producer"}  # by a task's role


def entry_registers(threads: int, target: Target, limit: int | None = None) -> int:
    """Registers a thread that a CTA of so many threads is launched with: the file divided evenly, in
    multiples of 8 (PTX ISA, setmaxnreg), never more than a thread can address or `limit`."""
    most = min(target.max_registers_per_thread, limit or target.max_registers_per_thread)
    return min(target.registers_per_sm // threads, most) // 8 * 8


def budgets(replicas: int, work: str) -> tuple[int, int] | None:
    """(producer, consumer) registers; None where reallocation brings nothing: with one consumer group
    each of the 256 threads may have 255 anyway."""
    return _BUDGETS.get((replicas, work))


def check_registers(
    tasks: tuple[TaskPlan, ...], target: Target, limit: int | None, loc: Loc | None
) -> None:
    """Σ threads · budget must not exceed threads · entry registers: setmaxnreg.inc waits for registers
    that nobody will release.  Raises CompileError."""
    asked = [(t, t.registers) for t in tasks if t.registers is not None]
    for t, n in asked:
        if n % 8 or not 24 <= n <= 256:
            raise CompileError(
                "registers",
                f"task {t.name} asks for {n} registers a thread; setmaxnreg takes multiples of 8 "
                "from 24 to 256",
                loc,
                help=f"{_KNOB.get(t.role, 'registers')}={max(24, min(256, n // 8 * 8))} is the nearest",
            )
    if not asked:
        return
    threads = sum(32 * t.warps * t.replicas for t in tasks)
    entry = entry_registers(threads, target, limit)
    pool = threads * entry
    need = sum(32 * t.warps * t.replicas * (t.registers or entry) for t in tasks)
    if need > pool:
        parts = " + ".join(
            f"{32 * t.warps * t.replicas} threads of {t.name} x {t.registers or entry}"
            for t in tasks
        )
        raise CompileError(
            "registers",
            f"the tasks ask for {need} registers, {need - pool} more than the {pool} that "
            f"{threads} threads are launched with ({entry} each): {parts}",
            loc,
            help="lower reg_inc_consumer or reg_dec_producer"
            + (", or raise maxnreg" if limit is not None else ""),
        )


def fits(rings: int, staging: int, other: int, target: Target) -> bool:
    """Do so many bytes of slots, store staging and other buffers fit in shared memory?"""
    return rings + staging + other + _SLACK <= target.shared_bytes


def excess(rings: int, staging: int, other: int, target: Target) -> int:
    """Bytes over the limit."""
    return rings + staging + other + _SLACK - target.shared_bytes
