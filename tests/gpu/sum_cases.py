"""Operands for sums: random ones, and such as tell one rule of adding from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tests.sim.tensor_core_vectors import dtypes_of
from warploom.ir.types import DType, f16, f32


@dataclass(frozen=True)
class Range:
    """A format's: exponents of its smallest and largest normal numbers, bits behind the point that count."""

    low: int
    high: int
    bits: int


def range_of(dtype: DType) -> Range:
    info = ml_dtypes.finfo(dtype.numpy)
    bits = 10 if dtype == f32 else info.nmant
    return Range(int(info.minexp), int(info.maxexp) - 1, bits)


class Problem:
    """Draws the operands of one problem: a (steps, 64, K), b (steps, n, K), c (64, n)."""

    def __init__(self, rng: np.random.Generator, name: str, steps: int, n: int) -> None:
        self.rng = rng
        self.dtypes = dtypes_of(name)
        k = 32 // self.dtypes[0].bytes
        self.shapes = (steps, 64, k), (steps, n, k), (64, n)
        self.ranges = tuple(map(range_of, self.dtypes))

    def cast(self, i: int, x: Any) -> Any:
        """Operand number i; of tf32 the bits that are not read are random."""
        out = x.astype(np.float32).astype(self.dtypes[i].numpy)
        if self.dtypes[i] == f32 and i < 2:
            noise = self.rng.integers(0, 1 << 13, out.shape, np.uint32)
            out = ((out.view(np.uint32) & np.uint32(0xFFFFE000)) | noise).view(np.float32)
        return out

    def any_bits(self, i: int) -> Any:
        size = self.dtypes[i].bytes
        raw = self.rng.integers(0, 256, (*self.shapes[i], size), np.uint8)
        return raw.view(self.dtypes[i].numpy)[..., 0]

    def finite_bits(self, i: int) -> Any:
        x = self.any_bits(i)
        x[~np.isfinite(x.astype(np.float64))] = 1
        return x

    def spread(self, i: int, low: int, high: int, powers: bool = False) -> Any:
        """Signs and significands at random, exponents from low to high, as float64."""
        shape, bits = self.shapes[i], 23 if i == 2 else self.ranges[i].bits
        significand = 1 + self.rng.integers(0, 1 << bits, shape) / (1 << bits)
        sign = self.rng.choice([-1.0, 1.0], shape)
        exponent = self.rng.integers(low, high + 1, shape)
        return np.ldexp(sign if powers else sign * significand, exponent)

    def near(self, width: int, powers: bool = False) -> tuple[Any, Any, Any]:
        """Products whose exponents lie within 2 · width of a random middle, c somewhat farther; as float64."""
        a, b, _ = self.ranges
        at = int(self.rng.integers(max(a.low, -40), min(a.high, 40) + 1))
        other = int(self.rng.integers(max(b.low, -40), min(b.high, 40) + 1))
        if self.dtypes[2] == f16:  # in reach of the accumulator
            other = int(np.clip(self.rng.integers(-8, 9) - at, b.low, b.high))
        spans = [(0, at - width, at + width, a), (1, other - width, other + width, b)]
        x, y = (
            self.spread(i, max(low, r.low - r.bits), min(high, r.high), powers)
            for i, low, high, r in spans
        )
        return x, y, self.spread(2, at + other - width, at + other + 2 * width, powers)

    def rounded(self, *operands: Any) -> tuple[Any, Any, Any]:
        a, b, c = (self.cast(i, x) for i, x in enumerate(operands))
        return a, b, c


Made = tuple[Any, Any, Any]


def normal(p: Problem) -> Made:
    return p.rounded(*(p.rng.standard_normal(shape) for shape in p.shapes))


def finite(p: Problem) -> Made:
    return p.finite_bits(0), p.finite_bits(1), p.finite_bits(2)


def all_bits(p: Problem) -> Made:
    a, b, c = finite(p)
    for i, x in enumerate((a, b, c)):
        rare = p.rng.random(x.shape) < (0.003 if i < 2 else 0.05)
        x[rare] = p.any_bits(i)[rare]
    return a, b, c


def window(p: Problem) -> Made:
    return p.rounded(*p.near(int(p.rng.choice([1, 3, 6, 10, 14]))))


def powers(p: Problem) -> Made:
    """Ties and exact cuts: powers of two, and a c with bits at its very end."""
    a, b, c = p.rounded(*p.near(int(p.rng.choice([3, 6, 12])), powers=True))
    word = c.view(f"u{c.itemsize}")
    return a, b, (word | p.rng.integers(0, 4, c.shape).astype(word.dtype)).view(c.dtype)


def cancelling(p: Problem) -> Made:
    """Products that come with their negatives, larger than the others."""
    a, b, c = p.near(int(p.rng.choice([1, 2, 4, 6])))
    i, j = p.rng.choice(a.shape[-1], 2, replace=False)
    a[..., i] *= 2.0 ** p.rng.integers(0, 13)
    a[..., j] = -a[..., i]
    b[..., j] = b[..., i]
    return p.rounded(a, b, c)


