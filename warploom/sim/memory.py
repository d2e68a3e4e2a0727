"""Global memory: the caller's arrays, addressed by pointers that are plain integers (addresses.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.errors import LaunchError, Loc
from warploom.ir.core import Func
from warploom.ir.types import DType, Pointer, Scalar
from warploom.sim.addresses import (
    BEYOND,
    BIAS,
    BITS,
    FOREIGN,
    MASK,
    Held,
    arrays_alive,
    of_argument,
)
from warploom.sim.numerics import FLOATS, Numerics
from warploom.sim.report import MemoryFault

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Buffer:
    """One argument: every element between its first and last byte as a flat array, aliasing the
    caller's memory.  `origin` is where the argument's element [0, …, 0] stands in it."""

    name: str
    data: Array
    origin: int


@dataclass(frozen=True, eq=False)
class ViewValue:
    """What `make_view` gives: a pointer to the first element, extents and strides in elements; narrow: its
    attribute."""

    base: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    narrow: tuple[str, ...] = ()

    def elements(self, offsets: Sequence[int], shape: Sequence[int]) -> tuple[Array, Array]:
        """Pointers to the elements of a box inside the extents, and their places in it, row-major."""
        at, places = np.full(1, self.base, np.int64), np.zeros(1, np.int64)
        for start, n, extent, stride in zip(
            offsets, shape, self.extents, self.strides, strict=True
        ):
            inside = np.arange(max(start, 0), min(start + n, extent), dtype=np.int64)
            at = (at[:, None] + inside * stride).reshape(-1)
            places = (places[:, None] * n + inside - start).reshape(-1)
        return at, places

    def overflows(
        self, shift: int, offsets: Sequence[int], start: Sequence[int], shape: Sequence[int]
    ) -> bool:
        """Does the program's own arithmetic in i32 overflow for an element from `start` on of a box?  shift:
        from the parameter to the base."""
        axes = [*zip(offsets, start, shape, self.strides, strict=True)]
        for marks in self.narrow:
            total = shift if marks[0] == "c" else 0
            for mark, (offset, first, n, stride) in zip(marks[1:], axes, strict=True):
                at = first + (offset if mark == "c" else 0)
                total += max(at * stride, (at + n - 1) * stride) if mark != "-" else 0
            if total >= 1 << 31:
                return True
        return False


@dataclass
class MapCell:
    """What `map_alloc` gives: the view that a descriptor was last written for."""

    view: ViewValue | None = None


@dataclass(frozen=True)
class Box:
    """The part of a box inside a view's extents: where it starts in the box, its shape, and its
    elements in the buffer."""

    start: tuple[int, ...]
    shape: tuple[int, ...]
    elements: Array

    @property
    def where(self) -> tuple[slice, ...]:
        """The same part as an index of the whole box."""
        return tuple(slice(s, s + n) for s, n in zip(self.start, self.shape, strict=True))


def marked(pointers: Any, offsets: Any, beyond: Any) -> Any:
    """Pointers moved by offsets in int64; those where `beyond` may not be accessed."""
    moved = np.add(pointers, np.clip(offsets, -(BIAS >> 1), BIAS >> 1))
    return np.where(beyond, moved | BEYOND, moved)[()]


def _strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """as_strided, by way of unsigned words: NumPy's own fails on some 8-bit floats of ml_dtypes."""
    words = array.view(f"u{array.itemsize}")
    return np.lib.stride_tricks.as_strided(words, shape, strides).view(array.dtype)


