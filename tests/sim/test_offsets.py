"""Offsets computed in i32 that i32 does not hold: an access by one is an error, one that is masked off is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.errors import WarploomError

pytestmark = pytest.mark.usefixtures("without_nvrtc")
FAR = 1 << 16  # FAR * FAR is 2**32, which wraps to 0


@wl.jit
def scalar(x: Any, o: Any, n: Any, s: Any) -> None:
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + (n * s + i)))


@wl.jit
def gathered(x: Any, idx: Any, o: Any, s: Any) -> None:
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + tl.load(idx + i) * s))


@wl.jit
def masked(x: Any, idx: Any, o: Any, s: Any) -> None:
    i = tl.arange(0, 16)
    at = tl.load(idx + i)
    tl.store(o + i, tl.load(x + at * s, mask=at < 4, other=7))


@wl.jit
def carried(x: Any, o: Any, steps: Any, s: Any) -> None:
    at = 0
    for _ in range(steps):
        at += s
    if steps > 3:
        tl.store(o, tl.load(x + at))


@wl.jit
def hashed(x: Any, o: Any, s: Any) -> None:
    """Integers that wrap on purpose, and an index made of their bits."""
    i = tl.arange(0, 16)
    h = i * s * s + i * 40503
    tl.store(o + i, tl.load(x + (h & 15)) + h)


@wl.jit
def back(x: Any, o: Any, n: Any, s: Any) -> None:
    """Beyond 32 bits on the way, inside in the end."""
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + (i + n * s - n * s)))


@wl.jit
def wide(x: Any, o: Any, n: Any, s: Any) -> None:
    i = tl.arange(0, 16)
    tl.store(o + i, tl.load(x + (n.to(tl.int64) * s - n.to(tl.int64) * s + i)))


def ints(n: int = 64) -> Any:
    return np.arange(n, dtype=np.int32)


def both(kernel: Any, *args: Any) -> list[str]:
    """What the oracle and the simulator say; "" where they ran."""
    said = []
    for how in ("oracle", "simulator"):
        try:
            if how == "oracle":
                kernel[(1,)](*args)
            else:
                kernel.compile_for(*args, grid=1).simulate(*args, grid=1)
            said.append("")
        except WarploomError as error:
            said.append(str(error))
    return said


def test_an_offset_that_one_number_takes_too_far() -> None:
    oracle, simulator = both(scalar, ints(), ints(), FAR, FAR)
    assert "error[offset-overflow]: load of element 4294967296 of x" in oracle
    assert "tl.load(x + (n * s + i))" in oracle and "row.to(tl.int64) * stride" in oracle
    assert "element 4294967311 of x" in simulator  # a box: computed in 64 bits


@pytest.mark.parametrize("at", [0, 7, 15])
def test_an_element_of_a_tile(at: int) -> None:
    idx = np.zeros(16, np.int32)
    idx[at] = FAR
    for said in both(gathered, ints(), idx, ints(), FAR):
        assert "error[offset-overflow]: load of element 4294967296 of x" in said


def test_what_is_masked_off_does_no_harm() -> None:
    out = ints()
    idx = np.where(ints(16) % 2 == 0, ints(16) // 4, FAR).astype(np.int32)
    assert both(masked, ints(), idx, out, FAR)[0].startswith(
        "error[out-of-bounds]"
    )  # 1 · FAR fits i32
    idx = np.where(ints(16) % 2 == 0, 0, FAR).astype(np.int32)
    assert both(masked, ints(), idx, out, FAR) == ["", ""]
    assert out[:16].tolist() == [0, 7] * 8


def test_what_a_loop_carries() -> None:
    oracle, _ = both(carried, ints(), ints(), 4, 1 << 30)
    assert "error[offset-overflow]: load of element 4294967296 of x" in oracle
    assert both(carried, ints(), ints(), 3, 1 << 30) == ["", ""]


def test_numbers_that_are_no_offsets_wrap() -> None:
    out = ints()
    assert both(hashed, ints(), out, FAR + 1) == ["", ""]
    i = np.arange(16, dtype=np.int64)
    h = (i * (FAR + 1) ** 2 + i * 40503).astype(np.int32)
    assert np.array_equal(out[:16], (h & 15) + h)


@pytest.mark.parametrize("kernel", [back, wide])
def test_what_fits_in_the_end(kernel: Any) -> None:
    out = np.zeros(16, np.int32)
    assert both(kernel, ints(), out, FAR, FAR + 1) == ["", ""]
    assert np.array_equal(out, ints(16))
