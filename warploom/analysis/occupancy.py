"""How many CTAs of a kernel share a multiprocessor: what its function says, and what only ptxas can tell.
Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.ir.analysis import streams
from warploom.ir.core import Func, Region, walk
from warploom.ir.ops import control, mma, regs, smem, task
from warploom.target import Target


@dataclass(frozen=True)
class OpenOccupancy:
    """The occupancy of a kernel whose registers decide it.  threads: of a CTA.  streams: has it a loop that
    loads, and in which no thread waits for another?  dots: are its registers accumulators?  steps: has it no
    dots, and a loop that loads and in which threads wait?  held: the registers of a thread that tiles take
    then."""

    threads: int
    streams: bool
    dots: bool = False
    steps: bool = False
    held: int = 0


def given_ctas(func: Func, target: Target) -> int | None:
    """The CTAs of a multiprocessor that the function is made for, at PLACED; None where that is left open.

    A CTA has the multiprocessor to itself where it fills its shared memory, or where its tasks trade
    registers, which need to know how many there are."""
    asked: int | None = func.attrs.get("ctas_per_sm")
    if asked is not None:
        return asked
    fills = 2 * func.attrs["shared_bytes"] > target.shared_bytes
    trades = any(
        o.kind is regs.setmaxnreg or (o.kind is task.tasks and any(o.attrs["registers"]))
        for o in walk(func.body)
    )
    return 1 if fills or trades else None


def open_occupancy(func: Func, target: Target) -> OpenOccupancy | None:
    """What to ask ptxas of a function at PLACED; None where it is told."""
    if given_ctas(func, target) is not None:
        return None
    dots = any(o.kind in mma.PRODUCTS for o in walk(func.body))
    loops = [o.regions[0] for o in walk(func.body) if o.kind in control.LOOPS]
    steps = not dots and any(_steps(r) for r in loops)
    return OpenOccupancy(func.attrs["threads"], streams(func.body), dots, steps)


def _steps(loop: Region) -> bool:
    """Does a loop load, and do its threads wait for each other?"""
    ops = loop.ops
    return any(o.loads for o in ops) and any(o.kind is smem.group_sync for o in ops)
