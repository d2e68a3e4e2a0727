"""How warps combine the parts of what a reduction leaves, in scratch shared memory."""

from __future__ import annotations

import math

from warploom.layout.linear import Layout
from warploom.layout.shared import UNIT_BYTES

MEETING = 32  # what threads spend for meeting twice, in instructions
MANY_PARTS = 16  # warps' parts of a number, from which on a thread reads one: lanes combine them


def reduce_scratch(layout: Layout, axis: int, itemsize: int) -> int:
    """Bytes of scratch shared memory for a reduction along `axis`: one partial result a warp and element of
    the result where warps share the axis, else 0.

    Partial p of element e (row-major in the result's shape) stands at (p · row + e) · itemsize; p counts the
    warps along the axis: the bits of the warp's index whose vector has a part on the axis.  A row has the
    elements and, where lanes read several rows, a unit more (`reduce_row`); what threads combine for all
    (`reduces_by_threads`) is one more row.
    """
    across = sum(1 for v in layout.warp if v[axis])
    rows = (1 << across) + (reduces_by_threads(layout, axis, itemsize) > 0)
    return rows * reduce_row(layout, axis, itemsize) * itemsize if across else 0


def reduce_row(layout: Layout, axis: int, itemsize: int) -> int:
    """Elements from a partial of `reduce_scratch` to the next: such that lanes meet in few banks."""
    unit = UNIT_BYTES // itemsize if reduces_by_threads(layout, axis, itemsize) > 1 else 0
    return math.prod(layout.shape) // layout.shape[axis] + unit


def reduces_by_threads(layout: Layout, axis: int, itemsize: int) -> int:
    """How many threads combine the parts of an element that a reduction leaves, before all read the sums;
    0 where each thread had better combine the parts of its own elements."""
    parts = 1 << sum(1 for v in layout.warp if v[axis])
    elements = math.prod(layout.shape) // layout.shape[axis]
    threads, held = 32 * layout.warps, layout.drop(axis).registers if elements > 1 else 1
    if elements == 1 or elements & (elements - 1) or (elements > threads and elements % threads):
        return 0
    lanes = max(1, min(parts, 32, threads // elements))
    lanes = 1 << lanes.bit_length() - 1
    each = -(-elements * lanes // threads)
    in_steps = each * (parts // lanes + lanes.bit_length()) + held + MEETING
    return lanes if in_steps < parts * held else 0


def reduces_by_lanes(layout: Layout, axis: int, itemsize: int) -> bool:
    """Do the lanes of each warp combine the parts of the one number that a reduction leaves?"""
    parts, is_one = reduce_scratch(layout, axis, 1), math.prod(layout.shape) == layout.shape[axis]
    return is_one and MANY_PARTS <= parts <= 1 << len(layout.lane) and itemsize >= 4
