"""How tensor cores add, bit for bit.

One instruction computes d = c + a sum of k products in one piece, without an order among them:

 1. Operands are read as sign · significand · 2^e.  A subnormal keeps its format's smallest normal exponent.
    f32 operands are tf32: their 13 lowest bits are not read.
 2. Products are exact; a product's exponent is the sum of its operands' (it is not normalised).
 3. top = the largest of the nonzero products' exponents, that of c if it is not zero, and `floor`.
 4. Every product and c is cut, towards zero, to a multiple of 2^(top - kept), and all are added exactly.
 5. The sum is written in the accumulator's format: cut towards zero to `fraction` bits behind the leading
    one (the others are 0), or rounded to nearest even.  Subnormals are kept, overflow is infinity, a zero
    is +0.

A longer sum is a chain of instructions in ascending order of K; what one writes the next one reads.  A NaN
among the operands, inf · 0 and inf - inf give the NaN of all ones but the sign; another infinity stays.

An architecture's numbers are data: a `TensorCore`.  Those of the H200 were measured on one
(docs/simulator.md: how, on how many sums, and what was tested thinly).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import ml_dtypes
import numpy as np

from warploom.errors import InternalError
from warploom.ir.core import Op
from warploom.ir.ops import tile
from warploom.ir.types import DTYPES, DType, dtype_of, f16, f32
from warploom.schedule.rings import promotion_step
from warploom.sim.evaluate import Fn
from warploom.sim.numerics import Numerics

Array = np.ndarray[Any, np.dtype[Any]]

_NEVER = -(10**6)  # the exponent of a zero, which never counts
_TF32 = np.uint32(0xFFFFE000)


@dataclass(frozen=True)
class Arithmetic:
    """How one instruction adds: k products at a time, `kept` bits behind the largest exponent's point, and a
    result of `fraction` bits.

    accumulator: the dtype of c and d.  floor: with 25 bits kept, terms are never cut below 2^-158, nine bits
    behind the smallest float32.  parts: the products of an instruction by their index modulo 4, where it
    is several sums one after the other.  after: these sums begin at zero, and c is added to the last one as
    an FADD adds (IEEE float32).  through: what operands are converted to before they are read, in which
    subnormals of their own format may be normal numbers."""

    k: int
    kept: int
    fraction: int
    rounding: Literal["cut", "nearest"]
    accumulator: DType = f32
    floor: int = -133
    parts: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3),)
    after: bool = False
    through: DType | None = None


Pair = tuple[
    str, str, str
]  # names of the dtypes of A, B and the accumulator; f32 operands are tf32


@dataclass(frozen=True)
class TensorCore:
    """One architecture's: its rule for each kind of operands, of each of its instructions."""

    name: str
    wgmma: Mapping[Pair, Arithmetic]
    mma: Mapping[Pair, Arithmetic]  # mma.sync

    def rule(self, instruction: str, a: DType, b: DType, accumulator: DType) -> Arithmetic:
        """Raises InternalError where there is none."""
        table = {"wgmma": self.wgmma, "mma": self.mma}[instruction]
        key = a.name, b.name, accumulator.name
        if key not in table:
            raise InternalError(f"{self.name}: no rule for {instruction} of {', '.join(key)}")
        return table[key]


_BYTES = ("f8e4m3", "f8e5m2")
_WIDE: dict[Pair, Arithmetic] = {  # the same for both instructions
    ("f16", "f16", "f32"): Arithmetic(16, 25, 23, "cut"),
    ("bf16", "bf16", "f32"): Arithmetic(16, 25, 23, "cut"),
    ("f32", "f32", "f32"): Arithmetic(8, 25, 23, "cut"),
    ("f16", "f16", "f16"): Arithmetic(16, 25, 10, "nearest", f16),
}
# sm_90 has no mma.sync of fp8: ptxas converts to f16 and issues two of those, of bytes 0 and 1 of every word,
# then of bytes 2 and 3.
_TWO_HALVES = Arithmetic(32, 25, 23, "cut", parts=((0, 1), (2, 3)), after=True, through=f16)
HOPPER = TensorCore(
    "sm_90a",
    wgmma={
        **_WIDE,
        **{(a, b, "f32"): Arithmetic(32, 13, 13, "cut") for a in _BYTES for b in _BYTES},
        **{(a, b, "f16"): Arithmetic(32, 13, 10, "nearest", f16) for a in _BYTES for b in _BYTES},
    },
    mma={**_WIDE, **{(a, b, "f32"): _TWO_HALVES for a in _BYTES for b in _BYTES}},
)
TENSOR_CORES = {HOPPER.name: HOPPER}


def accumulate(a: Array, b: Array, c: Array | None, rule: Arithmetic) -> Array:
    """c + a @ b, of a (m, k), b (k, n), c (m, n), as a chain of instructions adds; no c: instructions whose
    predicate scale-d is false to begin with.

    a, b: float16, bfloat16, float32 (taken for tf32), float8_e4m3fn or float8_e5m2; c and the result are of
    the rule's accumulator."""
    dtype = rule.accumulator.numpy
    total = np.zeros((a.shape[0], b.shape[1]), dtype) if c is None else c
    with np.errstate(all="ignore"):
        if rule.through is not None:
            a, b = a.astype(rule.through.numpy), b.astype(rule.through.numpy)
        left, right = _read(a), _read(b)
        for first in range(0, a.shape[1], rule.k):
            at = np.arange(first, min(first + rule.k, a.shape[1]))
            total = _instruction(left, right, at, total, rule)
    return total


