"""Dtypes of fewer than 8 bits, packed in bytes: element i has bits i·n and on, the lowest first.

They are dtypes of global views.  What is loaded of one are its numbers: of integers int8 or uint8, of floats
float32, which hold them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.explicit.handles import NarrowView
from warploom.explicit.operands import axes_of, index_of
from warploom.frontend.coerce import Operand, current
from warploom.frontend.language import memory
from warploom.frontend.language import shape as shapes
from warploom.frontend.refuse import refuse
from warploom.ir.core import Value
from warploom.ir.types import DType, Pointer, f32, i8, i32, i64, u8, u32

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Narrow(DType):
    """int4b, uint3b, float6_e3m2: `exponent` and `mantissa` bits of a float, which has neither infinities nor
    NaN.  `numpy` is what holds one number."""

    exponent: int = 0
    mantissa: int = 0

    @property
    def limits(self) -> tuple[Any, Any]:
        """The smallest and the largest number."""
        every = self.numbers().tolist()
        return min(every), max(every)

    def numbers(self) -> Array:
        """What each pattern of bits stands for: 2**bits numbers."""
        bits = np.arange(1 << self.bits)
        if not self.is_float:
            return bits - ((bits >> (self.bits - 1)) << self.bits if self.kind == "int" else 0)
        e = (bits >> self.mantissa) & ((1 << self.exponent) - 1)
        m = bits & ((1 << self.mantissa) - 1) | np.where(e > 0, 1 << self.mantissa, 0)
        size = m * 2.0 ** (np.maximum(e, 1) - self.bias - self.mantissa)
        made: Array = np.where(bits >> (self.bits - 1), -size, size)
        return made

    @property
    def bias(self) -> int:
        """What the exponent's bits are more than the exponent."""
        return int((1 << (self.exponent - 1)) - 1)

    def pack(self, x: Array) -> Array:
        """Numbers as bytes, rounded to the nearest that there is: along the last axis, or where its bits fill
        no whole bytes all in a row."""
        every = self.numbers()
        order = np.argsort(every, kind="stable")
        ranked = every[order]
        flat = np.clip(np.asarray(x, np.float64).reshape(-1), ranked[0], ranked[-1])
        above = np.searchsorted(ranked, flat).clip(1, len(ranked) - 1)
        low, high = flat - ranked[above - 1], ranked[above] - flat
        even = order[above] % 2 == 0
        codes = order[np.where((high < low) | ((high == low) & even), above, above - 1)]
        bits = (codes[:, None] >> np.arange(self.bits)) & 1
        packed = np.packbits(bits.reshape(-1).astype(np.uint8), bitorder="little")
        last = x.shape[-1] * self.bits
        return packed.reshape(*x.shape[:-1], last // 8) if x.ndim and not last % 8 else packed

    def unpack(self, packed: Array, shape: tuple[int, ...]) -> Array:
        """The numbers of so many elements of packed bytes."""
        count = int(np.prod(shape))
        bits = np.unpackbits(packed.reshape(-1).view(np.uint8), bitorder="little")
        codes = bits[: count * self.bits].reshape(count, self.bits) @ (1 << np.arange(self.bits))
        return self.numbers()[codes].astype(self.numpy).reshape(shape)

    def __invert__(self) -> Pointer:
        """~int4b: a pointer to the bytes."""
        return Pointer(u8)

    __repr__ = DType.__str__


def _floats(*formats: tuple[int, int]) -> dict[str, Narrow]:
    named = ((f"float{1 + e + m}_e{e}m{m}", e, m) for e, m in formats)
    return {
        name: Narrow(name, "float", 1 + e + m, np.dtype(np.float32), e, m) for name, e, m in named
    }


NARROW: dict[str, Narrow] = {
    **{f"int{n}b": Narrow(f"int{n}b", "int", n, np.dtype(np.int8)) for n in range(1, 8)},
    **{f"uint{n}b": Narrow(f"uint{n}b", "uint", n, np.dtype(np.uint8)) for n in range(1, 8)},
    **_floats((1, 1), (2, 1), (2, 2), (3, 1), (2, 3), (3, 2), (4, 1), (2, 4), (3, 3), (4, 2), (5, 1)),
}  # fmt: skip


def load(view: NarrowView, offsets: Any, sizes: tuple[int, ...], dims: Any) -> Value:
    """The numbers of a box of packed elements, zeros out of bounds."""
    emitter, d = current(), view.dtype
    assert isinstance(d, Narrow)
    at = offsets if isinstance(offsets, tuple) else (offsets,)
    axes = axes_of(dims, len(view.shape), len(sizes))
    if len(at) != len(view.shape) or axes is None:
        refuse(
            "view-rank",
            f"{len(at)} offsets and a box of {len(sizes)} axes of a view of {len(view.shape)}",
            "give one offset for each axis of the view, and name the box's axes with dims=",
        )
    element: Any = 0
    inside: Any = True
    for axis, (first, size, step) in enumerate(zip(at, view.shape, view.strides, strict=True)):
        index: Any = emitter.cast(index_of(first), i64)
        if axis in axes:
            index = emitter.binary("+", shapes.places_along(sizes, axes.index(axis)), index)
        element = emitter.binary("+", element, emitter.binary("*", index, step))
        for one in (emitter.binary("<", index, size), emitter.binary(">=", index, 0)):
            inside = emitter.binary("&", inside, one)
    inside = emitter.expand_to(inside, sizes)
    first_bit = emitter.expand_to(emitter.binary("*", element, d.bits), sizes)
    byte = emitter.binary("+", view.pointer, emitter.binary(">>", first_bit, 3))
    shift = emitter.cast(emitter.binary("&", first_bit, 7), u32)
    bits: Any = emitter.cast(memory.load(byte, inside, 0), u32)
    if 8 % d.bits:  # some elements end in the next byte
        spread = emitter.binary("&", inside, emitter.binary(">", shift, 8 - d.bits))
        after = emitter.cast(memory.load(emitter.binary("+", byte, 1), spread, 0), u32)
        bits = emitter.binary("|", bits, emitter.binary("<<", after, 8))
    return _decoded(emitter.binary(">>", bits, shift), d)


def _decoded(bits: Operand, d: Narrow) -> Value:
    """Numbers of the lowest bits of u32 numbers."""
    emitter = current()
    if d.kind == "uint":
        return emitter.cast(emitter.binary("&", bits, (1 << d.bits) - 1), u8)
    signed = emitter.cast(emitter.binary("<<", bits, 32 - d.bits), i32)
    if d.kind == "int":
        return emitter.cast(emitter.binary(">>", signed, 32 - d.bits), i8)
    e = emitter.binary("&", emitter.binary(">>", bits, d.mantissa), (1 << d.exponent) - 1)
    m = emitter.binary("&", bits, (1 << d.mantissa) - 1)
    usual = emitter.binary(">", e, 0)
    scaled = emitter.binary(
        "<<", emitter.binary("|", m, 1 << d.mantissa), emitter.binary("-", e, 1)
    )
    whole = emitter.cast(emitter.select(usual, scaled, m), f32)  # of few bits: exact
    size = emitter.binary("*", whole, 2.0 ** (1 - d.bias - d.mantissa))
    return emitter.value(
        emitter.select(emitter.binary("<", signed, 0), emitter.negative(size), size)
    )
