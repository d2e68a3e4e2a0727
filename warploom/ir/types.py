"""Element types and the types of values.  All compare by value and print as they parse."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from warploom.ir.core import RuleError, Type


class _Answer(int):
    """A property's bool that may be called: Triton's dtypes have a method of that name."""

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


@dataclass(frozen=True)
class DType:
    """An element type.  `kind` is 'bool', 'int', 'uint' or 'float'; `bits` its size in memory (i1: 8)."""

    name: str
    kind: str
    bits: int
    numpy: np.dtype[Any]

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return _Answer(self.kind in ("int", "uint", "bool"))  # type: ignore[return-value]

    @property
    def is_8bit_float(self) -> bool:
        return self.is_float and self.bits == 8

    if not TYPE_CHECKING:  # the package's own code asks by is_float and its like

        def __getattr__(self, name: str) -> Any:
            """By Triton's names (DTYPE_PROPERTIES, DTYPE_PREDICATES), which are methods where they ask."""
            if name in DTYPE_PROPERTIES:
                return DTYPE_PROPERTIES[name](self)
            if name in DTYPE_PREDICATES:
                return lambda: DTYPE_PREDICATES[name](self)
            own = vars(self).get("name", "being copied")
            raise AttributeError(f"the dtype {own} has no attribute {name}")

    def __str__(self) -> str:
        return self.name

    def __invert__(self) -> Pointer:
        """~float16: a pointer to float16, in annotations of scripts."""
        return Pointer(self)

    __repr__ = __str__


def _extreme(d: DType, highest: bool) -> Any:
    """The largest finite number, or the smallest."""
    if d.kind == "bool":
        return int(highest)
    if d.bits < 8:
        return d.limits[highest]  # type: ignore[attr-defined]
    if d == f8e4b15:
        return 1.875 if highest else -1.875
    if d.is_float:
        limits = ml_dtypes.finfo(d.numpy)  # type: ignore[no-untyped-call]
        return float(limits.max if highest else limits.min)
    return int(np.iinfo(d.numpy).max if highest else np.iinfo(d.numpy).min)


# What Triton's and Tilus's dtypes tell, in kernels and on the host.
DTYPE_PROPERTIES: dict[str, Callable[[DType], Any]] = {
    "nbits": lambda d: d.bits,
    "nbytes": lambda d: d.bytes,
    "max_value": lambda d: _extreme(d, True),
    "min_value": lambda d: _extreme(d, False),
    "zero": lambda d: 0.0 if d.is_float else 0,
    "one": lambda d: 1.0 if d.is_float else 1,
    "primitive_bitwidth": lambda d: 1 if d.kind == "bool" else d.bits,
    "int_bitwidth": lambda d: 1 if d.kind == "bool" else d.bits,
    "itemsize": lambda d: d.bytes,
    "scalar": lambda d: d,
    "element_ty": lambda d: d,
    "fp_mantissa_width": lambda d: _MANTISSA[d.name],
    "exponent_bias": lambda d: _BIAS.get(d.name, 15),
}
_BIAS: dict[str, int] = {
    "f8e4m3": 7, "f8e4b8": 8, "f8e5b16": 16, "bf16": 127, "f32": 127, "f64": 1023,
}  # fmt: skip
_MANTISSA: dict[str, int] = {
    "f8e4m3": 3, "f8e4b15": 3, "f8e4b8": 3, "f8e5m2": 2, "f8e5b16": 2, "f16": 10,
    "bf16": 7, "f32": 23, "f64": 52,
}  # fmt: skip
_BY_NAME = {
    "is_fp16": "f16", "is_bf16": "bf16", "is_fp32": "f32", "is_fp64": "f64", "is_fp8e4nv": "f8e4m3",
    "is_fp8e5": "f8e5m2", "is_fp8e4b8": "f8e4b8", "is_fp8e4b15": "f8e4b15", "is_fp8e5b16": "f8e5b16",
    "is_int1": "i1", "is_bool": "i1", "is_int8": "i8", "is_int16": "i16", "is_int32": "i32",
    "is_int64": "i64", "is_uint8": "u8", "is_uint16": "u16", "is_uint32": "u32", "is_uint64": "u64",
}  # fmt: skip


def _is_called(name: str, d: DType) -> bool:
    return d.name == name


TRITON_NAMES = {n: asked[3:] for asked, n in reversed(_BY_NAME.items())}  # f16: fp16

