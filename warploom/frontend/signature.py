"""Kernel arguments as the frontend sees them."""

from __future__ import annotations

from dataclasses import dataclass

from warploom.ir.core import Type
from warploom.ir.types import DType, Pointer, Scalar, i64


@dataclass(frozen=True)
class DescriptorType(Type):
    """A host TensorDescriptor argument: boxes of `block_shape` of an array, `padding` "zero" or "nan".

    It becomes 1 + 2·rank parameters of the function: the base pointer, then extents and strides in
    elements (i64).  The last stride is 1; the host checks it.
    """

    block_shape: tuple[int, ...]
    dtype: DType
    padding: str = "zero"

    @property
    def rank(self) -> int:
        return len(self.block_shape)

    def __str__(self) -> str:
        dims = ", ".join(map(str, self.block_shape))
        return f"tensordesc<{self.dtype}[{dims}]>"


def expand(name: str, t: Type) -> tuple[tuple[str, Type], ...]:
    """The function parameters (name, type) that one kernel argument becomes, in order."""
    if not isinstance(t, DescriptorType):
        return ((name, t),)
    axes = range(t.rank)
    return (
        (name, Pointer(t.dtype)),
        *((f"{name}_shape{i}", Scalar(i64)) for i in axes),
        *((f"{name}_stride{i}", Scalar(i64)) for i in axes),
    )
