"""What an agent does for loads of unaligned boxes that are read early, and for prefetches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from warploom.ir.core import Op
from warploom.ir.ops import unaligned
from warploom.ir.types import Tile
from warploom.sim.agent import Agent
from warploom.sim.memory import ViewValue
from warploom.sim.outline import step
from warploom.sim.steps import skips


@step(unaligned.no_units)
def _no_units(a: Agent, o: Op) -> None:
    """Nothing was read."""


@step(unaligned.load_unaligned_ahead)
def _load_unaligned_ahead(
    a: Agent, o: Op, view: ViewValue, units: Any, *offsets: Any
) -> tuple[Any, Any]:
    """Units are the box in them; None where they were not read."""
    if skips(a, o):
        return None, None
    kind, axis, by = o.results[0].typed(Tile), o.attrs["axis"], o.attrs["by"]
    if by * view.strides[axis] * kind.dtype.bytes % unaligned.UNIT_BYTES:
        raise a.error(
            "units",
            "the next box begins elsewhere in its units",
            o,
            help="only boxes that move by whole units from one iteration to the next can keep them",
        )
    at, memory = a.numbers(offsets), a.cta.memory
    further = _further(at, axis, by)
    here = memory.load_box(kind.dtype, view, at, kind.shape, o.loc) if units is None else units
    if not all(_is_inside(view, n, kind.shape) for n in (at, further)):
        return here, None
    return here, memory.load_box(kind.dtype, view, further, kind.shape, o.loc)


@step(unaligned.prefetch_box)
def _prefetch_box(a: Agent, o: Op, view: ViewValue, on: Any, *offsets: Any) -> None:
    """Nothing is read, but what is asked for exists."""
    if a.cta.is_skeleton or not a.number(on):
        return
    shape = o.attrs["shape"]
    further = _further(a.numbers(offsets), o.attrs["axis"], o.attrs["by"])
    if _is_inside(view, further, shape):
        a.cta.memory.box("prefetch", view, further, _thick(view, shape), o.loc)


def _further(offsets: Sequence[int], axis: int, by: int) -> list[int]:
    """Offsets of the box `by` elements further along an axis."""
    return [n + by * (i == axis) for i, n in enumerate(offsets)]


def _thick(view: ViewValue, shape: Sequence[int]) -> tuple[int, ...]:
    """A box's size along each axis of its view."""
    return (*(1,) * (len(view.extents) - len(shape)), *shape)


def _is_inside(view: ViewValue, offsets: Sequence[int], shape: Sequence[int]) -> bool:
    """Does the whole box lie inside the view's extents?"""
    sizes = zip(offsets, _thick(view, shape), view.extents, strict=True)
    return all(n >= 0 and n + size <= extent for n, size, extent in sizes)
