"""Ordinary accesses to global memory by the threads of one program: a barrier that is missing is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.mutants.change import put
from warploom.check import Case, Verdict, check
from warploom.ir.core import Func, Region, walk
from warploom.ir.ops import smem
from warploom.language import float32
from warploom.sim.machine import simulate
from warploom.sim.report import Race

pytestmark = pytest.mark.usefixtures("without_nvrtc")
B: Any = tl.constexpr(256)


@wl.jit
def reversed_in_place(x: Any) -> None:
    i = tl.arange(0, B)
    tl.store(x + B - 1 - i, tl.load(x + i) + tl.load(x + B // 2 - (i - B // 2) - 1))


@wl.jit
def through_memory(x: Any, y: Any) -> None:
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i))
    tl.store(x + i, tl.load(y + (i + 1) % B))


@wl.jit
def shifted(x: Any, steps: Any) -> None:
    """Reads in the next iteration what another thread stored in this one."""
    i = tl.arange(0, B)
    for k in range(steps):
        tl.store(x + (k + 1) * 8 + i, tl.load(x + k * 8 + i) + 1)


@wl.jit
def row_by_row(x: Any, rows: Any, stride: Any) -> None:
    """Every row is read and stored once, each element by the thread that read it or after a reduction."""
    for r in range(rows):
        at = x + r * stride + tl.arange(0, B)
        row = tl.load(at)
        tl.store(at, row - tl.sum(row) / B)


@wl.jit
def in_place(x: Any, n: Any) -> None:
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@wl.jit
def one_number(x: Any, y: Any) -> None:
    """One thread stores, all load."""
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, B))))
    tl.store(x + tl.arange(0, B), tl.load(y) + tl.zeros((B,), tl.float32))


def array(n: int = 512) -> Any:
    return np.random.default_rng(0).standard_normal(n).astype(np.float32)


CASES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "reversed": (reversed_in_place, (array(),)),
    "through memory": (through_memory, (array(), array())),
    "shifted": (shifted, (array(), 3)),
    "row by row": (row_by_row, (array(1024), 2, 300)),
    "in place": (in_place, (array(), 200)),
    "one number": (one_number, (array(), array())),
}


def compiled(name: str, warps: int) -> tuple[Func, tuple[Any, ...]]:
    kernel, args = CASES[name]
    return kernel.compile_for(*args, grid=(1,), num_warps=warps).lowered.placed, args


def without_a_barrier(func: Func) -> Iterator[Func]:
    """The function without one of its barriers."""
    for o in walk(func.body):
        for region in o.regions:
            for i, inner in enumerate(region.ops):
                if inner.kind is smem.group_sync:
                    left = Region(region.params, (*region.ops[:i], *region.ops[i + 1 :]))
                    yield func.with_(body=put(func.body, {region: left}))


def is_race(func: Func, args: tuple[Any, ...]) -> bool:
    try:
        simulate(func, [x.copy() if isinstance(x, np.ndarray) else x for x in args], 1)
    except Race as e:
        assert e.code == "global-race" and "a barrier must stand between" in str(e)
        return True
    return False


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("name", CASES)
def test_what_is_compiled_is_ordered(name: str, warps: int) -> None:
    func, args = compiled(name, warps)
    assert not is_race(func, args)
    assert check(func).ok
    assert check(func, launch=Case(args, (1, 1, 1))).ok


NEEDED = {
    ("reversed", 1), ("reversed", 4), ("through memory", 1), ("through memory", 4), ("shifted", 1),
    ("shifted", 4), ("one number", 1), ("one number", 4),
}  # fmt: skip


@pytest.mark.parametrize(("name", "warps"), sorted(NEEDED))
def test_a_missing_barrier_is_found(name: str, warps: int) -> None:
    func, args = compiled(name, warps)
    verdicts = []
    for mutant in without_a_barrier(func):
        at_launch = check(mutant, launch=Case(args, (1, 1, 1)))
        verdicts.append(at_launch.verdict)
        assert is_race(mutant, args) == (at_launch.verdict is Verdict.BROKEN), str(at_launch)
        if at_launch.failures:
            assert {f.error.code for f in at_launch.failures} == {"global-race"}
            assert not check(mutant).ok  # of all launches
    assert Verdict.BROKEN in verdicts


def test_threads_that_load_for_nothing_count_for_none() -> None:
    """64 elements on 128 threads: the other half has loaded them as well, and does nothing with them."""

    @wl.jit
    def doubled(x: Any, y: Any) -> None:
        i = tl.arange(0, 64)
        tl.store(y + i, tl.load(x + i) * 2)

    x = array(64)
    args = x, x  # one array, which the kernel takes for two
    func = doubled.compile_for(*args, grid=(1,)).lowered.placed
    assert not list(without_a_barrier(func)) and not is_race(func, args)
    assert check(func, launch=Case(args, (1, 1, 1))).ok


class Shifted(wl.Script):
    """Rows go through memory; each thread reads what another one wrote."""

    def __init__(self, synced: bool) -> None:
        super().__init__()
        self.synced = synced

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, z_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float32, shape=[32, 32])
        y = self.global_view(y_ptr, dtype=float32, shape=[32, 32])
        z = self.global_view(z_ptr, dtype=float32, shape=[32, 32])
        self.store_global(y, self.load_global(x, offsets=[0, 0], shape=[32, 32]), offsets=[0, 0])
        if self.synced:
            self.sync()
        self.store_global(
            z, self.load_global(y, offsets=[1, 0], shape=[32, 32]) + 1.0, offsets=[0, 0]
        )


def test_a_script_that_leaves_the_barrier_out_is_refused() -> None:
    x = array(1024).reshape(32, 32)
    y, z = np.zeros_like(x), np.zeros_like(x)
    Shifted(True)(x, y, z)
    assert np.array_equal(z, np.vstack([x[1:], 0 * x[:1]]) + 1)
    assert Shifted(True).check(x, y, z).ok
    with pytest.raises(
        Race, match="element 32 of y_ptr, which thread 8 of main stores in no order"
    ):
        Shifted(False)(x, y, z)
    (failure,) = Shifted(False).check(x, y, z).failures
    assert "touch one word by different threads: element 32 of y_ptr" in str(failure.error)


class Overwritten(wl.Script):
    """A box by TMA, then another one to the same place: by TMA, or by the threads."""

    def __init__(self, by_threads: bool, only_read: bool) -> None:
        super().__init__()
        self.by_threads, self.only_read = by_threads, only_read

    def __call__(self, y_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 32])
        s = self.shared_tensor(dtype=float32, shape=[2, 32, 32])
        one = self.register_tensor(dtype=float32, shape=[32, 32], init=1.0)
        two = self.register_tensor(dtype=float32, shape=[32, 32], init=2.0)
        self.store_shared(s[0], one)
        self.store_shared(s[1], two)
        self.fence.proxy_async()
        self.sync()
        with self.single_thread():
            self.tma.shared_to_global(s[0], g_y, [0, 0])
            self.tma.commit_group()
            self.tma.wait_group(0, read=self.only_read)
        self.sync()
        if self.by_threads:
            self.store_global(g_y, two, offsets=[0, 0])
        else:
            with self.single_thread():
                self.tma.shared_to_global(s[1], g_y, [0, 0])
                self.tma.commit_group()
                self.tma.wait_group(0, read=False)


@pytest.mark.parametrize("only_read", [False, True])
@pytest.mark.parametrize("by_threads", [False, True])
def test_a_later_store_waits_for_what_tma_writes(by_threads: bool, only_read: bool) -> None:
    """That the copy has read shared memory says nothing of global memory."""
    script, y = Overwritten(by_threads, only_read), np.zeros((32, 32), np.float32)
    if not only_read:
        assert script.check(y).ok
        script(y)
        assert (y == 2).all()
        return
    report = script.check(y)
    assert report.verdict is Verdict.BROKEN
    assert "may be overwritten by" in str(report)
    with pytest.raises(Race, match="stores in no order with it"):
        script.simulate(y)


@wl.jit
def two_arrays(x: Any, y: Any, z: Any, ahead: Any) -> None:
    """The second store's elements are other threads' in the first one."""
    at = tl.arange(0, B)
    tl.store(x + at, at.to(tl.float32))
    tl.store(y + ahead + at, tl.load(z + at))


@pytest.mark.parametrize("first, ahead", [(40, 0), (-40, 0), (0, 40), (-40, 80)])
def test_arrays_that_overlap_are_one_memory(first: int, ahead: int) -> None:
    """From other elements on, and of other lengths."""

    def arguments() -> tuple[Any, ...]:
        memory = np.zeros(4 * B, np.float32)
        return memory[B : 2 * B], memory[B + first : 3 * B], array(B), ahead

    args = arguments()
    func = two_arrays.compile_for(*args, grid=(1,), num_warps=4).lowered.placed
    simulate(func, list(args), 1)
    assert (args[1][ahead:][:B] == args[2]).all()
    (mutant,) = without_a_barrier(func)
    with pytest.raises(Race, match=r"stores element .* of y"):
        simulate(mutant, list(arguments()), 1)
