"""Integers divided by 0 at run time: an error for a number, nothing in particular for an element of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.errors import WarploomError


@wl.jit
def quotient(o: Any, n: Any, d: Any) -> None:
    tl.store(o, n // d)


@wl.jit
def remainder(o: Any, n: Any, d: Any) -> None:
    tl.store(o, n % d)


@wl.jit
def guarded(o: Any, n: Any, d: Any) -> None:
    x = n // d if d != 0 else -1
    if d != 0:
        x += n % d
    tl.store(o, x)


@wl.jit
def under_a_mask(x: Any, o: Any, w: Any, h: Any) -> None:
    i = tl.arange(0, 16)
    inside = i < w * h
    tl.store(o + i, tl.load(x + i // w * w + i % w, mask=inside, other=5))


@wl.jit
def of_floats(o: Any, n: Any, d: Any) -> None:
    tl.store(o, n / d)


@pytest.mark.parametrize(("kernel", "symbol"), [(quotient, "//"), (remainder, "%")])
def test_a_number_divided_by_zero(kernel: Any, symbol: str) -> None:
    out = np.zeros(1, np.int32)
    with pytest.raises(WarploomError) as refused:
        kernel[(1,)](out, 7, 0)
    text = str(refused.value)
    assert f"error[zero-division]: 7 {symbol} 0 at run time" in text
    assert f"tl.store(o, n {symbol} d)" in text and "help: test the divisor first" in text
    kernel[(1,)](out, 7, 2)
    assert out[0] == (3 if symbol == "//" else 1)


@pytest.mark.parametrize(("d", "wanted"), [(0, -1), (2, 4)])
def test_what_is_guarded(d: int, wanted: int) -> None:
    out = np.zeros(1, np.int32)
    guarded[(1,)](out, 7, d)
    assert out[0] == wanted


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("w", [0, 4])
def test_under_a_mask(w: int) -> None:
    x, out = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)
    wanted = np.where(np.arange(16) < w * 2, x, 5)
    under_a_mask[(1,)](x, out, w, 2)
    assert np.array_equal(out, wanted)
    out[:] = 0
    under_a_mask.compile_for(x, out, w, 2, grid=1).simulate(x, out, w, 2, grid=1)
    assert np.array_equal(out, wanted)


def test_floats_have_an_infinity() -> None:
    out = np.zeros(1, np.float32)
    of_floats[(1,)](out, 7, 0)
    assert np.isinf(out[0])