def _instruction(a: Operand, b: Operand, at: Array, c: Array, rule: Arithmetic) -> Array:
    """One instruction on the products number `at`."""
    total = np.zeros_like(c) if rule.after else c
    for part in rule.parts:
        total = _fused_sum(a, b, at[np.isin(at % 4, part)], total, rule)
    if rule.after:
        total = c + total
        total = np.where(np.isnan(total), _nan(rule.accumulator), total)
    return total


@dataclass(frozen=True)
class Operand:
    """A matrix as the tensor core reads it, in float64: with 0 in place of infinities and NaNs, exponents,
    and as it is."""

    finite: Array
    exponents: Array  # int32
    given: Array

    @property
    def is_finite(self) -> bool:
        return self.finite is self.given


def _read(x: Array) -> Operand:
    if x.dtype == np.float32:
        x = (np.ascontiguousarray(x).view(np.uint32) & _TF32).view(np.float32)
    given = x.astype(np.float64)
    is_finite = np.isfinite(given)
    finite = given if is_finite.all() else np.where(is_finite, given, 0.0)
    return Operand(finite, _exponents(finite, x.dtype), given)


def _exponents(values: Array, dtype: Any) -> Array:
    """Those of finite numbers of a format: of subnormals its smallest normal one, of zeros _NEVER."""
    least = int(ml_dtypes.finfo(dtype).minexp)  # type: ignore[no-untyped-call]
    found = np.maximum(np.frexp(values)[1] - 1, least)
    return np.where(values == 0, _NEVER, found).astype(np.int32)


def _fused_sum(a: Operand, b: Operand, at: Array, c: Array, rule: Arithmetic) -> Array:
    """c and the products number `at` in one sum, steps 3 to 5."""
    start = c.astype(np.float64)
    starts_finite = np.isfinite(start)
    is_finite = a.is_finite and b.is_finite and starts_finite.all()
    if not is_finite:
        start = np.where(starts_finite, start, 0.0)
    top = np.maximum(_exponents(start, c.dtype), rule.floor)
    for k in at:
        np.maximum(top, a.exponents[:, k, None] + b.exponents[k], out=top)
    unit = np.ldexp(1.0, top - rule.kept)
    per_unit = 1.0 / unit
    total = np.trunc(start * per_unit)
    for k in at:
        term = a.finite[:, k, None] * b.finite[k]
        term *= per_unit
        total += np.trunc(term, out=term)
    found = _written(total * unit, rule)
    return found if is_finite else _with_infinities(found, a, b, at, c, rule.accumulator)


def _written(exact: Array, rule: Arithmetic) -> Array:
    """A sum in the accumulator's format; it is a float64, in which all sums are exact."""
    if rule.rounding == "nearest":
        found = exact.astype(rule.accumulator.numpy)
    else:
        found = exact.astype(np.float32)
        beyond = (np.abs(found.astype(np.float64)) > np.abs(exact)) & (np.abs(exact) < 2.0**128)
        unread = np.uint32((1 << (23 - rule.fraction)) - 1)
        found = ((found.view(np.uint32) - beyond) & ~unread).astype(np.uint32).view(np.float32)
    positive: Array = found + found.dtype.type(0)  # -0 becomes +0
    return positive


def _with_infinities(
    found: Array, a: Operand, b: Operand, at: Array, c: Array, accumulator: DType
) -> Array:
    """The sums where infinities and NaNs take part."""
    total = np.where(np.isfinite(c), 0.0, c.astype(np.float64))
    for k in at:
        term = a.given[:, k, None] * b.given[k]
        total += np.where(np.isfinite(term), 0.0, term)
    infinite = np.where(total > 0, np.inf, -np.inf).astype(found.dtype)
    return np.where(total == 0, found, np.where(np.isnan(total), _nan(accumulator), infinite))


def _nan(accumulator: DType) -> Any:
    """The NaN that a tensor core gives: all ones but the sign."""
    word = np.dtype(f"u{accumulator.bytes}")
    return word.type((1 << (accumulator.bits - 1)) - 1).view(accumulator.numpy)


class Exact(Numerics):
    """Dots as a tensor core adds; all else as NumPy has it."""

    def __init__(self, core: TensorCore) -> None:
        self.core = core

    def meaning(self, o: Op) -> Fn:
        if o.kind is not tile.dot or not dtype_of(o.operands[0].type).is_float:
            return super().meaning(o)
        if o.attrs.get("max_imprecise"):
            return partial(self._promoted, promotion_step(o))
        return self.multiply

    def _promoted(self, step: int, a: Any, b: Any, acc: Any) -> Any:
        """Sums over `step` of K, each added to acc by itself, as select_instructions has it."""
        for at in range(0, a.shape[1], step):
            acc = acc + self.multiply(a[:, at : at + step], b[at : at + step])
        return acc

    def multiply(self, a: Any, b: Any, start: Any = None) -> Any:
        if a.dtype.kind in "iu":
            return super().multiply(a, b, start)
        left, right = (_NAMED[x.dtype] for x in (a, b))
        total = f32 if start is None else _NAMED[start.dtype]
        return accumulate(a, b, start, self.core.rule("wgmma", left, right, total))


_NAMED = {d.numpy: d for d in DTYPES.values()}


@lru_cache
def exact(target: str) -> Numerics:
    """Numerics with the tensor core of an architecture, by its name ("sm_90a")."""
    return Exact(TENSOR_CORES[target])
