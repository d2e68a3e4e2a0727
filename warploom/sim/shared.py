"""Shared memory as bytes, and the two ways that hardware addresses it.

Written from the PTX ISA's text alone (5.5 "Tensors", "Swizzling modes"; 9.7.15.5.1.2 "Shared Memory
Matrix Layout" and "Matrix Descriptor Format"), on purpose without warploom/layout: a map that is wrong
there cannot agree with itself here.

Two copies of the bytes stand for the two proxies: an ordinary store reaches the copy that TMA and wgmma
read only by fence.proxy.async.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from warploom.ir.types import DType, Shared
from warploom.sim.undefined import Fault, Undefined

Array = np.ndarray[Any, np.dtype[Any]]

_SWIZZLE_CODE = {0: 0, 128: 1, 64: 2, 32: 3}  # bits 62-63 of a matrix descriptor
_SWIZZLE_OF = {code: swizzle for swizzle, code in _SWIZZLE_CODE.items()}


class LayoutError(Exception):
    """A tile in shared memory that a matrix descriptor can't express."""


@dataclass(frozen=True, eq=False)
class Place:
    """A tile in shared memory: the address of its slot, the slot's type, and the part that is meant.

    `start` is the part's first coordinate in the slot's box, `type.shape` its shape; an allocation that
    still has slots is a Place with `type.lead`.  rank: of the CTA in its cluster.
    """

    address: int
    type: Shared
    start: tuple[int, ...]
    name: str
    rank: int = 0
    made: dict[tuple[Any, ...], Place] = field(default_factory=dict)  # parts that were asked for

    def slot(self, index: Iterable[int]) -> Place:
        """One slot of an allocation.  Raises IndexError outside it."""
        at = tuple(index)
        if at in self.made:
            return self.made[at]
        number = 0
        for i, n in zip(at, self.type.lead, strict=True):
            if not 0 <= i < n:
                raise IndexError(f"slot {at} of {self.name}, which has {self.type.lead}")
            number = number * n + i
        slot = Place(
            self.address + number * slot_pitch(self.type),
            replace(self.type, lead=()),
            self.start,
            f"{self.name}[{']['.join(map(str, at))}]" if at else self.name,
            self.rank,
        )
        return self.made.setdefault(at, slot)

    def part(self, block: Iterable[int], type_: Shared) -> Place:
        """The part that starts at block[i]·shape[i].  Raises IndexError outside the slot."""
        at = (type_.shape, tuple(block))
        if at in self.made:
            return self.made[at]
        block = at[1]
        start = tuple(s + b * n for s, b, n in zip(self.start, block, type_.shape, strict=True))
        ends = [s + n for s, n in zip(start, type_.shape, strict=True)]
        inside = [s + n for s, n in zip(self.start, self.type.shape, strict=True)]
        if any(s < f for s, f in zip(start, self.start, strict=True)) or any(
            e > n for e, n in zip(ends, inside, strict=True)
        ):
            raise IndexError(f"part at {start} of {self.name}, which is {self.type}")
        return self.made.setdefault(at, Place(self.address, type_, start, self.name, self.rank))

    def permuted(self, perm: tuple[int, ...], type_: Shared) -> Place:
        """The same bytes with axes permuted."""
        found = self.made.get(("permuted", perm))
        if found is None:
            start = tuple(self.start[p] for p in perm)
            found = Place(self.address, type_, start, self.name, self.rank)
            self.made["permuted", perm] = found
        return found

    def of_peer(self, rank: int) -> Place:
        """The same tile in another CTA of the cluster."""
        if rank == self.rank:
            return self
        found = self.made.get(("peer", rank))
        return found or self.made.setdefault(("peer", rank), replace(self, rank=rank, made={}))

    @cached_property
    def allocation(self) -> str:
        """The name of the allocation that it is a part of."""
        return self.name.partition("[")[0]

    @cached_property
    def words(self) -> str:
        """Its name, and where it begins inside its slot."""
        return f"{self.name} from {self.start}" if any(self.start) else self.name

    @cached_property
    def addresses(self) -> Array:
        """Byte address of every element, as TMA lays the tile out."""
        return element_addresses(self.address, self.type, self.start)

    @cached_property
    def first_byte(self) -> tuple[int, int]:
        """Of a number: the CTA's rank, and its address."""
        return self.rank, int(self.addresses.flat[0])

    def operand(self, mn_axis: int) -> Array:
        """Byte address of every element, (mn, k), as wgmma reads it: A has mn_axis 0, B 1."""
        return operand_addresses(self.address, self.type, self.start, mn_axis)


