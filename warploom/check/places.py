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
from warploom.sim.global_order import SEVERAL
from warploom.sim.memory import MapCell, ViewValue
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
    if isinstance(place, MapCell):
        place = place.view
    if isinstance(place, ViewValue):
        thick, _, _, offsets = box_of(o)
        if o.kind in engines.STORES_BOXES:
            place = whole_units(place, o.operands[0].type)
        here = [int(at[v]) for v in offsets]
        boxes = [[n + m for n, m in zip(here, further, strict=True)] for further in steps_of(o)]
        return np.unique(np.concatenate([place.elements(box, thick)[0] for box in boxes]))
    pointers = np.asarray(place)
    mask = [at[v] for v in place_of(o)[1:2]]
    active = pointers[np.broadcast_to(mask[0], pointers.shape)] if mask else pointers
    found = np.unique(active)
    if len(found) and found[-1] >> 61:
        raise Unknown("offsets that 32 bits do not hold")
    return found


def threads_of(o: Op, values: Sequence[Any], words: Column, threads: Column | None) -> Column:
    """The thread of its group that touches each of the words of an access; SEVERAL where it is not one.
    threads: those of the elements of its tile."""
    found = np.full(len(words), SEVERAL)
    if threads is None:
        return found
    if isinstance(values[0], ViewValue):
        thick = box_of(o)[0]
        at, places = values[0].elements([int(x) for x in values[-len(thick) :]], thick)
    else:
        pointers = np.asarray(values[0])
        mask = values[1 if o.kind is tile.load else 2 :][:1]
        on = np.broadcast_to(mask[0] if mask else True, pointers.shape)
        at, places = pointers[on], np.flatnonzero(on)
    where = np.searchsorted(words, at)
    found[where] = threads[places]
    found[where[found[where] != threads[places]]] = SEVERAL
    return found


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
