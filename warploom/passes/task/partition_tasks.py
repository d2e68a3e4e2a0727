"""Writes the schedule's assignment into the function: every op says which tasks run it.

Order: first after the schedule was chosen; every later pass reads `Op.tasks`.
Changes: every kernel.

before:  %a = load_box(%v, %row, %k) {shape=(128, 64)} #loop0/load_box0
after:   %a = load_box(%v, %row, %k) {shape=(128, 64)} #loop0/load_box0 @{producer}

What goes through transpose warps is read from what they forward:

         %b1 = forward(%b) #loop0/load_box1.forwarded @{transpose}

A yield belongs to the tasks of the op around it.  The pairs of pointer parameters (stored, loaded) that
the schedule takes to be disjoint, because a load runs ahead of a store, go to func.attrs["disjoint"];
a launch compares their byte ranges.  So it does with pairs of which both are stored to, and which
func.attrs["stored"] has as well.  What parameters have to be for iterations not to
store to common places goes to func.attrs["spaced"].  func.attrs["warps"] is the number of warps of a
consumer replica.
"""

from __future__ import annotations

from collections import Counter

from warploom.analysis.access import Accesses
from warploom.analysis.structure import Demand, structure_of
from warploom.errors import InternalError
from warploom.ir.core import Func, Level, Op, Region, Value
from warploom.ir.host_expressions import Expr, expr
from warploom.ir.ops import control, task
from warploom.schedule.model import Schedule, forwarded
from warploom.target import Target


def partition_tasks(func: Func, schedule: Schedule, target: Target) -> Func:
    """See the module's docstring.  InternalError where the schedule does not name an op."""
    names = frozenset(t.name for t in schedule.tasks)
    tasks = _tasks(func, schedule)

    instead: dict[Value, Value] = {}  # what its readers take for an item that is forwarded

    def region(r: Region, around: frozenset[str]) -> Region:
        ops: list[Op] = []
        for o in r.ops:
            ops.append(op(o, around))
            if o.id in schedule.forwards:
                ops.append(_forward(o, schedule))
                instead[o.result] = ops[-1].result
        return Region(r.params, _forwarded_first(ops, schedule))

    def op(o: Op, around: frozenset[str]) -> Op:
        operands = tuple(instead.get(v, v) for v in o.operands)
        if o.kind is control.yield_:
            return o.with_(operands=operands, tasks=around)
        regions = tuple(region(r, tasks[o]) for r in o.regions)
        return o.with_(operands=operands, tasks=tasks[o], regions=regions)

    attrs = {
        **func.attrs,
        "warps": schedule.tasks[0].warps,
        "disjoint": disjoint_pairs(func, schedule, target),
    }
    if stored := stored_pairs(func, target):
        attrs["stored"] = stored
        attrs["disjoint"] = tuple(sorted({*attrs["disjoint"], *stored}))
    if spaced := spaced_parameters(func, target):
        attrs["spaced"] = spaced
    return func.with_(body=region(func.body, names), level=Level.TASK, attrs=attrs)


def _forwarded_first(ops: list[Op], schedule: Schedule) -> tuple[Op, ...]:
    """Loads whose items have the longest way come first: a producer issues in order, and what waits for a
    slot that the consumers still read would keep what is yet to be transposed."""
    loads = [o for o in ops if o.id in schedule.forwards]
    last = max((ops.index(o) for o in loads), default=0)
    items = {i for c in schedule.channels for i in c.items}
    late: list[Op] = []
    out: list[Op] = []
    for i, o in enumerate(ops):
        read = {v for x in o.all_ops for v in x.operands}
        if i < last and o.id in items and o not in loads:
            late.append(o)
            continue
        if i > last or any(x.result in read for x in late):
            out += late
            late = []
        out.append(o)
    return tuple(out)


def _forward(load: Op, schedule: Schedule) -> Op:
    name = next(t.name for t in schedule.tasks if t.role == "transpose")
    made = Value(load.result.type, load.result.hint)
    tasks = frozenset({name})
    return Op(task.forward, (load.result,), {}, (made,), (), tasks, load.loc, forwarded(load.id))


