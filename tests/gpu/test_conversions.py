"""Casts and shifts out of the range of their types, on a GPU as in the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
INTS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
N = 256


@wl.jit
def casts(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(y_ptr.dtype.element_ty))


@wl.jit
def shifts(x_ptr: Any, by_ptr: Any, left_ptr: Any, right_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    x, by = tl.load(x_ptr + at), tl.load(by_ptr + at)
    tl.store(left_ptr + at, x << by)
    tl.store(right_ptr + at, x >> by)


def agree(kernel: Any, *arrays: Any) -> None:
    """The kernel on the GPU and on the CPU, bit for bit; the last arrays are written."""
    there = [a.cuda() for a in arrays]
    kernel[(1,)](*there, BLOCK=N)
    kernel[(1,)](*arrays, BLOCK=N)
    for here, found in zip(arrays, there, strict=True):
        assert torch.equal(here.view(torch.uint8), found.cpu().view(torch.uint8))


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("to", INTS)
def test_floats_become_integers(source: str, to: str) -> None:
    special = [
        float("nan"),
        float("inf"),
        -float("inf"),
        300.7,
        -300.7,
        -1.5,
        -0.5,
        0.5,
        127.9,
        255.9,
    ]
    powers = [s * 2.0**n * (1 + e) for n in range(0, 70, 2) for s in (1, -1) for e in (0, 2.0**-20)]
    x = torch.zeros(N, dtype=getattr(torch, source))
    x[: len(special) + len(powers)] = torch.tensor(special + powers, dtype=x.dtype)
    agree(casts, x, torch.zeros(N, dtype=getattr(torch, to)))


@pytest.mark.parametrize("to", NARROW)
def test_doubles_are_rounded_once(to: str) -> None:
    random = np.random.default_rng(1)
    half = torch.tensor(random.integers(-(2**11), 2**11, N) + 0.5) * 2.0 ** torch.tensor(
        random.integers(-30, 4, N)
    )
    x = half * (1 + torch.tensor(random.integers(-1, 2, N)) * 2.0**-45)
    agree(casts, x.double(), torch.zeros(N).to(getattr(torch, to)))


@pytest.mark.parametrize("dtype", INTS)
def test_shifts_by_the_width_and_more(dtype: str) -> None:
    random = np.random.default_rng(2)
    x = torch.from_numpy(random.integers(0, 256, (N, 8), np.uint8)).view(torch.int64).flatten()
    by = torch.from_numpy(random.integers(-3, 70, N))
    args = [a.to(getattr(torch, dtype)) for a in (x, by)]
    agree(shifts, *args, torch.zeros_like(args[0]), torch.zeros_like(args[0]))


@wl.jit
def by_way_of_bytes(x_ptr: Any, b_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at).to(tl.float8e4b15)
    tl.store(b_ptr + at, x.to(tl.uint8, bitcast=True))
    tl.store(y_ptr + at, x)


@pytest.mark.parametrize("source", ["float16", "float32"])
def test_all_halves_become_float8e4b15_and_back(source: str) -> None:
    x = torch.arange(-32768, 32768).to(torch.int16).view(torch.float16).to(getattr(torch, source))
    x[::2] *= 1 + 2.0**-12  # beyond the bits of an f16
    for row in x.split(N):
        bytes, back = torch.zeros(N, dtype=torch.uint8), torch.zeros(N, dtype=torch.float16)
        agree(by_way_of_bytes, row.contiguous(), bytes, back)
