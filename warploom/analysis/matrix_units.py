"""Which of a target's matrix units a dot is for.  Decides nothing."""

from __future__ import annotations

from math import prod

from warploom.errors import InternalError
from warploom.ir.core import Op
from warploom.ir.ops import tile
from warploom.ir.types import dtype_of, shape_of
from warploom.layout import warp_grid
from warploom.target import MatrixUnit, Target


def preferred(dot: Op, target: Target, warps: int | None = None) -> MatrixUnit:
    """The preferred unit for a dot's operands, whatever its size; of those that so many warps execute, where
    there is one."""
    units = units_for(dot, target)
    if warps is None:
        return units[0]
    return next((u for u in units if u.is_shared_by(warps * target.warp_size)), units[0])


def units_for(dot: Op, target: Target) -> tuple[MatrixUnit, ...]:
    """The units for a dot's operands, the preferred one first; where there is none, the first of all."""
    a, b, total, *scales = (dtype_of(v.type).name for v in dot.operands)
    scale, ieee = (*scales, "")[0], dot.attrs.get("ieee", False)
    units = [u for u in target.matrix_units if u.product(a, b, total, scale, ieee)]
    return tuple(u for u in units if takes_batches(u, dot)) or target.matrix_units[:1]


def takes_batches(unit: MatrixUnit, dot: Op) -> bool:
    """Does a unit multiply as many matrices as the dot does?  Of several, one that completes in order: they
    are several accumulators."""
    return len(shape_of(dot.result.type)) == 2 or not unit.is_async


def doing(dot: Op, target: Target, warps: int) -> MatrixUnit:
    """The unit that does a dot, as it was cut, by so many warps."""
    unit = unit_of(dot, target, warps)
    if unit is None:
        raise InternalError(f"no matrix unit of {target.name} does {dot.id} by {warps} warps")
    return unit


def unit_of(
    dot: Op, target: Target, warps: int, parts: tuple[int, int] = (1, 1)
) -> MatrixUnit | None:
    """The first unit that takes a dot, or one of the `parts` into which its rows and columns are cut, done by
    so many warps; None where none does.  One that is not cut may fill instructions in part."""
    (_, m, n, _), threads = tile.dot_sizes(dot), warps * target.warp_size
    units = (u for u in units_for(dot, target) if takes_batches(u, dot))
    whole = parts == (1, 1)
    return next((u for u in units if u.takes(m // parts[0], n // parts[1], threads, whole)), None)


def operand_registers(
    dot: Op,
    axis: int,
    parts: tuple[int, int],
    threads: int,
    target: Target,
    chained: bool,
    multiplied: bool = False,
) -> int:
    """Registers a thread of a dot's left (axis 0) or right operand, where warps hold what they multiply.

    parts: into which its rows and columns are cut, each done by so many threads.  chained: do other dots
    multiply its result, so that warps have whole rows?  multiplied: as `warp_grid`."""
    *batch, m, n = shape_of(dot.result.type)
    shape = (*batch, m // parts[0], n // parts[1])
    *shared, rows, columns = warp_grid(shape, threads // target.warp_size, chained, multiplied)
    bits = prod(shape_of(dot.operands[axis].type)) * dtype_of(dot.operands[axis].type).bits
    warps = prod(shared) * (rows, columns)[axis]
    return bits // (parts[axis] * warps * 32 * target.warp_size)
