"""The library's products under odd arguments, against NumPy, and under bad ones: each is refused by name, before
anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tests.unit.fake_driver import FakeDriver, GpuArray
from warploom.errors import LaunchError
from warploom.kernels.dual import dual_gemm, dual_gemm_fp8
from warploom.kernels.fp8 import fp8_gemm, fp8_gemm_promoted
from warploom.kernels.gemm import gemm, persistent_grid
from warploom.runtime import launch
from warploom.runtime.seen import SeenCalls

BF16, F16, E4M3 = ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn
RANDOM = np.random.default_rng(0)


def integers(*shape: int, dtype: Any = BF16) -> Any:
    return RANDOM.integers(-3, 4, shape).astype(dtype)


def nan(*shape: int, dtype: Any = BF16) -> Any:
    return np.full(shape, np.nan, dtype)


def steps(array: Any) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)


def transposed(rows: int, columns: int, dtype: Any = BF16) -> Any:
    """A rows×columns matrix that is stored by columns."""
    return integers(columns, rows, dtype=dtype).T


def padded(rows: int, columns: int) -> Any:
    """Rows that begin 8 elements further on than they need."""
    return integers(rows, columns + 8)[:, :columns]


def spread(n: int, d: int) -> Any:
    """A row that stands for all: stride 0."""
    return np.broadcast_to(integers(1, d), (n, d))


# ---- gemm


def multiply(a: Any, b: Any, c: Any, sizes: Any = None, strides: Any = None) -> None:
    (m, k), n = a.shape, b.shape[1]
    sizes = (m, n, k) if sizes is None else sizes
    strides = (*steps(a), *steps(b), *steps(c)) if strides is None else strides
    gemm[persistent_grid(m, n, 4)](a, b, c, *sizes, *strides)


@pytest.mark.parametrize(
    "a, b, c",
    [
        (integers(70, 40), transposed(40, 50), nan(70, 50)),
        (transposed(70, 40), integers(40, 50), nan(50, 70).T),
        (padded(70, 40), padded(40, 50), nan(70, 60)[:, 3:53]),
        (spread(70, 40), integers(40, 50), nan(70, 50)),
        (integers(40, 70).T[::2, ::5], integers(8, 50), nan(35, 50, dtype=np.float32)),
        (integers(1, 40), transposed(40, 1), nan(1, 1)),
        (as_strided(integers(40), (1, 40), (6, 2)), integers(40, 50), nan(1, 50)),
        (integers(70, 0), integers(0, 50), nan(70, 50)),
        (integers(0, 40), integers(40, 50), nan(0, 50)),
        (integers(70, 40, dtype=F16), integers(40, 50, dtype=F16), nan(70, 50, dtype=F16)),
        (integers(4, 70, 40)[2], integers(40, 50), nan(70, 50)),
    ],
    ids=["tn", "nt", "padded", "spread", "sliced", "one", "loose", "k0", "m0", "f16", "inside"],
)
def test_gemm_of_odd_arrays(a: Any, b: Any, c: Any) -> None:
    multiply(a, b, c)
    np.testing.assert_array_equal(
        c.astype(float), (a.astype(float) @ b.astype(float)).astype(c.dtype).astype(float)
    )


A, B, C = integers(70, 40), integers(40, 50), nan(70, 50)
OWN = (40, 1, 50, 1, 50, 1)
BAD_GEMMS: dict[str, tuple[Callable[[], None], str]] = {
    "sizes": (
        lambda: multiply(A, B, C, sizes=(80, 50, 40)),
        r"gemm: a is of 2800 elements, not enough for \(80, 40\) with strides \(40, 1\), which reach element 3199",
    ),
    "negative size": (
        lambda: multiply(A, B, C, sizes=(-1, 50, 40)),
        "gemm: M is -1, not a whole number from 0 on",
    ),
    "size that is a float": (
        lambda: multiply(A, B, C, sizes=(70.0, 50, 40)),
        r"gemm: M is 70\.0, not a whole number",
    ),
    "swapped strides": (
        lambda: multiply(A, B, C, strides=(1, 40, *OWN[2:])),
        r"gemm: a is of shape \(70, 40\) and strides \(40, 1\), not a matrix of \(70, 40\) with strides \(1, 40\)",
    ),
    "strides of another array": (
        lambda: multiply(integers(70, 48)[:, :40], B, C, strides=OWN),
        r"a is of shape \(70, 40\) and strides \(48, 1\)",
    ),
    "backwards": (
        lambda: multiply(A[::-1], B, C),
        "gemm: stride_am is -40, not a whole number from 0 on",
    ),
    "B by rows of K": (
        lambda: multiply(A, integers(50, 40), C, sizes=(70, 50, 40), strides=(40, 1, 40, 1, 50, 1)),
        r"gemm: b is of shape \(50, 40\) and strides \(40, 1\)",
    ),
    "dtypes": (lambda: multiply(A, integers(40, 50, dtype=F16), C), "gemm: b is of f16, not bf16"),
    "f32": (
        lambda: multiply(integers(70, 40, dtype=np.float32), B, C),
        "a is of f32, not f16 or bf16",
    ),
    "result of integers": (
        lambda: multiply(A, B, np.zeros((70, 50), np.int32)),
        "gemm: c is of i32, not f16 or bf16 or f32",
    ),
    "expanded result": (
        lambda: multiply(A, B, as_strided(nan(50), (70, 50), (0, 2))),
        r"gemm: c is a matrix of \(70, 50\) with strides \(0, 1\), whose elements share memory",
    ),
    "result over an input": (
        lambda: multiply(square := integers(64, 64), integers(64, 64), square),
        "gemm: c is in the same memory as a",
    ),
    "no array": (
        lambda: gemm[(1,)]([1.0], B, C, 70, 50, 40, *OWN),
        "gemm: a is a list, not an array",
    ),
    "an argument left out": (lambda: gemm[(1,)](A, B, C, 70, 50, 40, 40, 1), "lacks stride_bk"),
}


@pytest.mark.parametrize("case", BAD_GEMMS)
def test_gemm_refuses(case: str) -> None:
    C[...] = np.nan
    call, text = BAD_GEMMS[case]
    with pytest.raises(LaunchError, match=text):
        call()
    assert np.isnan(C.astype(float)).all()


def test_two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "driver", FakeDriver)
    elsewhere = GpuArray(4096, (70, 50), "float16")
    a, b = (x.astype(F16) for x in (A, B))
    with pytest.raises(LaunchError, match="c_ptr on device 0"):
        gemm[(1,)](a, b, elsewhere, 70, 50, 40, *OWN)


def test_one_place_each() -> None:
    """Of results only; the transpose and padded rows have it."""
    for c in (nan(50, 70).T, nan(70, 58)[:, :50]):
        multiply(A, B, c)
        assert not np.isnan(c.astype(float)).any()
    for strides in ((1, 1), (49, 1), (1, 69)):
        overlapping = as_strided(nan(9000), (70, 50), tuple(2 * s for s in strides))
        with pytest.raises(LaunchError, match="elements share memory"):
            multiply(A, B, overlapping)


# ---- products of rows by rows


def gated(kernel: Any, a: Any, b1: Any, b2: Any, c: Any, sizes: Any = None) -> None:
    m, n, k = (*c.shape, a.shape[1]) if sizes is None else sizes
    kernel[persistent_grid(m, n, 4)](a, b1, b2, c, 1.0, 1.0, m, n, k)


def scaled(kernel: Any, a: Any, b: Any, sa: Any, sb: Any, c: Any) -> None:
    m, n = c.shape
    kernel[persistent_grid(m, n, 4)](a, b, sa, sb, c, m, n, a.shape[-1])


@pytest.mark.parametrize(
    "kernel, dtype", [(dual_gemm, BF16), (dual_gemm, F16), (dual_gemm_fp8, E4M3)]
)
@pytest.mark.parametrize("m, n, k", [(70, 50, 40), (1, 3, 16), (5, 4, 0), (0, 8, 16)])
def test_the_gated_pair(kernel: Any, dtype: Any, m: int, n: int, k: int) -> None:
    a, b1, b2 = (integers(rows, k, dtype=dtype) for rows in (m, n, n))
    c = nan(m, n, dtype=np.float32)
    gated(kernel, a, b1, b2, c)
    gate, up = (a.astype(float) @ b.astype(float).T for b in (b1, b2))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(c, gate / (1 + np.exp(-gate)) * up, rtol=1e-5, atol=1e-35)


@pytest.mark.parametrize("kernel", [fp8_gemm, fp8_gemm_promoted])
@pytest.mark.parametrize("m, n, k", [(70, 50, 40), (1, 3, 16), (5, 4, 0), (0, 8, 16)])
def test_the_scaled_product(kernel: Any, m: int, n: int, k: int) -> None:
    a, b = (integers(rows, k, dtype=E4M3) for rows in (m, n))
    sa, sb = (integers(rows, dtype=np.float32) for rows in (m, n))
    c = nan(m, n, dtype=np.float32)
    scaled(kernel, a, b, sa, sb, c)
    np.testing.assert_array_equal(c, a.astype(float) @ b.astype(float).T * sa[:, None] * sb)


ROWS, WEIGHTS, MORE, OUT = integers(70, 40), integers(50, 40), integers(50, 40), nan(70, 50)
QUANTIZED, COLUMNS = integers(70, 40, dtype=E4M3), integers(50, 40, dtype=E4M3)
BY_ROW, BY_COLUMN = (integers(n, dtype=np.float32) for n in (70, 50))
BAD_PRODUCTS: dict[str, tuple[Callable[[], None], str]] = {
    "transposed": (
        lambda: gated(dual_gemm, ROWS, transposed(50, 40), MORE, OUT),
        r"dual_gemm: b1 is of shape \(50, 40\) and strides \(1, 50\), not \(50, 40\), row-major and without gaps",
    ),
    "padded": (
        lambda: gated(dual_gemm, padded(70, 40), WEIGHTS, MORE, OUT),
        r"a is of shape \(70, 40\) and strides \(48, 1\)",
    ),
    "spread": (lambda: gated(dual_gemm, spread(70, 40), WEIGHTS, MORE, OUT), r"strides \(0, 1\)"),
    "weights of K rows": (
        lambda: gated(dual_gemm, ROWS, integers(40, 50), MORE, OUT),
        r"b1 is of shape \(40, 50\), not \(50, 40\)",
    ),
    "half the weights": (
        lambda: gated(dual_gemm, ROWS, WEIGHTS, integers(25, 40), OUT),
        r"b2 is of shape \(25, 40\)",
    ),
    "dtypes": (
        lambda: gated(dual_gemm, ROWS, WEIGHTS, integers(50, 40, dtype=F16), OUT),
        "b2 is of f16, not bf16",
    ),
    "8 bits": (
        lambda: gated(dual_gemm, QUANTIZED, COLUMNS, COLUMNS, OUT),
        "a is of f8e4m3, not f16 or bf16",
    ),
    "16 bits": (
        lambda: gated(dual_gemm_fp8, ROWS, WEIGHTS, MORE, OUT),
        "dual_gemm_fp8: a is of bf16",
    ),
    "result over an input": (
        lambda: gated(
            dual_gemm, square := integers(64, 64), integers(64, 64), integers(64, 64), square
        ),
        "c is in the same memory as a",
    ),
    "result by columns": (
        lambda: gated(dual_gemm, ROWS, WEIGHTS, MORE, nan(50, 70).T),
        r"c is of shape \(70, 50\) and strides \(1, 70\)",
    ),
    "fp8 transposed": (
        lambda: scaled(fp8_gemm, QUANTIZED, transposed(50, 40, E4M3), BY_ROW, BY_COLUMN, OUT),
        r"fp8_gemm: b is of shape \(50, 40\) and strides \(1, 50\)",
    ),
    "scales of halves": (
        lambda: scaled(fp8_gemm, QUANTIZED, COLUMNS, BY_ROW.astype(F16), BY_COLUMN, OUT),
        "scale_a is of f16, not f32",
    ),
    "one scale": (
        lambda: scaled(fp8_gemm_promoted, QUANTIZED, COLUMNS, BY_ROW[:1], BY_COLUMN, OUT),
        r"fp8_gemm_promoted: scale_a is of shape \(1,\), not \(70,\)",
    ),
    "scales of every other row": (
        lambda: scaled(
            fp8_gemm, QUANTIZED, COLUMNS, integers(140, dtype=np.float32)[::2], BY_COLUMN, OUT
        ),
        r"scale_a is of shape \(70,\) and strides \(2,\)",
    ),
    "scales swapped": (
        lambda: scaled(fp8_gemm, QUANTIZED, COLUMNS, BY_COLUMN, BY_ROW, OUT),
        r"scale_a is of shape \(50,\)",
    ),
}


@pytest.mark.parametrize("case", BAD_PRODUCTS)
def test_products_refuse(case: str) -> None:
    OUT[...] = np.nan
    call, text = BAD_PRODUCTS[case]
    with pytest.raises(LaunchError, match=text):
        call()
    assert np.isnan(OUT.astype(float)).all()


# ---- how often it is asked


def test_a_call_like_one_before_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    check = gemm.check
    monkeypatch.setattr(gemm, "check", lambda given: (asked.append(given.entry), check(given)))
    monkeypatch.setattr(gemm, "_accepted", SeenCalls())
    c = nan(70, 50)
    for _ in range(3):
        multiply(A, B, c)
    assert asked == ["gemm"]
    multiply(A, B, nan(70, 50))
    assert asked == ["gemm"] * 2
