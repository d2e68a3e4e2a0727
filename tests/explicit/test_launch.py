"""Launching scripts on a driver that only records: checked once, prepared once, grid from attrs.blocks."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.explicit.broken.store import Store
from tests.explicit.language import SplitSum
from tests.unit.fake_driver import FakeDriver, GpuArray
from warploom import Script, autotune
from warploom.errors import CompileError, LaunchError, WarploomWarning
from warploom.language import cdiv, float32, int32
from warploom.runtime import jit, launch, workspace
from warploom.runtime import kernel as kernel_module
from warploom.runtime.args import _PROBES, KEYS
from warploom.sim.report import SimError


class Scale(Script):
    def __init__(self, block: int = 32):
        super().__init__()
        self.block = block

    def __call__(self, x_ptr: ~float32, n: int32, by: int):
        self.attrs.blocks = cdiv(n, self.block)
        self.attrs.warps = 1
        at = self.blockIdx.x * self.block + self.arange(0, self.block)
        self.store(x_ptr + at, self.load(x_ptr + at, at < n) * by, at < n)


class Hashed(Script):
    """Hangs for the few n whose hash is 4242."""

    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        done = self.mbarrier.alloc([1])
        with self.thread_group(0, 32), self.single_thread():
            if n * 7919 % 100003 != 4242:
                self.mbarrier.arrive(done)
        with self.thread_group(32, 32):
            self.mbarrier.wait(done, 0)
            at = self.arange(0, 32)
            self.store(x_ptr + at, self.load(x_ptr + at) + 1.0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver()
    for module in (launch, kernel_module, jit, workspace):
        monkeypatch.setattr(module, "driver", lambda: fake)
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path))
    yield fake
    for table in (_PROBES, KEYS):
        table.pop(GpuArray, None)  # type: ignore[attr-defined]


def test_the_grid_is_attrs_blocks(driver: FakeDriver) -> None:
    driver.params = 2
    kernel, x = Scale(), GpuArray(1 << 20, (1000,))
    kernel(x, 1000, 3)
    kernel(x, 1000, 3)
    kernel(x, 64, 3)
    kernel(x, 0, 3)
    assert [entry[1] for entry in driver.launches] == [(32, 1, 1), (32, 1, 1), (2, 1, 1)]
    assert len(driver.prepared) >= 1


class Moved(Script):
    """Each block becomes the one after it."""

    def __call__(self, x_ptr: ~float32, o_ptr: ~float32, n: int32):
        self.attrs.blocks = n
        self.attrs.warps = 1
        at = self.blockIdx.x * 32 + self.arange(0, 32)
        self.store(o_ptr + at, self.load(x_ptr + at + 32))


def test_what_is_known_of_arrays_apart_is_not_said_of_one(driver: FakeDriver) -> None:
    driver.params = 2
    kernel, x, o = Moved(), GpuArray(1 << 20, (1024,)), GpuArray(1 << 21, (1024,))
    kernel(x, o, 8)
    for _ in range(2):
        with pytest.raises(SimError) as refused:
            kernel(x, x, 8)
        assert refused.value.code == "global-race"
        with pytest.raises(SimError, match="element 256 of x_ptr by program 0"):
            Moved()(x, GpuArray((1 << 20) + 4 * 256, (1024,)), 16)
    kernel(x, x, 1)
    kernel(x, o, 8)
    assert [entry[1] for entry in driver.launches] == [(8, 1, 1), (1, 1, 1), (8, 1, 1)]


def test_memory_of_its_own_is_made_once_a_stream(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.params = 6
    kernel, x, y = SplitSum(), GpuArray(1 << 20, (2, 256)), GpuArray(1 << 22, (2,))
    driver.capturing = True
    with pytest.raises(LaunchError) as e:
        kernel(x, y, 2, 2)
    assert e.value.code == "workspace-capture" and e.value.help
    driver.capturing = False
    stream = 0
    monkeypatch.setattr(workspace, "current_stream", lambda device: stream)
    for stream in (0, 7, 0, 7):  # noqa: B007
        kernel(x, y, 2, 2)
    passed = [set(entry[5]) & set(driver.memory) for entry in driver.launches]
    assert [len(p) for p in passed] == [2, 2, 2, 2]  # the third is never read: no parameter
    assert passed[0] == passed[2] and passed[1] == passed[3] and not passed[0] & passed[1]
    assert sorted(data.size for data in driver.memory.values()) == [8, 8, 8, 8, 204, 204]


class Empty(Script):
    """Forgot its kernel."""


class Returns(Script):
    """A result that nobody gets."""

    def __call__(self, n: int32) -> Any:
        self.attrs.blocks = (1, 1)
        return n


# what is called: (call, code, words of the message or of the advice)
MISTAKES: dict[str, tuple[Any, str, str]] = {
    "an array of another dtype": (lambda k, x: k(x.astype(np.float16), 1), "argument-type", "~f32, got an array of f16"),
    "a list": (lambda k, x: k([1.0], 1), "argument-type", "got [1.0]"),
    "no array": (lambda k, x: k(None, 1), "argument-type", "got None"),
    "part of an integer": (lambda k, x: k(x, 1.5), "argument-type", "is an i32, got 1.5"),
    "an array for a number": (lambda k, x: k(x, x), "argument-type", "got a ndarray"),
    "too few": (lambda k, x: k(x), "argument-count", "its arguments: x_ptr, n"),
    "another name": (lambda k, x: k(x, m=1), "argument-count", "its arguments: x_ptr, n"),
    "a grid": (lambda k, x: k[(1,)](x, 1), "grid", "self.attrs.blocks"),
    "no kernel": (lambda k, x: Empty()(x), "no-kernel", "__call__"),
    "a result": (lambda k, x: Returns()(1), "return-value", "found the i32 1"),
    "a short signature": (lambda k, x: k.compile(["*fp32"]), "signature", "x_ptr, n"),
    "an unknown constexpr": (lambda k, x: k.compile(["*fp32", "i32"], {"m": 1}), "constexpr-missing", "got m"),
    "an array without annotation": (lambda k, x: Plain()(x), "constexpr-hash", "got a ndarray"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_call(mistake: str) -> None:
    call, code, words = MISTAKES[mistake]
    with pytest.raises((CompileError, LaunchError)) as caught:
        call(Rows(), np.ones(32, np.float32))
    assert isinstance(caught.value, CompileError | LaunchError)
    assert caught.value.code == code and caught.value.help and words in str(caught.value)


class Plain(Script):
    def __call__(self, x_ptr):  # type: ignore[no-untyped-def]
        self.attrs.blocks = (1, 1)


class Rows(Script):
    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.blocks = (1, n)
        self.attrs.warps = 1
        at = self.blockIdx.y * 32 + self.arange(0, 32)
        self.store(x_ptr + at, self.load(x_ptr + at) * 2)


def test_a_grid_over_the_limits_is_refused(driver: FakeDriver) -> None:
    driver.params = 1
    kernel, x = Rows(), GpuArray(1 << 20, (32,))
    for _ in range(2):
        with pytest.raises(LaunchError, match="65536 CTAs along axis 1") as caught:
            kernel(x, 65_536)
        assert caught.value.code == "grid" and caught.value.help
    with pytest.raises(LaunchError, match="65536 CTAs along axis 1"):
        kernel(np.ones(32, np.float32), 65_536)
    assert driver.launches == []


def test_a_broken_kernel_never_reaches_the_gpu(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.params = 1
    x, y = (GpuArray(1 << p, (64, 64), "float16") for p in (20, 21))
    for _ in range(2):  # the verdict of a wrong kernel is not kept
        with pytest.raises(SimError) as refused:
            Store("no proxy fence")(x, y, 64, 64)
        text = str(refused.value)
        assert (
            "earlier write" in text and "later read" in text and "self.fence.proxy_async()" in text
        )
        assert "an interleaving that fails" in text
    assert driver.launches == []
    monkeypatch.setenv("WARPLOOM_CHECK", "0")
    Store("no proxy fence")(x, y, 64, 64)
    assert len(driver.launches) == 1


_LAUNCH = """
import warploom.check
from tests.explicit.test_launch import FakeDriver, GpuArray, Scale, jit, kernel_module, launch, workspace

