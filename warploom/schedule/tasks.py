"""The tasks of a program: their warps, and the registers of a thread in each.

resources.py knows what registers there are; here is decided who gets them.
"""

from __future__ import annotations

from dataclasses import replace

from warploom.errors import CompileError
from warploom.schedule.consumer_partition import ConsumerPartition
from warploom.schedule.context import Context
from warploom.schedule.model import TaskPlan
from warploom.schedule.resources import (
    Headroom,
    budgets,
    check_registers,
)
from warploom.schedule.roles import TRANSPOSE, Roles

_WORKS = {
    "issues": "only issues TMA",
    "copies": "copies boxes by cp.async",
    "holds": "brings boxes through its registers",
    "loads": "loads tiles by pointers",
}


def plan_tasks(
    context: Context, roles: Roles, partition: ConsumerPartition, lean: str
) -> tuple[TaskPlan, ...]:
    """Warps and registers of each task; one of stores comes later (`with_stores`).

    lean: why the consumer takes what registers there are; empty: it doesn't.  Raises CompileError for more
    than a CTA has."""
    group = context.target.warp_group
    main, side, replicas = roles.main, roles.side, partition.replicas
    need = partition.need
    context.because(main, f"{need} registers a thread estimated", partition.needs)
    if not roles.specialized:
        tasks = (TaskPlan(main, "main", partition.warps, replicas, None, need),)
        return (*tasks, TaskPlan(side, "inline", 0, 1, None)) if roles.loads else tasks
    work = partition.work(roles.loads)
    transpose = roles.transpose_registers(context.headroom, context.target)
    pair = budgets(replicas, work, context.target, need, context.headroom, transpose, bool(lean))
    entry = context.target.entry_registers(
        roles.warp_groups(replicas) * context.target.group_threads
    )
    dec, inc = context.knobs.reg_dec_producer, context.knobs.reg_inc_consumer
    if pair is None or pair[1] == entry or (context.ctas_per_sm > 1 and need <= entry and not lean):
        pair = None
    low = dec if dec else pair[0] if pair else None
    high = inc if inc else pair[1] if pair else None
    plans: tuple[TaskPlan, ...] = (
        TaskPlan(main, "consumer", group, replicas, high, need),
        TaskPlan(side, "producer", group, 1, low),
    )
    if transpose:
        own = transpose if pair or low or high else None
        plans += (TaskPlan(TRANSPOSE, "transpose", group, 1, own),)
    check_registers(plans, context.target, context.func.loc)
    total = sum(t.warps * t.replicas for t in plans)
    if total > context.target.grid.warps:
        raise CompileError(
            "warps",
            f"{replicas} consumer groups and what fills their rings are {total} warps, a CTA has at most "
            f"{context.target.grid.warps}",
            context.func.loc,
            help="lower num_consumer_groups",
        )
    said = "asked for" if dec or inc else f"the producer {_WORKS[work]}"
    if lean and not (dec or inc):
        said += f"; a consumer that {lean} takes all that is left"
    if context.headroom != Headroom() and not (dec or inc):
        said += "; ptxas spilled with another budget"
    if context.ctas_per_sm > 1:
        said = f"{context.ctas_per_sm} programs share the multiprocessor" + f"; {said}" * bool(pair)
    for t in plans:
        context.because(t.name, f"{t.registers or 'all'} registers a thread", said)
    return plans


def with_stores(tasks: tuple[TaskPlan, ...], group: int) -> tuple[TaskPlan, ...]:
    """A store task for each replica of the consumer, beside a producer of one warp: together they
    are a warp group, of so many warps."""
    consumer, producer = tasks
    n, low = consumer.replicas, producer.registers
    names = [f"store{i}" for i in range(n)] if n > 1 else ["store"]
    stores = tuple(TaskPlan(name, "store", 1, 1, low) for name in names)
    left = group - 1 - n
    spare = (TaskPlan("spare", "spare", left, 1, low),) if left else ()
    return (consumer, replace(producer, warps=1), *stores, *spare)
