"""triton.tools.ragged_tma: boxes of some rows of an array, in which batches of rows follow on each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from warploom.frontend.coerce import Operand, Tensor, calc, current, static_int
from warploom.frontend.language.core import Descriptor, builtin
from warploom.frontend.language.descriptors import DESCRIPTOR_METHODS
from warploom.frontend.language.memory import descriptor_of
from warploom.frontend.language.shape import axis_of
from warploom.ir.ops import tile
from warploom.ir.types import i64
from warploom.runtime.args import TensorDescriptor

__all__ = ["atomic_add_ragged", "create_ragged_descriptor", "load_ragged", "store_ragged"]


def create_ragged_descriptor(
    T: Any, block_shape: Sequence[int], ragged_dim: int = 0
) -> TensorDescriptor:
    """A descriptor of the whole array, for the functions below, which say what the rows of a batch are.

    rows = create_ragged_descriptor(x, [64, 32])
    """
    return TensorDescriptor.from_tensor(T, block_shape)


@builtin
def load_ragged(
    TMA: Any, batch_offset: Operand, batch_size: Operand, coords: Any, ragged_dim: int = 0
) -> Tensor:
    """The box at `coords` of the `batch_size` rows from `batch_offset` on; rows after them are zero."""
    return DESCRIPTOR_METHODS["load"](*_batch(TMA, batch_offset, batch_size, coords, ragged_dim))


@builtin
def store_ragged(
    TMA: Any,
    batch_offset: Operand,
    batch_size: Operand,
    coords: Any,
    data: Operand,
    ragged_dim: int = 0,
) -> None:
    """Writes a box there; what would be written to rows after the batch's is dropped."""
    batch = _batch(TMA, batch_offset, batch_size, coords, ragged_dim)
    DESCRIPTOR_METHODS["store"](*batch, data)


@builtin
def atomic_add_ragged(
    TMA: Any,
    batch_offset: Operand,
    batch_size: Operand,
    coords: Any,
    data: Operand,
    ragged_dim: int = 0,
) -> None:
    """Adds a box to memory there, as store_ragged writes one."""
    batch = _batch(TMA, batch_offset, batch_size, coords, ragged_dim)
    DESCRIPTOR_METHODS["atomic_add"](*batch, data)


def _batch(
    given: Any, offset: Operand, size: Operand, coords: Any, dim: Any
) -> tuple[Descriptor, tuple[Any, ...]]:
    """A descriptor that ends with the batch, and where the box is in it."""
    emitter, d = current(), descriptor_of(given, coords, "a function of ragged_tma")
    a = axis_of(static_int(dim, "ragged_dim"), len(d.block_shape))
    end = emitter.cast(calc("+", offset, size), i64)
    shape = (*d.shape[:a], end, *d.shape[a + 1 :])
    sizes = (emitter.cast(x, i64) for x in (*shape, *d.strides))
    view = emitter.emit(tile.make_view, d.base, *sizes)
    at = (*coords[:a], calc("+", offset, coords[a]), *coords[a + 1 :])
    return replace(d, view=view, shape=shape), at
