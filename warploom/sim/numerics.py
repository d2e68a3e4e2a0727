"""How the oracle and the simulator hold numbers and compute with them: their *numerics*.

Integers, pointers and truth values are the same in all of them.  Floats are NumPy's here (`FLOATS`, the
default); sim/tensor_core.py adds as the tensor core does, bit for bit, and sim/algebra.py computes in a
finite field.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from warploom.ir.core import Op
from warploom.ir.types import DType
from warploom.sim.evaluate import Fn, added, fused, multiply, prepared
from warploom.sim.shared import SharedMemory

_COMBINED: dict[str, Any] = {
    "add": np.add,
    "min": np.minimum,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, new: new,
}


class Numerics:
    """Floats as NumPy has them: dots in float32, in the order that BLAS likes."""

    def holds(self, dtype: DType) -> np.dtype[Any]:
        """The dtype of the arrays that hold elements of an element type."""
        return dtype.numpy

    def number(self, value: Any, dtype: DType) -> Any:
        """A number that the program or its caller gives, as a scalar of `holds(dtype)`."""
        return np.asarray(value).astype(dtype.numpy)[()]

    def meaning(self, o: Op) -> Fn:
        """A pure op as a function of its operands; to be called under errstate(all="ignore")."""
        return prepared(o)

    def multiply(self, a: Any, b: Any, start: Any = None) -> Any:
        """start + a @ b (no start: a @ b), in the accumulator's dtype; see evaluate.multiply."""
        product = multiply(a, b)
        return product if start is None else added(product, start)

    def fused(self, a: Any, b: Any, start: Any) -> Any:
        """start + a @ b of float32 with all bits, as the threads' own multiply-adds have it."""
        return fused(a, b, start)

    def combined(self, fn: str, old: Any, new: Any) -> Any:
        """What an atomic or a reduction in global memory leaves there."""
        return _COMBINED[fn](old, new)

    def garbage(self, dtype: DType) -> Any:
        """What stands in an accumulator that nothing wrote."""
        return dtype.numpy.type(np.nan if dtype.is_float else 0x55555555)

    def shared(self, size: int) -> SharedMemory:
        """Shared memory of so many bytes."""
        return SharedMemory(size)


FLOATS = Numerics()
