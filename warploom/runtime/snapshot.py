"""The arguments of a call, on their way into the memory of the process that times kernels.

Nothing is written to a file: a disk or /dev/shm may be small, and a mapped file that finds no memory kills
the process that writes it.  Device memory is shared instead by CUDA IPC: the worker copies it into buffers
of its own, then closes the handle, before any kernel runs.  What can't be shared, such as memory of the
driver's virtual-memory interface (torch's expandable segments), goes through a pipe in pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warploom.runtime.binding import Call

PIPED_BYTES = 1 << 30  # of all arrays of floats together, where they go through the pipe
PIECE = 16 << 20  # bytes of host memory that a transfer takes at a time
ALIGNMENT = 256  # of device memory that cuMemAlloc gives (CUDA C++ Programming Guide, 5.3.2)


@dataclass(frozen=True)
class Region:
    """A piece of device memory that arguments point into.

    whole: every byte counts, because integers may be indices.  names: the arguments.
    """

    pointer: int
    size: int
    whole: bool = True
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The arguments of a call as plain data.

    values: numbers, and (region, offset in bytes) for arrays.  restore, zero: (region, offset, bytes)
    to write back, or zero, before each launch.
    """

    device: int
    regions: tuple[Region, ...]
    values: tuple[object, ...]
    restore: tuple[tuple[int, int, int], ...] = ()
    zero: tuple[tuple[int, int, int], ...] = ()


def snapshot(call: Call, device: int, restore: Sequence[int], zero: Sequence[int]) -> Snapshot:
    """What a worker needs of a call's arrays.  Arrays that share memory share it there, too.

    restore, zero: positions of the fields to write back, or to zero.  Nothing is copied yet: the arrays have
    to live, unchanged, as long as workers start."""
    ranges = [None if f.array is None else f.array.bytes_range() for f in call.fields]
    merged = merge([r for r in ranges if r is not None])

    def region(low: int, high: int) -> Region:
        inside = [
            (f.name, f.array.dtype)
            for f, r in zip(call.fields, ranges, strict=True)
            if f.array is not None and r is not None and low <= r[0] < r[1] <= high
        ]
        whole = any(dtype[0] in "iu" for _, dtype in inside)
        return Region(low, high - low, whole, tuple(name for name, _ in inside))

    def place(low: int) -> tuple[int, int]:
        for i, (start, end) in reversed([*enumerate(merged)]):
            if start <= low <= end:
                return i, low - start
        return 0, 0  # an array without elements, outside all others

    def spans(indices: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
        found = [r for i in indices if (r := ranges[i]) is not None and r[0] < r[1]]
        return tuple((*place(low), high - low) for low, high in found)

    values = tuple(f.value if f.array is None else place(f.array.pointer) for f in call.fields)
    regions = tuple(region(low, high) for low, high in merged)
    return Snapshot(device, regions, values, spans(restore), spans(zero))


def merge(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of byte ranges as disjoint ones, starts rounded down to the allocator's alignment.  Ranges
    that only touch may be of two allocations, out of which one copy can't read."""
    found: list[tuple[int, int]] = []
    for low, high in sorted((low - low % ALIGNMENT, high) for low, high in ranges if low < high):
        if found and low < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def kept_bytes(regions: Sequence[Region]) -> list[int]:
    """How much of each region goes through the pipe: all of those that must be whole; of the others the
    leading share that PIPED_BYTES allows, which the worker repeats."""
    total = sum(r.size for r in regions if not r.whole)
    share = min(1.0, PIPED_BYTES / total) if total else 1.0

    def cut(size: int) -> int:  # between elements
        return min(size, max(ALIGNMENT, int(size * share) // ALIGNMENT * ALIGNMENT))

    return [r.size if r.whole or share == 1 else cut(r.size) for r in regions]


def pieces(device: int, region: Region, kept: int) -> Iterator[bytearray]:
    """The first `kept` bytes of a region, read from the device a piece at a time."""
    from warploom.runtime.launch import driver

    for at in range(0, kept, PIECE):
        piece = bytearray(min(PIECE, kept - at))
        driver().copy_out(device, region.pointer + at, piece)
        yield piece


def handle_of(device: int, region: Region) -> tuple[bytes, int] | None:
    """The region as another process can open it: an IPC handle of the allocation, and the offset in it.  None
    where it can't be shared, or is more than one allocation."""
    from warploom.runtime.launch import driver

    found = driver().share(device, region.pointer)
    if found is None:
        return None
    handle, offset, left = found
    return (handle, offset) if region.size <= left else None
