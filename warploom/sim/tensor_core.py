"""How tensor cores add, bit for bit.

One instruction computes d = c + a sum of k products in one piece, without an order among them:

 1. Operands are read as sign · significand · 2^e.  A subnormal keeps its format's smallest normal exponent.
    f32 operands are tf32: their 13 lowest bits are not read.
 2. Products are exact; a product's exponent is the sum of its operands' (it is not normalised).
 3. top = the largest of the nonzero products' exponents, that of c if it is not zero, and `floor`.
 4. Every product and c is cut, towards zero, to a multiple of 2^(top - kept), and all are added exactly.
 5. The sum is written in the accumulator's format: cut towards zero to `fraction` bits after the leading
    one (the others are 0), or rounded to nearest even.  Subnormals are kept, overflow is infinity, a zero
    is +0.

A longer sum is a chain of instructions in ascending order of K; what one writes the next one reads.  A NaN
among the operands, inf · 0 and inf - inf give the NaN of all ones but the sign; another infinity stays.

With block scales a product's exponent has those of its scales, too.  Of e2m1 the products of a group of 16
are added exactly before that and count as one, with the exponents of their scales and no others.

A unit's numbers are data of its target: an `Arithmetic` for each kind of operands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import ml_dtypes
import numpy as np

from warploom.errors import InternalError
from warploom.ir.core import Op
from warploom.ir.ops import tile
from warploom.ir.types import DTYPES, DType, dtype_of, f32
from warploom.schedule.rings import promotion_step
from warploom.sim.evaluate import Fn
from warploom.sim.numerics import Numerics
from warploom.sim.scaled import decoded
from warploom.target import Arithmetic, MatrixUnit, Target

Array = np.ndarray[Any, np.dtype[Any]]

_NEVER = -(10**6)  # the exponent of a zero, which never counts
_TF32 = np.uint32(0xFFFFE000)


def rule(unit: MatrixUnit, a: DType, b: DType, accumulator: DType, scale: str = "") -> Arithmetic:
    """How a unit adds products of these dtypes, with scales of one or without.  Raises InternalError where
    there is no rule."""
    product = unit.product(a.name, b.name, accumulator.name, scale)
    if product is None or product.arithmetic is None:
        names = ", ".join(t.name for t in (a, b, accumulator))
        raise InternalError(f"no rule for {unit.instruction} of {names}")
    return product.arithmetic


def accumulate(a: Array, b: Array, c: Array | None, rule: Arithmetic) -> Array:
    """c + a @ b, of a (m, k), b (k, n), c (m, n), or of batches of these, as a chain of instructions adds; no
    c: instructions whose predicate scale-d is false to begin with.

    a, b: float16, bfloat16, float32 (taken for tf32), float8_e4m3fn or float8_e5m2; c and the result are of
    the rule's accumulator."""
    dtype = DTYPES[rule.accumulator].numpy
    if a.ndim == 3:
        sums = (None,) * len(a) if c is None else c
        return np.stack([accumulate(*x, rule) for x in zip(a, b, sums, strict=True)])
    total = np.zeros((a.shape[0], b.shape[1]), dtype) if c is None else c
    with np.errstate(all="ignore"):
        if rule.through is not None:
            a, b = (x.astype(DTYPES[rule.through].numpy) for x in (a, b))
        left, right = _read(a), _read(b)
        for first in range(0, a.shape[1], rule.k):
            at = np.arange(first, min(first + rule.k, a.shape[1]))
            total = _instruction(left, right, at, total, rule)
    return total


def accumulate_scaled(a: Scaled, b: Scaled, c: Array, rule: Arithmetic) -> Array:
    """c + a @ bᵀ of block-scaled operands, a (m, k) and b (n, k), as a chain of instructions adds; c and the
    result (m, n) in float32."""
    total, k = c, a.elements.given.shape[1]
    with np.errstate(all="ignore"):
        for first in range(0, k, rule.k):
            at = np.arange(first, min(first + rule.k, k), rule.group)
            total = _fused_sum(ScaledProducts(a, b, at, rule.group), total, rule)
    return total


