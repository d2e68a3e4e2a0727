"""Chooses which of a consumer's loops overlap two iterations (analysis/loop_overlap.py says which can), where
the wait for the late dots stands, and whether groups take turns at issuing dots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from warploom.analysis.loop_overlap import Overlap, find, mask_of, phase_cycles, split_of
from warploom.ir.core import Op
from warploom.ir.ops import control, mma
from warploom.ir.types import dtype_of, shape_of
from warploom.schedule import rings
from warploom.schedule.consumer_partition import ConsumerPartition
from warploom.schedule.context import Context, named
from warploom.schedule.model import ChannelPlan, PipelinePlan, TaskPlan
from warploom.schedule.roles import Roles

# Arithmetic under the dots from which on it pays that another group's dots run meanwhile, as a part of
# theirs, and the cycles of a group's iteration from which on a turn is worth its barriers: the backward pass
# in two walks is 1 % (144 to 253 cycles of arithmetic beside 176 to 272 of dots) and 2.4 % faster without
# turns (126 to 253 beside 352 to 544; docs/log/2026-11-21-corpus-attention.md).
_SUBSTANTIAL = 0.6
_WORTH_PING_PONG = 600
# Eighths of the special functions before the wait for the late dots, where nobody says: measured on
# attention (docs/log/2026-11-21-automatic-attention-first.md).  Three groups and more keep the
# tensor cores busy among themselves.
_EIGHTHS = {1: 2, 2: 2}
_RESERVE = 24  # registers a thread beside what is in flight


def candidates(context: Context, roles: Roles, partition: ConsumerPartition) -> list[Overlap]:
    """The loops of a specialized kernel's consumer in which dots wait for each other."""
    in_place = _in_place(context, roles.loads)
    loops = (o for o in context.ops if o.kind is control.for_ and roles.mine(o))
    found = [x for o in loops if (x := find(o, roles.mine, in_place)) is not None]
    return [_in_order(x, partition) for x in found]


def _in_order(x: Overlap, partition: ConsumerPartition) -> Overlap:
    """Nothing overlaps with dots that complete in order."""
    units = (partition.unit(o) for o in (*x.early, *x.late))
    done = next((u for u in units if not u.is_async), None)
    return replace(x, why_not=f"{done.instruction} completes in order") if done else x


def expected(context: Context, found: Sequence[Overlap]) -> bool:
    """Are iterations of some of the candidates to overlap, if there are registers?"""
    if context.knobs.consumer_stages == 1 or context.knobs.num_ctas > 1:
        return False
    return any(not x.why_not for x in found)


def plans(
    context: Context,
    roles: Roles,
    found: Sequence[Overlap],
    alone: bool,
    consumer: TaskPlan,
    channels: tuple[ChannelPlan, ...],
) -> tuple[PipelinePlan, ...]:
    """Loops of the consumer whose iterations overlap, of the candidates `found`.  alone: has each group tiles
    of its own?"""
    if not roles.specialized:
        why = "the kernel is uniform"
    elif alone:
        why = "each group has tiles of its own"
    else:
        why = "no loop has a dot that waits for another one of the same iteration"
    asked = (context.knobs.consumer_stages or 0) > 1 or context.knobs.ping_pong is True
    if asked and not found:
        context.unmet(context.dots[0], "iterations don't overlap", why)
    chosen = []
    for x in found:
        why = x.why_not or _why_not_chosen(context, roles, consumer, x)
        why = why or _why_cramped(context, channels, x)
        if why:
            context.decided(x.loop, "iterations don't overlap", why, asked)
        else:
            chosen.append(_plan(context, consumer.replicas, x))
    return tuple(chosen)