driver, whole, checks = FakeDriver(), warploom.check.check, []
driver.params = 2
for module in (launch, kernel_module, jit, workspace):
    module.driver = lambda: driver
warploom.check.check = lambda *a, **k: checks.append(a) or whole(*a, **k)
Scale()(GpuArray(1 << 20, (1000,)), 1000, 3)
print(len(checks), len(driver.launches))
"""


def test_the_next_process_takes_the_verdict_from_disk(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "WARPLOOM_CACHE": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    for checks in (1, 0):
        command = [sys.executable, "-c", _LAUNCH]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.split() == [str(checks), "1"], done.stderr


def test_what_is_not_proved_is_warned_of_and_refused_if_strict(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.params = 2
    script, args = Hashed(), (GpuArray(1 << 20, (64,)), 64)
    with pytest.warns(WarploomWarning, match="the mbarrier_arrive depends on an argument"):
        script(*args)
    assert len(driver.launches) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        script(*args)  # once a kernel
    monkeypatch.setenv("WARPLOOM_CHECK", "strict")
    with pytest.raises(CompileError, match="WARPLOOM_CHECK=strict refuses") as refused:
        Hashed()(*args)
    assert refused.value.code == "not-proved"
    assert len(driver.launches) == 2


def test_stacked_autotune_runs_the_first_schedule_on_the_cpu() -> None:
    @autotune("block", [32, 64])
    class Tuned(Scale):
        pass

    tuned = Tuned()
    assert [s.block for s in tuned.scripts] == [32, 64]
    assert Tuned(block=96).block == 96
    x = np.arange(100, dtype=np.float32)
    tuned(x, 100, 2)
    assert np.array_equal(x, 2 * np.arange(100, dtype=np.float32))


def test_debug_schedule_fixes_the_choice() -> None:
    @autotune("block", [32, 64])
    class Fixed(Scale):
        debug_schedule = {"block": 128}  # noqa: RUF012 (Tilus's spelling)

    assert [s.block for s in Fixed().scripts] == [128]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ((np.zeros(4, np.float32), 4), "argument-count"),
        ((np.zeros(4, np.float16), 4, 1), "argument-type"),
        ((np.zeros(4, np.float32), np.zeros(4), 1), "argument-type"),
    ],
)
def test_wrong_arguments(args: tuple[object, ...], code: str) -> None:
    with pytest.raises(LaunchError) as e:
        Scale()(*args)
    assert e.value.code == code


def test_a_kernel_without_a_grid_is_refused() -> None:
    class NoGrid(Script):
        def __call__(self, x_ptr: ~float32):
            self.attrs.warps = 1

    with pytest.raises(CompileError) as e:
        NoGrid()(np.zeros(4, np.float32))
    assert e.value.code == "attrs-blocks"


class Grid(Script):
    """KIND: what its grid is computed from."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def __call__(self, x_ptr: ~float32, n: int32, by: int32):
        sizes = {
            "sum": n + by,
            "quotient": n // by,
            "number": 1.5,
        }
        self.attrs.blocks = [sizes[self.kind]]
        self.attrs.warps = 1
        self.store(x_ptr + self.blockIdx.x, 1.0)


@pytest.mark.parametrize(
    ("kind", "by", "code", "message"),
    [
        ("sum", -5, "grid", "a grid of -1 CTAs"),
        ("quotient", 0, "zero-division", "made by a division by 0"),
        ("number", 1, "attrs-blocks", "the grid is counted in integers, found 1.5"),
    ],
)
def test_a_grid_that_is_no_number_of_programs(kind: str, by: int, code: str, message: str) -> None:
    with pytest.raises((CompileError, LaunchError)) as e:
        Grid(kind)(np.zeros(8, np.float32), 4, by)
    assert e.value.code == code and message in e.value.message


@pytest.mark.parametrize(("kind", "by", "programs"), [("sum", -4, 0), ("quotient", 2, 2)])
def test_a_grid_of_few_programs(kind: str, by: int, programs: int) -> None:
    x = np.zeros(8, np.float32)
    Grid(kind)(x, 4, by)
    assert x.tolist() == [1.0] * programs + [0.0] * (8 - programs)
