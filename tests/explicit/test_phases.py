"""Code of all threads before and after thread groups, parted by self.sync()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warploom import Script
from warploom.check import Verdict, check
from warploom.errors import CompileError
from warploom.ir.core import Func
from warploom.ir.ops import task
from warploom.ir.rewrite import with_ops
from warploom.language import float32, int32
from warploom.sim.report import SimError


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


class Pair(Script):
    """y = x of the other warp, in a cluster: all threads meet at its barrier, release or relaxed."""

    def __init__(self, sem: str):
        super().__init__()
        self.sem = sem

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.cluster_blocks = 2
        self.attrs.blocks = 2
        self.attrs.warps = 2
        sem = self.sem
        g_x = self.global_view(x_ptr, dtype=float32, shape=[64, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[64, 32])
        x = self.shared_tensor(dtype=float32, shape=[32, 32])
        at = self.blockIdx.x * 32
        self.store_shared(x, self.load_global(g_x, offsets=[at, 0], shape=[32, 32]))
        self.cluster.arrive(sem)
        self.cluster.wait()
        with self.single_warp(0):
            self.store_global(g_y, self.load_shared(x), offsets=[at, 0])


def synced(func: Func) -> list[bool]:
    return [o.attrs.get("synced", True) for o in task.phases(func)]


def parted(func: Func) -> Func:
    """Without a barrier behind its first phase."""
    first = task.phases(func)[0]
    ops = [o.with_(attrs={**o.attrs, "synced": False}) if o is first else o for o in func.body.ops]
    return func.with_(body=with_ops(func.body, ops))


@pytest.mark.parametrize(("sem", "barriers"), [("release", 0), ("relaxed", 1)])
def test_phases_need_no_barrier_where_the_cluster_has_released(sem: str, barriers: int) -> None:
    """A relaxed arrival orders no ordinary stores: the barrier between the phases does."""
    kernel = Pair(sem).compile(["*fp32:16", "*fp32:16"])
    assert synced(kernel.placed) == [bool(barriers), True]
    assert kernel.cuda.count("__syncthreads();") == barriers
    x = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    y = np.zeros_like(x)
    Pair(sem)(x, y)
    assert np.array_equal(y, x)
    report = check(parted(kernel.placed))
    assert report.ok == (not barriers), str(report)


def test_a_missing_barrier_between_phases_is_a_race() -> None:
    func = Phases().compile(["*fp32:16", "*fp32:16", "i32:16"]).placed
    assert synced(func) == [True, True, True]
    assert check(parted(func)).verdict is Verdict.BROKEN


class Promised(Script):
    """A promise of all threads stands before, between or after groups, without a barrier of its own."""

    def __init__(self, where: int, divisor: int = 2):
        super().__init__()
        self.where, self.divisor = where, divisor

    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n])
        done = self.mbarrier.alloc([1])
        if self.where == 0:
            self.assume(n % self.divisor == 0)
        with self.thread_group(0, 32), self.single_thread():
            if n % 2 == 0:
                self.mbarrier.arrive(done)
        if self.where == 1:
            self.assume(n % self.divisor == 0)
        with self.thread_group(32, 32):
            self.mbarrier.wait(done, 0)
            self.store_global(
                g_x, self.load_global(g_x, offsets=[0], shape=[32]) * 2.0, offsets=[0]
            )
        if self.where == 2:
            self.assume(n % self.divisor == 0)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_a_promise_needs_no_barrier(where: int) -> None:
    """And restricts the inputs: without it, or with another one, the program hangs for odd n."""
    x = np.ones(32, np.float32)
    Promised(where)(x, 32)
    assert (x == 2).all()
    with pytest.raises(SimError) as broken:
        Promised(where)(x, 31)
    assert broken.value.code == "assume"
    for script, verdict in (
        (Promised(where), Verdict.PROVED),
        (Promised(where, 3), Verdict.BROKEN),
        (Promised(3), Verdict.BROKEN),
    ):
        assert check(script.compile(["*fp32:16", "i32"]).placed).verdict is verdict
