"""What is known of the accesses that threads make to a box of a view: its inner axis, alignment, vectors and
ends.  Decides nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from warploom.analysis.access import inner_axis
from warploom.analysis.facts import Facts
from warploom.ir.core import Op, Value
from warploom.ir.ops import tile
from warploom.ir.ops.unaligned import UNIT_BYTES
from warploom.ir.types import DType
from warploom.layout import Layout


@dataclass(frozen=True)
class BoxAccess:
    """A box of a view (its make_view) at offsets, one for each axis of the view.  shape: of the box, along
    the view's last axes; on the others it is one element thick."""

    facts: Facts
    view: Op
    offsets: Sequence[Value]
    elem: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.offsets)

    def extent(self, axis: int) -> Value:
        return self.view.operands[1 + axis]

    def stride(self, axis: int) -> Value:
        return self.view.operands[1 + self.rank + axis]

    def divisible(self, which: int) -> int:
        """Of base (0, in bytes) and strides (1 + axis, in elements)."""
        known = self.view.attrs.get("divisible") or ()
        return int(known[which]) if which < len(known) else 1

    @property
    def inner(self) -> int | None:
        """The axis whose elements are adjacent."""
        return inner_axis(self.facts, self.view, self.rank)

    def _apart(self, axis: int) -> int:
        """Elements that divide what an axis adds to an address: where the box is one element thick, all of
        it is the offset's."""
        lead = self.rank - len(self.shape)
        is_thin = axis < lead or self.shape[axis - lead] == 1
        return self.divisible(1 + axis) * (self.facts.divisor(self.offsets[axis]) if is_thin else 1)

    def row_alignment(self, axis: int) -> int:
        """Bytes that divide the address of a row along an axis."""
        others = [self._apart(a) * self.elem.bytes for a in range(self.rank) if a != axis]
        return math.gcd(self.divisible(0), *others)

    def alignment(self, axis: int) -> int:
        """Bytes that divide the address of a row's element at a coordinate that is a multiple of them."""
        start = self.facts.divisor(self.offsets[axis]) * self.elem.bytes
        return math.gcd(self.row_alignment(axis), start)

    def _run(self, inner: int, layout: Layout) -> int:
        """Adjacent elements that a thread holds."""
        return layout.contiguous(inner - self.rank + len(layout.shape))

    def vector(self, layout: Layout) -> int:
        """Elements an access moves."""
        inner = self.inner
        if inner is None:
            return 1
        widest = max(1, math.gcd(self.alignment(inner), UNIT_BYTES) // self.elem.bytes)
        return max(1, math.gcd(self._run(inner, layout), widest))

    def is_unaligned(self, layout: Layout) -> bool:
        """Do threads hold adjacent elements of 16 bytes that may begin anywhere in the aligned units?"""
        inner = self.inner
        if inner is None or self.elem.bytes > 4:
            return False
        whole = self._run(inner, layout) * self.elem.bytes % UNIT_BYTES == 0
        return whole and self.vector(layout) * self.elem.bytes < UNIT_BYTES

    def inner_of_vectors(self, n: int) -> int | None:
        """The axis along which an access of n elements may reach over the extent's end."""
        inner = self.inner if n > 1 else None
        if inner is None:
            return None
        aligned = self.facts.divisor(self.offsets[inner])
        if not self.endless(inner):
            aligned = math.gcd(aligned, self.facts.divisor(self.extent(inner)))
        return inner if aligned % n else None

    def starts_inside(self, axis: int) -> bool:
        """Is no coordinate negative?"""
        return self.facts.never_negative(self.offsets[axis])

    def endless(self, axis: int) -> bool:
        """Does no coordinate reach the extent?"""
        return (self.facts.constant(self.extent(axis)) or 0) >= tile.UNBOUNDED
