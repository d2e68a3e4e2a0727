"""Names that triton.language had before Triton 3.3."""

from __future__ import annotations

from typing import Any

from warploom.frontend.coerce import Operand, Tensor, current
from warploom.frontend.language.core import builtin
from warploom.frontend.language.math import to
from warploom.frontend.language.memory import (
    descriptor_of,
    load_tensor_descriptor,
    store_tensor_descriptor,
)


@builtin
def _experimental_descriptor_load(
    desc: Any, offsets: Any, shape: Any = None, dtype: Any = None
) -> Tensor:
    """load_tensor_descriptor; the shape is the descriptor's, dtype says how its bits are read."""
    box = load_tensor_descriptor(desc, offsets)
    return box if dtype is None else to(box, dtype, bitcast=True)


@builtin
def _experimental_descriptor_store(desc: Any, value: Operand, offsets: Any) -> None:
    """store_tensor_descriptor of the value's bits: a descriptor made of an address doesn't know its dtype."""
    stored = descriptor_of(desc, offsets, "_experimental_descriptor_store").dtype
    as_wide = current().number(value).bits == stored.bits
    store_tensor_descriptor(desc, offsets, to(value, stored, bitcast=as_wide))
