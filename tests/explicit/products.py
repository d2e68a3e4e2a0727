"""Inputs and results of the library's explicit products other than the plain one, for the simulator and the
GPU.  Data that is exact in float32 has to come out bit-equal; random data close to float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from warploom.kernels.explicit.dual_gemm import DualGemm
from warploom.kernels.explicit.fp8_gemm import Fp8Gemm, Fp8GemmPromoted
from warploom.kernels.explicit.gemm import Gemm

BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3fn

Inputs = tuple[Any, ...]
Make = Callable[[np.random.Generator, int, int, int], Inputs]


def plain_exact(rng: np.random.Generator, m: int, n: int, k: int) -> Inputs:
    return tuple(rng.integers(-3, 4, (rows, k)).astype(BF16) for rows in (m, n))


def plain_random(rng: np.random.Generator, m: int, n: int, k: int) -> Inputs:
    return tuple(rng.standard_normal((rows, k)).astype(BF16) for rows in (m, n))


def plain_wanted(a: Any, b: Any) -> Any:
    return a.astype(np.float64) @ b.astype(np.float64).T


def untransposed(make: Make) -> Make:
    """The same with B as (K, N)."""

    def made(*args: Any) -> Inputs:
        a, b = make(*args)
        return a, np.ascontiguousarray(b.T)

    return made


def dual_exact(rng: np.random.Generator, m: int, n: int, k: int) -> Inputs:
    """The gate's sums are 0 or 32 and more, where silu(x) is x."""
    a = rng.integers(0, 3, (m, k))
    b1, b2 = 32 * rng.integers(0, 2, (n, k)), rng.integers(-3, 4, (n, k))
    return tuple(x.astype(BF16) for x in (a, b1, b2))


def dual_random(rng: np.random.Generator, m: int, n: int, k: int) -> Inputs:
    a, b1, b2 = (rng.standard_normal((rows, k)) for rows in (m, n, n))
    return tuple(x.astype(BF16) for x in (a, b1 * 2 / np.sqrt(k), b2 / np.sqrt(k)))


def dual_wanted(a: Any, b1: Any, b2: Any) -> Any:
    gate, up = (a.astype(np.float64) @ b.astype(np.float64).T for b in (b1, b2))
    return gate / (1 + np.exp(-gate)) * up


def fp8_exact(rng: np.random.Generator, m: int, n: int, k: int) -> Inputs:
    a, b = (rng.integers(-3, 4, (rows, k)).astype(E4M3) for rows in (m, n))
    scales = (2.0 ** rng.integers(-3, 4, rows) for rows in (m, n))
    return (a, b, *(s.astype(np.float32) for s in scales))


def fp8_random(rng: np.random.Generator, m: int, n: int, k: int) -> Inputs:
    rows = [rng.standard_normal((r, k)).astype(np.float32) for r in (m, n)]
    scales = [(abs(x).max(1) / 448).astype(np.float32) for x in rows]
    a, b = ((x / s[:, None]).astype(E4M3) for x, s in zip(rows, scales, strict=True))
    return a, b, *scales


def fp8_wanted(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    product = a.astype(np.float64) @ b.astype(np.float64).T
    return product * scale_a[:, None].astype(np.float64) * scale_b.astype(np.float64)


@dataclass(frozen=True)
class Product:
    """A kernel and what it should compute.  signature: of `compile`, all aligned."""

    name: str
    make: Callable[..., Any]  # programs -> the script
    exact: Make
    random: Make
    wanted: Callable[..., Any]
    signature: tuple[str, ...]


_PLAIN = (*["*bf16:16"] * 3, *["i32:16"] * 3)
_DUAL = (*["*bf16:16"] * 4, *["i32:16"] * 3)
_FP8 = (*["*fp8e4nv:16"] * 2, *["*fp32:16"] * 2, "*bf16:16", *["i32:16"] * 3)


def _dual(name: str, **how: Any) -> Product:
    return Product(
        name, lambda programs=132: DualGemm(programs, **how), dual_exact, dual_random, dual_wanted, _DUAL
    )  # fmt: skip


def _fp8(name: str, cls: Any, **how: Any) -> Product:
    return Product(
        name, lambda programs=132: cls(programs, **how), fp8_exact, fp8_random, fp8_wanted, _FP8
    )  # fmt: skip


PRODUCTS = [
    Product(
        "A·Bᵀ, 128 columns",
        lambda programs=132: Gemm(programs, block_n=128, stages=6),
        plain_exact,
        plain_random,
        plain_wanted,
        _PLAIN,
    ),
    Product(
        "A·B",
        lambda programs=132: Gemm(programs, transposed=False),
        untransposed(plain_exact),
        untransposed(plain_random),
        lambda a, b: plain_wanted(a, b.T),
        _PLAIN,
    ),
    _dual("dual"),
    _dual("dual, not staggered, 3 slots", stagger=False, stages=3),
    _fp8("fp8", Fp8Gemm),
    _fp8("fp8, staggered", Fp8Gemm, stagger=True),
    _fp8("promoted, 192 columns", Fp8GemmPromoted),
    _fp8(
        "promoted, 256 columns in halves, staggered",
        Fp8GemmPromoted,
        block_n=256,
        pieces=2,
        stagger=True,
    ),
]

SHAPES = [(192, 272, 208), (64, 16, 400)]
