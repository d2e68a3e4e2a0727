"""Where a tile's elements live in a slot of shared memory.

The inner axis (adjacent in memory) is cut into *panels* of `swizzle` bytes, one after the other; a panel
holds, for every other coordinate (row-major over the remaining axes), a *row* of that many bytes.  Inside a
row, 16-byte units are permuted: bits 4.. of the address are exclusive-ored with as many bits from bit 7
up.  That is what TMA's swizzle modes do and what wgmma's descriptors expect (PTX ISA, "Swizzling modes" of
tensors; wgmma, "Canonical layouts": Swizzle<1|2|3, 4, 3>).  The hardware permutes by *absolute* shared
addresses: slots are aligned to 1024 bytes, so that offsets in a slot permute alike.

With swizzle 0 there is one panel, whose rows are the whole inner axis, unpermuted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

UNIT_BYTES = 16  # what swizzling moves
SLOT_ALIGN_BYTES = 1024  # of swizzled slots: 8 rows of 128 bytes, the period of the widest pattern
PLAIN_ALIGN_BYTES = 128  # of others: PTX ISA, cp.async.bulk.tensor, address in shared memory


@dataclass(frozen=True)
class Geometry:
    """A slot: `shape` in elements of `itemsize` bytes, `inner` axis, `swizzle` 0, 32, 64 or 128 bytes.
    shift: which bits of an address choose the exchange of its units; the hardware knows 7 alone.

    For `ir.types.Shared` s: Geometry(s.box, s.dtype.bytes, s.inner, s.swizzle).
    """

    shape: tuple[int, ...]
    itemsize: int
    inner: int
    swizzle: int
    shift: int = 7

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of a panel."""
        return self.swizzle or self.shape[self.inner] * self.itemsize

    @property
    def row_elements(self) -> int:
        """Elements of the inner axis in one panel."""
        return self.row_bytes // self.itemsize

    @property
    def rows(self) -> int:
        """Rows of a panel."""
        return math.prod(n for a, n in enumerate(self.shape) if a != self.inner)

    @property
    def panel_bytes(self) -> int:
        """From one panel to the next."""
        return self.rows * self.row_bytes

    @property
    def bytes(self) -> int:
        """Bytes of the slot."""
        return math.prod(self.shape) * self.itemsize

    @property
    def unit_mask(self) -> int:
        """Which bits of an address, shifted right by `shift`, are exclusive-ored into its bits from 4 up."""
        return self.swizzle // UNIT_BYTES - 1 if self.swizzle else 0

    @property
    def row_strides(self) -> tuple[int, ...]:
        """For each axis the rows from one coordinate to the next; 0 for the inner axis."""
        strides, step = [0] * len(self.shape), 1
        for axis in reversed(range(len(self.shape))):
            if axis != self.inner:
                strides[axis] = step
                step *= self.shape[axis]
        return tuple(strides)

    def copy_box(self, limit: int) -> tuple[int, ...]:
        """The part of a slot that one TMA instruction moves: one panel (its rows are `swizzle` bytes) or
        less, at most `limit` elements an axis (PTX ISA, "Bounding box"), and contiguous in the slot."""
        box = [1] * len(self.shape)
        box[self.inner] = _divisor(self.shape[self.inner], min(self.row_elements, limit))
        split = box[self.inner] != self.row_elements  # then only one row is contiguous
        for axis in reversed(range(len(self.shape))):
            if axis == self.inner or split:
                continue
            box[axis] = _divisor(self.shape[axis], limit)
            split = box[axis] != self.shape[axis]
        return tuple(box)

    def permute(self, offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The byte offset (from a 1024-aligned slot) where the byte of unpermuted offset `offset` lies.  Its
        own inverse."""
        return offset ^ (((offset >> self.shift) & self.unit_mask) << 4)


def swizzle_for(row_bytes: int, rows: int, *parts: int) -> int:
    """The widest swizzle that cuts rows of so many bytes, and parts of them that are read apart, into
    whole panels that begin where its pattern does (`aligned_panels`); 0 where none does."""
    sizes = (row_bytes, *parts)
    return next((s for s in (128, 64, 32) if all(aligned_panels(n, rows, s) for n in sizes)), 0)


def aligned_panels(row_bytes: int, rows: int, swizzle: int) -> bool:
    """Are rows made of whole panels, each of which begins where the pattern does, after a multiple of 8 rows?
    An engine that permutes by absolute addresses is told where a panel begins: unpermuted, a multiple of 128
    (PTX ISA, cp.async.bulk.tensor, "shared memory address")."""
    return row_bytes % swizzle == 0 and (row_bytes == swizzle or rows % 8 == 0)


def _divisor(n: int, limit: int) -> int:
    """The largest divisor of n up to limit (of those that are multiples of 8, if there are)."""
    candidates = [d for d in range(1, min(n, limit) + 1) if n % d == 0]
    return max(candidates, key=lambda d: (d % 8 == 0, d))


def byte_offset(
    geometry: Geometry, coords: Sequence[int | npt.NDArray[np.int64]]
) -> npt.NDArray[np.int64]:
    """Byte offsets in the slot of the elements at `coords` (one integer or array an axis, broadcasting)."""
    return geometry.permute(linear_offset(geometry, coords))


def linear_offset(
    geometry: Geometry, coords: Sequence[int | npt.NDArray[np.int64]]
) -> npt.NDArray[np.int64]:
    """The same before units are exchanged: a sum of what follows from each coordinate."""
    row: npt.NDArray[np.int64] | int = 0
    for c, stride in zip(coords, geometry.row_strides, strict=True):
        row = row + np.asarray(c, np.int64) * stride
    at = np.asarray(coords[geometry.inner], np.int64) * geometry.itemsize
    panel, column = at // geometry.row_bytes, at % geometry.row_bytes
    return np.asarray(panel * geometry.panel_bytes + row * geometry.row_bytes + column, np.int64)
