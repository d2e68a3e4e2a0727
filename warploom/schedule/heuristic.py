"""The chooser: from a TILE function and the user's knobs to a schedule, every decision with its reason.

    which task runs what (roles.py) ─▶ how groups divide it (consumer_partition.py) ─▶ rings and staging
    (memory.py, stores.py) ─▶ warps and registers (tasks.py) ─▶ how the dots go together and overlap
    (consumer.py)

It knows ops, never kernels.  The result is deterministic: ops are visited in program order.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from warploom.analysis.matrix_units import units_for
from warploom.analysis.trip_counts import single_trips
from warploom.errors import CompileError, SharedMemoryError
from warploom.ir.core import Func, Op
from warploom.ir.ops import tile
from warploom.ir.printer import print_func
from warploom.schedule import (
    consumer,
    epilogues,
    forms,
    overlap,
    prefetch,
    rings,
    roles,
    split_k,
)
from warploom.schedule.consumer_partition import partition_consumer
from warploom.schedule.context import Context
from warploom.schedule.memory import (
    Memory,
    fillings,
    number_channels,
    plan_memory,
    without_idle_slots,
)
from warploom.schedule.model import (
    MANY_WAVES,
    Knobs,
    Launch,
    Reason,
    Schedule,
    SplitPlan,
    StorePlan,
    TaskPlan,
)
from warploom.schedule.resources import Headroom
from warploom.schedule.spare_slots import with_spare_slots
from warploom.schedule.stores import Stores
from warploom.schedule.streams import with_streams
from warploom.schedule.tasks import (
    check_dot_types,
    check_limits,
    plan_tasks,
    with_fewer_warps,
    with_stores,
)
from warploom.target import Target

# Slots of the rings that a step with transpose warps waits for, before more staging: with two, a step lasts
# as long as an item's way (docs/log/2026-11-21-tf32-and-int8.md).
TRANSPOSE_DEPTH = 3
# Warps of a multiprocessor below which its four schedulers idle while theirs wait.
FEW_WARPS = 8


def tile_hash(func: Func) -> str:
    """What a schedule carries to show for which TILE text it was made."""
    return hashlib.sha256(print_func(func).encode()).hexdigest()[:16]


def choose(
    func: Func,
    knobs: Knobs,
    target: Target,
    headroom: Headroom | None = None,
    launch: Launch | None = None,
) -> Schedule:
    """The schedule for a canonical, numbered TILE function.  headroom: registers to leave free.
    launch: what is known of the launches; it counts where nobody says whether to specialize.

    Raises CompileError for a dot that wgmma can't take, for memory or registers over the limit and, where
    knobs.strict, for a requested specialization that can't happen (otherwise a Reason with `warn`).
    """
    context = Context(func, knobs, target, headroom or Headroom())
    check_limits(context)
    context = with_fewer_warps(context)
    launch = launch or Launch()
    schedule = without_idle_slots(context, _with_room(context, launch))
    schedule = with_spare_slots(context, _less_crowded(context, schedule), launch)
    schedule = split_k.with_split_k(context, schedule, launch, lambda: _alone(context))
    return with_streams(context, schedule, launch)


def _alone(context: Context) -> Schedule | None:
    """The schedule of programs that have a multiprocessor to themselves, if there is one."""
    try:
        return _scheduled(context.afresh())[0]
    except CompileError:
        return None


def _less_crowded(context: Context, schedule: Schedule) -> Schedule:
    """The schedule of a uniform kernel; where its slots let so few programs onto a multiprocessor that its
    schedulers idle, with wider loads in registers, if that lets in half as many again."""
    main = schedule.tasks[0]
    warps = main.warps * main.replicas
    if schedule.specialized or not schedule.channels or context.headroom.consumer:
        return schedule
    have = forms.resident(context.accesses, schedule, main.needed or 0, context.target)
    if have * warps >= FEW_WARPS:
        return schedule
    loads, plain = prefetch.loads_through_registers(context), context.in_registers()
    held = plain.holding(o.id for o in loads if o.id)
    for other_context, beside in ((plain, 0), (held, max(loads.values(), default=0))):
        try:
            other = without_idle_slots(other_context, _scheduled(other_context, plainly=True)[0])
        except CompileError:
            continue
        need = main.needed or 0
        fit = forms.resident(context.accesses, other, need, context.target, beside=beside)
        if other.tasks[0] != replace(main, needed=other.tasks[0].needed) or 2 * fit < 3 * have:
            continue
        why = f"with slots for them {have} programs share a multiprocessor, without {fit}"
        kept = tuple(r for r in schedule.reasons if r.subject == "kernel")
        reasons = (*kept, Reason("kernel", "wider loads go to registers", why), *other.reasons)
        return replace(other, reasons=reasons, by_waves=schedule.by_waves)
    return schedule


def _with_room(context: Context, launch: Launch) -> Schedule:
    """The schedule of one program; where shared memory has no room for a slot of each ring, the widest loads
    go to registers (none of rings that are asked for), and operands are staged in the same bytes."""
    try:
        return _chosen(context, launch)
    except SharedMemoryError as refusal:
        held = context
        more: tuple[str, ...] | None = refusal.widest or ()  # see Memory.operand_staging
        while more is not None:
            held = held.holding(more)
            try:
                return _chosen(held, launch)
            except CompileError as e:
                more = (isinstance(e, SharedMemoryError) and e.widest) or None
        raise


def _chosen(context: Context, launch: Launch) -> Schedule:
    """The schedule of one program: specialized, with a multiprocessor to itself or not, or uniform."""
    shared = _asked_ctas_per_sm(context)
    if shared is not None:
        return shared
    if not roles.is_free(context):
        return _scheduled(context)[0]
    try:
        schedule, need = _scheduled(context)
    except CompileError as refusal:
        return _instead(context, refusal, refusal.message)
    if not schedule.specialized:
        return schedule
    waits = not any(forms.unit_by(schedule, o, context.target).is_async for o in context.dots)
    if not (context.target.box_limit or waits):
        why = "producers would copy piece by piece, and keep registers that consumers could have"
        return _instead(context, schedule, why)
    return _faster(context, schedule, need, launch)


def _instead(context: Context, otherwise: Schedule | CompileError, why: str) -> Schedule:
    """The uniform schedule, where nobody asked for tasks; where there is none, the specialized one that there
    is `otherwise`, or what refuses that."""
    try:
        schedule, _ = _scheduled(context.afresh(), plainly=True)
    except CompileError:
        if isinstance(otherwise, CompileError):
            raise otherwise from None
        return otherwise
    return replace(schedule, reasons=(Reason("kernel", "uniform", why), *schedule.reasons))


def _faster(context: Context, schedule: Schedule, need: int, launch: Launch) -> Schedule:
    """The schedule of a specialized kernel that has a multiprocessor to itself, that of one which shares it,
    or the uniform one's: which is predicted to be the fastest.  need: as _scheduled."""
    work = forms.work_of(context.accesses, schedule)
    try:
        other, plain_need = _scheduled(context.afresh(), plainly=True)
    except CompileError:  # as uniform it doesn't fit
        return schedule
    unmet = {(r.subject, r.decision) for r in schedule.reasons if r.warn}
    if work is None or any(r.warn and (r.subject, r.decision) not in unmet for r in other.reasons):
        return schedule  # as uniform it leaves more undone of what was asked
    if plain_need > (context.target.entry_limit or plain_need):  # it would spill
        return schedule

    def form(s: Schedule, registers: int) -> forms.Form:
        used = without_idle_slots(context, s)
        return forms.form_of(context.accesses, used, work, registers, context.target)

    uniform = form(other, plain_need)
    shared = _ctas_per_sm(context, work, single=schedule.tasks[0].replicas == 1)
    whole = [(s, form(s, n)) for s, n in ((schedule, need), *shared)]

    def decided(x: Launch) -> tuple[Schedule, forms.Verdict]:
        waves, steps = forms.expected(work, x)
        best, its = min(whole, key=lambda w: forms.cycles(work, w[1], waves, steps))
        return best, forms.weigh(work, its, uniform, x, even=bool(context.target.box_limit))

    best, verdict = decided(launch)
    others = [decided(replace(launch, waves=n)) for n in range(1, MANY_WAVES + 1)]
    each = {(v.uniform, v.short, v.uniform or s is best) for s, v in others}
    if verdict.uniform:
        reason = Reason("kernel", "uniform", verdict.because)
        return replace(other, reasons=(reason, *other.reasons), by_waves=len(each) > 1)
    reason = Reason("kernel", "specialized rather than uniform", verdict.because)
    short = (work.loop.id, verdict.short) if verdict.short else None
    reasons = (*best.reasons, reason)
    return replace(best, reasons=reasons, short=short, by_waves=len(each) > 1)


