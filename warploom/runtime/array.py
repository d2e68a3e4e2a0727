"""Arrays as launches see them: a dtype, an address, extents; and objects that know little more."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from warploom.errors import LaunchError
from warploom.runtime.dtypes import DTYPE_NAMES, ITEM_BYTES

CPU = -1


class Bytes(NamedTuple):
    """Where an array lies: its first byte, and the byte after its last.  rows: how its bytes lie in rows that
    repeat (bytes from row to row, and of a row, from the first byte on), in as many ways as are known."""

    first: int
    stop: int
    rows: tuple[tuple[int, int], ...] = ()

    def meets(self, other: Bytes) -> bool:
        """May an array share bytes with another?  Columns of a matrix don't, though their rows take turns."""
        return self.first < other.stop and other.first < self.stop and not self._lies_beside(other)

    def _lies_beside(self, other: Bytes) -> bool:
        return any(
            length <= (ahead := (other.first - self.first) % (pitch := math.gcd(step, other_step)))
            and ahead + other_length <= pitch
            for step, length in self.rows
            for other_step, other_length in other.rows
        )


@dataclass(frozen=True)
class Array:
    """An array argument.  Strides in elements; `device` is an ordinal, or CPU.  bounded: nothing is reached
    through it but its elements, as through a descriptor; through a pointer what lies between may be."""

    dtype: str
    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int
    bounded: bool = False

    def bytes_range(self) -> tuple[int, int]:
        """First byte and the byte after the last; equal where the array is empty."""
        low, high = span(ITEM_BYTES[self.dtype], self.shape, self.strides)
        return self.pointer + low, self.pointer + high

    def bytes(self) -> Bytes:
        """The same, with its rows where nothing between them is reached."""
        rows = rows_of(ITEM_BYTES[self.dtype], self.shape, self.strides) if self.bounded else ()
        return Bytes(*self.bytes_range(), rows)


@functools.lru_cache(4096)
def span(item: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The bytes that an array with elements of `item` bytes takes, from its address on; (0, 0) where
    it is empty."""
    if 0 in shape:
        return 0, 0
    reach = [s * (n - 1) for n, s in zip(shape, strides, strict=True)]
    return item * sum(r for r in reach if r < 0), item * (sum(r for r in reach if r > 0) + 1)


@functools.lru_cache(4096)
def rows_of(
    item: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """`Bytes.rows` of an array: the axes of the least strides make a row, those of the others repeat it."""
    axes = sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1 and s)
    found = []
    for inner in range(len(axes)):
        pitch = math.gcd(*(s for s, _ in axes[inner:]))
        row = 1 + sum(s * (n - 1) for s, n in axes[:inner])
        if row < pitch:
            found.append((item * pitch, item * row))
    return tuple(found)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array without gaps."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return tuple(reversed(strides)) if shape else ()


def probe_pointer(a: Any) -> Any:
    """Of what says where its elements lie, and as much more of a tensor as it knows.  Without a shape: all
    from there to the end of the allocation.  Elements of fewer than 8 bits are the bytes that hold them."""
    pointer, device = a.data_ptr(), _device_at(a)
    shape = getattr(a, "shape", None)
    if shape is None:
        name = DTYPE_NAMES.get(str(a.dtype).removeprefix("torch."), "i8")
        shape = (_bytes_behind(a, pointer, device) // ITEM_BYTES[name],)
    if (bits := getattr(a.dtype, "bits", 8)) < 8:
        return "uint8", pointer, (-(-math.prod(shape) * bits // 8),), (1,), device, False
    shape, stride = tuple(map(int, shape)), getattr(a, "stride", None)
    strides = tuple(stride()) if callable(stride) else row_major(shape)
    return a.dtype, pointer, shape, strides, device, False


def _device_at(a: Any) -> int:
    """Where an object's pointer leads: what it says itself, else what the driver knows."""
    from warploom.runtime.launch import driver

    device = getattr(a, "device", None)
    if getattr(device, "type", device) == "cpu":
        return CPU
    try:
        return driver().device_of(a.data_ptr())
    except LaunchError:  # no GPU, or memory that is none of its own
        return CPU


def _bytes_behind(a: Any, pointer: int, device: int) -> int:
    """From an object's address to the end of the memory that was allocated there: of its own where it holds
    it, as looking through all objects takes half a second."""
    if device != CPU:
        from warploom.runtime.launch import driver

        return driver().end_of(pointer) - pointer
    from warploom.sim.addresses import Held, arrays_alive, arrays_of

    def behind(known: Iterable[Held]) -> int | None:
        return next((h.end - pointer for h in known if h.begin <= pointer < h.end), None)

    found = behind(arrays_of(a)) or behind(arrays_alive())
    if found is None:
        raise LaunchError(
            "array-memory",
            f"an argument has no shape, and no array is known at its address {pointer:#x}",
            help="give it a shape, or pass the array that it points into",
        )
    return found


def view_of(array: Array) -> Any:
    """An array of the host as NumPy's, in the same memory."""
    import ctypes

    import numpy as np

    from warploom.ir.types import ARGUMENT_DTYPES

    low, high = array.bytes_range()
    memory = (ctypes.c_uint8 * (high - low)).from_address(low)
    dtype = ARGUMENT_DTYPES[array.dtype].numpy
    flat = np.ctypeslib.as_array(memory)[array.pointer - low :].view(dtype)
    strides = [s * dtype.itemsize for s in array.strides]
    return np.lib.stride_tricks.as_strided(flat, array.shape, strides)