def _instruction(a: Operand, b: Operand, at: Array, c: Array, rule: Arithmetic) -> Array:
    """One instruction on the products number `at`."""
    total = np.zeros_like(c) if rule.after else c
    for part in rule.parts:
        total = _fused_sum(Products(a, b, at[np.isin(at % 4, part)]), total, rule)
    if rule.after:
        total = c + total
        total = np.where(np.isnan(total), _nan(DTYPES[rule.accumulator]), total)
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


@dataclass(frozen=True)
class Products:
    """The terms of a sum: products number `at` of a (m, k) and b (k, n)."""

    a: Operand
    b: Operand
    at: Array

    @property
    def is_finite(self) -> bool:
        return self.a.is_finite and self.b.is_finite

    def exponents(self, k: int) -> Array:
        found: Array = np.add(self.a.exponents[:, k, None], self.b.exponents[k])
        return found

    def finite(self, k: int) -> Array:
        found: Array = np.multiply(self.a.finite[:, k, None], self.b.finite[k])
        return found

    def given(self, k: int) -> Array:
        found: Array = np.multiply(self.a.given[:, k, None], self.b.given[k])
        return found


@dataclass(frozen=True)
class Scaled:
    """A block-scaled operand: elements (rows, k), and a scale for each group of them."""

    elements: Operand
    scales: Operand


