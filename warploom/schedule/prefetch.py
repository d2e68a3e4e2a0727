"""Loads that no ring brings, whose tiles wait in registers: which go straight there in uniform kernels, which
are hoisted before what their threads wait for, and which are prefetched: issued ahead of the iteration that
uses them.

A ring pays where its loads run ahead for long, and where a matrix unit reads a slot in place.  Elsewhere each
step of it costs four synchronizations (a slot's release and its two waits, the copy's issue), and its slots
keep other programs from the multiprocessor, which would hide the wait for memory as well.

In a uniform kernel with dots loads are prefetched in loops that multiply nothing and read no ring; in loops
of dots small ones are hoisted, and prefetched where a lone warp waits for them.

A row of numbers feeds no instruction that reads shared memory, so no ring carries it.  But where threads
combine what they loaded (a reduction has barriers in it), nobody loads while all wait; and the C compiler
moves no load ahead of a store.  There the next iteration's loads are issued before this one's work, and
their elements wait in registers; a loop's own num_stages says by how many iterations, a launch's nothing (it
is about rings, and 1 in every reduction of PyTorch's Inductor).  Loops that only add up are left alone,
unless they say how many stages they want: they are unrolled (passes/placed/limit_unrolling.py), and loads of
several iterations stand together.

Likewise within a block: a weight that is loaded after a reduction is on its way before it, as far as its
place is known there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from warploom.analysis.access import orders_memory
from warploom.analysis.matrix_units import operand_registers, unit_of
from warploom.analysis.trip_counts import most_trips
from warploom.ir.analysis import closure, waits
from warploom.ir.core import Effect, Family, Op, Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import Tile, dtype_of, shape_of
from warploom.schedule import rings
from warploom.schedule.context import Context, named
from warploom.schedule.model import ChannelPlan, PipelinePlan

# ---- hoisted and prefetched


# Bytes a thread's elements on their way may take, of the 128 or so that a thread of half a multiprocessor's
# 2048 has.
BUDGET = 48
NOT_WAITED = 32  # the same in a loop where no thread waits for others
LONE = 16  # the same in a lone warp's loop of dots, each of whose operands may repeat a row in many threads
# Bytes of tiles that a block issues early.  More is no gain: layer norms that had their weights early (64
# bytes a thread) ran 9 to 20 % longer, as fewer programs fit beside each other, and those hide the wait.
HELD = 8
MOST = 2  # iterations; a loop's body is written 2·n + 1 times


def plans(context: Context, in_rings: Collection[str] = ()) -> tuple[PipelinePlan, ...]:
    """The loads that run ahead in each loop that nothing is looped in, nor multiplied but by a lone warp.
    in_rings: those that registers don't bring."""
    found = []
    for loop in context.ops:
        if loop.kind is not control.for_:
            continue
        dots = multiplies(loop)
        if not dots and any(o.id in in_rings for o in loop.all_ops):
            continue
        asked, budget = _asked(context, loop)
        if asked < 1:
            continue
        ops = [o for o in loop.regions[0].ops if o.id not in in_rings]
        loads = [o for o in ops if _movable(context, o, loop)]
        if not loads or not _only_loads(loop):
            continue
        each = sum(_bytes(o, context) for o in loads)
        n = min(asked, MOST, budget // each)
        if n < 1:
            why = (
                f"{named(loads)} would keep {each} bytes of registers a thread, more than {budget}"
            )
            context.because(loop.id, "no load runs ahead", why)
            continue
        iterations = "an iteration" if n == 1 else f"{n} iterations"
        why = "what they bring waits in registers while this iteration computes"
        context.because(loop.id, f"{named(loads)} run {iterations} ahead", why)
        stages = ((o.id, 0 if o in loads else n) for o in loop.regions[0].ops[:-1])
        found.append(PipelinePlan(loop.id, tuple(stages), beside_rings=dots))
    return tuple(found)


def multiplies(loop: Op) -> bool:
    """Stands a dot in the loop?"""
    return any(o.kind is tile.dot for o in loop.all_ops)


def _asked(context: Context, loop: Op) -> tuple[int, int]:
    """How many iterations the loads of a loop should run ahead, and the bytes of registers they may take."""
    own = loop.attrs.get("num_stages")
    if multiplies(loop):  # other warps would run while one waits
        return int(context.knobs.num_warps == 1 and own != 1), LONE
    if own is not None and loop in context.hints.loops:
        return int(own) - 1, BUDGET
    ops = loop.regions[0].ops
    if any(o.kind.family is Family.COMBINE for o in ops):
        return 1, BUDGET
    return (1, NOT_WAITED) if any(o.stores for o in ops) else (0, 0)


def _only_loads(loop: Op) -> bool:
    """Is there nothing in the loop that a load must not pass, and no loop?"""
    ops = loop.regions[0].all_ops
    return not any(o.kind in control.LOOPS or orders_memory(o) for o in ops)


def _movable(context: Context, o: Op, loop: Op) -> bool:
    """May load o be issued iterations ahead: is its place computed from the loop's index alone, and its
    memory not written?"""
    passes = o.loads and not o.attrs.get("volatile") and not context.overtakes(o)
    mine = passes and (isinstance(o.result.type, Tile) or multiplies(loop))
    return mine and place_of(loop.regions[0], o.operands) is not None


def _passes(context: Context, o: Op) -> bool:
    """Is o a load of memory that nobody writes?"""
    return o.loads and not o.attrs.get("volatile") and o not in context.aliased


def distances(
    context: Context, loading: Callable[[Op], bool], channels: Sequence[ChannelPlan]
) -> tuple[tuple[str, int], ...]:
    """By how many iterations the loads of a uniform kernel's loops run ahead: one less than the shallowest
    ring that steps in a loop has slots.  Not at all those of a loop with such a one inside, or where loads
    take numbers from memory, once an iteration.  loading: does what loads run the op?"""
    by_id = {o.id: o for o in context.ops}
    around = context.structure.loops
    slots: dict[Op, int] = {}
    for c in channels:
        for loop in (x for site in c.sites for x in around(by_id[site[0]])[:1]):
            slots[loop] = min(c.depth, slots.get(loop, c.depth))
    given = (
        o
        for o in context.ops
        if o.kind is tile.atomic or o.attrs.get("volatile") or context.overtakes(o)
    )
    held = {p for o in (*slots, *filter(loading, given)) for p in around(o)}
    ahead = (o for o in context.ops if o in slots and o.kind is control.for_ and o not in held)
    return tuple((o.id, slots[o] - 1) for o in ahead if slots[o] > 1)


def early(context: Context) -> tuple[str, ...]:
    """Loads that are issued before the first op of their block for whose end threads wait."""
    blocks = {id(r): r for r in context.structure.block.values()}
    return _told_early(context, [_early(context, block, waits) for block in blocks.values()])


def early_between_dots(
    context: Context, elsewhere: Collection[str], running: Sequence[PipelinePlan]
) -> tuple[str, ...]:
    """Likewise in loops of dots: what a step loads into registers is on its way under all of its dots, and
    under the waits for its rings.  elsewhere: loads that rings bring, or other tasks make; running: those
    that run an iteration ahead."""
    elsewhere = {*elsewhere, *(i for p in running for i in p.in_stage(0))}

    def meets(o: Op) -> bool:
        return o.kind is tile.dot or o.id in elsewhere or o.stores or waits(o)

    bodies = [o.regions[0] for o in context.ops if o.kind is control.for_]
    if not any(map(context.is_async, context.dots)):  # what waits for such gains nothing
        bodies.append(context.func.body)
    found = [
        [o for o in _early(context, body, meets) if o.id not in elsewhere]
        for body in bodies
        if any(o.kind is tile.dot for o in body.ops)
        # the state of loops needs the registers
        and not any(o.kind in control.LOOPS for o in body.all_ops)
    ]
    return _told_early(context, found)


def _told_early(context: Context, found: Sequence[Sequence[Op]]) -> tuple[str, ...]:
    for moved in filter(None, found):
        why = "their places are known before threads wait for each other"
        context.because(moved[0].id, f"{named(moved)} issued early", why)
    return tuple(o.id for moved in found for o in moved)


def _early(context: Context, block: Region, meets: Callable[[Op], bool]) -> list[Op]:
    late: set[Value] = set()  # what is not known before the first wait
    first: Op | None = None
    moved: list[Op] = []
    room = 0
    had: set[object] = set()  # loaded already: once more takes nothing
    for o in block.ops[:-1]:
        if first is None:
            had.add(same_load(o))
            if meets(o):
                first, room = o, HELD
                late.update(o.results)
            continue
        if any(map(orders_memory, o.all_ops)):
            break
        known = not o.regions and late.isdisjoint(o.operands)
        movable = known and _passes(context, o)
        new = movable and isinstance(o.result.type, Tile) and same_load(o) not in had
        n = _bytes(o, context) if new else 0
        if movable and n <= room:
            moved.append(o)
            had.add(same_load(o))
            room -= n
        elif not known or meets(o) or o.kind.effect is not Effect.NONE:
            late.update(o.results)
    return moved


def same_load(o: Op) -> tuple[object, ...]:
    """Equal for loads that bring the same, where nothing is written between."""
    return o.kind, o.operands, tuple(sorted((k, str(v)) for k, v in o.attrs.items()))


def place_of(body: Region, values: Sequence[Value]) -> tuple[Op, ...] | None:
    """The ops of a loop's body that compute some values, in order, where these follow from its index and
    from what stands outside of it by pure ops; None where not."""
    made = {v: o for o in body.ops for v in o.results}
    first = [made[v] for v in values if v in made]
    needed = closure(first, lambda o: [made[v] for v in o.operands if v in made])
    read = {*values, *(v for o in needed for v in o.operands)}
    if not read.isdisjoint(body.params[1:]):
        return None
    if any(o.regions or o.kind.effect is not Effect.NONE for o in needed):
        return None
    return tuple(o for o in body.ops if o in needed)


def _bytes(o: Op, context: Context) -> int:
    """Registers, in bytes, that a thread's part of what o loads takes."""
    threads = context.target.warp_size * context.knobs.num_warps
    elements = max(1, math.prod(shape_of(o.result.type)) // threads)
    return -(-elements * dtype_of(o.result.type).bytes // 4) * 4


# ---- without a ring


FEW = 4  # iterations of a loop of dots in which a ring hides too little
MOST_WORDS = 32  # a thread keeps of one load
# The same in a loop of dots, whose iterations then wait for memory: of 32 words (one warp, 16x64 in bf16)
# gla's chunk_gla_fwd_A_kernel_intra_sub_inter took 88 us instead of 66; of 4 and 8 others were faster.
BETWEEN_DOTS = 8
IN_PLACE = 8  # the same, of an operand that a dot reads as it is
CROWDED = 16  # the same, where ptxas spilled, or slots let too few programs onto the multiprocessor
SYNCHRONIZATIONS = 4  # of a step of a ring


def why_direct(context: Context, o: Op) -> str | None:
    """Why a uniform kernel loads o straight into registers; None where a ring brings it."""
    if context.hints.wants_producer(o):
        return None
    why = _nothing_ahead(context, o)
    if why is None:
        return None
    words = _words(context, o)
    around = context.structure.loops(o)
    dots = any(x.kind is tile.dot for p in around for r in p.regions for x in r.all_ops)
    most = BETWEEN_DOTS if dots else MOST_WORDS
    if context.headroom.consumer or context.crowded:
        most = CROWDED
    if words is None or words > most:
        return None
    cost, threads = context.target.cost, context.knobs.num_warps * context.target.warp_size
    # as threads hold a tile that dots read or write, an access fills half of its sectors
    direct = 2 * 4 * words * threads / cost.shared_bytes
    ring = SYNCHRONIZATIONS * cost.sync
    if direct > ring:
        return None
    return f"{why}; {words} words a thread take {direct:.0f} cycles, a step of a ring {ring:.0f}"


def _nothing_ahead(context: Context, o: Op) -> str | None:
    """Why nothing is gained where load o runs ahead of its reader; None where something is."""
    loops = context.structure.loops(o)
    if not loops:
        return "it stands in no loop"
    loop = loops[0]
    if not any(x.kind is tile.dot for x in loop.regions[0].all_ops):
        return "no dot stands in its loop"
    trips = most_trips(context.accesses.facts, loop) if loop.kind is control.for_ else None
    return f"its loop runs {trips} times at most" if trips is not None and trips <= FEW else None


def _words(context: Context, o: Op) -> int | None:
    """Registers a thread for what o loads, where its readers hold it; None where one reads a slot."""
    target, warps = context.target, context.knobs.num_warps
    size = math.prod(shape_of(o.result.type)) * dtype_of(o.result.type).bytes
    most = max(1, size // (4 * warps * target.warp_size))
    for user, operand in rings.real_users(context.structure, o.result):
        if user.kind is not tile.dot or operand not in user.operands[:2]:
            continue
        unit = unit_of(user, target, warps)
        if unit is None or unit.reads_shared or len(shape_of(operand.type)) != 2:
            return None
        axis, threads = user.operands.index(operand), warps * target.warp_size
        once = not any(x.kind in control.LOOPS for x in context.ops)
        multiplied = once and any(_multiplies(context, x, user) for x in context.dots)
        words = operand_registers(user, axis, (1, 1), threads, target, False, multiplied)
        late = once and _is_late(context, o)
        if words > IN_PLACE or (late and _lies_across(context, o, user, operand)):
            return None  # a slot gives warps that share an operand whole matrices of it
        most = max(most, words)
    return most


def _multiplies(context: Context, o: Op, other: Op) -> bool:
    """Does a dot multiply from the left what is computed of dots, as large as another one's result?"""
    left = o.operands[0]
    return context.from_dot(left) and shape_of(left.type) == shape_of(other.result.type)


def _is_late(context: Context, o: Op) -> bool:
    """Does load o stand after a dot of its block, so that threads would ask for it when that is done?"""
    ops = context.structure.block[o].ops
    return any(x.kind is tile.dot for x in ops[: ops.index(o)])


def _lies_across(context: Context, o: Op, dot: Op, operand: Value) -> bool:
    """Is a register of a dot's operand, which has neighbours along K, several elements of what o loads that
    lie apart in memory?"""
    k = 1 - dot.operands.index(operand)
    inner = rings.memory_inner(context.accesses, o)
    return (
        dtype_of(operand.type).bytes < 4
        and inner is not None
        and inner != rings.traced(context.structure, operand, o.result, k)
    )


def loads_through_registers(context: Context) -> dict[Op, int]:
    """Loads of which threads only compute a dot's right operand each, which goes to shared memory
    again, where nothing is gained from running ahead; and the bytes of that operand."""
    structure, found = context.structure, {}
    for dot in context.dots:
        v = dot.operands[1]
        size, computed = rings.slot_bytes(v), False
        while (o := structure.maker(v)) is not None and len(structure.users.get(v, ())) == 1:
            if o.loads:
                if computed and o.id and _nothing_ahead(context, o):
                    found[o] = size
                break
            tiles = [x for x in o.operands if shape_of(x.type)]
            computed |= o.kind.family is Family.POINTWISE
            if len(tiles) != 1 or not (o.kind.family is Family.POINTWISE or rings.is_view(o)):
                break
            (v,) = tiles
    return found
