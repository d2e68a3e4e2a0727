"""Which loads of a kernel without dots run ahead of the iteration that uses them, in registers.

A row of numbers feeds no instruction that reads shared memory, so no ring carries it.  But where threads
combine what they loaded (a reduction has barriers in it), nobody loads while all wait: then the next
iterations' loads are issued in front of this one's work, and their elements wait in registers.  Loops that
only compute element by element are left alone, unless they say how many stages they want: NVRTC unrolls
them, and the loads of several iterations stand together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from warploom.ir.core import Effect, Op, Region, Value
from warploom.ir.ops import control, tile
from warploom.ir.types import DType, Tile
from warploom.schedule.model import AheadPlan
from warploom.schedule.subject import Subject, named

# Bytes a thread's elements on their way may take, of the 128 or so that a thread of half a multiprocessor's
# 2048 has.
BUDGET = 48
MOST = 2  # iterations; a loop's body is written 2·n + 1 times
_HARMLESS = (control.assume, control.device_assert, control.device_print)


def plans(subject: Subject) -> tuple[AheadPlan, ...]:
    """The loads that run ahead in each loop that nothing is looped in."""
    found = []
    for loop in subject.ops:
        if loop.kind is not control.for_ or (asked := _asked(subject, loop)) < 1:
            continue
        loads = [o for o in loop.regions[0].ops if _movable(subject, o, loop)]
        if not loads or not _only_loads(subject, loop):
            continue
        each = sum(_bytes(o, subject.knobs.num_warps) for o in loads)
        n = min(asked, MOST, BUDGET // each)
        if n < 1:
            why = (
                f"{named(loads)} would keep {each} bytes of registers a thread, more than {BUDGET}"
            )
            subject.because(loop.id, "no load runs ahead", why)
            continue
        iterations = "an iteration" if n == 1 else f"{n} iterations"
        why = "what they bring waits in registers while this iteration computes"
        subject.because(loop.id, f"{named(loads)} run {iterations} ahead", why)
        found.append(AheadPlan(loop.id, tuple(o.id for o in loads), n))
    return tuple(found)


def _asked(subject: Subject, loop: Op) -> int:
    """How many iterations the loads of a loop should run ahead."""
    own = loop.attrs.get("num_stages")
    if own is not None and loop in subject.hints.loops:
        return int(own) - 1
    waits = any(o.kind is tile.reduce for o in loop.regions[0].ops)
    return min(1, subject.knobs.num_stages - 1) if waits else 0


def _only_loads(subject: Subject, loop: Op) -> bool:
    """Is there nothing in the loop that a load must not pass, and no loop?  What orders memory is none of
    its iterations' own business."""
    for o in loop.regions[0].all_ops:
        if o.kind in (control.for_, control.while_):
            return False
        if Effect.SYNC in o.kind.effect and o.kind not in _HARMLESS:
            return False
        if o.kind is tile.atomic and o.attrs.get("sem", "relaxed") != "relaxed":
            return False
    return True


def _movable(subject: Subject, o: Op, loop: Op) -> bool:
    """May load o be issued iterations ahead: is its place computed from the loop's index alone, and its
    memory not written?"""
    if o.kind not in (tile.load, tile.load_box) or not isinstance(o.result.type, Tile):
        return False
    if o.attrs.get("volatile") or o in subject.aliased:
        return False
    return place_of(loop.regions[0], o.operands) is not None


def place_of(body: Region, values: Sequence[Value]) -> tuple[Op, ...] | None:
    """The ops of a loop's body that compute some values, in order, where these follow from its index and
    from what stands outside of it by pure ops; None where not."""
    made = {v: o for o in body.ops for v in o.results}
    carried = set(body.params[1:])
    needed: set[Op] = set()
    work = list(values)
    while work:
        v = work.pop()
        if v in carried:
            return None
        o = made.get(v)
        if o is None or o in needed:
            continue
        if o.regions or o.kind.effect is not Effect.NONE:
            return None
        needed.add(o)
        work.extend(o.operands)
    return tuple(o for o in body.ops if o in needed)


def _bytes(o: Op, warps: int) -> int:
    """Registers, in bytes, that a thread's part of what o loads takes."""
    t = o.result.type
    assert isinstance(t, Tile) and isinstance(t.elem, DType)
    elements = max(1, math.prod(t.shape) // (32 * warps))
    return -(-elements * t.elem.bytes // 4) * 4
