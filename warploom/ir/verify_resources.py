"""What must hold of a function's warps and registers at WARP and PLACED."""

from __future__ import annotations

from collections.abc import Iterator

from warploom.ir.core import Func, Op
from warploom.ir.ops import mma, regs, task
from warploom.ir.registers import action, at_entry, counts_before, ctas_per_sm, threads_of
from warploom.ir.verify_placed import Violation
from warploom.target import Target


def resources(func: Func, target: Target) -> Iterator[Violation]:
    """Warps and registers.  Where no task changes its registers later on, the budgets fit in what the launch
    gives: threads × entry registers (PTX ISA, setmaxnreg; CUDA C++ Programming Guide)."""
    many = ctas_per_sm(func)
    if many != 1 and not 1 < many <= target.grid.threads_per_sm // threads_of(
        task.phases(func)[-1], target
    ):
        yield Violation(None, f"{many} CTAs of this size don't fit a multiprocessor together")
    for o in task.phases(func):
        yield from _resources_of(o, target, at_entry(func, target))
    for o, before in counts_before(func, target).items():
        yield from _budget(o, o.attrs["registers"], target)
        if not action(o, before):
            yield Violation(o, f"setmaxnreg of threads that may have {sorted(before)} registers")


def _budget(o: Op, budget: int, target: Target) -> Iterator[Violation]:
    limits = target.registers.reallocation
    if limits is None:
        yield Violation(o, f"{budget} registers: {target.name} has no setmaxnreg")
        return
    low, high, unit = limits
    if budget % unit or not low <= budget <= high:
        takes = f"setmaxnreg takes multiples of {unit}, {low} to {high}"
        yield Violation(o, f"{budget} registers: {takes}")


def _resources_of(o: Op, target: Target, entry: int) -> Iterator[Violation]:
    plan = list(zip(o.attrs["warps"], o.attrs["replicas"], o.attrs["registers"], strict=True))
    warps = sum(w * n for w, n, _ in plan)
    if warps > target.grid.warps:
        yield Violation(o, f"{warps} warps are more than {target.grid.warps}")
    group, first, is_final = target.warp_group, 0, True
    for region, (w, n, budget) in zip(o.regions, plan, strict=True):
        whole = w % group == 0 and first % group == 0
        if mma.wgmma in region.by_kind and (w != group or not whole):
            yield Violation(
                o,
                f"a replica with wgmma is one warp group: {group} warps from a multiple of {group}",
            )
        changes = regs.setmaxnreg in region.by_kind
        if changes and not whole:
            yield Violation(o, "setmaxnreg takes whole warp groups")
        if budget is not None:
            yield from _budget(o, budget, target)
        is_final = is_final and not changes
        first += w * n
    for rows in task.sharing(o, group):
        together = [plan[i] for i in rows]
        budgets = {budget for *_, budget in together}
        whole = sum(w * n for w, n, _ in together) % group == 0
        if budgets != {None} and (len(budgets) > 1 or not whole):
            yield Violation(o, "setmaxnreg takes whole warp groups, and one budget for each")
    if is_final and any(budget is not None for *_, budget in plan):
        asked = sum(target.warp_size * w * n * (budget or entry) for w, n, budget in plan)
        has = target.warp_size * warps * entry
        if asked > has:
            yield Violation(o, f"the tasks ask for {asked} registers, the launch has {has}")