DTYPE_PREDICATES: dict[str, Callable[[DType], Any]] = {
    **{name: functools.partial(_is_called, n) for name, n in _BY_NAME.items()},
    "is_integer": lambda d: d.is_int and d.kind != "bool",
    "is_any_float16": lambda d: d.is_float and d.bits == 16,
    "is_boolean": lambda d: d.kind == "bool",
    "is_floating": lambda d: d.is_float,
    "is_standard_floating": lambda d: d.is_float and d.bits > 8,
    "is_fp8": lambda d: d.is_8bit_float,
    "is_int": lambda d: bool(d.is_int),
    "is_int_signed": lambda d: d.kind == "int",
    "is_int_unsigned": lambda d: d.kind in ("uint", "bool"),
    "is_ptr": lambda d: False,
    "is_block": lambda d: False,
    "is_const": lambda d: False,
    "is_void": lambda d: False,
    "get_int_max_value": lambda d: 1 if d.kind == "bool" else int(np.iinfo(d.numpy).max),
    "get_int_min_value": lambda d: 0 if d.kind == "bool" else int(np.iinfo(d.numpy).min),
}


def _dtype(name: str, kind: str, bits: int, scalar: Any) -> DType:
    return DType(name, kind, bits, np.dtype(scalar))


i1 = _dtype("i1", "bool", 8, np.bool_)
i8 = _dtype("i8", "int", 8, np.int8)
i16 = _dtype("i16", "int", 16, np.int16)
i32 = _dtype("i32", "int", 32, np.int32)
i64 = _dtype("i64", "int", 64, np.int64)
u8 = _dtype("u8", "uint", 8, np.uint8)
u16 = _dtype("u16", "uint", 16, np.uint16)
u32 = _dtype("u32", "uint", 32, np.uint32)
u64 = _dtype("u64", "uint", 64, np.uint64)
f16 = _dtype("f16", "float", 16, np.float16)
bf16 = _dtype("bf16", "float", 16, ml_dtypes.bfloat16)
f32 = _dtype("f32", "float", 32, np.float32)
f64 = _dtype("f64", "float", 64, np.float64)
f8e4m3 = _dtype("f8e4m3", "float", 8, ml_dtypes.float8_e4m3fn)
f8e5m2 = _dtype("f8e5m2", "float", 8, ml_dtypes.float8_e5m2)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (i1, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2)
}

# In kernels and of their arguments only: the frontend makes bytes of it, so that the IR has none.
f8e4b15 = _dtype("f8e4b15", "float", 8, np.uint8)
ARGUMENT_DTYPES = {**DTYPES, f8e4b15.name: f8e4b15}

# Of other chips: kernels may name them where they choose among dtypes, and convert nothing to them.
f8e4b8 = _dtype("f8e4b8", "float", 8, ml_dtypes.float8_e4m3fnuz)
f8e5b16 = _dtype("f8e5b16", "float", 8, ml_dtypes.float8_e5m2fnuz)
NAMED_DTYPES = {**ARGUMENT_DTYPES, f8e4b8.name: f8e4b8, f8e5b16.name: f8e5b16}


@dataclass(frozen=True)
class Scalar(Type):
    """One number, the same in every thread of the task that holds it."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


@dataclass(frozen=True)
class Pointer(Type):
    """An address of elements in global memory: of Triton's address spaces the one that is 1."""

    dtype: DType
    address_space: InitVar[int] = 1

    def is_ptr(self) -> bool:
        """True, as of Triton's type of pointers."""
        return True

    @property
    def element_ty(self) -> DType:
        """As Triton calls it."""
        return self.dtype

    def __str__(self) -> str:
        return f"ptr<{self.dtype}>"


@dataclass(frozen=True)
class Tile(Type):
    """A block of elements in registers.  `layout` (layout.Layout) is None before PLACED."""

    shape: tuple[int, ...]
    elem: DType | Pointer
    layout: Any = None

    def __str__(self) -> str:
        dims = "x".join(map(str, self.shape))
        at = "" if self.layout is None else f", #layout<{self.layout}>"
        return f"tile<{dims}x{self.elem}{at}>"

    @property
    def dtype(self) -> DType:
        """The element's dtype; RuleError on a tile of pointers."""
        if isinstance(self.elem, Pointer):
            raise RuleError(f"expected a tile of numbers, found {self}")
        return self.elem

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class View(Type):
    """A strided box of global memory with bounds: base, extents and strides (in elements), rank axes."""

    rank: int
    dtype: DType

    def __str__(self) -> str:
        return f"view<{self.rank}x{self.dtype}>"


