# mypy: ignore-errors
"""Idioms of Tilus files: dtypes' numbers, layouts where tensors are made, views of other axes, one thread's
stores, schedules that do not go together."""

import math
from pathlib import Path

import numpy as np
import pytest

import warploom.tilus as tilus
from warploom.errors import CompileError
from warploom.tilus import boolean, float16, float32, int32, int64, uint32
from warploom.tilus.ir.layout import register_layout, spatial
from warploom.tilus.utils import cdiv


class Routed(tilus.Script):
    """The best of each row, the lower index first; each a store of one thread."""

    def __init__(self, n, top):
        super().__init__()
        self.n, self.top, self.width = n, top, cdiv(n, 32) * 32

    def __call__(self, rows: int32, x_ptr: ~float32, out_ptr: ~int64):
        self.attrs.blocks = (rows,)
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=float32, shape=[rows, self.n])
        out = self.global_view(out_ptr, dtype=int64, shape=[rows, self.top])
        row, _, _ = self.blockIdx
        v = self.load_global(x, offsets=[row, 0], shape=[1, self.width])
        at = self.register_tensor(dtype=int32, shape=[1, self.width], init=lambda _, j: j)
        v = self.where(at < self.n, x=v, y=float32.min_value)
        for rank in self.range(0, self.top, 1, unroll="all"):
            best = self.max(v, dim=1, keepdim=True)
            first = self.min(self.where(v == best, x=at, y=int32.max_value), dim=1, keepdim=True)
            if first[0, 0].item() == int32.max_value:
                first = self.register_tensor(dtype=int32, shape=[1, 1], init=-1)
            if self.get_thread_binding() == 0:
                self.store_global(out, first.to(int64), offsets=[row, rank])
            v = self.where(at == first, x=float32.min_value, y=v)


@pytest.mark.parametrize("n", [32, 71])
def test_one_thread_stores_single_elements(n):
    x = np.random.default_rng(0).integers(0, 9, (5, n)).astype(np.float32)
    out = np.zeros((5, 4), np.int64)
    Routed(n, 4)(5, x, out)
    assert np.array_equal(out, np.argsort(-x, axis=1, kind="stable")[:, :4])


class Halves(tilus.Script):
    """Rows of one head of (batch, time, head, element), by copy_async and by the words of a table."""

    def __call__(self, x_ptr: ~float16, rows_ptr: ~int32, out_ptr: ~float16, t: int32):
        self.attrs.blocks = [cdiv(t, 16), 3, 2]
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float16, shape=[2, t, 3, 32])
        rows = self.global_view(rows_ptr, dtype=int32, shape=[2])
        out = self.global_view(out_ptr, dtype=float16, shape=[2, t, 3, 32])
        i, head, batch = self.blockIdx
        s = self.shared_tensor(dtype=float16, shape=[16, 32])
        self.copy_async(x, s, offsets=[rows[batch].item(), i * 16, head, 0], dims=[1, 3])
        self.copy_async_wait_all()
        self.sync()
        self.store_global(out, self.load_shared(s), offsets=[batch, i * 16, head, 0], dims=[1, 3])


def test_copies_along_other_axes():
    x = np.random.default_rng(1).standard_normal((2, 40, 3, 32)).astype(np.float16)
    rows, out = np.array([1, 0], np.int32), np.zeros_like(x)
    script = Halves()
    script(x, rows, out, 40)
    assert np.array_equal(out, x[rows])
    assert script.compile_for(x, rows, out, 40).check().ok


LAYOUTS = [
    spatial(4, 8).local(1, 2),
    spatial(2, 4).column_spatial(2, 4),
    register_layout([32, 16], [2, 2, 8, 2, 4, 2], [-4, 2, 4], [0, 3, 1, 5]),
]


