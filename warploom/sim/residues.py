"""Floats as residues modulo a prime: the numerics of the algebra mode (sim/algebra.py says what they mean).

What they compute with: sim/field.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from warploom.ir.core import Op, OpKind, Value
from warploom.ir.ops import arith, combine, scaled, tile
from warploom.ir.types import DType, Pointer, Scalar, Tile, dtype_of, i8, i16, i32, i64
from warploom.sim import field
from warploom.sim.evaluate import FUNCTIONS, Fn, combined, prepared
from warploom.sim.numerics import Numerics
from warploom.sim.scaled import RESIDUES
from warploom.sim.shared import SharedMemory

Array = np.ndarray[Any, np.dtype[Any]]
INF = np.inf


def _fixed(kind: OpKind) -> dict[float, float]:
    """Of a function that is a random map the values that programs and passes rely on: those at 0, 1 and the
    infinities that are such numbers themselves."""
    plain = (0.0, 1.0, -1.0, INF, -INF)
    with np.errstate(all="ignore"):
        found = {x: float(FUNCTIONS[kind](np.float64(x))) for x in (0.0, 1.0, INF, -INF)}
    return {x: y for x, y in found.items() if y in plain}


_FIXED = {k: _fixed(k) for k in arith.MATH if k not in (arith.rcp, arith.rsqrt)}


def _root(x: Any) -> Any:
    return field.mapped(x, "sqrt", _FIXED[arith.sqrt])


_FLOATS: dict[OpKind, Fn] = {
    arith.add: field.add,
    arith.sub: field.subtract,
    arith.mul: field.product,
    arith.div: field.quotient,
    arith.div_rn: field.quotient,
    arith.rem: partial(field.mapped_pair, key="rem"),
    arith.minimum: np.fmin,
    arith.maximum: np.fmax,
    arith.lt: np.less,
    arith.le: np.less_equal,
    arith.gt: np.greater,
    arith.ge: np.greater_equal,
    arith.eq: np.equal,
    arith.ne: np.not_equal,
    arith.neg: field.negative,
    arith.abs_: np.abs,
    arith.rcp: field.inverse,
    arith.rsqrt: lambda x: field.inverse(_root(x)),
    **{kind: partial(field.mapped, key=kind.name, fixed=fixed) for kind, fixed in _FIXED.items()},
}
_REDUCED: dict[str, Any] = {"add": field.add, "mul": field.product, "max": np.fmax, "min": np.fmin}


class Algebra(Numerics):
    """Floats as residues."""

    def holds(self, dtype: DType) -> np.dtype[Any]:
        return np.dtype(np.float64) if dtype.is_float else dtype.numpy

    def number(self, value: Any, dtype: DType) -> Any:
        exact = super().number(value, dtype)
        return np.float64(field.natural(float(exact))) if dtype.is_float else exact

    def meaning(self, o: Op) -> Fn:
        if o.kind is arith.const and o.attrs["dtype"].is_float:
            value = self.number(o.attrs["value"], o.attrs["dtype"])
            return lambda: value
        if o.kind in (arith.cast, arith.bitcast):
            source, target = dtype_of(o.operands[0].type), o.attrs["dtype"]
            if source.is_float or target.is_float:
                return partial(_cast if o.kind is arith.cast else _bitcast, source, target)
        if o.kind is arith.decode:
            return partial(RESIDUES.number, o)
        if o.kind is scaled.dot_scaled or (o.kind is tile.dot and len(o.operands) > 3):
            return lambda *values: self.multiply(*RESIDUES.operands(o, values), values[2])
        if o.kind in combine.SEVERAL:
            return partial(combined, self.meaning, o)
        if not o.operands or not _is_float(o.operands[0]):
            return prepared(o)
        if o.kind in _FLOATS:
            return _FLOATS[o.kind]
        if o.kind in (tile.reduce, tile.scan):
            return partial(_folded, o)
        if o.kind is tile.dot:
            return self.multiply
        return prepared(o)

    def multiply(self, a: Any, b: Any, start: Any = None) -> Any:
        if a.dtype.kind in "iu":
            return super().multiply(a, b, start)
        found = field.matmul(a, b)
        return found if start is None else field.add(found, start)

    def fused(self, a: Any, b: Any, start: Any) -> Any:
        return self.multiply(a, b, start)

    def combined(self, fn: str, old: Any, new: Any) -> Any:
        if old.dtype == np.float64 and fn in _REDUCED:
            return _REDUCED[fn](old, new)
        return super().combined(fn, old, new)

    def garbage(self, dtype: DType) -> Any:
        return self.holds(dtype).type(super().garbage(dtype))

    def shared(self, size: int) -> SharedMemory:
        return ResidueMemory(size)


ALGEBRA = Algebra()


def _is_float(v: Value) -> bool:
    t = v.type
    return isinstance(t, Scalar | Tile) and not _is_pointer(t) and dtype_of(t).is_float


def _is_pointer(t: Scalar | Tile) -> bool:
    return isinstance(t, Tile) and isinstance(t.elem, Pointer)


# ---- conversions, one side of which is a float


def _cast(source: DType, target: DType, x: Any) -> Any:
    if source.is_float and target.is_float:
        return x
    if target.is_float:
        return field.signed(x)
    if target.kind == "bool":
        return np.not_equal(x, 0)
    info = np.iinfo(target.numpy)
    whole = np.where(np.isfinite(x), x, 0.0).astype(np.int64).astype(target.numpy)
    out = np.where(np.isposinf(x), info.max, np.where(np.isneginf(x), info.min, whole))
    return out.astype(target.numpy)[()]


_WORDS = {8: i8, 16: i16, 32: i32, 64: i64}


def _infinities(dtype: DType) -> dict[float, int]:
    """The infinities' bits, as signed integers (e4m3 has none: those of its NaN)."""
    word = _WORDS[dtype.bits].numpy
    return {x: int(np.array(x).astype(dtype.numpy).view(word)) for x in (INF, -INF)}