def _asked_ctas_per_sm(context: Context) -> Schedule | None:
    """The schedule for as many programs a multiprocessor as the launch asks for; None where it asks for none,
    or they don't fit, which is a warning, and an error where strict."""
    n = context.knobs.ctas_per_sm
    if n is None or n == 1 or not context.dots:
        return None
    try:
        return _scheduled(context.sharing(n))[0]
    except CompileError as e:
        why = f"in 1/{n} of a multiprocessor {e.message}"
        context.unmet(
            context.dots[0], f"one program a multiprocessor, against ctas_per_sm={n}", why
        )
        return None


def _ctas_per_sm(context: Context, work: forms.Work, single: bool) -> list[tuple[Schedule, int]]:
    """A specialized schedule for half a multiprocessor, if there is one: two programs run side by side, and
    one's start, waits and end lie under the other's steps.  single: has a program alone one group as well?

    One group does all of a tile.  Where that takes more registers than a launch of two gives, tasks trade
    them: worth it for overlapping iterations, for dots that complete in order, under which nothing of their
    own group runs (docs/log/2026-11-23-mma-sync-beside-triton.md), and where the program alone has one group
    as well, also in nested loops, if the producer keeps few registers, as it only issues copies."""
    if (work.walks and not single) or context.knobs.ctas_per_sm == 1:
        return []
    try:
        found = _scheduled(context.sharing(2))
    except CompileError:
        return []
    made, _ = found
    main = made.tasks[0]
    alone = not made.specialized or main.replicas > 1 or any(r.warn for r in made.reasons)
    waits = any(not forms.unit_by(made, o, context.target).is_async for o in context.dots)
    issues = {via for c in made.channels for via in c.via} == {"tma"}
    trades = main.registers is not None and not (made.pipelines or waits or (single and issues))
    return [] if alone or trades else [found]


