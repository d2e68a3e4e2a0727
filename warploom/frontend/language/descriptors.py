"""What tensor descriptors do beside loading and storing boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warploom.frontend.coerce import Operand, Tensor, calc, current
from warploom.frontend.language.atomics import combined
from warploom.frontend.language.core import Descriptor, builtin
from warploom.frontend.language.memory import (
    descriptor_of,
    load,
    load_tensor_descriptor,
    store,
    store_tensor_descriptor,
)
from warploom.frontend.language.shape import expand_dims, places_along, tile_of
from warploom.ir.types import i64


def _places(d: Descriptor, offsets: Any, at: Any = None) -> tuple[Any, Any]:
    """Pointers to the elements of a box, and which of them are inside.  at: the places along the first axis,
    where they don't follow on each other."""
    emitter = current()
    rank = len(d.block_shape)
    shape = d.block_shape if at is None else (*emitter.shape(at), *d.block_shape[1:])
    pointer: Any = d.base
    inside: Any = True
    for a in range(rank):
        along = places_along(shape, a)
        if at is not None and a == 0:
            along = emitter.expand_to(expand_dims(at, tuple(range(1, rank))), shape)
        first = 0 if a == 0 and at is not None else offsets[a]
        place = calc("+", emitter.cast(along, i64), emitter.cast(first, i64))
        pointer = calc("+", pointer, calc("*", place, d.strides[a]))
        low, high = calc(">=", place, 0), calc("<", place, d.shape[a])
        inside = calc("&", inside, calc("&", low, high))
    return pointer, inside


@builtin
def descriptor_gather(desc: Any, x_offsets: Operand, y_offset: Operand) -> Tensor:
    """desc.gather(rows, column): rows of a descriptor of two axes with blocks of one row, by their indices;
    elements outside the array are zero."""
    d = descriptor_of(desc, (x_offsets, y_offset), "gather")
    pointers, inside = _places(d, (0, y_offset), tile_of(x_offsets, "gather"))
    return load(pointers, inside, 0)


@builtin
def descriptor_scatter(desc: Any, value: Operand, x_offsets: Operand, y_offset: Operand) -> None:
    """desc.scatter(value, rows, column): as gather, but writes; elements outside the array are dropped."""
    d = descriptor_of(desc, (x_offsets, y_offset), "scatter")
    pointers, inside = _places(d, (0, y_offset), tile_of(x_offsets, "scatter"))
    store(pointers, value, inside)


def _descriptor_atomic(fn: str) -> Callable[..., None]:
    def atomic(desc: Any, offsets: Any, value: Operand) -> None:
        pointers, inside = _places(descriptor_of(desc, offsets, f"atomic_{fn}"), offsets)
        combined(fn, pointers, value, inside, None, "relaxed", None, False)

    atomic.__doc__ = (
        f"desc.atomic_{fn}(offsets, value): a box combined into memory; it orders nothing."
    )
    return builtin(atomic)


DESCRIPTOR_METHODS: dict[str, Callable[..., Any]] = {
    "load": load_tensor_descriptor,
    "store": store_tensor_descriptor,
    "gather": descriptor_gather,
    "scatter": descriptor_scatter,
    **{f"atomic_{fn}": _descriptor_atomic(fn) for fn in ("add", "min", "max", "and", "or", "xor")},
}
