"""Register tensors cut and put together, and values that hold what follows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warploom import Script
from warploom.errors import CompileError
from warploom.language import bfloat16, float32, int32


class Parts(Script):
    """Cuts a tile along an axis, treats the parts differently, puts them together."""

    def __init__(self, shape: tuple[int, int], axis: int, at: int, to: Any = float32) -> None:
        super().__init__()
        self.shape, self.axis, self.at, self.to = shape, axis, at, to

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=self.shape)
        g_y = self.global_view(y_ptr, dtype=float32, shape=self.shape)
        x = self.load_global(g_x, offsets=[0, 0], shape=self.shape)
        if self.axis == 0:
            parts = [x[0 : self.at, :] * 2.0, x[self.at :, :] + 1.0]
        else:
            parts = [x[:, 0 : self.at] * 2.0, x[:, self.at :] + 1.0]
        self.hold(parts[0], 7)
        y = self.concat([p.to(self.to) for p in parts], dim=self.axis)
        self.store_global(g_y, y.to(float32), offsets=[0, 0])


@pytest.mark.parametrize("to", [float32, bfloat16])
@pytest.mark.parametrize(
    ("shape", "axis", "at"),
    [((64, 128), 1, 32), ((64, 48), 1, 17), ((24, 16), 0, 5), ((8, 8), 0, 4)],
)
@pytest.mark.each(2)
def test_parts_are_put_together(shape: tuple[int, int], axis: int, at: int, to: Any) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 97
    y = np.full_like(x, np.nan)
    kernel = Parts(shape, axis, at, to)
    kernel(x, y)
    first, second = np.split(x, [at], axis)
    assert np.array_equal(y, np.concatenate([first * 2, second + 1], axis))
    built = kernel.compile(["*fp32:16"] * 2)
    assert built.resources.problems() == ()
    assert "hold(" in built.cuda


class Abreast(Script):
    """Two CTAs share a multiprocessor's registers."""

    def __init__(self, n: int, most: int) -> None:
        super().__init__()
        self.n, self.most = n, most

    def __call__(self, x_ptr: ~float32):
        self.attrs.blocks = 4
        self.attrs.ctas_per_sm = self.n
        self.attrs.warps = 8
        with self.thread_group(0, 128):
            self.setmaxnreg(self.most)
            g_x = self.global_view(x_ptr, dtype=float32, shape=[4, 128])
            x = self.load_global(g_x, offsets=[self.blockIdx.x, 0], shape=[1, 128])
            self.store_global(g_x, x + 1.0, offsets=[self.blockIdx.x, 0])
        with self.thread_group(128, 128):
            self.setmaxnreg(24)


def test_each_of_two_is_launched_with_half() -> None:
    x = np.zeros((4, 128), np.float32)
    kernel = Abreast(2, 232)
    kernel(x)
    assert (x == 1).all()
    built = kernel.compile(["*fp32:16"])
    assert built.resources.registers == 128 and built.resources.problems() == ()
    assert "__launch_bounds__(THREADS, 2)" in built.cuda and built.check().ok
    for n, most, code in ((2, 240, "setmaxnreg-pool"), (9, 232, "attrs-ctas-per-sm"), (0, 232, "attrs-ctas-per-sm")):  # fmt: skip
        with pytest.raises(CompileError) as e:
            Abreast(n, most).compile(["*fp32:16"])
        assert e.value.code == code


class Wrong(Script):
    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis

    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.register_tensor(dtype=float32, shape=[8, 4], init=0.0)
        y = self.register_tensor(dtype=float32, shape=[8, 8], init=0.0)
        self.hold(self.concat([x, y], dim=self.axis))


def test_parts_have_to_fit() -> None:
    Wrong(1).compile(["i32"])
    with pytest.raises(CompileError, match="can't follow"):
        Wrong(0).compile(["i32"])