class Chosen(tilus.Script):
    """where() on tensors that are loaded in a layout, and sums that a loop annotates."""

    def __init__(self, layout):
        super().__init__()
        self.layout = layout

    def __call__(self, c_ptr: ~boolean, x_ptr: ~int32, out_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = self.layout.spatial_size // 32
        m, n = self.layout.shape
        c = self.global_view(c_ptr, dtype=boolean, shape=[m, n])
        x = self.global_view(x_ptr, dtype=int32, shape=[3, m, n])
        out = self.global_view(out_ptr, dtype=int32, shape=[m, n])
        chosen = self.load_global(c, offsets=[0, 0], layout=self.layout)
        s = self.shared_tensor(dtype=int32, shape=[m, n])
        total = self.register_tensor(dtype=int32, shape=[m, n], init=0)
        held = self.register_tensor(dtype=int32, shape=[m, n])
        for i in range(3):
            self.load_global(x, offsets=[i, 0, 0], dims=[1, 2], out=held)
            total = total + self.where(chosen, held, 1)
            self.annotate_layout(total, self.layout)
        self.store_shared(s, total)
        self.sync()
        total = self.load_shared(s, layout=self.layout)
        number = s[m - 1, 0].item()
        self.store_global(
            out, self.reshape(self.reshape(total, shape=[m * n]), [m, n]) + number, offsets=[0, 0]
        )


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layouts_where_tensors_are_made(layout):
    assert layout.size == layout.spatial_size * layout.local_size // (
        4 if layout is LAYOUTS[2] else 1
    )
    rng, shape = np.random.default_rng(2), layout.shape
    c, x = rng.integers(0, 2, shape).astype(bool), rng.integers(-9, 9, (3, *shape)).astype(np.int32)
    out = np.zeros(shape, np.int32)
    script = Chosen(layout)
    script(c, x, out)
    total = np.where(c, x, 1).sum(0)
    assert np.array_equal(out, total + total[-1, 0])
    assert script.compile_for(c, x, out).check().ok


class Divided(tilus.Script):
    """/ of integers is C's; Python's math of numbers that are known at run time."""

    def __call__(self, x_ptr: ~uint32, y_ptr: ~int32, f_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=uint32, shape=[32])
        y = self.global_view(y_ptr, dtype=int32, shape=[32])
        f = self.global_view(f_ptr, dtype=float32, shape=[32])
        v = self.load_global(x, offsets=[0], shape=[32])
        self.store_global(x, v / uint32(0x10000), offsets=[0])
        w = self.load_global(y, offsets=[0], shape=[32])
        self.store_global(y, w / n, offsets=[0])
        scale: float32 = math.exp(f[0].item()) + math.sqrt(4.0) + float32.one + float32(n)
        self.store_global(f, self.load_global(f, offsets=[0], shape=[32]) * scale, offsets=[0])


def test_integers_divide_as_in_c():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1 << 32, 32).astype(np.uint32)
    y = rng.integers(-100, 100, 32).astype(np.int32)
    f = rng.random(32).astype(np.float32)
    want = x // 0x10000, np.trunc(y / 7).astype(np.int32), f * (np.exp(f[0]) + 10)
    Divided()(x, y, f, 7)
    assert np.array_equal(x, want[0]) and np.array_equal(y, want[1])
    np.testing.assert_allclose(f, want[2], rtol=1e-6)


@tilus.autotune("rows", [24, 96, 8])
@tilus.autotune("warps", [4])
class Fitting(tilus.Script):
    def __init__(self, rows, warps):
        super().__init__()
        assert 32 * warps % rows == 0, "rows among threads"
        self.rows, self.warps = rows, warps

    def __call__(self, out_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        out = self.global_view(out_ptr, dtype=int32, shape=[8])
        self.store_global(
            out, self.register_tensor(dtype=int32, shape=[self.rows], init=lambda i: i), offsets=[0]
        )


def test_schedules_that_do_not_go_together_are_left_out():
    out = np.zeros(8, np.int32)
    script = Fitting()
    script(out)
    assert script.schedules == [{"warps": 4, "rows": 8}] or script.schedules == [
        {"rows": 8, "warps": 4}
    ]
    assert np.array_equal(out, np.arange(8))


class Refused(tilus.Script):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def __call__(self, p: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g = self.global_view(p, dtype=float32, shape=[8])
        x = self.register_tensor(dtype=float32, shape=[8], init=1.0)
        if self.what == "many":  # noqa: SIM102
            if self.get_thread_binding() == 0:
                self.store_global(g, x, offsets=[0])
        if self.what == "sync":  # noqa: SIM102
            if self.get_thread_binding() == 0:
                self.sync()
        if self.what == "less":  # noqa: SIM102
            if self.get_thread_binding() < 4:
                self.store_global(g, x, offsets=[0])


@pytest.mark.parametrize(
    ("what", "code", "line"),
    [
        ("many", "one-thread", "self.store_global(g, x, offsets=[0])"),
        ("sync", "one-thread", "self.sync()"),
        ("less", "thread-index", "if self.get_thread_binding() < 4:"),
    ],
)
def test_what_one_thread_can_not_do(what, code, line):
    with pytest.raises(CompileError) as e:
        Refused(what).compile(["*fp32:16"])
    assert e.value.code == code
    assert line in Path(e.value.loc.file).read_text().splitlines()[e.value.loc.line - 1]
