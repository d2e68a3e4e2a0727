"""Loads whose elements the grid reads once, beside others that its programs read again and again.

What is read once passes through the L2 and takes the place of what will be read again.  A program that is
launched later then fetches from memory what an earlier one had brought.  So such loads ask the L2 to give up
their lines first, where an engine copies them: one thread says it once a copy.

A tall product (64x2048 of one operand a program, all of the other, 1024 programs) read 5.7 % more from memory
than it had to, and takes 6 % less time with the hint (docs/log/2026-11-29-by-counters.md).

That a place depends on a program's number is not enough: `pid // n` is the same for n programs.  A number is
told apart where what follows from it by sums and products is in the place, or both its quotient and its
remainder by one divisor are.  A number that only bounds a loop tells nothing apart: all programs of causal
attention read the first keys.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from warploom.ir.analysis import backward_slice, uses
from warploom.ir.core import Op, Value
from warploom.ir.ops import arith, control, tile
from warploom.schedule.context import Context
from warploom.schedule.model import Launch, Reason, Schedule

# Whose results are others for other values of an operand.
_INJECTIVE = frozenset({arith.add, arith.sub, arith.mul, arith.cast, arith.addptr})


def with_streams(context: Context, schedule: Schedule, launch: Launch) -> Schedule:
    """The schedule with `streamed_loads`; itself where the grid is not known, or nothing is read again."""
    copied = {i for c in schedule.channels if set(c.via) == {"tma"} for i in c.all_items}
    loads = [o for o in context.ops if o.id in copied]
    if len(loads) < 2:
        return schedule
    apart = _Apart(context)
    shared = {o: apart.shared(o) for o in loads}

    def parted(axes: int) -> tuple[list[Op], list[Op]]:
        """What is read once, and what again, in a grid with several programs along these axes."""
        again = [o for o in loads if (along := shared[o]) is None or axes & along]
        return ([o for o in loads if o not in again] if again else []), again

    kinds = {tuple(parted(axes)[0]) for axes in range(1 << 3)}
    schedule = replace(schedule, by_axes=len(kinds) > 1)
    once, again = ([], []) if launch.axes is None else parted(launch.axes)
    if not once:
        return schedule
    why = f"the grid reads each element once, and those of {again[0].id} again and again"
    reasons = [Reason(o.id, "the L2 gives its lines up first", why) for o in once]
    ids = tuple(o.id for o in once)
    return replace(schedule, streamed_loads=ids, reasons=(*schedule.reasons, *reasons))


class _Apart:
    """Which programs and iterations read other elements than the rest."""

    def __init__(self, context: Context) -> None:
        self._structure, self._sources = context.structure, context.sources
        self._uses = uses(context.func.body)
        self._programs = {
            o.attrs["axis"]: o.result for o in context.ops if o.kind is tile.program_id
        }

    def shared(self, load: Op) -> int | None:
        """The axes of the grid (bits, as in `Launch.axes`) along which programs may read the same elements;
        None where iterations of one program may."""
        place = frozenset(load.operands)
        needed = backward_slice(place, self._sources)

        def told(v: Value | None) -> bool:
            return v is not None and self._tells(v, needed, place)

        loops = self._structure.loops(load)
        if not all(o.kind is control.for_ and told(o.regions[0].params[0]) for o in loops):
            return None
        return sum(1 << axis for axis in range(3) if not told(self._programs.get(axis)))

    def _tells(self, v: Value, needed: Set[Value], place: Set[Value]) -> bool:
        """Is the place another one for each value of v?"""
        if v in place:
            return True
        users = [o for o in self._uses.get(v, ()) if not needed.isdisjoint(o.results)]

        def follows(o: Op) -> bool:
            return self._tells(o.result, needed, place)

        if any(follows(o) for o in users if o.kind in _INJECTIVE):
            return True
        parts = [o for o in users if o.kind in (arith.idiv, arith.rem) and o.operands[0] is v]
        whole = [
            {o.kind for o in parts if o.operands[1] is p.operands[1] and follows(o)} for p in parts
        ]
        return any(len(kinds) == 2 for kinds in whole)