def _bitcast(source: DType, target: DType, x: Any) -> Any:
    """A residue's bits are its own number, wrapped; of 32 and 64 bits all come back."""
    if source.is_float and target.is_float:
        return x
    if source.is_float:
        bits = np.where(np.isfinite(x), x, -1.0).astype(np.int64)
        for value, pattern in _infinities(source).items():
            bits = np.where(np.equal(x, value), pattern, bits)
        return bits.astype(target.numpy)[()]
    bits = np.ascontiguousarray(x).view(_WORDS[target.bits].numpy).astype(np.int64)
    bits = bits.reshape(np.shape(x))
    out = np.asarray(field.signed(bits))
    for value, pattern in _infinities(target).items():
        out = np.where(bits == pattern, value, out)
    return out[()]


def _folded(o: Op, x: Any) -> Any:
    """Reductions and scans."""
    fn, axis, keeps = o.attrs["fn"], o.attrs["axis"], o.kind is tile.scan
    backwards = keeps and o.attrs["reverse"]
    x = np.flip(x, axis) if backwards else x
    if fn == "mul":
        found = field.fold(field.product, x, axis, keeps)
    else:
        ufunc = {"add": np.add, "max": np.fmax, "min": np.fmin}[fn]
        found = (ufunc.accumulate if keeps else ufunc.reduce)(x, axis=axis)
        found = field.reduced(found) if fn == "add" else found
    return np.flip(found, axis) if backwards else found


# ---- shared memory


class ResidueMemory(SharedMemory):
    """Bytes for integers, and beside them cells for floats: one for each byte address, that of an element's
    first byte holds its residue.  Whatever one of the two writes is spoilt in the other."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.cells = np.full(size, np.nan)
        self.cells_of_engines = self.cells.copy()  # what TMA and wgmma see

    def _read(self, addresses: Array, dtype: DType, asynchronous: bool) -> Array:
        if not dtype.is_float:
            return super()._read(addresses, dtype, asynchronous)
        return (self.cells_of_engines if asynchronous else self.cells)[addresses]

    def _write(self, addresses: Array, values: Array, dtype: DType, asynchronous: bool) -> None:
        word, numbers = dtype, values
        if dtype.is_float:
            word = _WORDS[dtype.bits]
            numbers = np.full(addresses.shape, -1, word.numpy)
        super()._write(addresses, numbers, word, asynchronous)
        for cells in (self.cells, self.cells_of_engines) if asynchronous else (self.cells,):
            for byte in range(dtype.bytes):
                cells[addresses + byte] = np.nan
            if dtype.is_float:
                cells[addresses] = np.reshape(values, addresses.shape)

    def fence(self) -> None:
        for addresses in self.unfenced:
            self.cells_of_engines[addresses] = self.cells[addresses]
        super().fence()
