"""Numbers in shared memory: one thread writes them, everybody reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warploom import Script
from warploom.check import check
from warploom.errors import CompileError
from warploom.language import float32, int32


class Handed(Script):
    """A drawing warp hands numbers to a reading group, which stores them."""

    def __init__(self, waits: bool = True, releases: bool = True) -> None:
        super().__init__()
        self.waits, self.releases = waits, releases

    def __call__(self, out_ptr: ~int32, counter_ptr: ~int32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 5
        number = self.shared_tensor(dtype=int32, shape=[2, 1, 1])
        full = self.mbarrier.alloc([1, 1])
        empty = self.mbarrier.alloc([4, 4])
        with self.thread_group(0, 128, name="readers"):
            slot: int32 = 0
            phase: int32 = 0
            for i in range(n):
                if self.waits:
                    self.mbarrier.wait(full[slot], phase)
                x = self.load_shared(number[slot])
                if self.releases:
                    self.mbarrier.arrive(empty[slot], by="warp")
                slot, phase = self.ring_next(slot, phase, 2)
                with self.single_thread():
                    self.store(out_ptr + i, x)
        with self.single_warp(4, name="drawer"), self.single_thread():
            slot: int32 = 0
            phase: int32 = 0
            for _ in range(n):
                if self.releases:
                    self.mbarrier.wait(empty[slot], phase ^ 1)
                self.store_shared(number[slot], 10 * self.atomic_add(counter_ptr, 2))
                self.mbarrier.arrive(full[slot])
                slot, phase = self.ring_next(slot, phase, 2)


def test_numbers_arrive() -> None:
    out, counter = np.zeros(7, np.int32), np.array([3], np.int32)
    Handed()(out, counter, 7)
    assert out.tolist() == [10 * (3 + 2 * i) for i in range(7)] and counter[0] == 17


@pytest.mark.parametrize("options", [{}, {"waits": False}, {"releases": False}])
def test_the_protocol_is_checked(options: dict[str, Any]) -> None:
    kernel = Handed(**options).compile(["*i32:16", "*i32:16", "i32"])
    out, counter = np.zeros(8, np.int32), np.zeros(1, np.int32)
    report = check(kernel.placed, [((out, counter, n), (1, 1)) for n in (1, 5)])
    assert report.ok == (not options)


class Wrong(Script):
    def __init__(self, number: Any) -> None:
        super().__init__()
        self.number = number

    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        s = self.shared_tensor(dtype=float32, shape=[4, 4])
        self.store_shared(s, self.number)


def test_a_number_needs_a_slot_of_its_own() -> None:
    with pytest.raises(CompileError, match="store_shared"):
        Wrong(1.0).compile(["i32"])