def cancelled_by_c(p: Problem) -> Made:
    a, b, c = p.rounded(*p.near(int(p.rng.choice([1, 2, 4]))))
    wide = [np.asarray(x, np.float64) for x in (a, b)]
    c = p.cast(2, -np.einsum("mk,nk->mn", wide[0][0], wide[1][0]))
    word = c.view(f"u{c.itemsize}")
    flips = np.where(p.rng.random(c.shape) < 0.3, p.rng.integers(0, 16, c.shape), 0)
    return a, b, (word ^ flips.astype(word.dtype)).view(c.dtype)


def special(p: Problem) -> Made:
    """Infinities, NaNs, zeros, the ends of the range, among ordinary numbers."""
    found = list(p.rounded(*p.near(4)))
    for i, x in enumerate(found):
        info = ml_dtypes.finfo(x.dtype)
        ends = [0.0, -0.0, np.inf, -np.inf, np.nan, *(float(v) for v in (info.max, info.min))]
        ends += [float(info.smallest_subnormal), float(info.smallest_normal)]
        rare = p.rng.random(x.shape) < (0.1 if i == 2 else 0.15 / x.shape[-1])
        x[rare] = p.rng.choice(np.array(ends).astype(x.dtype), int(rare.sum()))
    return found[0], found[1], found[2]


def zeros(p: Problem) -> Made:
    """Zero products whose other factor is as large as can be; c often zero."""
    a, b, c = p.near(3)
    at = p.rng.random(a.shape) < p.rng.choice([0.2, 0.9, 1.0])
    a[at] = np.copysign(0.0, a[at])
    b[..., 0] = 2.0 ** p.ranges[1].high
    a[..., 0] = np.copysign(0.0, a[..., 0])
    c[p.rng.random(c.shape) < 0.5] = 0.0
    return p.rounded(a, b, c)


def minus_zeros(p: Problem) -> Made:
    a, b, c = p.near(3)
    c = np.where(p.rng.random(c.shape) < 0.5, -0.0, c * 2.0**-100)
    return p.rounded(a * 0.0, b, c)


def tiny(p: Problem) -> Made:
    """Products about the floor and below it (f16 and 8-bit formats: of subnormals), c subnormal or zero."""
    a, b, c = p.ranges
    if a.low < -100:
        at = int(p.rng.integers(-100, -40))
        other = int(p.rng.integers(-155, -120)) - at
        x, y = p.spread(0, at - 4, at + 4), p.spread(1, other - 4, other + 4)
    else:
        x, y = p.spread(0, a.low - a.bits, a.low + 1), p.spread(1, b.low - b.bits, b.low + 1)
    z = p.spread(2, c.low - 23, c.low)
    z[p.rng.random(z.shape) < 0.4] = 0
    return p.rounded(x, y, z)


def huge(p: Problem) -> Made:
    """About the accumulator's overflow, or the operands' largest products."""
    a, b, c = p.ranges
    top = min(c.high, a.high + b.high)
    at = min(a.high, top // 2)
    x, y = p.spread(0, at - 4, at), p.spread(1, top - at - 6, min(top - at, b.high))
    return p.rounded(x, y, p.spread(2, top - 3, top))


def far_c(p: Problem) -> Made:
    """A c from 2^30 times smaller to as much larger than the products."""
    a, b, _ = p.near(2)
    size = np.abs(np.einsum("mk,nk->mn", a[0], b[0])) + 1e-30
    return p.rounded(a, b, size * p.spread(2, -30, 30))


def subnormal_operands(p: Problem) -> Made:
    """Subnormals times numbers of all sizes: which exponent the largest product has shows in the cut."""
    r = p.ranges[0]
    x = p.spread(0, r.low - r.bits, r.low - 1)
    large = p.ranges[1].high
    y = p.spread(1, max(large - 24, p.ranges[1].low), large)
    z = p.spread(2, r.low + large - 30, r.low + large - 8)
    z[p.rng.random(z.shape) < 0.5] = 0
    return p.rounded(x, y, z)


def tiny_c_alone(p: Problem) -> Made:
    """Every product is zero next to 0 < |c|, down to the smallest: would zeros count, c would be cut away.  Of
    8-bit operands the result is cut to 13 bits, counted from 2^-126 where it is subnormal."""
    x, y, _ = p.near(3)
    low = p.ranges[2].low
    return p.rounded(x * 0.0, y, p.spread(2, low - 23, low + 20))


CASES: tuple[Callable[[Problem], Made], ...] = (
    normal, finite, all_bits, window, powers, cancelling, cancelled_by_c, special, zeros, minus_zeros,
    tiny, huge, far_c, subnormal_operands, tiny_c_alone,
)  # fmt: skip


def problems(name: str, steps: int, n: int, count: int, seed: int) -> Made:
    """So many problems of a format, of each case in turn, in one array each."""
    rng = np.random.default_rng([seed, steps, n])
    with np.errstate(all="ignore"):
        made = [CASES[i % len(CASES)](Problem(rng, name, steps, n)) for i in range(count)]
    a, b, c = (np.stack(x) for x in zip(*made, strict=True))
    return a, b, c
