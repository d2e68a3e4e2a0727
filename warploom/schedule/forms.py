"""Specialized or uniform: what either form of a kernel is predicted to take, from the cost table.

A program starts, walks its main loop, and stores.  In a step of the loop each unit of the multiprocessor is
busy for so long; the longest of them bounds the step in either form.  What differs:

    specialized   loads are always there in time; the groups share the arithmetic, and a group whose
                  iterations overlap hides it under its dots.  It fills a multiprocessor alone, or, with one
                  consumer group and rings in half of the memory, shares it with another one: alone, start
                  and end of each program are paid for, and handing over to tasks.  A program that
                  walks tiles loads the next one's operands under this one's end.
    uniform       a group waits, issues, and computes one after the other.  Where a program is small, several
                  share the multiprocessor, and one's start, end and waits lie under another's steps.

Decides nothing: `schedule/heuristic.py` has both forms scheduled, and asks here.
docs/log/2026-11-21-when-not-to-specialize.md has what was predicted beside what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from warploom.analysis.access import Accesses
from warploom.analysis.cost import computes_tile, elementwise, tensor
from warploom.analysis.matrix_units import operand_registers, preferred, unit_of
from warploom.analysis.shared_loops import NoReductionError, reduction_of
from warploom.analysis.trip_counts import most_trips
from warploom.ir.core import Op, Region, walk
from warploom.ir.ops import control, tile
from warploom.ir.types import Tile, dtype_of
from warploom.schedule import clusters, rings
from warploom.schedule.model import MANY_WAVES, Launch, Schedule
from warploom.target import CostTable, MatrixUnit, Target

MANY_STEPS = 16  # of the main loop: what is assumed where they are not known
# Threads of a multiprocessor beside which a uniform program's end may wait, so that what it stores leaves
# through the slots: scaled products of one program of 128 took 333 us, of two 198; plain ones of two 223, of
# three 232.
ENOUGH_THREADS = 256


@dataclass(frozen=True)
class Work:
    """One program, whatever its form.  loop: the main one.  tensor, alu, sfu: cycles that a step keeps these
    units busy; loaded: bytes that it brings through rings.  stored: bytes at the end.  steps: how many, or at
    most, None where that is not known while compiling; at_launch: but when launching.  walks: is there a
    loop around?  waited: cycles that a step's own loads keep those waiting who compute.
    cost: the target's."""

    loop: Op
    tensor: float
    alu: float
    sfu: float
    loaded: float
    waited: float
    stored: float
    steps: int | None
    at_launch: bool
    walks: bool
    cost: CostTable


@dataclass(frozen=True)
class Form:
    """How a program runs: by so many groups that compute, `resident` programs on a multiprocessor at once.
    overlaps: a group's dots are in flight under its arithmetic.  shared: cycles for which a step keeps shared
    memory busy, as far as it is weighed.  beside: cycles of the other loops."""

    specialized: bool
    groups: int
    resident: int
    overlaps: bool
    shared: float = 0.0
    beside: float = 0.0


def work_of(accesses: Accesses, schedule: Schedule) -> Work | None:
    """What a program does; None where no loop holds a dot."""
    structure = accesses.structure
    loops: dict[Op, float] = {}
    for o in structure.ops:
        if o.kind is tile.dot:
            loop = next((p for p in structure.enclosing(o) if p.kind is control.for_), None)
            if loop is not None:
                unit = unit_by(schedule, o, accesses.target)
                loops[loop] = loops.get(loop, 0.0) + tensor(accesses.target, o, unit)
    if not loops:
        return None
    loop = max(loops, key=loops.__getitem__)
    (body,) = loop.regions
    units = _units(body, accesses.target.cost)
    items = {i for c in schedule.channels for i in c.all_items}
    loaded = sum(rings.slot_bytes(o.result) for o in walk(body) if o.id in items)
    main = schedule.tasks[0].name
    own = any(o.loads and o.id not in items and main in schedule.assign[o.id] for o in walk(body))
    stored = 0
    for o in structure.ops:
        if o.stores and isinstance(o.operands[1].type, Tile):
            stored += o.operands[1].type.size * dtype_of(o.operands[1].type).bytes
    return Work(
        loop,
        loops[loop],
        units.get("alu", 0.0),
        units.get("sfu", 0.0),
        loaded,
        accesses.target.cost.tma_latency if own else 0.0,
        stored,
        most_trips(accesses.facts, loop),
        at_launch=all(accesses.invariant(v) for v in loop.operands[:3]),
        walks=bool(structure.loops(loop)),
        cost=accesses.target.cost,
    )


