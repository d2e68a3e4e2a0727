"""What registers a launch gives to a thread, and how many it may have at each setmaxnreg, which changes that.

`func.attrs["ctas_per_sm"]` says for how many CTAs of a multiprocessor a function was made (1 where
it says nothing): each is launched with its part of the registers.
"""

from __future__ import annotations

from collections.abc import Iterable

from warploom.ir.core import Func, Op, Region, walk
from warploom.ir.ops import control, regs, task
from warploom.target import Target

Counts = frozenset[int]  # registers a thread that warps may have at one place


def threads_of(phase: Op, target: Target) -> int:
    """Threads of the CTA."""
    return target.warp_size * task.warps_of(phase)


def ctas_per_sm(func: Func) -> int:
    """CTAs that share a multiprocessor's registers."""
    n: int = func.attrs.get("ctas_per_sm", 1)
    return n


def at_entry(func: Func, target: Target) -> int:
    """Registers of a thread when the function begins, at WARP and later."""
    return target.entry_registers(threads_of(task.phases(func)[-1], target) * ctas_per_sm(func))


def counts_before(func: Func, target: Target) -> dict[Op, Counts]:
    """For each setmaxnreg the registers that a thread may have when it comes to it, on any path."""
    phases, found = task.phases(func), dict[Op, Counts]()
    if not any(
        o.kind is regs.setmaxnreg for phase in phases for r in phase.regions for o in walk(r)
    ):
        return found
    threads = threads_of(phases[-1], target)
    entry = frozenset((at_entry(func, target),))
    held: list[Counts] = [entry] * (threads // target.warp_size)  # by warp
    for phase in phases:
        a, first = phase.attrs, 0
        for warps, n, budget, region in zip(
            a["warps"], a["replicas"], a["registers"], phase.regions, strict=True
        ):
            mine = slice(first, first + warps * n)
            before = frozenset().union(*held[mine])
            after = _after(region, before if budget is None else frozenset((budget,)), found)
            held[mine] = [after] * (warps * n)
            first += warps * n
    return found


def _after(region: Region, before: Counts, found: dict[Op, Counts]) -> Counts:
    """What a thread may have at the end of a region that it begins with one of `before`."""
    now = before
    for o in region.ops:
        if o.kind is regs.setmaxnreg:
            found[o] = found.get(o, frozenset()) | now
            now = frozenset((o.attrs["registers"],))
        elif o.kind is control.if_:
            now = frozenset().union(*(_after(r, now, found) for r in o.regions))
        elif o.kind in control.LOOPS:
            while (again := now | _after_all(o.regions, now, found)) != now:
                now = again
        elif o.regions:
            now = _after_all(o.regions, now, found)
    return now


def _after_all(regions: Iterable[Region], before: Counts, found: dict[Op, Counts]) -> Counts:
    for r in regions:
        before = _after(r, before, found)
    return before


def action(o: Op, before: Counts) -> str:
    """Whether a setmaxnreg releases or asks ("dec", "inc"); "" where that depends on the path that led to it,
    or is not what the op says: PTX has an instruction for each, undefined for the other direction."""
    n, said = o.attrs["registers"], str(o.attrs.get("action", ""))
    may_be = [name for name, fits in (("inc", max(before) <= n), ("dec", min(before) >= n)) if fits]
    if said:
        return said if said in may_be else ""
    return may_be[0] if may_be else ""
