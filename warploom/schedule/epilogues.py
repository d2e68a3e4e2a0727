"""Epilogues of a consumer's tiles, and whether groups stagger them: finish one after the other.

In a persistent kernel the groups of a tile leave its main loop together; what follows (activations, scales,
stores) then runs while the tensor cores idle.  With turns the second group waits for the first, once: from
then on it is that much behind, and the end of one group's tile runs under the other's products.  The ring has
to span the lag, so it should be deep, and a short end is not worth it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warploom.analysis import loop_overlap
from warploom.analysis.cost import computes_tile, elementwise
from warploom.analysis.structure import Structure
from warploom.ir.core import Op, Value, walk
from warploom.ir.ops import control, tile
from warploom.schedule.model import Knobs, Reason
from warploom.target import CostTable

# Cycles of an SM that one group's end has to take.  Measured (docs/log/2026-11-21-gated-pair.md): the gates
# of a 128×128 tile, 1500 a group, which leaves in one chunk, gain 1 to 1.7 %; 1455 to 4944 cycles of exp2
# lose 0.1 to 2.1 % where the tile leaves in four chunks, but gain as much by the fourth slot; 728 change
# nothing, and the scales of an 8-bit product, 400, lose up to 3 %.
LONG = 1000
DEPTH, LEAST_DEPTH = 4, 3  # slots that span the lag, that nearly do


@dataclass(frozen=True)
class Epilogue:
    """loop: a main loop (of dots) in a loop over tiles.  cycles: what one group computes behind it.  stores:
    those behind it."""

    loop: Op
    cycles: float
    stores: tuple[Op, ...] = ()


def find(
    structure: Structure, mine: Callable[[Op], bool], groups: int, cost: CostTable
) -> list[Epilogue]:
    """The ends of tiles of a consumer that runs the ops `mine`; none where it is one group.  Where dots wait
    for each other, groups take turns in the main loop, if at all."""
    found = []
    for o in structure.ops if groups > 1 else ():
        if o.kind not in (control.for_, control.while_) or not mine(o):
            continue
        body = o.regions[-1]
        main = [x for x in body.ops if any(y.kind is tile.dot for r in x.regions for y in walk(r))]
        if main and _is_main_loop(main[-1], mine) and all(x.kind is not tile.dot for x in body.ops):
            rest = body.ops[body.ops.index(main[-1]) + 1 :]
            ops = [y for x in rest for y in (x, *(z for r in x.regions for z in walk(r)))]
            cycles = sum(elementwise(cost, y)[1] for y in ops if mine(y) and computes_tile(y))
            stores = tuple(y for y in ops if y.kind in (tile.store, tile.store_box))
            found.append(Epilogue(main[-1], cycles / groups, stores))
    return found


def _is_main_loop(o: Op, mine: Callable[[Op], bool]) -> bool:
    return o.kind is control.for_ and loop_overlap.find(o, mine, _anywhere) is None


def _anywhere(operand: Value) -> bool:
    return True


def wanted_depth(ends: list[Epilogue], knobs: Knobs) -> int:
    """How many slots the rings should have."""
    return DEPTH if any(not _why_together(e, knobs) for e in ends) else 2


def _why_together(end: Epilogue, knobs: Knobs) -> str:
    """Why the groups don't take turns, empty where they should; without what comes of rings and loops."""
    if knobs.stagger_epilogues is not None:
        return "" if knobs.stagger_epilogues else "stagger_epilogues=False"
    if knobs.num_ctas > 1:
        return "the CTAs of a cluster release each other's slots"
    if end.cycles < LONG:
        return f"{end.cycles:.0f} cycles of a group's arithmetic are not worth a turn"
    return ""


def plans(
    ends: list[Epilogue], knobs: Knobs, depth: Callable[[Op], int], chunks: Callable[[Op], int]
) -> tuple[tuple[str, ...], list[Reason]]:
    """The loops (ids) behind which groups take turns, and why or why not.  depth: of the shallowest ring that
    turns in a loop.  chunks: in how many a group itself sends what a store has of a tile."""
    chosen, reasons = [], []
    for end in ends:
        loop, slots = end.loop.id, depth(end.loop)
        why = _why_together(end, knobs)
        if not why and slots < LEAST_DEPTH and not knobs.stagger_epilogues:
            why = f"a ring of {slots} slots doesn't span what one group would be behind the other"
        count = max(map(chunks, end.stores), default=0)
        if not why and count > 1 and not knobs.stagger_epilogues:
            why = (
                f"{count} chunks of results, of which each waits for others, would lengthen a turn"
            )
        if why:
            asked = bool(knobs.stagger_epilogues)
            reasons.append(Reason(loop, "groups finish their tiles together", why, warn=asked))
            continue
        chosen.append(loop)
        why = f"{end.cycles:.0f} cycles of one's arithmetic run under the other's products"
        reasons.append(
            Reason(
                loop,
                "groups finish their tiles in turns",
                "stagger_epilogues=True" if knobs.stagger_epilogues else why,
            )
        )
    return tuple(chosen), reasons