def _why_transposed(context: Context, o: Op) -> str:
    _, columns, rows, _ = tile.dot_sizes(o)
    unit, last = context.executed(o), units_for(o, context.target)[-1]
    if rows % unit.m == 0:
        return "as its transpose it is the right operand of the dots that read it"
    if unit.fills(columns, rows):
        return f"{unit.instruction} takes multiples of {unit.m} rows: not {rows}, but {columns}"
    made, given = last.instructions(columns, rows), last.instructions(rows, columns)
    return f"a step of K takes {made} {last.instruction} instead of {given}"


def _scheduled(context: Context, plainly: bool = False) -> tuple[Schedule, int]:
    """A schedule, and the registers that a thread of a consumer needs.

    plainly: a uniform one, whatever could be had."""
    if not context.dots:
        return _plain(context), 0
    for o in context.dots:
        check_dot_types(o, context.unit(o))
        if o.attrs.get("transposed"):
            context.because(o.id, "made as its transpose", _why_transposed(context, o))
    who = roles.assign(context, plainly)
    partition = partition_consumer(context, who)
    replicas, specialized = partition.replicas, who.specialized
    vias = fillings(context, who, partition)
    joins = consumer.joins(context, who, partition, vias)
    groups = rings.group(context.structure, who.loads, who.mine, joins.stands, partition.is_lone)
    kept = {o for g in groups for o in g}
    sharing: rings.Sharing | None = None
    if specialized and not (
        who.forwards or partition.ping_pong_loop or joins.groups or context.knobs.num_ctas > 1
    ):
        sharing = rings.Sharing(context.accesses, vias, context.hints.stages, who.mine)
    who = replace(who, loads=[o for o in who.loads if o in kept])
    alone = bool(partition.ping_pong_loop)
    shared = specialized and not alone and context.target.sync.named_barriers > 0
    overlapping = overlap.candidates(context, who, partition) if specialized and not alone else []
    ends = epilogues.find(context, who.mine, replicas) if shared else []
    wanted = epilogues.wanted_depth(ends, context.knobs)
    if who.forwards:
        wanted = max(wanted, TRANSPOSE_DEPTH)
    for o in who.forwards:  # transpose warps run the control flow around what they transpose
        for outer in context.structure.enclosing(o):
            who.demand.run(outer, "transpose")
    numbers = number_channels(context, who)
    storing = Stores(context, who, partition)

    memory = Memory(context, who, partition, storing, groups, vias)
    channels, stores = plan_memory(memory, sharing, wanted, numbers)
    stores = storing.handed_over(stores, bool(numbers))
    context.tell_hints(specialized, channels, stores)
    lean = ""
    if shared and overlap.expected(context, overlapping):
        # 3 to 5 % of attention (docs/log/2026-11-21-automatic-attention-first.md)
        lean = "overlaps iterations"
    elif any(s.by_task for s in stores):
        lean = "hands its stores over"  # no barrier ends what ptxas moves between chunks
    tasks = plan_tasks(context, who, partition, lean)
    if any(s.by_task for s in stores):
        tasks = with_stores(tasks, context.target.warp_group)
    overlaps = overlap.plans(context, who, overlapping, alone, tasks[0], channels)
    idle = consumer.idles(context, who, partition) if shared else ()
    entry = context.target.entry_registers(
        sum(t.warps * t.replicas for t in tasks) * context.target.warp_size
    )
    registers = tasks[0].registers or entry
    promotions = consumer.promotions(context, partition, joins, registers)
    staggered = epilogues.plans(context, ends, channels, stores, replicas)
    assign = {
        o.id: tuple(name for t, name in who.names.items() if t in who.demand.tasks[o])
        for o in context.ops
        if o.id
    }
    in_rings = {i for c in channels for i in c.all_items}
    running = prefetch.plans(context, in_rings) if not specialized and replicas == 1 else ()
    elsewhere = {o.id for o in context.ops if o.loads and assign[o.id] != (tasks[0].name,)}
    soon = prefetch.early_between_dots(context, in_rings | elsewhere, running)
    late = any(c.depth > 1 for c in channels)
    if any(partition.unit(o).is_async for o in context.dots):
        released = "the slot of the step before is released while the next step runs"
        why = released if late else "a ring of one slot is drained each step"
        context.because("kernel", f"{int(late)} step's dots in flight", why)
    holds_tiles = not all(partition.unit(o).is_async for o in context.dots) or any(
        user.kind is not tile.dot
        for o in kept
        for user, _ in rings.real_users(context.structure, o.result)
    )
    schedule = Schedule(
        tile_hash=tile_hash(context.func),
        specialized=specialized,
        tasks=tasks,
        assign=assign,
        split=SplitPlan(partition.axis, 1 if partition.ping_pong_loop else replicas),
        channels=(*channels, *numbers),
        stores=stores,
        dots_in_flight=int(late),
        pipelines=(*overlaps, *running),
        hoisted_loads=soon,
        prefetched=() if specialized else prefetch.distances(context, who.loading, channels),
        held_loads=tuple(sorted(context.held or ())),
        delayed_reductions=consumer.deferred(context, partition, overlaps),
        hoisted_operands=consumer.held_operands(context, who, partition, registers),
        few_registers=context.headroom.few_registers and holds_tiles,
        fused_dots=joins.ids(),
        promotions=promotions,
        staggered_loops=staggered,
        forwards=tuple(o.id for o in who.loads if o in who.forwards),
        ping_pong_loop=partition.ping_pong_loop,
        idle=idle,
        ctas_per_sm=context.ctas_per_sm,
        reasons=tuple(context.reasons),  # the last: what is called above adds to them
    )
    return schedule, partition.need


def _plain(context: Context) -> Schedule:
    """One task, no channels: nothing here feeds a tensor core."""
    because = "it has no dot: there is nothing that a producer could run ahead of"
    roles.uniform(context, because, context.func.loc, "kernel")
    running, soon = prefetch.plans(context), prefetch.early(context)
    is_foreign = context.func.attrs.get("foreign")  # whose launches take no other variant
    walks = [] if is_foreign else single_trips(context.func, context.target)
    if walks:
        why = "what a block loads twice is loaded once, and early"
        context.because(walks[0].id, "no loop in launches of one step of it", why)
    context.tell_hints(False, (), ahead=[p.loop for p in running])
    return Schedule(
        tile_hash=tile_hash(context.func),
        specialized=False,
        tasks=(TaskPlan("main", "main", context.knobs.num_warps, 1, None),),
        assign={o.id: ("main",) for o in context.ops if o.id},
        split=SplitPlan(None, 1),
        channels=(),
        stores=tuple(StorePlan(o.id, "direct") for o in context.ops if o.stores),
        dots_in_flight=0,
        reasons=tuple(context.reasons),
        pipelines=running,
        hoisted_loads=soon,
        single_trip_loop=walks[0].id if walks else "",
    )
