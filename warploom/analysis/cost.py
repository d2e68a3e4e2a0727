"""How long each op holds which unit, in cycles of one multiprocessor: the clock of the predicted timeline,
and what the chooser weighs.  The numbers are the target's (`target.cost`); no result depends on them, only
schedules and timelines.  Decides nothing.
"""

from __future__ import annotations

from warploom.ir.core import Effect, Op, Type
from warploom.ir.ops import arith, tile
from warploom.ir.types import Tile
from warploom.target import CostTable

UNITS = ("alu", "sfu", "shared", "tensor", "tma", "sync")


def elementwise(cost: CostTable, o: Op) -> tuple[str, float]:
    """(unit, cycles) of a pure op; no unit is held by ops that cost nothing (shape, registers)."""
    size = max((_size(v.type) for v in (*o.results, *o.operands)), default=0)
    if size == 0:
        return "alu", float(cost.scalar)
    if o.kind in _FREE:
        return "alu", 0.0
    if o.kind in _SFU:
        return "sfu", size / cost.sfu_lanes
    lanes = cost.convert_lanes if o.kind is arith.cast else cost.alu_lanes
    return "alu", size / lanes


def computes_tile(o: Op) -> bool:
    """Does o compute a tile by arithmetic alone?  Then `elementwise` tells what it takes."""
    whole = bool(o.results) and not o.regions and isinstance(o.results[0].type, Tile)
    return whole and o.kind.effect is Effect.NONE


def _size(t: Type) -> int:
    return t.size if isinstance(t, Tile) else 0


_SFU = arith.SPECIAL | {arith.div, arith.div_rn}
_FREE = frozenset(
    (tile.splat, tile.expand_dims, tile.broadcast, tile.transpose, tile.reshape, tile.slice_tile)
) | {tile.concat}
