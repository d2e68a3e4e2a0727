"""16-bit floats computed with in pairs, and made of bytes four at a time: all bytes, and many bit patterns."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from corpus.arrays import download, upload

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")
F16, BF16 = np.float16, ml_dtypes.bfloat16


@wl.jit
def converted(x_ptr: Any, y_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty), mask=at < n)


@wl.jit
def combined(
    x_ptr: Any, y_ptr: Any, z_ptr: Any, n: Any, OP: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    if OP == "add":
        z = x + y
    elif OP == "sub":
        z = x - y
    else:
        z = x * y
    tl.store(z_ptr + at, z, mask=at < n)


def both(kernel: Any, args: list[Any], out: int, grid: int, **meta: Any) -> tuple[Any, Any]:
    """What the oracle and the GPU leave in argument `out`, as float32."""
    there = [upload(a) for a in args]
    kernel[(grid,)](*there, **meta)
    found = download(there[out], args[out].dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        kernel[(grid,)](*args, **meta)
    return args[out].astype(np.float32), found


@pytest.mark.parametrize("block", [256, 1024])
@pytest.mark.parametrize("to", [F16, BF16])
@pytest.mark.parametrize("source", [np.int8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_every_byte(source: Any, to: Any, block: int) -> None:
    x = np.arange(2048).astype(np.uint8).view(source)
    wanted, found = both(converted, [x, np.zeros(2048, to), 2048], 1, 2048 // block, BLOCK=block)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_many_pairs(dtype: Any, op: str) -> None:
    n = 1 << 18
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 1 << 16, n).astype(np.uint16).view(dtype) for _ in range(2))
    wanted, found = both(combined, [x, y, np.zeros(n, dtype), n], 2, n // 1024, OP=op, BLOCK=1024)
    tiny = np.abs(wanted) < 2.0**-125  # there float32 rounds products of bf16, too
    np.testing.assert_array_equal(found[~tiny], wanted[~tiny])
    assert (np.abs(found - wanted)[tiny] <= 2.0**-133).all()
