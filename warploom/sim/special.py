"""Functions of one float64 that neither Python nor NumPy has (NIST, Digital Library of Mathematical
Functions, chapters 7 and 10)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

_INTEGRATED = 30.0  # Bessel functions of more than this by their expansion for large numbers


def erfcinv(y: float) -> float:
    """x with erfc(x) = y: Newton's steps on the logarithms, on the side where erfc keeps its digits."""
    if not 0 < y < 2:
        return {0.0: math.inf, 2.0: -math.inf}.get(y, math.nan)
    if y >= 0.5:
        return erfinv(1 - y)
    x = math.sqrt(-math.log(y))
    for _ in range(20):
        scaled = erfcx(x)  # erfc(x) = scaled·exp(-x²)
        step = (math.log(scaled) - x * x - math.log(y)) * scaled * math.sqrt(math.pi) / 2
        x += step
        if abs(step) <= 1e-15 * x:
            break
    return x


def erfinv(x: float) -> float:
    """y with erf(y) = x."""
    if abs(x) > 0.5:
        return math.copysign(erfcinv(1 - abs(x)), x) if abs(x) <= 1 else math.nan
    y = x * math.sqrt(math.pi) / 2
    for _ in range(6):
        y -= (math.erf(y) - x) * math.sqrt(math.pi) / 2 * math.exp(y * y)
    return y


def erfcx(x: float) -> float:
    """exp(x²)·erfc(x)."""
    if x < 0:
        return 2 * math.exp(x * x) - erfcx(-x)
    if x < 25:
        high = math.floor(x * 2**20) / 2**20  # x² in two parts: exp of a rounded one loses digits
        return math.exp(high * high) * math.exp((x - high) * (x + high)) * math.erfc(x)
    r = 1 / (2 * x * x)
    return (1 - r * (1 - 3 * r * (1 - 5 * r * (1 - 7 * r * (1 - 9 * r))))) / (
        x * math.sqrt(math.pi)
    )


@cache
def _nodes(n: int) -> tuple[Any, Any]:
    """Gauss's nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(n)
    return (x + 1) / 2, w / 2


def _hankel(n: int, x: float) -> tuple[float, float]:
    """(J, Y) of order n at a large x (DLMF 10.17)."""
    parts, term = [1.0, 0.0], 1.0
    for k in range(1, 40):
        following = term * (4 * n * n - (2 * k - 1) ** 2) / (8 * k * x)
        if abs(following) > abs(term):
            break
        term = following
        parts[k % 2] += term * (-1) ** (k // 2)
    angle, size = x - (2 * n + 1) * math.pi / 4, math.sqrt(2 / (math.pi * x))
    c, s = math.cos(angle), math.sin(angle)
    return size * (parts[0] * c - parts[1] * s), size * (parts[0] * s + parts[1] * c)


def bessel_j(n: int, x: float) -> float:
    """J of order n (DLMF 10.9.2)."""
    if not math.isfinite(x):
        return 0.0 if math.isinf(x) else x
    if abs(x) > _INTEGRATED:
        return _hankel(n, abs(x))[0] * (1 if x > 0 or n % 2 == 0 else -1)
    at, weights = _nodes(64)
    return float(np.sum(weights * np.cos(n * math.pi * at - x * np.sin(math.pi * at))))


def bessel_y(n: int, x: float) -> float:
    """Y of order n (DLMF 10.9.7)."""
    if x <= 0 or not math.isfinite(x):
        return -math.inf if x == 0 else 0.0 if x == math.inf else math.nan
    if x > _INTEGRATED:
        return _hankel(n, x)[1]
    at, weights = _nodes(400)
    waves = np.sum(weights * np.sin(x * np.sin(math.pi * at) - n * math.pi * at))
    end = math.asinh(745 / x)
    t = end * at
    tail = np.sum(weights * (np.exp(n * t) + (-1) ** n * np.exp(-n * t)) * np.exp(-x * np.sinh(t)))
    return float(waves - end / math.pi * tail)


def bessel_jn(n: int, x: float) -> float:
    """J of any order n; NaN where n < 0, as CUDA has it."""
    if n < 2 or not math.isfinite(x):
        return bessel_j(n, x) if n >= 0 else math.nan
    size = abs(x)
    sign = -1 if x < 0 and n % 2 else 1
    if size > n:  # upwards, which is stable as long as the order is below x
        below, found = bessel_j(0, size), bessel_j(1, size)
        for k in range(1, n):
            below, found = found, 2 * k / size * found - below
        return sign * found
    if not size or n * math.log(size / 2) - math.lgamma(n + 1) < -750:  # DLMF 10.14.4
        return 0.0
    # Downwards from an order that doesn't matter, and scaled: J_0 + 2·(J_2 + J_4 + …) = 1 (DLMF 10.12.4).
    above, here, total, found = 0.0, 1e-300, 0.0, 0.0
    for k in range(n + 40 + int(math.sqrt(40 * n)), 0, -1):
        if k == n:
            found = here
        total += 2 * here * (k % 2 == 0)
        above, here = here, 2 * k / size * here - above
        if abs(here) > 1e250:
            above, here, total, found = (v * 1e-250 for v in (above, here, total, found))
    return sign * found / (total + here)


def bessel_yn(n: int, x: float) -> float:
    """Y of any order n, upwards from those of order 0 and 1; NaN where n < 0, as CUDA has it."""
    if n < 2 or not 0 < x < math.inf:
        return bessel_y(n, x) if n >= 0 else math.nan
    below, found = bessel_y(0, x), bessel_y(1, x)
    for k in range(1, n):
        if math.isinf(found):
            break
        below, found = found, 2 * k / x * found - below
    return found


def bessel_i(n: int, x: float) -> float:
    """I of order n (DLMF 10.32.3)."""
    at, weights = _nodes(64 + 8 * int(math.sqrt(min(abs(x), 800))))
    c = np.cos(math.pi * at)
    with np.errstate(over="ignore"):
        scaled = np.sum(weights * np.exp(np.abs(x) * (c - 1)) * np.cos(n * math.pi * at))
        return float(scaled * np.exp(np.abs(x))) * (1 if x > 0 or n % 2 == 0 else -1)
