"""How long each op holds which unit, in cycles of one multiprocessor: the clock of the predicted timeline,
and what the chooser weighs.  The numbers are the target's (`target.cost`); no result depends on them, only
schedules and timelines.  Decides nothing.
"""

from __future__ import annotations

from math import prod

from warploom.ir.core import Effect, Family, Op, Type
from warploom.ir.ops import arith, tile
from warploom.ir.rules import Rules
from warploom.ir.types import Tile, dtype_of
from warploom.target import CostTable, MatrixUnit, Target

UNITS = ("alu", "sfu", "shared", "tensor", "tma", "sync")


def elementwise(cost: CostTable, o: Op) -> tuple[str, float]:
    """(unit, cycles) of a pure op; no unit is held by ops that cost nothing (shape, registers)."""
    size = max((_size(v.type) for v in (*o.results, *o.operands)), default=0)
    if size == 0:
        return "alu", float(cost.scalar)
    if o.kind is tile.dot:  # in registers; of the others the target tells (Target.mma_cycles)
        return "tensor", prod(tile.dot_sizes(o)) * dtype_of(o.operands[0].type).bits / (
            16 * cost.in_order_macs_16bit
        )
    unit, lanes = _LANES[o.kind]
    return unit, size / getattr(cost, lanes) if lanes else 0.0


def tensor(target: Target, dot: Op, unit: MatrixUnit | None = None) -> float:
    """Cycles for which a dot keeps the tensor cores busy, done by a unit (None: by the preferred one)."""
    batches, m, n, k = tile.dot_sizes(dot)
    return batches * target.mma_cycles(m, n, k, dtype_of(dot.operands[0].type).bits, unit)


def computes_tile(o: Op) -> bool:
    """Does o compute a tile by arithmetic alone?  Then `elementwise` tells what it takes."""
    whole = bool(o.results) and not o.regions and isinstance(o.results[0].type, Tile)
    return whole and o.kind.effect is Effect.NONE


def _size(t: Type) -> int:
    return t.size if isinstance(t, Tile) else 0


_FREE, _ALU, _SFU = ("alu", ""), ("alu", "alu_lanes"), ("sfu", "sfu_lanes")
_LANES: Rules[tuple[str, str]] = Rules(
    "which unit computes its elements, and so many a cycle",
    {
        **dict.fromkeys((Family.POINTWISE, Family.COMBINE, Family.ACCUMULATOR), _ALU),
        **dict.fromkeys((*arith.SPECIAL, *arith.BESSEL, arith.div, arith.div_rn), _SFU),
        arith.cast: ("alu", "convert_lanes"),
        tile.arange: _ALU,
        tile.splat: _FREE,
        Family.MOVE: _FREE,
        **dict.fromkeys((tile.convert_layout, tile.agree), _ALU),
    },
)
