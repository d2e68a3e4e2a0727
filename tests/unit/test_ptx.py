"""Launches of other chips' PTX (tests/gpu/ptx.py), on a driver that only records: what a GPU run rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gpu import ptx
from tests.unit.fake_driver import FakeDriver
from warploom.runtime.args import TensorDescriptor
from warploom.runtime.kernel import Kernel
from warploom.runtime.plan import LaunchPlan, ScalarParam

TEXT = "//\n.version 9.5\n.target sm_80\n.address_size 64\n"
PLAN = LaunchPlan("k", 128, 1024, tuple(ScalarParam(i, c) for i, c in enumerate("iQQiiqq")))


class Compiled(Kernel):
    """Only what is launched of a kernel."""

    def __init__(self) -> None:
        self.plan = PLAN

    ptx = TEXT


class Writes(FakeDriver):
    """Adds one to each byte of the second parameter's array, from `before` bytes ahead of it on."""

    def __init__(self, before: int = 0) -> None:
        super().__init__()
        self.before, self.params, self.loaded = before, len(PLAN.params), b""

    def load(self, cubin: bytes, name: str) -> str:
        self.loaded = cubin
        return name

    def launch(self, *args: Any) -> tuple[int]:
        found = super().launch(*args)
        at = self.launches[-1][-1][1]
        ((start, data),) = ((a, d) for a, d in self.memory.items() if a <= at < a + d.size)
        data[at - start - self.before : -ptx.GUARD] += 1
        return found


def arguments() -> list[Any]:
    """A number, a column-major part of an array, a descriptor."""
    whole = np.arange(48, dtype=np.uint8).reshape(6, 8)
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    return [7, whole[1:4, 2:5].T, TensorDescriptor(base, (3, 4), (4, 1), (2, 4))]


def test_arrays_go_to_the_gpu_and_come_back() -> None:
    gpu, args = Writes(), arguments()
    before = [args[1].copy(), args[2].base.copy()]
    ptx.launch(gpu, Compiled(), args, (3, 2))
    assert gpu.loaded == TEXT.replace("9.5", "9.0").encode() + b"\0"
    ((_, grid, threads, shared, _, values),) = gpu.launches
    assert (grid, threads, shared) == ((3, 2, 1), 128, 1024)
    assert values[0] == 7 and values[3:] == [3, 4, 4, 1]
    np.testing.assert_array_equal(args[1], before[0] + 1)
    np.testing.assert_array_equal(args[2].base, before[1])
    assert not gpu.memory  # freed


def test_what_is_written_around_an_array_shows() -> None:
    with pytest.raises(AssertionError):
        ptx.launch(Writes(before=1), Compiled(), arguments(), 1)


def test_a_kernels_own_version_is_found_once() -> None:
    with pytest.raises(AssertionError, match="one version"):
        ptx.portable("no PTX")