def _tasks(func: Func, schedule: Schedule) -> dict[Op, frozenset[str]]:
    """The tasks of every op.  Ops without an id (made after the numbering, hence pure) go where they are
    needed."""
    structure = structure_of(func)
    ops = [o for o in structure.ops if o.kind is not control.yield_]
    named = {o: frozenset(schedule.assign.get(o.id, ())) for o in ops if o.id}
    missing = [o for o, tasks in named.items() if not tasks]
    if missing:
        raise InternalError(
            f"the schedule assigns no task to {missing[0].kind.name} #{missing[0].id}"
        )
    demand = Demand(structure, {o: tasks for o, tasks in named.items() if not o.regions})
    for o, tasks in named.items():
        for t in sorted(tasks):
            demand.run(o, t)
    first = frozenset({schedule.tasks[0].name})
    return {o: named.get(o) or frozenset(demand.tasks.get(o, first)) for o in ops}


def disjoint_pairs(func: Func, schedule: Schedule, target: Target) -> tuple[tuple[int, int], ...]:
    """(stored parameter, parameter loaded out of turn), for every pair that a launch has to compare: loads
    run ahead of stores, and stores by an engine may be under way yet when loads come that stand after them.
    Where arguments overlap loads pass no store at all, and no engine stores."""
    accesses = Accesses(func, target)
    if func.attrs.get("overlap"):
        return tuple(sorted(func.attrs.get("reordered", ())))
    ahead = {i for c in schedule.channels for i in c.all_items}
    ahead |= {*schedule.hoisted_loads, *(i for p in schedule.pipelines for i in p.in_stage(0))}
    loaded = {
        base
        for o in accesses.memory_ops
        if o.id in ahead and (base := accesses.base(o.operands[0])) is not None
    }
    stored = {base for base in accesses.written() if base is not None}
    pairs = {(s, r) for s in stored for r in loaded if s != r} | _loaded_after(accesses, schedule)
    pairs = {p for p in pairs if max(p) < accesses.first_workspace}  # nothing overlaps a workspace
    return tuple(sorted(pairs | set(func.attrs.get("reordered", ()))))


def _loaded_after(accesses: Accesses, schedule: Schedule) -> set[tuple[int, int]]:
    """(parameter stored to by an engine, another that is loaded after it): what is loaded may be old."""
    by_engine = {plan.op for plan in schedule.stores if plan.via != "direct"}
    stores = [o for o in accesses.memory_ops if o.id in by_engine]
    bases = {
        (accesses.base_of(o), accesses.base_of(x))
        for o in stores
        for x in accesses.loads_around(o, after=True)
    }
    return {(s, r) for s, r in bases if s is not None and r is not None and s != r}


def stored_pairs(func: Func, target: Target) -> tuple[tuple[int, int], ...]:
    """Pairs of parameters that are taken to be disjoint because both are stored to, and stores of two keep no
    order.  Atomics among themselves need none."""
    accesses = Accesses(func, target)
    if accesses.keeps_order:
        return ()
    written = {base for base in accesses.written() if base is not None}
    plain = {accesses.base_of(o) for o in accesses.memory_ops if o.stores}
    pairs = ((i, j) for i in written for j in written if i < j and not plain.isdisjoint({i, j}))
    return tuple(sorted(p for p in pairs if max(p) < accesses.first_workspace))


def spaced_parameters(func: Func, target: Target) -> tuple[tuple[tuple[Expr, Expr], ...], ...]:
    """What has to hold of parameters for no iterations of loops to store to common places, where that is all
    that it takes: axes (stride, count) that are `nested`."""
    accesses = Accesses(func, target)
    if accesses.keeps_order:
        return ()
    stores = [o for o in accesses.memory_ops if o.stores]
    found = {need: Counter(need) for o in stores for need in accesses.spacing(o)}
    needs = [x for x, axes in found.items() if not any(axes < more for more in found.values())]
    texts = (tuple((expr(x.stride), expr(x.size)) for x in need) for need in needs)
    return tuple(sorted(texts, key=repr))
