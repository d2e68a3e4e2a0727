"""Which words of global memory one execution of an access touches, in a run (trace.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from warploom.check.global_accesses import box_of, steps_of
from warploom.ir import engines
from warploom.ir.core import Op, Value
from warploom.ir.ops import tile, unaligned
from warploom.sim.memory import ViewValue
from warploom.sim.steps_async import whole_units

Column: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Unknown(Exception):
    """The launch's numbers do not tell it, or it takes too long to find out."""


@dataclass(frozen=True)
class Common:
    """A word that two executors touch: which, in words.  is_certain: both do for certain."""

    word: int
    one: str
    other: str
    is_certain: bool


def words_of(o: Op, values: Sequence[Any]) -> Column:
    """The addresses that an access touches, each once."""
    at = dict(zip(o.operands, values, strict=True))
    if any(at[v] is None for v in place_of(o)):
        raise Unknown(f"the place of {o.kind.name}")
    place = at[o.operands[0]]
    if isinstance(place, ViewValue):
        thick, _, _, offsets = box_of(o)
        if o.kind in engines.STORES_BOXES:
            place = whole_units(place, o.operands[0].type)
        here = [int(at[v]) for v in offsets]
        boxes = [[n + m for n, m in zip(here, further, strict=True)] for further in steps_of(o)]
        words = [_of_box(place, thick, box) for box in boxes]
        return words[0] if len(words) == 1 else np.unique(np.concatenate(words))
    pointers = np.asarray(place)
    mask = [at[v] for v in place_of(o)[1:2]]
    active = pointers[np.broadcast_to(mask[0], pointers.shape)] if mask else pointers
    found = np.unique(active)
    if len(found) and found[-1] >> 61:
        raise Unknown("offsets that 32 bits do not hold")
    return found


def _of_box(view: ViewValue, thick: Sequence[int], offsets: Sequence[int]) -> Column:
    """The words of a box inside the view's extents."""
    words = np.full(1, view.base, np.int64)
    for n, start, extent, stride in zip(thick, offsets, view.extents, view.strides, strict=True):
        inside = np.arange(max(start, 0), min(start + n, extent), dtype=np.int64)
        words = (words[:, None] + inside * stride).reshape(-1)
    return words if (words[1:] > words[:-1]).all() else np.unique(words)


def place_of(o: Op) -> tuple[Value, ...]:
    """The operands that say which words an access touches: pointers and mask, or a view and offsets."""
    first, rest = o.operands[:1], o.operands[2:]
    if o.kind is tile.load:
        return o.operands[:2]
    if o.kind in (tile.load_box, unaligned.load_unaligned):
        return o.operands
    if o.kind in engines.COPIES_BOXES:
        return (*first, *o.operands[4:])
    return first if o.attrs.get("fn") == "cas" else (*first, *rest)
