"""Clusters of two dimensions, masks known at run time, and grids that are no whole number of clusters."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.explicit.broken.cluster import Exchange
from tests.explicit.squares import Squares
from tests.orders import default_orders
from warploom import Script
from warploom.check import check
from warploom.errors import CompileError, LaunchError
from warploom.language import float32, int32


@functools.cache
def compiled() -> Any:
    return Squares().compile(["*bf16:16"] * 2 + ["*fp32:16"] + ["i32:16"] * 3)


@pytest.mark.parametrize("shape", [(200, 144, 208), (64, 64, 64), (16, 300, 0)])
def test_squares(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-3, 4, (x, k)).astype(ml_dtypes.bfloat16) for x in (m, n))
    c = np.full((m, n), 7, np.float32)
    Squares()(a, b, c, m, n, k)
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


def test_squares_are_proved_and_compile() -> None:
    assert compiled().resources.problems() == ()
    report = check(compiled().placed)
    assert report.ok, str(report)


def test_tiles_pass_through_the_shared_memory_of_peers() -> None:
    x = np.arange(128 * 32, dtype=np.float32).reshape(128, 32)
    for order in default_orders(("late", "early", "reverse", "seeded")):
        y = np.zeros_like(x)
        Exchange().simulate(x, y, 128, order=order)
        theirs = x.reshape(2, 2, 32, 32)[:, ::-1]
        assert np.array_equal(y.reshape(theirs.shape), theirs + (theirs + 1))


class Grid(Script):
    """As many CTAs as it is told."""

    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.cluster_blocks = 2
        self.attrs.blocks = n
        self.attrs.warps = 1
        with self.single_thread():
            self.store(x_ptr + self.blockIdx.x, self.cast(self.gridDim.x, float32))


def test_a_grid_is_a_whole_number_of_clusters() -> None:
    x = np.zeros(6, np.float32)
    Grid()(x, 6)
    assert x.tolist() == [6.0] * 6
    with pytest.raises(LaunchError) as e:
        Grid()(x, 5)
    assert e.value.code == "grid-cluster" and "5 CTAs" in str(e.value)


class TooLate(Script):
    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        with self.single_thread():
            self.store(x_ptr + self.blockIdx.x, 1.0)
        self.attrs.cluster_blocks = 2


def test_the_shape_is_set_before_it_is_used() -> None:
    with pytest.raises(CompileError) as e:
        TooLate().compile(["*fp32:16", "i32"])
    assert e.value.code == "attrs-cluster" and "start of the kernel" in str(e.value)
