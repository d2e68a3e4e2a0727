"""Epilogues of a consumer's tiles, and whether groups stagger them: finish one after the other.

In a persistent kernel the groups of a tile leave its main loop together; what follows (activations, scales,
stores) then runs while the tensor cores idle.  Staggered, the second group waits for the first, once: from
then on it is that much behind, and the end of one group's tile runs under the other's products.  The ring has
to span the lag, so it should be deep, and a short end is not worth it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from warploom.analysis import loop_overlap
from warploom.analysis.cost import computes_tile, elementwise
from warploom.ir.core import Op
from warploom.ir.ops import control, tile
from warploom.ir.types import shape_of
from warploom.schedule.context import Context
from warploom.schedule.model import ChannelPlan, Knobs, StorePlan

# Cycles of an SM that one group's end has to take.  Measured (docs/log/2026-11-21-gated-pair.md): the gates
# of a 128×128 tile, 1500 a group, which leaves in one chunk, gain 1 to 1.7 %; 1455 to 4944 cycles of exp2
# lose 0.1 to 2.1 % where the tile leaves in four chunks, but gain as much by the fourth slot; 728 change
# nothing, and the scales of an 8-bit product, 400, lose up to 3 %.
LONG = 1000
DEPTH, LEAST_DEPTH = 4, 3  # slots that span the lag, that nearly do


@dataclass(frozen=True)
class Epilogue:
    """loop: a main loop (of dots) in a loop over tiles.  cycles: what one group computes after it.  stores:
    those after it."""

    loop: Op
    cycles: float
    stores: tuple[Op, ...] = ()


def find(context: Context, mine: Callable[[Op], bool], groups: int) -> list[Epilogue]:
    """The ends of tiles of a consumer that runs the ops `mine`; none where it is one group.  Where dots wait
    for each other, groups take turns in the main loop, if at all."""
    found = []
    for o in context.ops if groups > 1 else ():
        if o.kind not in control.LOOPS or not mine(o):
            continue
        body = o.regions[-1]
        main = [x for x in body.ops if x.regions and any(y.kind is tile.dot for y in x.all_ops)]
        if main and _is_main_loop(main[-1], mine) and all(x.kind is not tile.dot for x in body.ops):
            rest = body.ops[body.ops.index(main[-1]) + 1 :]
            ops = [y for x in rest for y in x.all_ops]
            computed = (y for y in ops if mine(y) and computes_tile(y))
            cycles = sum(elementwise(context.target.cost, y)[1] for y in computed)
            stores = tuple(y for y in ops if y.stores)
            found.append(Epilogue(main[-1], cycles / groups, stores))
    return found


def _is_main_loop(o: Op, mine: Callable[[Op], bool]) -> bool:
    return o.kind is control.for_ and loop_overlap.find(o, mine, _anywhere) is None


def _anywhere(dot: Op, side: int) -> bool:
    return True


def wanted_depth(ends: list[Epilogue], knobs: Knobs) -> int:
    """How many slots the rings should have."""
    return DEPTH if any(not _why_together(e, knobs) for e in ends) else 2


def _why_together(end: Epilogue, knobs: Knobs) -> str:
    """Why the groups don't stagger them, empty where they should; without what comes of rings and loops."""
    if knobs.stagger_epilogues is not None:
        return "" if knobs.stagger_epilogues else "stagger_epilogues=False"
    if knobs.num_ctas > 1:
        return "the CTAs of a cluster release each other's slots"
    if end.cycles < LONG:
        return f"{end.cycles:.0f} cycles of a group's arithmetic are not worth a turn"
    return ""


def plans(
    context: Context,
    ends: list[Epilogue],
    channels: tuple[ChannelPlan, ...],
    stores: tuple[StorePlan, ...],
    groups: int,
) -> tuple[str, ...]:
    """The main loops (ids) after which so many groups stagger their epilogues."""
    asked = bool(context.knobs.stagger_epilogues)
    if asked and not ends:
        why = "no loop over tiles, shared by several groups, goes on behind it"
        context.unmet(context.dots[0], "groups don't stagger their epilogues", why)
    chosen = []
    for end in ends:
        why = _why_together(end, context.knobs)
        inside = {o.id for o in end.loop.regions[0].all_ops}
        slots = min((c.depth for c in channels if inside.intersection(c.all_items)), default=0)
        if not why and slots < LEAST_DEPTH and not asked:
            why = f"a ring of {slots} slots doesn't span what one group would be behind the other"
        count = max((_chunks(o, stores, groups) for o in end.stores), default=0)
        if not why and count > 1 and not asked:
            why = (
                f"{count} chunks of results, of which each waits for others, would lengthen the lag"
            )
        if why:
            context.decided(end.loop, "groups finish their tiles together", why, asked)
            continue
        chosen.append(end.loop.id)
        why = f"{end.cycles:.0f} cycles of one's arithmetic run under the other's products"
        why = "stagger_epilogues=True" if asked else why
        context.because(end.loop.id, "groups stagger their epilogues", why)
    return tuple(chosen)


def _chunks(o: Op, stores: tuple[StorePlan, ...], groups: int) -> int:
    """In how many chunks a group itself sends what a store has of a tile."""
    plan = next((s for s in stores if s.op == o.id), None)
    if plan is None or plan.via != "tma" or plan.by_task:
        return 0
    return math.prod(shape_of(o.operands[1].type)) // groups // math.prod(plan.chunk)