@dataclass(frozen=True)
class ScaledProducts:
    """The same of a (m, k) and b (n, k), from each of `at` on as many products as a group has."""

    a: Scaled
    b: Scaled
    at: Array
    group: int

    @property
    def is_finite(self) -> bool:
        return all(x.elements.is_finite and x.scales.is_finite for x in (self.a, self.b))

    def exponents(self, k: int) -> Array:
        of = [x.scales.exponents[:, self._scale(x, k)] for x in (self.a, self.b)]
        if self.group == 1:
            of = [e + x.elements.exponents[:, k] for e, x in zip(of, (self.a, self.b), strict=True)]
        return np.where(self.finite(k) == 0, _NEVER, of[0][:, None] + of[1])

    def finite(self, k: int) -> Array:
        return self._product(k, lambda x: x.finite)

    def given(self, k: int) -> Array:
        return self._product(k, lambda x: x.given)

    def _product(self, k: int, of: Callable[[Operand], Array]) -> Array:
        x, y = (of(s.elements)[:, k : k + self.group] for s in (self.a, self.b))
        by = [of(s.scales)[:, self._scale(s, k)] for s in (self.a, self.b)]
        found: Array = np.multiply(x @ y.T, by[0][:, None] * by[1])
        return found

    @staticmethod
    def _scale(x: Scaled, k: int) -> int:
        return int(k * x.scales.given.shape[1] // x.elements.given.shape[1])


def _fused_sum(terms: Products | ScaledProducts, c: Array, rule: Arithmetic) -> Array:
    """c and terms in one sum, steps 3 to 5."""
    start = c.astype(np.float64)
    starts_finite = np.isfinite(start)
    is_finite = terms.is_finite and starts_finite.all()
    if not is_finite:
        start = np.where(starts_finite, start, 0.0)
    top = np.maximum(_exponents(start, c.dtype), rule.floor)
    for k in terms.at:
        np.maximum(top, terms.exponents(k), out=top)
    unit = np.ldexp(1.0, top - rule.kept)
    per_unit = 1.0 / unit
    total = np.trunc(start * per_unit)
    for k in terms.at:
        term = terms.finite(k)
        term *= per_unit
        total += np.trunc(term, out=term)
    found = _written(total * unit, rule)
    return found if is_finite else _with_infinities(found, terms, c, DTYPES[rule.accumulator])


def _written(exact: Array, rule: Arithmetic) -> Array:
    """A sum in the accumulator's format; it is a float64, in which all sums are exact."""
    if rule.rounding == "nearest":
        found = exact.astype(DTYPES[rule.accumulator].numpy)
    else:
        found = exact.astype(np.float32)
        beyond = (np.abs(found.astype(np.float64)) > np.abs(exact)) & (np.abs(exact) < 2.0**128)
        unread = np.uint32((1 << (23 - rule.fraction)) - 1)
        found = ((found.view(np.uint32) - beyond) & ~unread).astype(np.uint32).view(np.float32)
    positive: Array = found + found.dtype.type(0)  # -0 becomes +0
    return positive


def _with_infinities(
    found: Array, terms: Products | ScaledProducts, c: Array, accumulator: DType
) -> Array:
    """The sums where infinities and NaNs take part."""
    total = np.where(np.isfinite(c), 0.0, c.astype(np.float64))
    for k in terms.at:
        term = terms.given(k)
        total += np.where(np.isfinite(term), 0.0, term)
    infinite = np.where(total > 0, np.inf, -np.inf).astype(found.dtype)
    return np.where(total == 0, found, np.where(np.isnan(total), _nan(accumulator), infinite))


def _nan(accumulator: DType) -> Any:
    """The NaN that a tensor core gives: all ones but the sign."""
    word = np.dtype(f"u{accumulator.bytes}")
    return word.type((1 << (accumulator.bits - 1)) - 1).view(accumulator.numpy)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """x · y + z of float32 with one rounding (PTX ISA, fma.rn.f32).  In float64 the product is exact; where
    the sum is not, it is rounded to odd, so that the second rounding goes as one of the exact sum would."""
    product, wide = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
    total = product + wide
    back = total - product
    left = (product - (total - back)) + (wide - back)  # what total lacks, exactly (Knuth)
    is_even = (total.view(np.int64) & 1) == 0
    odd = np.where(left > 0, np.inf, -np.inf)
    total = np.where(np.isfinite(left) & (left != 0) & is_even, np.nextafter(total, odd), total)
    found: Array = total.astype(np.float32)
    return np.where(np.isnan(found), _nan(f32), found)


class Exact(Numerics):
    """Dots as a target's matrix unit adds; all else as NumPy has it."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def meaning(self, o: Op) -> Fn:
        if o.kind is tile.dot and len(o.operands) > 3:
            return partial(self._scaled, o)
        if o.kind is not tile.dot or not dtype_of(o.operands[0].type).is_float:
            return super().meaning(o)
        if o.attrs.get("ieee"):
            return self.fused
        if o.attrs.get("max_imprecise"):
            return partial(self._promoted, promotion_step(o))
        return partial(self.added, self.target.unit_of(o.attrs.get("unit", "")))

    def _promoted(self, step: int, a: Any, b: Any, acc: Any) -> Any:
        """Sums over `step` of K, each added to acc by itself, as select_instructions has it."""
        for at in range(0, a.shape[-1], step):
            acc = acc + self.multiply(a[..., at : at + step], b[..., at : at + step, :])
        return acc

    def multiply(self, a: Any, b: Any, start: Any = None) -> Any:
        return self.added(None, a, b, start)

    def fused(self, a: Any, b: Any, start: Any) -> Any:
        """Products are added in the order of K, each with one rounding."""
        with np.errstate(all="ignore"):
            for k in range(a.shape[-1]):
                start = _fma(a[..., k, None], b[..., k, None, :], start)
        return start

    def _scaled(self, o: Op, a: Any, b: Any, start: Any, *scales: Any) -> Any:
        """Block-scaled operands, of which the scales lie by rows of either."""
        left, right, total, scale, _ = (dtype_of(v.type) for v in o.operands)
        unit = self.target.unit_of(o.attrs.get("unit", "")) or self.target.matrix_units[0]
        how = rule(unit, left, right, total, scale.name)
        sides = [Scaled(*map(_read, decoded(*x))) for x in zip((a, b.T), scales, strict=True)]
        return accumulate_scaled(sides[0], sides[1], start, how)

    def added(self, unit: MatrixUnit | None, a: Any, b: Any, start: Any) -> Any:
        """start + a @ b by a unit, by the preferred one of the operands where none is given."""
        if a.dtype.kind in "iu" or a.dtype == np.float64:
            return super().multiply(a, b, start)
        left, right = (_NAMED[x.dtype] for x in (a, b))
        total = f32 if start is None else _NAMED[start.dtype]
        unit = unit or self.target.matrix_unit(left.name, right.name, total.name)
        return accumulate(a, b, start, rule(unit, left, right, total))


_NAMED = {d.numpy: d for d in DTYPES.values()}


@lru_cache
def exact(target: Target) -> Numerics:
    """Numerics with the matrix units of a target."""
    return Exact(target)
