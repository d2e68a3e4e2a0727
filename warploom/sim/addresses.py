"""Pointers as numbers.

A pointer is one int64: the buffer's number above, the element's offset (biased, so that it may go
negative on the way) below.  Tiles of pointers are therefore int64 arrays, and every shape op and
`select` works on them as on numbers.  A pointer that was made of an address (of an array whose place the
kernel read from memory) is that address over the element's size, with a bit of its own.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

BITS = 44  # of an offset: 8 Ti elements either way
BIAS = 1 << (BITS - 1)
MASK = (1 << BITS) - 1
BEYOND = (
    1 << 62
)  # marks a pointer whose offset was computed in 32 bits that don't hold it (offsets.py)
# A pointer made of a number that was read from memory: an address of the host over the element's size.
FOREIGN = 1 << 61
_OF_ARGUMENTS = 1 << 48  # what a buffer's pointers are as addresses, from its number on


def pointer_at(address: Any, size: int) -> Any:
    """Addresses (i64) as pointers to elements of `size` bytes."""
    address = address & ((1 << 60) - 1)
    odd = np.where(np.asarray(address) % size != 0, BEYOND, 0)
    return (FOREIGN + address // size | odd)[()]


def of_argument(address: int) -> tuple[int, int] | None:
    """The buffer that an address from `address_of` is in, and the byte there; None of others."""
    number, byte = divmod(address, _OF_ARGUMENTS)
    return (number, byte - _OF_ARGUMENTS // 2) if number else None


def address_of(pointer: Any, size: int) -> Any:
    """Pointers as addresses: of what was an address that one, of arguments some that differ."""
    own = pointer // (1 << BITS)
    at = (own * _OF_ARGUMENTS) + _OF_ARGUMENTS // 2 + ((pointer & MASK) - BIAS) * size
    foreign = (np.asarray(pointer) & FOREIGN) != 0
    return np.where(foreign, (pointer & (FOREIGN - 1)) * size, at)[()]


@dataclass(frozen=True)
class Held:
    """The memory of an array of this process, from its first byte to after its last.  owner keeps it."""

    begin: int
    end: int
    writable: bool
    owner: Any

    def as_array(self, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]]:
        count = (self.end - self.begin) // dtype.itemsize
        words = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(self.begin)
        data = np.ctypeslib.as_array(words).view(dtype)
        data.flags.writeable = self.writable
        return data


def arrays_alive() -> list[Held]:
    """The memory of all arrays and CPU tensors that somebody holds, the largest first: a kernel that reads an
    address must not leave the array that it is of."""
    tracked = gc.get_objects()
    local: list[Any] = []
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        local += frame.f_locals.values()
    return _held(chain(tracked, gc.get_referents(*tracked, *local), local))


def arrays_of(x: Any) -> list[Held]:
    """The memory of the arrays that an object has as attributes, and of those that they are parts of."""
    near = gc.get_referents(x)
    objects = [x, *near, *gc.get_referents(*near)]
    for each in objects:  # which grows on the way
        if issubclass(type(each), np.ndarray) and each.base is not None:
            objects.append(each.base)
    return _held(objects)


def _held(objects: Iterable[Any]) -> list[Held]:
    """The memory of the arrays and CPU tensors among objects, the largest first."""
    torch = sys.modules.get("torch")
    found: dict[tuple[int, int], Held] = {}
    for x in objects:
        held = None
        if issubclass(type(x), np.ndarray) and x.size:
            held = Held(*np.lib.array_utils.byte_bounds(x), bool(x.flags.writeable), x)
        elif torch is not None and type(x) in (torch.Tensor, torch.nn.Parameter):
            storage = x.untyped_storage()
            begin = storage.data_ptr() if x.device.type == "cpu" else 0
            held = Held(begin, begin + storage.nbytes(), True, storage) if begin else None
        if held is not None:
            found.setdefault((held.begin, held.end), held)
    return sorted(found.values(), key=lambda h: h.begin - h.end)
