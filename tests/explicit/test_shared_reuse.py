"""A script's tensors that are over before others are written: their bytes are used again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom.tilus as tilus
from warploom.check import Verdict, check
from warploom.ir.core import Func
from warploom.ir.ops import smem
from warploom.sim.machine import simulate
from warploom.tilus import float32


class Halves(tilus.Script):
    """y = 2·x + x by way of two tensors, one after the other; barrier: between them?"""

    def __init__(self, barrier: bool = True) -> None:
        super().__init__()
        self.barrier = barrier

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32) -> None:
        self.attrs.warps = 4
        self.attrs.blocks = 1
        x = self.global_view(x_ptr, dtype=float32, shape=[64, 64])
        y = self.global_view(y_ptr, dtype=float32, shape=[64, 64])
        first = self.shared_tensor(dtype=float32, shape=[64, 64])
        second = self.shared_tensor(dtype=float32, shape=[64, 64])
        tile = self.load_global(x, offsets=[0, 0], shape=[64, 64])
        self.store_shared(first, tile + tile)
        self.sync()
        doubled = self.load_shared(first)
        if self.barrier:
            self.sync()
        self.store_shared(second, doubled + tile)
        self.sync()
        self.store_global(y, self.load_shared(second), offsets=[0, 0])


def placed(script: tilus.Script) -> Func:
    x = np.zeros((64, 64), np.float32)
    call = script.bind((x, x.copy()), {})
    func: Func = script._lowered(script._request(call, "sm_90a")).placed
    return func


def reused(func: Func) -> list[Any]:
    allocations = (o for o in func.body.ops if o.kind is smem.shared_alloc)
    return [o.attrs["reuses"] for o in allocations if "reuses" in o.attrs]


def test_a_tensor_that_is_over_gives_its_bytes() -> None:
    func = placed(Halves())
    assert reused(func) == [("first",)]
    assert func.attrs["shared_bytes"] == 64 * 64 * 4
    assert check(func).verdict is Verdict.PROVED


def test_without_a_barrier_each_has_its_own() -> None:
    func = placed(Halves(barrier=False))
    assert not reused(func)
    assert func.attrs["shared_bytes"] == 2 * 64 * 64 * 4


@pytest.mark.parametrize("order", ["late", "early", "reverse", "seeded"])
def test_it_computes_what_it_says(order: str) -> None:
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    y = np.zeros_like(x)
    simulate(placed(Halves()), [x, y], 1, order=order, seed=1)
    assert np.array_equal(y, 3 * x)


class Handed(tilus.Script):
    """Each CTA of two reads a tensor of its own, and then gets what the other one read beside it."""

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32) -> None:
        self.attrs.warps = 4
        self.attrs.cluster_blocks = 2
        self.attrs.blocks = 2
        x = self.global_view(x_ptr, dtype=float32, shape=[64, 64])
        y = self.global_view(y_ptr, dtype=float32, shape=[64, 64])
        mine = self.shared_tensor(dtype=float32, shape=[32, 64])
        theirs = self.shared_tensor(dtype=float32, shape=[32, 64])
        at = self.cluster.blockRank * 32
        self.cluster.sync()
        self.store_shared(mine, self.load_global(x, offsets=[at, 0], shape=[32, 64]))
        self.sync()
        tile = self.load_shared(mine)
        self.sync()
        self.store_shared(self.cluster.map_shared_addr(theirs, self.cluster.blockRank ^ 1), tile)
        self.cluster.sync()
        self.store_global(y, self.load_shared(theirs), offsets=[at, 0])


def test_what_another_cta_writes_has_bytes_of_its_own() -> None:
    """That this CTA is done with a tensor says nothing of the one that gets the bytes."""
    func = placed(Handed())
    assert not reused(func)
    assert check(func).verdict is Verdict.PROVED