def flattened(array: Array) -> tuple[Array, int]:
    """A flat array over an array's whole span of memory, and the first element's index in it."""
    if array.size == 0:
        return array.reshape(-1), 0
    size = array.itemsize
    if any(s % size for s in array.strides):
        raise LaunchError(
            "argument-strides",
            f"strides {array.strides} (bytes) are no multiples of {size}",
            help="pass a copy: np.ascontiguousarray(x)",
        )
    reach = [s // size * (n - 1) for n, s in zip(array.shape, array.strides, strict=True)]
    below = -sum(r for r in reach if r < 0)
    span = below + sum(r for r in reach if r > 0) + 1
    # as_strided can only move forwards, so begin at the element with the lowest address
    # (`...`: of an array without axes a view as well, not its number)
    first = array[(*(slice(-1, None) if r < 0 else slice(None) for r in reach), ...)]
    flat = _strided(first, (span,), (size,))
    return flat, below


class GlobalMemory:
    """The buffers of one launch.  has_data: they hold what a launch finds there; else an address out of
    them may be one of no array."""

    def __init__(self, numerics: Numerics = FLOATS, has_data: bool = True) -> None:
        self.numerics, self.has_data = numerics, has_data
        self.buffers: list[Buffer] = []
        self._held: list[Held] | None = None  # arrays beside the arguments, once one was asked for

    def add(self, name: str, array: Array) -> int:
        """Registers an array; gives the pointer to its element [0, …, 0]."""
        data, origin = flattened(array)
        self.buffers.append(Buffer(name, data, origin))
        return (len(self.buffers) << BITS) + BIAS + origin

    def settled(self, pointers: Any, dtype: DType, loc: Loc | None = None) -> Any:
        """Pointers to elements of dtype, those from addresses as pointers into the buffers that hold them."""
        if isinstance(pointers, np.int64) and not (pointers & FOREIGN and pointers < BEYOND):
            return pointers
        p = np.asarray(pointers)
        foreign = np.flatnonzero(((p & FOREIGN) != 0) & (p < BEYOND))
        if not foreign.size:
            return pointers
        flat = p.reshape(-1).copy()
        while foreign.size:
            size = dtype.numpy.itemsize
            at = (flat[foreign] & (FOREIGN - 1)) * size
            try:
                number, begin, end = self._holder(int(at[0]), dtype, loc)
            except MemoryFault:
                if self.has_data:
                    raise
                return pointers
            inside = (at >= begin) & (at < end)
            inside[0] = True
            flat[foreign[inside]] = (number << BITS) + BIAS + (at[inside] - begin) // size
            foreign = foreign[~inside]
        return flat.reshape(p.shape)[()]

    def _holder(self, address: int, elem: DType, loc: Loc | None) -> tuple[int, int, int]:
        """The buffer around an address: its number, the addresses of its begin and end."""
        dtype, shift = elem.numpy, 0
        if (own := of_argument(address)) is not None:
            data, begin = self._buffer(own[0], loc).data, address - own[1]
            if data.dtype == self.numerics.holds(elem):
                return own[0], begin, begin + data.size * dtype.itemsize
            real = data.ctypes.data + own[1]
            address, shift = real, address - real
        for number, b in enumerate(self.buffers, 1):
            begin, size = b.data.ctypes.data, b.data.nbytes
            if not begin <= address < begin + size:
                continue
            if b.data.dtype == dtype and (address - begin) % dtype.itemsize == 0:
                return number, begin + shift, begin + size + shift
            # Words of smaller elements, or parts of wider ones.
            if self.numerics is FLOATS and begin % dtype.itemsize == size % dtype.itemsize == 0:
                self.buffers.append(Buffer(b.name, b.data.view(dtype), 0))
                return len(self.buffers), begin + shift, begin + size + shift
        if self._held is None and self.numerics is FLOATS and address > 0:
            self._held = arrays_alive()
        held = next((h for h in self._held or () if h.begin <= address < h.end), None)
        if held is None or (address - held.begin) % dtype.itemsize:
            raise MemoryFault(
                "wild-pointer",
                f"no array is at the address {address:#x}, which was made a pointer",
                loc,
                help="read addresses from an array of them, made by tensor.data_ptr() or array.ctypes.data",
            )
        self.buffers.append(Buffer("the array at an address", held.as_array(dtype), 0))
        return len(self.buffers), held.begin + shift, held.end + shift

    def _buffer(self, number: int, loc: Loc | None) -> Buffer:
        if not 1 <= number <= len(self.buffers):
            raise MemoryFault(
                "wild-pointer",
                "this address belongs to no argument",
                loc,
                help="offset the pointer arguments themselves",
            )
        return self.buffers[number - 1]

    def split(self, pointer: int, loc: Loc | None = None) -> tuple[Buffer, int]:
        """The buffer that a pointer points into, and its element there (unchecked)."""
        if not self.has_data and not 1 <= (pointer & ~BEYOND) >> BITS <= len(self.buffers):
            return Buffer("memory", np.zeros(0, np.int8), 0), pointer
        return self._buffer((pointer & ~BEYOND) >> BITS, loc), (pointer & MASK) - BIAS

    def _refuse_beyond(self, what: str, pointer: int, loc: Loc | None) -> None:
        """Raises MemoryFault for an access by a pointer that is marked."""
        buffer, at = self.split(pointer, loc)
        raise MemoryFault(
            "offset-overflow",
            f"{what} of element {at - buffer.origin} of {buffer.name}: the offset was computed in i32, which "
            "does not hold it",
            loc,
            help="cast a factor to 64 bits before it is multiplied, as in row.to(tl.int64) * stride",
        )

    def _check(
        self, what: str, buffer: Buffer, lo: int, hi: int, loc: Loc | None, lane: str = ""
    ) -> None:
        n = buffer.data.size
        bad = lo if lo < 0 else hi
        if lo < 0 or hi >= n:
            raise MemoryFault(
                "out-of-bounds",
                f"{what} of element {bad - buffer.origin} of {buffer.name}, which has elements "
                f"{-buffer.origin} to {n - buffer.origin - 1}{lane}",
                loc,
                help="mask the access by the bound of its axis",
            )

    # ---- by pointers

    def elements(
        self, what: str, pointers: Any, mask: Any, dtype: DType, loc: Loc | None
    ) -> list[tuple[Buffer, Array, Array]]:
        """(buffer, elements, lanes that they belong to) for each buffer that active lanes point into.
        Raises MemoryFault where one is outside."""
        if isinstance(pointers, int | np.int64) and mask is None and 0 <= pointers < FOREIGN:
            buffer, at = self.split(int(pointers), loc)
            if 0 <= at < buffer.data.size:
                return [(buffer, np.array([at]), np.zeros(1, np.int64))]
        p = np.asarray(pointers)
        active = np.flatnonzero(np.broadcast_to(True if mask is None else mask, p.shape))
        flat = self.settled(p.reshape(-1)[active], dtype, loc)
        beyond = flat[flat >= BEYOND]
        if beyond.size:
            self._refuse_beyond(what, int(beyond[0]), loc)
        numbers = flat >> BITS
        offsets = (flat & MASK) - BIAS
        found = []
        for number in np.unique(numbers).tolist():
            buffer = self._buffer(number, loc)
            here = numbers == number
            elements, lanes = offsets[here], active[here]
            lo, hi = int(elements.min()), int(elements.max())
            if lo < 0 or hi >= buffer.data.size:
                at = int(lanes[int(elements.argmin() if lo < 0 else elements.argmax())])
                index = tuple(int(i) for i in np.unravel_index(at, p.shape)) if p.shape else ()
                self._check(
                    what, buffer, lo, hi, loc, f" (at {index} of the tile)" if index else ""
                )
            found.append((buffer, elements, lanes))
        return found

    def load(
        self, dtype: DType, pointers: Any, mask: Any, other: Any, loc: Loc | None = None
    ) -> Any:
        """Elements at pointers (a scalar or an int64 array); masked-off ones are `other`, or 0.

        Raises MemoryFault where an active lane is outside its buffer."""
        shape = np.shape(pointers)
        if other is None:
            out = np.zeros(shape, self.numerics.holds(dtype))
        else:
            out = np.array(np.broadcast_to(other, shape), self.numerics.holds(dtype))
        flat = out.reshape(-1)
        for buffer, elements, lanes in self.elements("load", pointers, mask, dtype, loc):
            flat[lanes] = buffer.data[elements]
        return out if shape else flat[0]

    def store(
        self, dtype: DType, pointers: Any, values: Any, mask: Any, loc: Loc | None = None
    ) -> None:
        """Writes values at pointers, where mask."""
        flat = np.broadcast_to(values, np.shape(pointers)).reshape(-1)
        for buffer, elements, lanes in self.elements("store", pointers, mask, dtype, loc):
            self._writable(buffer, loc)
            buffer.data[elements] = flat[lanes]

    def atomic(
        self, fn: str, dtype: DType, pointers: Any, values: Any, rest: Any, loc: Loc | None = None
    ) -> Any:
        """Lane by lane: memory ← fn(memory, value); gives the old values (0 where masked off).

        rest: a mask or None; for fn cas what memory is compared with."""
        shape = np.shape(pointers)
        mask = None if fn == "cas" else rest
        compared = np.broadcast_to(rest, shape).reshape(-1)
        given = np.broadcast_to(values, shape).reshape(-1)
        old = np.zeros(given.shape, given.dtype)
        for buffer, elements, lanes in self.elements("atomic", pointers, mask, dtype, loc):
            if fn != "load":
                self._writable(buffer, loc)
            for e, lane in zip(elements.tolist(), lanes.tolist(), strict=True):
                old[lane] = buffer.data[e]
                buffer.data[e] = self.updated(fn, buffer.data[e], given[lane], compared[lane])
        return old.reshape(shape) if shape else old[0]

    def updated(self, fn: str, old: Any, given: Any, compared: Any) -> Any:
        """What an atomic leaves of a word; compared: of cas."""
        if fn == "load":
            return old
        if fn == "cas":
            return given if old == compared else old
        return self.numerics.combined(fn, old, given)

    def _writable(self, buffer: Buffer, loc: Loc | None) -> None:
        if not buffer.data.flags.writeable:
            raise MemoryFault(
                "read-only",
                f"store into {buffer.name}, a read-only array",
                loc,
                help="pass an array that may be written",
            )

    # ---- by views

    def box(
        self,
        what: str,
        view: ViewValue,
        offsets: Sequence[int],
        shape: Sequence[int],
        loc: Loc | None = None,
    ) -> Box:
        """The part of the box of `shape` at `offsets` that lies inside the view's extents.

        Raises MemoryFault where that part is not inside the buffer."""
        axes = list(zip(offsets, shape, view.extents, strict=True))
        start = tuple(min(max(0, -o), n) for o, n, _ in axes)
        stop = tuple(max(s, min(n, e - o)) for s, (o, n, e) in zip(start, axes, strict=True))
        inside = tuple(b - a for a, b in zip(start, stop, strict=True))
        buffer, origin = self.split(view.base, loc)
        if 0 in inside:
            return Box(start, inside, np.zeros(inside, buffer.data.dtype))
        if view.base >= BEYOND:
            self._refuse_beyond(what, view.base, loc)
        first = origin + sum(
            (o + s) * t for o, s, t in zip(offsets, start, view.strides, strict=True)
        )
        reach = [(n - 1) * t for n, t in zip(inside, view.strides, strict=True)]
        lo = first + sum(r for r in reach if r < 0)
        hi = first + sum(r for r in reach if r > 0)
        if view.narrow and view.overflows(origin - buffer.origin, offsets, start, inside):
            self._refuse_beyond(what, (view.base & ~MASK) + BIAS + hi, loc)
        self._check(what, buffer, lo, hi, loc)
        size = buffer.data.itemsize
        elements = _strided(buffer.data[first:], inside, tuple(t * size for t in view.strides))
        return Box(start, inside, elements)

    def load_box(
        self,
        dtype: DType,
        view: ViewValue,
        offsets: Sequence[int],
        shape: Sequence[int],
        loc: Loc | None = None,
    ) -> Array:
        """The box of `shape` at `offsets`, 0 outside the view's extents."""
        thick = (*(1,) * (len(view.extents) - len(shape)), *shape)
        box = self.box("load", view, offsets, thick, loc)
        out = np.zeros(thick, self.numerics.holds(dtype))
        out[box.where] = box.elements
        return out.reshape(tuple(shape))

    def store_box(
        self, view: ViewValue, value: Array, offsets: Sequence[int], loc: Loc | None = None
    ) -> None:
        """Writes a tile at `offsets`; elements outside the extents are dropped."""
        thick = (*(1,) * (len(view.extents) - value.ndim), *value.shape)
        box = self.box("store", view, offsets, thick, loc)
        if 0 in box.shape:
            return
        self._writable(self.split(view.base, loc)[0], loc)
        box.elements[...] = value.reshape(thick)[box.where]

    def reduce_box(
        self,
        fn: str,
        view: ViewValue,
        value: Array,
        offsets: Sequence[int],
        loc: Loc | None = None,
    ) -> None:
        """Combines a tile into memory at `offsets`, each element by itself; those outside the extents are
        dropped."""
        box = self.box("reduction", view, offsets, value.shape, loc)
        if 0 in box.shape:
            return
        self._writable(self.split(view.base, loc)[0], loc)
        box.elements[...] = self.numerics.combined(fn, box.elements, value[box.where])


def _unfit(name: str, found: str, wanted: str, code: str = "argument-type") -> LaunchError:
    return LaunchError(code, f"{name} {found}, the kernel takes {wanted}", help=f"pass {wanted}")


def bind(
    func: Func, args: Sequence[Any], numerics: Numerics = FLOATS, has_data: bool = True
) -> tuple[GlobalMemory, dict[Any, Any]]:
    """A launch's memory, and the value of every parameter.

    args: in parameter order, NumPy arrays (any strides; their elements as `numerics` holds them) for
    pointers, Python or NumPy numbers for scalars.  Raises LaunchError where they don't fit the
    parameters' types."""
    names = [p.hint or f"argument {i}" for i, p in enumerate(func.params)]
    if len(args) != len(func.params):
        raise LaunchError(
            "argument-count",
            f"{func.name} takes {len(func.params)} arguments, got {len(args)}",
            help=f"the run-time arguments in order: {', '.join(names)}",
        )
    memory = GlobalMemory(numerics, has_data)
    env: dict[Any, Any] = {}
    for name, param, arg in zip(names, func.params, args, strict=True):
        match param.type:
            case Pointer(dtype=dtype):
                if not isinstance(arg, np.ndarray):
                    raise _unfit(name, f"is a {type(arg).__name__}", f"an array of {dtype}")
                if arg.dtype != numerics.holds(dtype):
                    raise _unfit(
                        name, f"holds {arg.dtype}", f"an array of {dtype}", "argument-dtype"
                    )
                env[param] = memory.add(name, arg)
            case Scalar(dtype=dtype):
                if np.ndim(arg) or not hasattr(arg, "__float__"):
                    raise _unfit(name, f"is a {type(arg).__name__}", f"a number ({dtype})")
                if dtype.is_int and int(arg) != arg:
                    raise _unfit(name, f"is {arg}", f"an integer ({dtype})")
                env[param] = numerics.number(arg, dtype)
            case other:
                raise LaunchError("argument-type", f"{name} has type {other}, no kernel parameter")
    return memory, env


def grid_of(grid: int | Sequence[int]) -> tuple[int, int, int]:
    """A launch grid with all three axes.  Raises LaunchError on a bad one."""
    sizes = (grid,) if isinstance(grid, int) else tuple(int(n) for n in grid)
    if not 1 <= len(sizes) <= 3 or any(n < 0 for n in sizes):
        raise LaunchError(
            "grid",
            f"a grid has 1 to 3 sizes, none negative, not {grid}",
            help="grid=(x, y, z): programs along each axis",
        )
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
