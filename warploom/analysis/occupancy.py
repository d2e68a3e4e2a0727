"""How many CTAs of a kernel share a multiprocessor: what its function says, and what only ptxas can tell.
Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.ir.analysis import streams
from warploom.ir.core import Func, walk
from warploom.ir.ops import mma, regs, task
from warploom.target import Target


@dataclass(frozen=True)
class OpenOccupancy:
    """The occupancy of a kernel whose registers decide it.  threads: of a CTA.  streams: has it a loop that
    loads, and in which no thread waits for another?  dots: are its registers accumulators?"""

    threads: int
    streams: bool
    dots: bool = False


def told_ctas(func: Func, target: Target) -> int | None:
    """The CTAs of a multiprocessor that the function is made for, at PLACED; None where that is left open.

    A CTA has the multiprocessor to itself where it fills its shared memory, or where its tasks trade
    registers, which need to know how many there are."""
    told: int | None = func.attrs.get("ctas_per_sm")
    if told is not None:
        return told
    fills = 2 * func.attrs["shared_bytes"] > target.shared_bytes
    trades = any(
        o.kind is regs.setmaxnreg or (o.kind is task.tasks and any(o.attrs["registers"]))
        for o in walk(func.body)
    )
    return 1 if fills or trades else None


def open_occupancy(func: Func, target: Target) -> OpenOccupancy | None:
    """What to ask ptxas of a function at PLACED; None where it is told."""
    if told_ctas(func, target) is not None:
        return None
    dots = any(o.kind in mma.PRODUCTS for o in walk(func.body))
    return OpenOccupancy(func.attrs["threads"], streams(func.body), dots)