def _parts(schedule: Schedule) -> tuple[int, int]:
    """Into how many parts the groups divide rows and columns of dots."""
    split = schedule.split
    return (split.count if split.axis == "M" else 1), (split.count if split.axis == "N" else 1)


def unit_by(schedule: Schedule, dot: Op, target: Target) -> MatrixUnit:
    """The unit that does a dot under a schedule."""
    main = schedule.tasks[0]
    return unit_of(dot, target, main.warps, _parts(schedule)) or preferred(dot, target)


def _units(body: Region, cost: CostTable) -> dict[str, float]:
    """Cycles of each unit for the elementwise ops of a loop's body."""
    found: dict[str, float] = {}
    for o in walk(body):
        if computes_tile(o) and o.kind is not tile.dot:
            unit, cycles = elementwise(cost, o)
            found[unit] = found.get(unit, 0.0) + cycles
    return found


def form_of(accesses: Accesses, schedule: Schedule, work: Work, need: int, target: Target) -> Form:
    """The form of a schedule whose computing threads need so many registers."""
    main = schedule.tasks[0]
    groups = max(1, target.warp_size * main.warps * main.replicas // target.group_threads)
    overlaps = any(p.loop == work.loop.id for p in schedule.pipelines)
    shared, beside = _shared(accesses, schedule, work), _beside(accesses, schedule, work)
    apart = work.walks or work.steps is None
    fit = max(resident(accesses, schedule, need, target, apart), schedule.ctas_per_sm)
    if ends_in_slots(accesses, schedule, work, need, target):
        fit = max(fit, resident(accesses, schedule, need, target))
    return Form(schedule.specialized, groups, fit, overlaps, shared, beside)


def ends_in_slots(
    accesses: Accesses, schedule: Schedule, work: Work, need: int, target: Target
) -> bool:
    """Does a uniform program of few threads store through slots that a loop of unknown length fills
    (`part_lifetimes`), and is that known to be worth a second program?  So it is where steps only add
    products to sums, with loads two steps ahead (201 us, specialized 212, with two slots 213).  Where they
    wait for products of their own, two uniform programs took 428 us, a specialized one 375."""
    depths = [c.depth for c in schedule.channels]
    if schedule.specialized or work.walks or min(depths, default=0) < 3:
        return False
    if schedule.promotions or work.alu or work.sfu or work.waited:
        return False
    main, beside = schedule.tasks[0], resident(accesses, schedule, need, target, apart=True)
    if beside * target.warp_size * main.warps * main.replicas >= ENOUGH_THREADS:
        return False
    try:
        return reduction_of(accesses).loop is work.loop
    except NoReductionError:
        return False


def _shared(accesses: Accesses, schedule: Schedule, work: Work) -> float:
    """Cycles for which a step keeps shared memory busy with what dots multiply in registers: it fills slots,
    and each group loads what its warps hold of them.  0 where a unit reads it itself, and where an engine
    fills the slots: that was not measured."""
    target, structure, main = accesses.target, accesses.structure, schedule.tasks[0]
    (body,), threads = work.loop.regions, main.warps * target.warp_size
    dots = [o for o in walk(body) if o.kind is tile.dot]
    if target.box_limit or any(unit_by(schedule, o, target).reads_shared for o in dots):
        return 0.0
    items = {i for c in schedule.channels for i in c.all_items}
    inside = {o for o in walk(body) if o.id in items}
    words = sum(
        operand_registers(o, axis, _parts(schedule), threads, target, chained=len(dots) > 1)
        for o in dots
        for axis in (0, 1)
        if structure.maker(rings.viewed(structure, o.operands[axis])) in inside
    )
    return (4 * words * threads * main.replicas + work.loaded) / target.cost.shared_bytes


def resident(
    accesses: Accesses,
    schedule: Schedule,
    need: int,
    target: Target,
    apart: bool = False,
    beside: int = 0,
) -> int:
    """How many programs share a multiprocessor, of threads that need so many registers.  apart: staging lies
    beside the slots, as these are full to the end; else where they were (`allocate_shared`).  beside: further
    bytes of shared memory."""
    structure = accesses.structure
    slots = {o.id: rings.slot_bytes(o.result) for o in structure.ops if o.id and o.loads}
    barriers = 16  # bytes a slot, two of them
    shared = sum(
        c.depth * (barriers + sum(slots.get(i, 0) for i in c.items)) for c in schedule.channels
    )
    main, staging = schedule.tasks[0], 0
    stores = {o.id: o for o in structure.ops if o.kind is tile.store_box}
    for s in schedule.stores:
        if s.via == "tma":
            size = dtype_of(stores[s.op].operands[1].type).bytes
            staging += s.buffers * s.chunk[0] * s.chunk[1] * size * main.replicas
    shared = shared + staging if apart else max(shared, staging)
    shared += clusters.sum_bytes(accesses.func) + beside
    threads = sum(target.warp_size * t.warps * t.replicas for t in schedule.tasks)
    entry = target.entry_registers(threads * schedule.ctas_per_sm)
    given = any(t.registers is not None for t in schedule.tasks)
    return target.resident(threads, entry if given else min(entry, need), shared)


def _beside(accesses: Accesses, schedule: Schedule, work: Work) -> float:
    """Cycles that loops beside the main one take a program, as far as their iterations are known: arithmetic,
    the steps of their rings, and the wait for what they load themselves."""
    structure, cost = accesses.structure, work.cost
    around = structure.loops(work.loop)
    mine = schedule.tasks[0].name
    # A uniform program also waits for slots, and issues copies.
    steps = 2 if schedule.specialized else 4
    total = 0.0
    for loop in structure.ops:
        if loop.kind is not control.for_ or loop is work.loop or structure.loops(loop) != around:
            continue
        trips = most_trips(accesses.facts, loop)
        if trips is None:
            continue
        inside = {o.id for o in walk(loop.regions[0]) if o.loads}
        brought = {i for c in schedule.channels for i in c.all_items} & inside
        n = sum(any(i in inside for i in c.all_items) for c in schedule.channels)
        own = any(mine in schedule.assign[i] for i in inside - brought)
        units = _units(loop.regions[0], cost)
        total += trips * (sum(units.values()) + n * steps * cost.sync + own * cost.tma_latency)
    return total


def cycles(work: Work, form: Form, waves: int, steps: int) -> float:
    """Cycles of a multiprocessor that one program takes of it, `waves` of them being there to be run."""
    cost = work.cost
    bound = max(work.tensor, work.alu, work.sfu, form.shared, cost.transfer(work.loaded))
    other = work.alu + work.sfu
    end = work.stored / cost.store_bytes
    if form.specialized:
        own = max(work.tensor, other) if form.overlaps else work.tensor + other
        step = max(bound, own / form.groups + work.waited)
        begin = cost.handover if work.walks and waves <= 1 else cost.start + cost.handover
    else:
        step = max(bound, (work.tensor + other) / form.groups + work.waited)
        step += cost.uniform_step / form.groups
        begin = cost.start
    alone = begin + steps * step + form.beside + end
    return max(steps * bound, alone / min(waves, form.resident))


@dataclass(frozen=True)
class Verdict:
    """Which form is predicted to be faster, and why.  short: below how many steps it would be the uniform one
    (0: at no number; asked only where the steps will be known at launch)."""

    uniform: bool
    because: str
    short: int


def expected(work: Work, launch: Launch) -> tuple[int, int]:
    """(waves, steps) of a launch, as far as they are known, else assumed."""
    waves = launch.waves or (1 if work.walks else MANY_WAVES)
    steps = 1 if launch.short else MANY_STEPS if work.steps is None else max(1, work.steps)
    return waves, steps


def weigh(work: Work, specialized: Form, uniform: Form, launch: Launch, even: bool) -> Verdict:
    """Both predictions.  even: whether tasks are taken where they are alike, as a unit bounds either form."""
    waves, steps = expected(work, launch)

    def predicted(n: int) -> tuple[float, float]:
        return cycles(work, specialized, waves, n), cycles(work, uniform, waves, n)

    def is_uniform(tasks: float, plain: float) -> bool:
        return plain < tasks or (plain == tasks and not even)

    tasks, plain = predicted(steps)
    short = 0
    if work.steps is None and work.at_launch and not (launch.short or is_uniform(tasks, plain)):
        few = [n for n in range(1, MANY_STEPS) if is_uniform(*predicted(n))]
        short = max(few, default=-1) + 1
    many = f"{steps} step{'s' * (steps != 1)}"
    known = "assumed" if work.steps is None and not launch.short else "of its main loop"
    crowd = "1 program" if waves == 1 else f"{waves}{' or more' * (waves >= MANY_WAVES)} programs"
    because = (
        f"predicted {tasks:.0f} cycles a program specialized ({_shown(specialized)}), "
        f"{plain:.0f} uniform ({_shown(uniform)}): {many} {known}, {crowd} a multiprocessor"
    )
    return Verdict(is_uniform(tasks, plain), because, short)


def _shown(form: Form) -> str:
    return f"{form.groups} group{'s' * (form.groups > 1)}, {form.resident} at once"