def slot_pitch(t: Shared) -> int:
    """Bytes from slot to slot: swizzled slots stand on 1024-byte boundaries."""
    return -(-t.slot_bytes // 1024) * 1024 if t.swizzle else t.slot_bytes


def swizzled(address: Array, swizzle: int) -> Array:
    """The swizzle of TMA and wgmma on byte addresses: 16-byte units are exchanged inside a row.

    Address bits 4 up (as many as the mode has units of 16 bytes) are XORed with bits 7 up
    (Swizzle<1|2|3, 4, 3> for 32, 64, 128 bytes)."""
    if not swizzle:
        return address
    units = swizzle // 16 - 1
    exchanged: Array = address ^ (((address >> 7) & units) << 4)
    return exchanged


@lru_cache(maxsize=4096)
def element_addresses(address: int, t: Shared, start: tuple[int, ...]) -> Array:
    """Byte address of every element of a tile, as TMA lays it out.

    The inner axis is cut in panels of `swizzle` bytes (one panel without a swizzle): each is a box of
    its own to TMA, dense, its other axes row-major."""
    axes = np.ix_(*(np.arange(s, s + n) for s, n in zip(start, t.shape, strict=True)))
    row: Any = 0
    for axis, n in enumerate(t.box):
        if axis != t.inner:
            row = row * n + axes[axis]
    rows = math.prod(t.box) // t.box[t.inner]
    along = axes[t.inner] * t.dtype.bytes
    width = t.swizzle or t.box[t.inner] * t.dtype.bytes
    linear = address + (along // width) * (rows * width) + row * width + along % width
    out = swizzled(np.broadcast_to(linear, t.shape).astype(np.int64), t.swizzle)
    out.flags.writeable = False
    return out


# ---- wgmma's matrix descriptors (9.7.15.5.1.2.2)


def encode_descriptor(address: int, leading: int, stride: int, swizzle: int) -> int:
    """The 64-bit matrix descriptor: start address, leading and stride byte offsets, swizzle mode.

    The base offset stays 0: warploom's slots begin on the swizzle pattern's own boundary."""
    for what, value in (("start address", address), ("leading", leading), ("stride", stride)):
        if value % 16 or value >= 1 << 18:
            raise LayoutError(
                f"a descriptor's {what} is a multiple of 16 under 256 KiB, not {value}"
            )
    fields = (address >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32
    return fields | _SWIZZLE_CODE[swizzle] << 62


def decode_descriptor(descriptor: int, k_major: bool, mn: int, k: int, size: int) -> Array:
    """Byte addresses of the (mn, k) elements of `size` bytes that the tensor core reads.

    By the canonical layouts of 9.7.15.5.1.2.1.3, where T elements are 16 bytes:
      K-major   none ((8,m),(T,2k)) : ((1T,SBO),(1,LBO));  swizzled ((8,m),(T,2k)) : ((wT,SBO),(1,T))
      MN-major  none ((T,1,m),(8,k)) : ((1,T,SBO),(1T,LBO));
                swizzled ((T,w,m),(8,k)) : ((1,T,LBO),(wT,SBO)),  w = swizzle bytes / 16
    """
    start = (descriptor & 0x3FFF) << 4
    leading = (descriptor >> 16 & 0x3FFF) << 4
    stride = (descriptor >> 32 & 0x3FFF) << 4
    swizzle = _SWIZZLE_OF[descriptor >> 62 & 3]
    row, col = np.arange(mn)[:, None], np.arange(k)[None, :]
    if k_major:
        byte = col * size
        pitch = swizzle or 16
        along = byte if swizzle else (byte // 16) * leading + byte % 16
        linear = (row // 8) * stride + (row % 8) * pitch + along
    elif swizzle:
        byte = row * size
        linear = (byte // swizzle) * leading + byte % swizzle
        linear = linear + (col // 8) * stride + (col % 8) * swizzle
    else:
        byte = row * size
        linear = (byte // 16) * stride + byte % 16 + (col // 8) * leading + (col % 8) * 16
    return swizzled((start + linear).astype(np.int64), swizzle)


def operand_descriptors(
    address: int, t: Shared, start: tuple[int, ...], mn_axis: int
) -> list[list[int]]:
    """The descriptors that a wgmma chain uses for a shared operand, [chunk of MN][step of K].

    A chunk is 64 rows of A (mn_axis 0) or all of B's N; a step is 32 bytes of K.  Raises LayoutError where
    the tile's bytes are in no canonical layout."""
    size, k_axis = t.dtype.bytes, 1 - mn_axis
    mn, k = t.shape[mn_axis], t.shape[k_axis]
    chunk = 64 if mn_axis == 0 else mn
    step = 32 // size
    k_major = t.inner == k_axis
    width = t.swizzle or t.box[t.inner] * size
    panel = t.box[1 - t.inner] * width  # bytes from panel to panel
    if t.swizzle and address % (8 * t.swizzle):
        raise LayoutError(f"a slot at {address} is not on a boundary of {8 * t.swizzle} bytes")
    if not t.swizzle and width != 16:
        raise LayoutError(
            f"{t} is row-major with rows of {width} bytes: without a swizzle wgmma reads core "
            "matrices of 16-byte rows only"
        )
    along, across = start[t.inner] * size, start[1 - t.inner]
    out = []
    for first in range(0, mn, chunk):
        steps = []
        for at in range(0, k, step):
            inner = along + (at if k_major else first) * size
            outer = across + (first if k_major else at)
            first_byte = address + inner // width * panel + outer * width + inner % width
            if k_major:
                leading = 16 if t.swizzle else panel  # 16: "assumed to be 1", unused
                steps.append(encode_descriptor(first_byte, leading, 8 * width, t.swizzle))
            elif t.swizzle:
                steps.append(encode_descriptor(first_byte, panel, 8 * width, t.swizzle))
            else:
                steps.append(encode_descriptor(first_byte, 8 * width, panel, t.swizzle))
        out.append(steps)
    return out


@lru_cache(maxsize=1024)
def operand_addresses(address: int, t: Shared, start: tuple[int, ...], mn_axis: int) -> Array:
    """Byte address of every element of a wgmma operand, (mn, k), by way of its descriptors."""
    size = t.dtype.bytes
    k_major = t.inner == 1 - mn_axis
    chunk = 64 if mn_axis == 0 else t.shape[mn_axis]
    rows = [
        np.hstack([decode_descriptor(d, k_major, chunk, 32 // size, size) for d in steps])
        for steps in operand_descriptors(address, t, start, mn_axis)
    ]
    out = np.vstack(rows)
    out.flags.writeable = False
    return out


class SharedMemory:
    """One CTA's bytes.  `written` marks the bytes that anything ever wrote, `undefined` those of numbers that
    are (None: of none), with one of their faults."""

    def __init__(self, size: int) -> None:
        self.generic = np.full(size, 0xFF, np.uint8)  # NaN in every float format
        self.asynchronous = self.generic.copy()
        self.written = np.zeros(size, np.bool_)
        self.unfenced: list[Array] = []  # addresses that await a proxy fence, 16-bit units or wider
        self.undefined: tuple[Array, Fault] | None = None

    @property
    def size(self) -> int:
        return int(self.generic.size)

    def read(self, addresses: Array, dtype: DType, asynchronous: bool) -> Any:
        """Elements at byte addresses, as one proxy sees them."""
        found = self._read(addresses, dtype, asynchronous)
        if self.undefined is None or not self.undefined[0][addresses].any():
            return found
        return Undefined(found, self.undefined[0][addresses], self.undefined[1])

    def write(self, addresses: Array, values: Any, dtype: DType, asynchronous: bool) -> None:
        """Elements to byte addresses.  An ordinary write stays unseen by the other proxy until fence()."""
        if type(values) is Undefined:
            marks = np.zeros(self.size, np.bool_) if self.undefined is None else self.undefined[0]
            self.undefined = marks, values.fault
            self._write(addresses, values.numbers, dtype, asynchronous)
            marks[addresses] = values.where
            return
        if self.undefined is not None:
            self.undefined[0][addresses] = False
        self._write(addresses, values, dtype, asynchronous)

    def _read(self, addresses: Array, dtype: DType, asynchronous: bool) -> Array:
        memory = self.asynchronous if asynchronous else self.generic
        found: Array = memory.view(_word(dtype))[addresses // dtype.bytes].view(dtype.numpy)
        return found

    def is_written(self, addresses: Array) -> bool:
        """Has something been written to each of these bytes?"""
        return bool(self.written[addresses].all())

    def _write(self, addresses: Array, values: Array, dtype: DType, asynchronous: bool) -> None:
        words = np.ascontiguousarray(values).view(_word(dtype)).reshape(addresses.shape)
        at = addresses // dtype.bytes
        self.generic.view(_word(dtype))[at] = words
        for byte in range(dtype.bytes):
            self.written[addresses + byte] = True
        if asynchronous:
            self.asynchronous.view(_word(dtype))[at] = words
        else:
            self.unfenced.extend(addresses + byte for byte in range(dtype.bytes))

    def fence(self) -> None:
        """fence.proxy.async: every ordinary write so far becomes visible to TMA and wgmma."""
        for addresses in self.unfenced:
            self.asynchronous[addresses] = self.generic[addresses]
        self.unfenced.clear()


def _word(dtype: DType) -> Any:
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.bytes]


def boundary(t: Shared) -> int:
    """Bytes that the edges of a tile (and of its siblings in the slot) are multiples of."""
    width = t.swizzle or t.box[t.inner] * t.dtype.bytes
    unit = math.prod(t.box) // t.box[t.inner] * width
    below = width
    for axis in reversed(range(len(t.box))):
        if axis != t.inner:
            if t.shape[axis] != t.box[axis]:
                unit = math.gcd(unit, t.shape[axis] * below)
            below *= t.box[axis]
        elif not t.swizzle and t.shape[axis] != t.box[axis]:
            unit = math.gcd(unit, t.shape[axis] * t.dtype.bytes)
    return unit


def allocate(sizes: dict[str, tuple[Shared, int | None, str | None]]) -> tuple[dict[str, int], int]:
    """Addresses for allocations (type, offset or None, name of an aliased allocation or None).

    Offsets that are given are kept; the rest are placed one after the other.  Returns the addresses
    and the bytes needed in all."""
    addresses: dict[str, int] = {}
    end = 0
    for name, (kind, offset, alias) in sizes.items():
        size = slot_pitch(kind) * math.prod(kind.lead)
        if offset is not None:
            addresses[name] = offset
        elif alias is not None and alias in addresses:
            addresses[name] = addresses[alias]
        else:
            addresses[name] = -(-end // 1024) * 1024
        end = max(end, addresses[name] + size)
    return addresses, -(-end // 1024) * 1024