def _plan(context: Context, groups: int, found: Overlap) -> PipelinePlan:
    o, late = found.loop, named(found.late)
    context.because(
        o.id,
        f"{named(found.early)} of the next iteration in flight with {late}",
        "the former need nothing of the latter: the arithmetic between them runs under both",
    )
    eighths, why = context.knobs.mma_wait_position, "mma_wait_position"
    if eighths is None:
        eighths, why = _EIGHTHS.get(groups, 0), f"usually best with {groups} groups"
    context.because(o.id, f"{late} waited for after {eighths}/8 of the special functions", why)
    cut = split_of(o) or mask_of(context.structure, o)
    if cut is not None and cut.kind is control.if_:
        context.because(cut.id, "its loop is cut in two without it", "it changes its way once")
    elif cut is not None:
        why = "its mask lets all through in the middle, or up to an end"
        context.because(cut.id, "its loop is cut around iterations without it", why)
    stages = tuple((d.id, int(d in found.late)) for d in (*found.early, *found.late))
    ping_pong = _ping_pong(context, groups, o)
    return PipelinePlan(o.id, stages, eighths, ping_pong, cut.id if cut is not None else "")


def _why_not_chosen(context: Context, roles: Roles, consumer: TaskPlan, found: Overlap) -> str:
    if context.knobs.consumer_stages == 1:
        return "consumer_stages=1"
    threads = context.target.group_threads
    entry = context.target.entry_registers(roles.warp_groups(consumer.replicas) * threads)
    room = (consumer.registers or entry) - context.headroom.consumer
    in_place = _in_place(context, roles.loads)
    flying = [o.result for o in (*found.early, *found.late)]
    flying += [o.operands[0] for o in found.late if not in_place(o, 0)]
    need = _RESERVE
    for v in flying:
        bits = math.prod(shape_of(v.type)) * dtype_of(v.type).bits
        need += bits // (32 * threads * consumer.replicas)
    return f"it takes about {need} registers a thread, of {room}" if need > room else ""


def _why_cramped(context: Context, channels: tuple[ChannelPlan, ...], found: Overlap) -> str:
    """Why a loop can't overlap: dots of an iteration and of the next one read a ring of one slot."""
    structure = context.structure
    inside = {o.id: o for o in found.loop.regions[0].ops}
    for c in (c for c in channels if c.depth < 2):
        items = [inside[i] for i in c.all_items if i in inside]
        readers = {o for x in items for o, _ in rings.real_users(structure, x.result)}
        if readers.intersection(found.early) and readers.intersection(found.late):
            return f"dots of two iterations would read {c.name}, which has one slot"
    return ""


def _ping_pong(context: Context, groups: int, loop: Op) -> bool:
    """Do groups take turns at issuing the dots of a loop?"""
    knobs, target = context.knobs, context.target
    yes = False
    if groups < 2:
        why = "there is one group"
    elif not target.sync.named_barriers:
        why = "the target has no named barriers"
    elif isinstance(knobs.ping_pong, bool):
        yes, why = knobs.ping_pong, f"ping_pong={knobs.ping_pong}"
    else:
        tensor, other = phase_cycles(loop.regions[0], 1 / groups, target)
        yes = other >= _SUBSTANTIAL * tensor and tensor + other >= _WORTH_PING_PONG
        why = f"in an iteration {other:.0f} cycles of arithmetic stand beside {tensor:.0f} of dots"
    decision = "groups take turns at issuing dots" if yes else "groups issue dots as they come"
    context.decided(loop, decision, why, asked=knobs.ping_pong is True and not yes)
    return yes


def _in_place(context: Context, loads: Collection[Op]) -> Callable[[Op, int], bool]:
    """Does wgmma read a dot's left (0) or right (1) operand where a load put it?  Two dots may want an item
    in two ways, of which a slot has one."""
    items = {o.result: o for o in loads}

    def reads(dot: Op, side: int) -> bool:
        v = dot.operands[side]
        item = rings.viewed(context.structure, v)
        if item not in items:
            return False
        inner, swizzle = rings.slot_layout(context.accesses, items[item])
        is_k_major = (
            rings.traced(context.structure, v, item, len(shape_of(v.type)) - 1 - side) == inner
        )
        return bool(swizzle) and (is_k_major or not mma.only_k_major(dtype_of(v.type)))

    return reads
