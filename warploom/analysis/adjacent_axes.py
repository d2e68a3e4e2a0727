"""Along which axis of a tile neighbours lie that were neighbours before it was moved."""

from __future__ import annotations

import math

from warploom.ir.core import Op
from warploom.ir.ops import tile
from warploom.ir.types import shape_of

# What gives the elements of a tile, some of them more than once, in an order that shapes and axes tell.
MOVES = frozenset({tile.transpose, tile.expand_dims, tile.broadcast, tile.slice_tile, tile.reshape})


def moved_axis(o: Op, axis: int) -> int | None:
    """The axis of the result of o (one of MOVES) along which neighbours along `axis` of its operand lie; None
    where a reshape tears them apart."""
    before, after = shape_of(o.operands[0].type), shape_of(o.result.type)
    match o.kind:
        case tile.transpose:
            perm: tuple[int, ...] = o.attrs["perm"]
            return perm.index(axis)
        case tile.expand_dims:
            return axis + int(o.attrs["axis"] <= axis)
        case tile.reshape:
            step = math.prod(before[axis + 1 :])
            ends = [math.prod(after[i:]) for i in range(len(after) + 1)]
            return next((i for i in range(len(after)) if ends[i + 1] <= step < ends[i]), None)
    return axis
