"""Which loads of a uniform kernel go straight into the registers of their readers, without a ring.

A ring pays where its loads run ahead for long, and where a matrix unit reads a slot in place.  Elsewhere each
step of it costs four synchronizations (a slot's release and its two waits, the copy's issue), and its slots
keep other programs from the multiprocessor, which would hide the wait for memory as well.
"""

from __future__ import annotations

from math import prod

from warploom.analysis.matrix_units import operand_registers, unit_of
from warploom.analysis.trip_counts import most_trips
from warploom.ir.core import Op
from warploom.ir.ops import control, tile
from warploom.ir.types import dtype_of, shape_of
from warploom.schedule import rings
from warploom.schedule.context import Context

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
    size = prod(shape_of(o.result.type)) * dtype_of(o.result.type).bytes
    most = max(1, size // (4 * warps * target.warp_size))
    for user, operand in rings.real_users(context.structure, o.result):
        if user.kind is not tile.dot or operand not in user.operands[:2]:
            continue
        unit = unit_of(user, target, warps)
        if unit is None or unit.reads_shared or len(shape_of(operand.type)) != 2:
            return None
        axis, threads = user.operands.index(operand), warps * target.warp_size
        words = operand_registers(user, axis, (1, 1), threads, target, chained=False)
        if words > IN_PLACE:
            return None  # a slot gives warps that share an operand whole matrices of it
        most = max(most, words)
    return most