@dataclass(frozen=True)
class TensorMap(Type):
    """A TMA descriptor.  `box` is the tile that one tma_load or tma_store op moves, in tile axis order;
    `inner` the axis whose elements are adjacent in memory; `swizzle` 0, 32, 64 or 128 bytes.  `thin`: those
    axes of the view that the box doesn't have, because it is one element thick there; ascending.
    """

    box: tuple[int, ...]
    dtype: DType
    inner: int
    swizzle: int
    thin: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        """Axes of the view."""
        return len(self.box) + len(self.thin)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the view that the box has, in order."""
        return tuple(a for a in range(self.rank) if a not in self.thin)

    @property
    def thick(self) -> tuple[int, ...]:
        """The box with all axes of the view."""
        sizes = dict(zip(self.axes, self.box, strict=True))
        return tuple(sizes.get(a, 1) for a in range(self.rank))

    def __str__(self) -> str:
        dims = "x".join(map(str, self.box))
        more = f", thin={'/'.join(map(str, self.thin))}" if self.thin else ""
        return f"tensormap<{dims}x{self.dtype}, inner={self.inner}, swizzle={self.swizzle}{more}>"


@dataclass(frozen=True)
class Shared(Type):
    """Shared memory: an array `lead` of slots, each holding a tile of `shape`.

    How a slot is laid out in bytes is fixed by (`box`, `dtype`, `inner`, `swizzle`), see
    layout/shared.py: axis `inner` is cut into panels of `swizzle` bytes (of the whole axis when swizzle
    is 0), each panel holds every other coordinate's row of that many bytes, and 16-byte units inside a
    row are permuted as TMA's swizzle modes do.  `box` is the allocated slot's shape; `shape` is smaller
    where a `shared_slice` views a part of it.  peer: in another CTA of the cluster.
    """

    lead: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DType
    inner: int
    swizzle: int
    box: tuple[int, ...]
    peer: bool = False

    def __str__(self) -> str:
        lead = "".join(f"[{n}]" for n in self.lead)
        dims = "x".join(map(str, self.shape))
        of = "" if self.box == self.shape else f", of={'x'.join(map(str, self.box))}"
        of += ", peer" if self.peer else ""
        return f"shared<{lead}{dims}x{self.dtype}, inner={self.inner}, swizzle={self.swizzle}{of}>"

    @property
    def slot_bytes(self) -> int:
        """Bytes from one allocated slot to the next: the tile's, rounded up to where a slot may start (1024
        bytes where swizzled, 128 otherwise: PTX ISA, cp.async.bulk.tensor)."""
        align = 1024 if self.swizzle else 128
        return -(-math.prod(self.box) * self.dtype.bytes // align) * align

    @property
    def tile_bytes(self) -> int:
        """Bytes of the viewed tile: what a TMA copy into it transfers."""
        return math.prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True)
class Barriers(Type):
    """An array of mbarriers in shared memory.  peer: in another CTA of the cluster."""

    n: int
    peer: bool = False

    def __str__(self) -> str:
        return f"mbarriers<{self.n}, peer>" if self.peer else f"mbarriers<{self.n}>"


@dataclass(frozen=True)
class InFlight(Type):
    """A wgmma accumulator that the tensor core may still be writing.  Only `wgmma` (as accumulator),
    `wgmma_wait`, loop carries and yields accept it."""

    tile: Tile

    def __str__(self) -> str:
        return f"inflight<{self.tile}>"


@dataclass(frozen=True)
class Units(Type):
    """The aligned units of 16 bytes that hold a box, in registers, where they were read already.  Only
    `load_unaligned_ahead`, loop carries and yields accept it."""

    tile: Tile

    def __str__(self) -> str:
        return f"units<{self.tile}>"


@dataclass(frozen=True)
class Channel(Type):
    """A ring between tasks (CHANNEL level): `depth` slots, each with a tile or a number of every item."""

    items: tuple[Tile | Scalar, ...]
    depth: int

    def __str__(self) -> str:
        return f"channel<{self.depth}, {', '.join(map(str, self.items))}>"


def accumulator(dtype: DType) -> DType:
    """In what sums of products of such operands are made: f64 for f64, f32 for other floats, i32 for
    integers."""
    if dtype == f64:
        return f64
    return f32 if dtype.is_float else i32


def accumulators(dtype: DType) -> tuple[DType, ...]:
    """In what a dot in registers may sum such products: the usual first."""
    return (f32, f16) if dtype == f16 else (accumulator(dtype),)


def shape_of(t: Type) -> tuple[int, ...]:
    """() for scalars and pointers."""
    return t.shape if isinstance(t, Tile) else ()


def spreads(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Can a tile of this shape be repeated to the other one?"""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(a in (1, b) for a, b in pairs)


def elem_of(t: Type) -> DType | Pointer:
    """The element of a scalar, pointer or tile type; RuleError on anything else."""
    match t:
        case Tile(elem=e):
            return e
        case Scalar(dtype=d):
            return d
        case Pointer():
            return t
    raise RuleError(f"expected a scalar, pointer or tile, found {t}")


def dtype_of(t: Type) -> DType:
    """As elem_of, but RuleError on pointers."""
    e = elem_of(t)
    if isinstance(e, Pointer):
        raise RuleError(f"expected a number, found {t}")
    return e


def pointee_of(t: Type) -> DType:
    """What a pointer, or each of a tile of them, points to; RuleError on anything else."""
    e = elem_of(t)
    if isinstance(e, Pointer):
        return e.dtype
    raise RuleError(f"expected a pointer, found {t}")


def like(t: Type, elem: DType | Pointer) -> Type:
    """`t` with another element: a scalar stays a scalar, a tile keeps shape and layout."""
    if isinstance(t, Tile):
        return Tile(t.shape, elem, t.layout)
    return elem if isinstance(elem, Pointer) else Scalar(elem)
