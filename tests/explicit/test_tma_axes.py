# mypy: ignore-errors
"""Boxes that are thin along some axes of their view, first ones or any that `dims=` leaves out."""

import numpy as np
import pytest

from warploom import Script
from warploom.errors import WarploomError
from warploom.ir.core import walk
from warploom.ir.ops import tma
from warploom.language import cdiv, float16, int32


class HeadsFirst(Script):
    """y[b, h, s, d] = x[b, s, h, d], a box of 64 positions of one head at a time."""

    def __call__(
        self, x_ptr: ~float16, y_ptr: ~float16, batches: int32, positions: int32, heads: int32
    ):
        self.attrs.blocks = [cdiv(positions, 64), heads, batches]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[batches, positions, heads, 64])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[batches, heads, positions, 64])
        slot = self.shared_tensor(dtype=float16, shape=[64, 64])
        full = self.mbarrier.alloc(1)
        s, h, b = self.blockIdx.x * 64, self.blockIdx.y, self.blockIdx.z
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=slot.nbytes)
            self.tma.global_to_shared(g_x, slot, offsets=[b, s, h, 0], mbarrier=full, dims=[1, 3])
            self.mbarrier.wait(full, 0)
            self.tma.shared_to_global(slot, g_y, offsets=[b, h, s, 0])
            self.tma.commit_group()
            self.tma.wait_group(0, read=True)


@pytest.mark.parametrize("positions", [64, 100])
def test_a_box_without_an_axis_in_the_middle(positions: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, positions, 3, 64)).astype(np.float16)
    y = np.full((2, 3, positions, 64), np.nan, np.float16)
    HeadsFirst()(x, y, 2, positions, 3)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1, 3))


def test_the_host_puts_thin_axes_outermost() -> None:
    compiled = HeadsFirst().compile(["*fp16:16", "*fp16:16", "i32", "i32", "i32"])
    maps = [o.result.type for o in walk(compiled.placed.body) if o.kind is tma.tensor_map]
    assert {m.thin for m in maps} == {(0, 2), (0, 1)}
    assert {m.thick for m in maps} == {(1, 64, 1, 64), (1, 1, 64, 64)}
    assert {m.box for m in compiled.plan.maps} == {(64, 64, 1, 1)}
    calls = [line for line in compiled.cuda.splitlines() if "tma_load_4d(" in line]
    assert len(calls) == 2  # its definition and the call: d, s, h, b


class FromColumn(Script):
    """y = 64 columns of x from `first` on, or y from there on = x."""

    def __init__(self, stored: bool):
        super().__init__()
        self.stored = stored

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16, first: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[64, 128])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[64, 128])
        slot = self.shared_tensor(dtype=float16, shape=[64, 64])
        full = self.mbarrier.alloc(1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=slot.nbytes)
            there = 0 if self.stored else first
            here = first if self.stored else 0
            self.tma.global_to_shared(g_x, slot, offsets=[0, there], mbarrier=full)
            self.mbarrier.wait(full, 0)
            self.tma.shared_to_global(slot, g_y, offsets=[0, here])
            self.tma.commit_group()
            self.tma.wait_group(0, read=True)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("first", [0, 8, 64, 4, 63])
def test_a_box_begins_at_a_multiple_of_16_bytes(stored: bool, first: int) -> None:
    x = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float16)
    y = np.full((64, 128), np.nan, np.float16)
    if first % 8:
        with pytest.raises(WarploomError, match="no multiple of 16") as told:
            FromColumn(stored)(x, y, first)
        assert told.value.code == "tma-start" and told.value.help
        return
    FromColumn(stored)(x, y, first)
    there, here = (0, first) if stored else (first, 0)
    np.testing.assert_array_equal(y[:, here : here + 64], x[:, there : there + 64])
