"""setmaxnreg in a script: whether each can be, and which of them are budgets that tasks begin with."""

from __future__ import annotations

from warploom.errors import CompileError, Loc, Note
from warploom.ir.analysis import is_pure
from warploom.ir.core import Func, Op, Region, walk
from warploom.ir.ops import regs, task
from warploom.ir.registers import action, at_entry, counts_before, threads_of
from warploom.target import Target


def with_budgets(func: Func) -> Func:
    """The function with a setmaxnreg that a task of the last phase begins with as the task's budget, where no
    other phase has any.  Raises CompileError where one may be an increase or a decrease, where a part of a
    warp group is alone with it, and where budgets that never change are more than the launch gives."""
    for o, before in counts_before(func, func.target).items():
        if not action(o, before):
            raise _wrong_way(o, sorted(before))
    *earlier, last = task.phases(func)
    first = any(_changes(r) for phase in earlier for r in phase.regions)
    changed = last if first else _begun(last, at_entry(func, func.target), func.target)
    for phase in (*earlier, changed):
        _check_whole(phase, func.target)
    ops = tuple(changed if o is last else o for o in func.body.ops)
    return func.with_(body=Region(func.body.params, ops))


def _changes(region: Region) -> list[Op]:
    return [o for o in walk(region) if o.kind is regs.setmaxnreg]


def _begun(phase: Op, entry: int, target: Target) -> Op:
    """The phase with what its tasks begin with as their budgets; those that share a warp group have one."""
    first = [next(o for o in r.ops if not is_pure(o)) for r in phase.regions]
    begun = [o if o.kind is regs.setmaxnreg else None for o in first]
    for rows in task.sharing(phase, target.warp_group):
        if len({o.attrs["registers"] if (o := begun[i]) else None for i in rows}) > 1:
            for i in rows:
                begun[i] = None
    budgets = tuple(o.attrs["registers"] if o else None for o in begun)
    regions = tuple(
        Region((), tuple(i for i in r.ops if i is not o))
        for r, o in zip(phase.regions, begun, strict=True)
    )
    if not any(_changes(r) for r in regions):
        _check_pool(phase, entry, target, budgets, [o.loc if o else None for o in begun])
    return phase.with_(attrs={**phase.attrs, "registers": budgets}, regions=regions)


def _check_whole(phase: Op, target: Target) -> None:
    """All warps of a warp group come to a setmaxnreg together."""
    first, group, size = 0, target.warp_group, target.warp_size
    for warps, n, region in zip(
        phase.attrs["warps"], phase.attrs["replicas"], phase.regions, strict=True
    ):
        if (warps % group or first % group) and (found := _changes(region)):
            raise CompileError(
                "setmaxnreg-group",
                f"setmaxnreg of {size * warps} threads from thread {size * first}, which other groups part "
                f"from the rest of their warp group: all its {target.group_threads} run it together",
                found[0].loc,
                help="put it at the start of the group around them, before they part, or let single_thread() "
                "do the work of one warp",
            )
        first += warps * n


def _wrong_way(o: Op, before: list[int]) -> CompileError:
    n, said = o.attrs["registers"], o.attrs.get("action", "")
    have = " or ".join(map(str, before))
    if said:
        return CompileError(
            "setmaxnreg-action",
            f"setmaxnreg({n}, action={said!r}) of threads that have {have} registers",
            o.loc,
            help="'dec' gives registers back, 'inc' asks for more",
        )
    return CompileError(
        "setmaxnreg-action",
        f"setmaxnreg({n}) gives registers back or asks for more: the threads have {have} here, by the path "
        "that they came",
        o.loc,
        help="PTX has an instruction for each: put it where the number before is on one side of it",
    )


def _check_pool(
    last: Op, entry: int, target: Target, budgets: tuple[int | None, ...], locs: list[Loc | None]
) -> None:
    """Budgets that stay: threads × registers at entry hold them all (PTX ISA, setmaxnreg)."""
    if all(budget is None for budget in budgets):
        return
    a, threads = last.attrs, threads_of(last, target)
    rows = [
        (name, target.warp_size * w * n, budget or entry)
        for name, w, n, budget in zip(a["names"], a["warps"], a["replicas"], budgets, strict=True)
    ]
    asked = sum(n * budget for _, n, budget in rows)
    if asked > threads * entry:
        raise CompileError(
            "setmaxnreg-pool",
            f"the groups ask for {asked} registers, the launch has {threads * entry} "
            f"({threads} threads of {entry}): setmaxnreg would wait for ever",
            next((loc for loc in locs if loc is not None), last.loc),
            tuple(
                Note(f"{name} asks for {budget}", loc)
                for (name, _, budget), loc in zip(rows, locs, strict=True)
                if loc is not None
            ),
            "lower a budget ("
            + ", ".join(f"{name} {n} threads of {budget}" for name, n, budget in rows)
            + ")",
        )
