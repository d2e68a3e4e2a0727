"""Code of all threads before and after thread groups, parted by self.sync()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warploom import Script
from warploom.check import check
from warploom.errors import CompileError
from warploom.language import float32, int32


class Phases(Script):
    """y = 3·x: all threads stage x, one warp doubles it in place while another copies it, all add."""

    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        bug = self.bug
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n, 32])
        x = self.shared_tensor(dtype=float32, shape=[64, 32])
        twice = self.shared_tensor(dtype=float32, shape=[64, 32])
        once = self.shared_tensor(dtype=float32, shape=[64, 32])
        at = self.blockIdx.x * 64
        self.store_shared(x, self.load_global(g_x, offsets=[at, 0], shape=[64, 32]))
        if bug != "no sync before":
            self.sync()
        with self.single_warp(0):
            value = self.load_shared(x)
            self.store_shared(twice, value * 2.0)
        with self.single_warp(2):
            self.store_shared(once, self.load_shared(x))
        if bug != "no sync after":
            self.sync()
        total = self.load_shared(twice) + self.load_shared(once)
        self.store_global(g_y, total, offsets=[at, 0])


def run(bug: str = "") -> Any:
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    y = np.zeros_like(x)
    Phases(bug)(x, y, 64)
    return x, y


def test_phases_compute() -> None:
    x, y = run()
    assert np.array_equal(y, x * 2 + x)


def test_phases_are_checked_and_compiled() -> None:
    kernel = Phases().compile(["*fp32:16", "*fp32:16", "i32:16"])
    names = [p.name for p in kernel.schedule.tasks]
    assert names == ["main", "group0", "idle1", "group2", "idle3", "main_2"]
    assert check(kernel.placed).ok
    assert kernel.resources.problems() == ()
    assert kernel.cuda.count("__syncthreads();") == 2


@pytest.mark.parametrize("bug", ["no sync before", "no sync after"])
def test_phases_without_a_barrier_are_refused(bug: str) -> None:
    with pytest.raises(CompileError) as e:
        run(bug)
    assert e.value.code == "phase-sync"
    assert e.value.loc is not None and e.value.notes[0].loc is not None
