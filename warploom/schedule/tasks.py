"""The tasks of a program: their warps, and the registers of a thread in each; and what no schedule can have,
refused before one is chosen.

resources.py knows what registers there are; here is decided who gets them.
"""

from __future__ import annotations

from dataclasses import replace

from warploom.errors import CompileError
from warploom.ir.core import Family, Op
from warploom.ir.ops import arith, control
from warploom.ir.types import Tile, dtype_of, shape_of
from warploom.schedule.consumer_partition import ConsumerPartition
from warploom.schedule.context import Context
from warploom.schedule.model import TaskPlan
from warploom.schedule.resources import Headroom, budgets, check_registers
from warploom.schedule.roles import TRANSPOSE, Roles
from warploom.target import MatrixUnit

_WORKS = {
    "issues": "only issues TMA",
    "copies": "copies boxes by cp.async",
    "holds": "brings boxes through its registers",
    "loads": "loads tiles by pointers",
}

# Bytes that an instruction of a thread moves at most (PTX ISA, "ld": vectors of 16 bytes).
_VECTOR = 16
# With fewer warps a program, a multiprocessor is out of CTAs (32) before it is out of threads.
_LEAST_WARPS = 2
# Instructions of a thread that a multiprocessor has at hand: 32 KB of 16 bytes each.  Twice as many elements
# a thread are twice the code: special functions of 512 elements have 1857 by eight warps, 3543 by four.
_AT_HAND = 2048
_FUNCTION = 64  # of a function that no instruction computes: 15 to 210, where it is none of these
_LONG = {arith.lgamma: 432, arith.tgamma: 328, arith.j0: 360, arith.j1: 360, arith.y0: 840}
_LONG |= {arith.y1: 984, arith.jn: 984, arith.yn: 984}
_INSTRUCTIONS = (arith.exp, arith.exp2, arith.log, arith.log2, arith.sqrt, arith.rsqrt, arith.rcp)
_FUNCTIONS = {*arith.SPECIAL, arith.pow_, arith.atan2, *arith.BESSEL} - {*_INSTRUCTIONS}


def with_fewer_warps(context: Context) -> Context:
    """The same with no more warps than load and store by the widest instructions, where a program multiplies
    nothing, makes no larger tiles of what it loads, has no longer code by that than is at hand, and what its
    loops bring is neither combined nor carried on: only loads keep such a program waiting, and what its warps
    have on their way together is the same by whatever instructions.

    512 elements of two bytes by eight warps take 26 to 39 us where four or two take 22
    (docs/log/2026-11-29-short-programs.md).  A loop that carries a tile waits for its arithmetic."""
    loops = [o for o in context.ops if o.kind in control.LOOPS]
    carried = any(isinstance(v.type, Tile) for o in loops for v in o.results)
    combined = any(x.kind.family is Family.COMBINE for o in loops for x in o.all_ops)
    moved = [o.result if o.results else o.operands[1] for o in context.ops if o.accesses]
    types = [v.type for v in moved if isinstance(v.type, Tile)]
    sizes = [t.size * dtype_of(t).bytes for t in types]
    if context.dots or carried or combined or not sizes:
        return context
    made = (v.type for o in context.ops for v in o.results)
    if max(t.size for t in made if isinstance(t, Tile)) > max(t.size for t in types):
        return context
    asked = warps = context.knobs.num_warps
    while warps >= 2 * _LEAST_WARPS and max(sizes) < _VECTOR * context.target.warp_size * warps:
        if _code(context, warps // 2) > _AT_HAND:
            break
        warps //= 2
    if warps == asked:
        return context
    other = context.afresh()
    other.knobs = replace(context.knobs, num_warps=warps)
    why = f"{max(sizes)} bytes are less than {_VECTOR} a thread of {asked} warps"
    other.because("kernel", f"{warps} warps", why)
    return other


def _code(context: Context, warps: int) -> int:
    """About how many instructions a thread has, where so many warps compute the program's tiles."""
    threads = warps * context.target.warp_size
    return sum(
        -(-v.type.size // threads) * (_LONG.get(o.kind, _FUNCTION) if _is_function(o) else 1)
        for o in context.ops
        for v in o.results
        if isinstance(v.type, Tile)
    )


def _is_function(o: Op) -> bool:
    by_steps = o.kind is arith.rem and dtype_of(o.result.type).is_float
    return by_steps or o.kind in _FUNCTIONS


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


def check_limits(context: Context) -> None:
    """Knobs that no CTA can have."""
    knobs, target = context.knobs, context.target
    if not 1 <= knobs.num_warps <= target.grid.warps:
        raise CompileError(
            "num-warps",
            f"num_warps={knobs.num_warps}: a CTA has 1 to {target.grid.warps} warps",
            context.func.loc,
            help=f"use num_warps={target.warp_group} or {2 * target.warp_group}",
        )
    groups = knobs.num_consumer_groups or 0
    warps = (groups + 1) * target.warp_group
    if groups and warps > target.grid.warps:
        raise CompileError(
            "warps",
            f"num_consumer_groups={groups}: with a producer these are {warps} warps, a CTA has at most "
            f"{target.grid.warps}",
            context.func.loc,
            help="lower num_consumer_groups: two or three are usual",
        )
    most = target.registers.per_thread
    if knobs.maxnreg is not None and not 1 <= knobs.maxnreg <= most:
        raise CompileError(
            "maxnreg",
            f"maxnreg={knobs.maxnreg}: a thread has 1 to {most} registers",
            context.func.loc,
            help="leave maxnreg out: by default a thread gets what a CTA of its size can have",
        )


def check_dot_types(o: Op, matrix_unit: MatrixUnit) -> None:
    """Refuses a dot that no split makes legal."""
    a = dtype_of(o.operands[0].type)
    k = shape_of(o.operands[0].type)[-1]
    unit = matrix_unit.k_step(a.bits)
    if k % unit:
        raise CompileError(
            matrix_unit.code("k"),
            f"dot over K = {k}: {matrix_unit.instruction} takes multiples of {unit} for {a}",
            o.loc,
            help=f"use a BLOCK_K that is a multiple of {unit}",
        )
    limit = o.attrs.get("max_imprecise")
    if limit and limit < unit:
        raise CompileError(
            "dot-promotion",
            f"max_num_imprecise_acc={limit}: an instruction sums {unit} of K",
            o.loc,
            help=f"use max_num_imprecise_acc={unit}",
        )
