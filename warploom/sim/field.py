"""Arithmetic in the integers modulo a prime, on NumPy arrays: what sim/algebra.py computes floats with.

A residue is a float64 that holds an integer from -(P - 1)/2 to (P - 1)/2, so that it has a sign and an
order.  P is the largest prime under 2^26: a product of two residues is below 2^50 and exact in float64, and
with one factor cut in halves of 13 bits so is a sum of 2^12 products, which BLAS may therefore add in any
order.  Beside the residues there are inf, -inf and NaN, by IEEE's rules; an infinity keeps its sign in a
product, unless the other factor is -1 (the sign of a residue says nothing of the number it stands for).
Call these functions under errstate(all="ignore").
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

P = 2**26 - 5
HALF = P // 2
_CUT = 2.0**13
_LONGEST = 2**12  # products in one sum, which is below 2^50

Array = Any  # a float64 array, or a float64 scalar


def reduced(x: Array) -> Array:
    """The residue of an integer of at most 2^50 (infinities and NaN stay)."""
    r = x - P * np.rint(x / P)
    is_finite = np.isfinite(x)
    return r if np.all(is_finite) else np.where(is_finite, r, x)[()]


def signed(n: Array) -> Array:
    """The residue of integers of any integer dtype."""
    whole = np.asarray(n)
    word = np.uint64 if whole.dtype.kind == "u" else np.int64
    r = np.mod(whole.astype(word), word(P)).astype(np.float64)
    return np.where(r > HALF, r - P, r)[()]


def natural(x: float) -> float:
    """The residue that a float stands for: m·2^e, divided in the field.  Sums and products of floats that
    need no rounding are those of their residues."""
    if not np.isfinite(x):
        return x
    n, d = float(x).as_integer_ratio()
    return float(signed(np.int64(n % P * pow(d, -1, P) % P)))


def naturals(x: Array) -> Array:
    """`natural` of each element of an array of floats."""
    wide = np.asarray(x, np.float64)
    is_finite = np.isfinite(wide)
    mantissa, exponent = np.frexp(np.where(is_finite, wide, 0.0))
    whole = signed((mantissa * 2.0**53).astype(np.int64))
    exponents, which = np.unique(exponent, return_inverse=True)
    powers = np.array([float(signed(pow(2, int(e) - 53, P))) for e in exponents])
    return np.where(is_finite, product(whole, powers[which].reshape(whole.shape)), wide)


def random(rng: np.random.Generator, count: int) -> Array:
    """So many residues, all equally likely."""
    return rng.integers(-HALF, HALF + 1, count).astype(np.float64)


# ---- ring and field


def add(x: Array, y: Array) -> Array:
    """x + y."""
    return reduced(x + y)


def subtract(x: Array, y: Array) -> Array:
    """x - y."""
    return reduced(x - y)


def negative(x: Array) -> Array:
    """-x (of 0 it is 0)."""
    return 0.0 - x


def product(x: Array, y: Array) -> Array:
    """x · y."""
    p = x * y
    is_infinite = np.isinf(p)
    if np.any(is_infinite):
        p = np.where(is_infinite, np.inf * _keeps_sign(x) * _keeps_sign(y), p)
    return reduced(p)


def _keeps_sign(x: Array) -> Array:
    """The sign of an infinity; of residues -1 for -1, else 1."""
    return np.where(np.isinf(x), np.sign(x), np.where(x == -1, -1.0, 1.0))


def inverse(x: Array) -> Array:
    """1 / x: x^(P - 2); of 0 it is inf, of an infinity 0."""
    out = np.ones_like(x)
    for bit in bin(P - 2)[2:]:
        out = product(out, out)
        if bit == "1":
            out = product(out, x)
    out = np.where(x == 0, np.inf, np.where(np.isinf(x), 0.0, out))
    return np.where(np.isnan(x), np.nan, out)[()]


def quotient(x: Array, y: Array) -> Array:
    """x / y."""
    return product(x, inverse(np.asarray(y, np.float64)))


def matmul(a: Array, b: Array) -> Array:
    """a @ b, exactly.  What an infinity or a NaN takes part in is NaN."""
    bad = ~np.isfinite(a).all(-1)[..., None] | ~np.isfinite(b).all(-2)[..., None, :]
    if bad.any():
        a, b = (np.where(np.isfinite(x), x, 0.0) for x in (a, b))
    high = np.rint(a / _CUT)
    low = a - high * _CUT
    out = np.zeros((*a.shape[:-1], b.shape[-1]))
    for k in range(0, a.shape[-1], _LONGEST):
        part = slice(k, k + _LONGEST)
        upper = reduced(high[..., part] @ b[..., part, :]) * _CUT
        out = reduced(out + upper + low[..., part] @ b[..., part, :])
    return np.where(bad, np.nan, out) if bad.any() else out


def fold(fn: Callable[[Array, Array], Array], x: Array, axis: int, keeps: bool) -> Array:
    """x combined along an axis; keeps: every partial result (a scan)."""
    rows = np.moveaxis(x, axis, 0)
    total, found = rows[0], [rows[0]]
    for row in rows[1:]:
        total = fn(total, row)
        found.append(total)
    return np.moveaxis(np.array(found), 0, axis) if keeps else total


# ---- functions that are no algebra: fixed random maps


def scrambled(x: Array, key: str) -> Array:
    """A fixed random map of integers to uint64 (splitmix64's finalizer)."""
    z = np.asarray(x, np.float64).astype(np.int64).view(np.uint64)
    salt = (zlib.crc32(key.encode()) + 1) * 0x9E3779B97F4A7C15
    z = z + np.uint64(salt % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def mapped(x: Array, key: str, fixed: dict[float, float]) -> Array:
    """A fixed random map of residues to residues, but for the values that `fixed` gives; of infinities that
    it doesn't give, and of NaN, it is NaN."""
    is_finite = np.isfinite(x)
    out = np.where(is_finite, signed(scrambled(np.where(is_finite, x, 0.0), key)), np.nan)
    for at, value in fixed.items():
        out = np.where(np.equal(x, at), value, out)
    return out[()]


def mapped_pair(x: Array, y: Array, key: str) -> Array:
    """A fixed random map of two residues; NaN where one is none."""
    is_finite = np.isfinite(x) & np.isfinite(y)
    inner = signed(scrambled(np.where(is_finite, y, 0.0), key))
    mixed = signed(scrambled(np.where(is_finite, x, 0.0) + 2.0**26 * inner, key))
    return np.where(is_finite, mixed, np.nan)[()]
