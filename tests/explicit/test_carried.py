"""Accumulators that a loop carries in flight."""

# mypy: ignore-errors
from __future__ import annotations

import ml_dtypes
import numpy as np

from warploom import Script
from warploom.check import check
from warploom.language import bfloat16, float32, int32


class ReadAtTheTop(Script):
    """A product is issued at an iteration's end and added to the total at the next one's start."""

    def __call__(self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~float32, steps: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[64, 64])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[64, 64])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[64, 64])
        a = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        full = self.mbarrier.alloc(1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, a.nbytes + b.nbytes)
            self.tma.global_to_shared(g_a, a, [0, 0], full)
            self.tma.global_to_shared(g_b, b, [0, 0], full)
        self.mbarrier.wait(full, 0)
        total = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        part = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        for _ in range(steps):
            self.wgmma.wait_group(0)
            total = total + part
            self.wgmma.fence()
            self.wgmma.mma(a, b.transpose(), part, use_acc=False)
            self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(g_c, total + part, offsets=[0, 0])


def test_an_accumulator_in_flight_is_waited_for_in_the_next_iteration() -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, (64, 64)).astype(ml_dtypes.bfloat16) for _ in range(2))
    product = a.astype(np.float32) @ b.astype(np.float32).T
    for steps in (0, 1, 2, 5):
        c = np.full((64, 64), np.nan, np.float32)
        ReadAtTheTop()(a, b, c, steps)
        assert np.array_equal(c, steps * product)
    report = check(ReadAtTheTop().compile(["*bf16:16", "*bf16:16", "*fp32:16", "i32"]).placed)
    assert report.ok, str(report)
