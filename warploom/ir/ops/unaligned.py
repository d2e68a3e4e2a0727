"""Boxes whose rows begin anywhere inside the aligned units of 16 bytes of memory.

A thread gets 16 bytes that are not aligned by reading the two units around them and shifting.  These ops
say when that happens: what is read an iteration early, and what the L2 is asked for.
"""

from __future__ import annotations

from warploom.ir.core import Effect, Family, Level, Type, op, require
from warploom.ir.types import DType, Scalar, Tile, Units, View, i1

UNIT_BYTES = 16
_PLACED = frozenset({Level.PLACED})


def _check(v: View, offsets: tuple[Type, ...], shape: tuple[int, ...], axis: int) -> None:
    fits = len(offsets) == v.rank >= len(shape)
    require(fits, f"a box of rank {len(shape)} from {v}", "view-rank")
    require(0 <= axis < v.rank, f"{v} has no axis {axis}", "view-axis")


@op(Family.ACCESS, levels=_PLACED, effect=Effect.READ)
def load_unaligned(
    v: View, *offsets: Type, shape: tuple[int, ...], in_flight: int, layout: object = None
) -> Tile:
    """What `load_box` gives, by aligned units.

    in_flight: pairs of units that a thread reads before it shifts the first one.
    """
    _check(v, offsets, shape, 0)
    require(in_flight > 0, f"at least one pair of units is in flight, not {in_flight}", "in-flight")
    return Tile(shape, v.dtype, layout)


@op(Family.PLACE, levels=_PLACED)
def no_units(*, shape: tuple[int, ...], dtype: DType, layout: object = None) -> Units:
    """The state of a loop in which nothing was read early."""
    return Units(Tile(shape, dtype, layout))


@op(Family.ACCESS, levels=_PLACED, effect=Effect.READ)
def load_unaligned_ahead(
    v: View, units: Units, *offsets: Type, axis: int, by: int
) -> tuple[Tile, Units]:
    """`load_unaligned` of the box at offsets, an iteration early: (the box, the units of the next one).

    The next box lies `by` elements further along an axis of the view; its units are read where both boxes
    lie wholly inside the view's extents.  `units` are those of the box at offsets where the op read them in
    the iteration before; otherwise it reads them itself.  The step between the two boxes in memory is a
    multiple of a unit.
    """
    _check(v, offsets, units.tile.shape, axis)
    require(by > 0, f"the next box lies further on, not by {by}", "step")
    require(units.tile.elem == v.dtype, f"{units} of {v}", "load-type")
    return units.tile, units


@op(Family.ACCESS, levels=_PLACED, effect=Effect.READ)
def prefetch_box(
    v: View,
    on: Scalar,
    *offsets: Type,
    shape: tuple[int, ...],
    axis: int,
    by: int,
    layout: object = None,
) -> None:
    """Where `on`, asks the L2 for the box that lies `by` elements further along an axis of the view, if it
    lies wholly inside the view's extents.  A hint: it changes no value.

    Its addresses are those of elements that exist, since PTX does not say what a prefetch of others does:
    where nobody knows the extent along the axis, `on` is that a later iteration reads the box.
    """
    _check(v, offsets, shape, axis)
    require(on == Scalar(i1), f"a prefetch is on or not, got {on}")
