"""Tiles: shape ops (other names of registers), arange, reductions, layout conversions."""

from __future__ import annotations

import numpy as np

from warploom.codegen.context import Emitter, Lowering, displaced
from warploom.codegen.registers import Array, Element, Regs, pack, per_word, read
from warploom.errors import InternalError
from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import tile
from warploom.ir.types import Tile
from warploom.layout import Layout

__all__ = ["LOWER"]


def _slice(e: Emitter, o: Op) -> None:
    (x,) = o.operands
    layout: Layout = x.type.layout  # type: ignore[attr-defined]
    cut = layout.slice(o.attrs["offset"], o.attrs["shape"])
    if cut is None:
        raise InternalError(f"codegen: {o.attrs} of {x.type} does not select whole registers")
    part, registers = cut
    _rename(e, o.result, e.regs(x).pick(registers), part)


def _rename(e: Emitter, result: Value, r: Regs, layout: Layout) -> None:
    """`r`, laid out as `layout`, under the layout of the result's type."""
    t = result.type
    assert isinstance(t, Tile)
    order = layout.permutation(t.layout) if layout != t.layout else range(len(r.elements))
    if order is None:
        raise InternalError(f"codegen: a conversion from {layout} to {t.layout} is missing")
    e.env[result] = r.pick(tuple(order))


LOWER: dict[OpKind, Lowering] = {
    tile.slice_tile: _slice,
}
_ = (np, displaced, Array, Element, pack, per_word, read)
