# mypy: ignore-errors
"""Atomics and scattered stores in shared memory: what they compute, how they are ordered, how they lie."""

from pathlib import Path

import numpy as np
import pytest

import warploom.tilus as tilus
from tests.eject.owned import owned, same_program
from warploom.errors import CompileError
from warploom.sim.report import MemoryFault, Race
from warploom.tilus import bfloat16, float32, float64, int32, int64, uint32, uint64

DTYPES = {int32: np.int32, uint32: np.uint32, int64: np.int64, uint64: np.uint64, float32: np.float32,
          float64: np.float64}  # fmt: skip
COMBINE = {
    "add": lambda old, v, c: old + v,
    "sub": lambda old, v, c: old - v,
    "min": lambda old, v, c: min(old, v),
    "max": lambda old, v, c: max(old, v),
    "exch": lambda old, v, c: v,
    "cas": lambda old, v, c: v if old == c else old,
}


class Combined(tilus.Script):
    """dst ← fn(dst, values) by way of shared memory, with the old elements."""

    def __init__(self, fn, dtype, shape, warps):
        super().__init__()
        self.fn, self.dtype, self.shape, self.warps = fn, dtype, shape, warps

    def __call__(self, dst_ptr: tilus.void_p, v_ptr: tilus.void_p, old_ptr: tilus.void_p):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        shape = self.shape
        g_dst = self.global_view(dst_ptr, dtype=self.dtype, shape=shape)
        g_v = self.global_view(v_ptr, dtype=self.dtype, shape=shape)
        g_old = self.global_view(old_ptr, dtype=self.dtype, shape=shape)
        s = self.shared_tensor(dtype=self.dtype, shape=shape)
        self.store_shared(s, self.load_global(g_dst, offsets=[0, 0], shape=shape))
        self.sync()
        v = self.load_global(g_v, offsets=[0, 0], shape=shape)
        if self.fn == "add":
            old = self.atomic.shared_add(s, v)
        elif self.fn == "sub":
            old = self.atomic.shared_sub(s, v, sem="acq_rel", scope="cta")
        elif self.fn == "min":
            old = self.atomic.shared_min(s, v)
        elif self.fn == "max":
            old = self.atomic.shared_max(s, v)
        elif self.fn == "exch":
            old = self.atomic.shared_exch(s, v)
        else:
            old = self.atomic.shared_cas(s, v - v, v)
        self.sync()
        self.store_global(g_dst, self.load_shared(s), offsets=[0, 0])
        self.store_global(g_old, old, offsets=[0, 0])


FUNCTIONS = [
    *((fn, d) for fn in COMBINE for d in (int32, int64)),
    *((fn, d) for fn in ("add", "min") for d in (uint32, uint64)),
    *((fn, float32) for fn in ("add", "sub", "max", "exch")),
    ("add", float64),
]


@pytest.mark.parametrize(("fn", "dtype"), FUNCTIONS)
@pytest.mark.each(2)
def test_each_element_is_combined(fn, dtype):
    rng = np.random.default_rng(0)
    for shape, warps in (((4, 33), 1), ((8, 64), 4)):
        dst, v = (rng.integers(0, 9, shape).astype(DTYPES[dtype]) for _ in range(2))
        want, before, old = dst.copy(), dst.copy(), np.zeros_like(dst)
        for at in np.ndindex(shape):
            want[at] = COMBINE[fn](dst[at], v[at], 0)
        script = Combined(fn, dtype, list(shape), warps)
        script(dst, v, old)
        assert np.array_equal(dst, want) and np.array_equal(old, before)
    assert "shared_pointer<" in script.compile_for(dst, v, old).cuda


class Scattered(tilus.Script):
    """A slot of several, filled, combined and overwritten at indices along an axis."""

    def __init__(self, shape, n, dim, index=int32):
        super().__init__()
        self.shape, self.n, self.dim, self.index = shape, n, dim, index

    def __call__(self, dst_ptr: tilus.void_p, at_ptr: tilus.void_p, v_ptr: tilus.void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        given = [self.n if a == self.dim else n for a, n in enumerate(self.shape)]
        g_dst = self.global_view(dst_ptr, dtype=int32, shape=self.shape)
        g_at = self.global_view(at_ptr, dtype=self.index, shape=given)
        g_v = self.global_view(v_ptr, dtype=int32, shape=given)
        s = self.shared_tensor(dtype=int32, shape=[2, *self.shape])
        self.store_shared(s[1], self.load_global(g_dst, offsets=[0, 0], shape=self.shape))
        self.sync()
        at = self.load_global(g_at, offsets=[0, 0], shape=given)
        v = self.load_global(g_v, offsets=[0, 0], shape=given)
        self.atomic.shared_scatter_max(s[1], dim=self.dim, indices=at, values=v)
        self.atomic.shared_scatter_sub(s[1], dim=self.dim, indices=at, values=v)
        self.sync()
        self.store_shared_scatter(s[1], dim=self.dim, indices=at * 2 + 1, values=v)
        self.sync()
        self.store_global(g_dst, self.load_shared(s[1]), offsets=[0, 0])


SLOTS = [
    ((16, 64), 8, 0), ((16, 128), 32, 1), ((8, 40), 5, 0), ((8, 72), 16, 1), ((64, 32), 64, 0),
]  # fmt: skip


def scattered(shape, n, dim, index):
    """A script, its arguments, and what it makes of the first: odd sizes, swizzled rows of several panels, and
    indices outside, which are dropped."""
    rng = np.random.default_rng(1)
    given = tuple(n if a == dim else m for a, m in enumerate(shape))
    dst = rng.integers(-50, 50, shape).astype(np.int32)
    v = rng.integers(-50, 50, given).astype(np.int32)
    # each index once, as max and sub do not commute; the last is outside
    order = np.argsort(rng.random((*shape[1 - dim : 2 - dim], shape[dim] + 1)), axis=1)[:, :n]
    at = np.ascontiguousarray(order if dim == 1 else order.T).astype(DTYPES[index])
    if index is int64:
        at = np.where(at == shape[dim], 1 << 32, at)
    want = dst.copy()
    for where in np.ndindex(given):
        to = tuple(int(at[where]) if a == dim else i for a, i in enumerate(where))
        if to[dim] < shape[dim]:
            want[to] = max(want[to], v[where]) - v[where]
    for where in np.ndindex(given):
        to = tuple(2 * int(at[where]) + 1 if a == dim else i for a, i in enumerate(where))
        if to[dim] < shape[dim]:
            want[to] = v[where]
    return Scattered(list(shape), n, dim, index=index), (dst, at, v), want


@pytest.mark.parametrize(("shape", "n", "dim"), SLOTS)
@pytest.mark.parametrize("index", [int32, int64])
def test_indices_along_an_axis(shape, n, dim, index):
    script, args, want = scattered(shape, n, dim, index)
    script(*args)
    assert np.array_equal(args[0], want)


class Counted(tilus.Script):
    """Two warps count into one tensor at the same time, which a third prints by TMA."""

    def __init__(self, leave_out=""):
        super().__init__()
        self.leave_out = leave_out

    def __call__(self, x_ptr: ~int32, out_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 3
        g_x = self.global_view(x_ptr, dtype=int32, shape=[2, 64])
        g_out = self.global_view(out_ptr, dtype=int32, shape=[32])
        s = self.shared_tensor(dtype=int32, shape=[32])
        ones = self.register_tensor(dtype=int32, shape=[64], init=1)
        if self.leave_out != "zeros":
            with self.single_warp(2):
                self.store_shared(s, self.register_tensor(dtype=int32, shape=[32], init=0))
        if self.leave_out != "before":
            self.sync()
        with self.single_warp(0):
            x = self.load_global(g_x, offsets=[0, 0], shape=[64], dims=[1])
            self.atomic.shared_scatter_add(s, dim=0, indices=x, values=ones)
            if self.leave_out != "fence":
                self.fence.proxy_async()
        with self.single_warp(1):
            x = self.load_global(g_x, offsets=[1, 0], shape=[64], dims=[1])
            self.atomic.shared_scatter_add(s, dim=0, indices=x, values=ones)
            if self.leave_out == "mixed":
                self.store_shared(s, self.register_tensor(dtype=int32, shape=[32], init=0))
            self.fence.proxy_async()
        if self.leave_out != "behind":
            self.sync()
        with self.single_warp(2):
            if self.leave_out == "behind":
                self.store_global(g_out, self.load_shared(s), offsets=[0])
            else:
                with self.single_thread():
                    self.tma.shared_to_global(s, g_out, offsets=[0])
                    self.tma.commit_group()
                    self.tma.wait_group(0)


def test_groups_count_at_the_same_time():
    x = np.random.default_rng(2).integers(0, 32, (2, 64)).astype(np.int32)
    out = np.zeros(32, np.int32)
    script = Counted()
    script(x, out)
    assert np.array_equal(out, np.bincount(x.reshape(-1), minlength=32))
    assert script.compile_for(x, out).check().ok


RACES = {
    "before": ("uninitialised", "these bytes are written here"),
    "behind": ("race", "earlier atomic"),
    "mixed": ("race", "earlier atomic"),
    "fence": ("proxy-fence", "earlier atomic"),
}


@pytest.mark.parametrize("what", RACES)
def test_atomics_race_with_what_is_none(what):
    x, out = np.zeros((2, 64), np.int32), np.zeros(32, np.int32)
    compiled = Counted(what).compile_for(x, out)
    report = compiled.check()
    (found, *_) = report.diagnostics
    code, note = RACES[what]
    assert found.code == code and any(note in n.message for n in found.notes)
    with pytest.raises((Race, MemoryFault)):
        compiled.simulate(x, out, grid=1)


def test_atomics_read_what_was_written():
    x, out = np.zeros((2, 64), np.int32), np.zeros(32, np.int32)
    compiled = Counted("zeros").compile_for(x, out)
    assert [d.code for d in compiled.check().diagnostics] == ["uninitialised"]
    with pytest.raises(MemoryFault):
        compiled.simulate(x, out, grid=1)


def test_they_are_spelled(tmp_path: Path):
    x, out = np.zeros((2, 64), np.int32), np.zeros(32, np.int32)
    dst, at, v = np.zeros((16, 64), np.int32), *np.zeros((2, 8, 64), np.int32)
    for script, args in (
        (Counted(), (x, out)),
        (Scattered([16, 64], 8, 0), (dst, at, v)),
        (Combined("cas", int32, [8, 64], 4), (dst[:8], v, v)),
        (Combined("sub", int32, [8, 64], 4), (dst[:8], v, v)),
    ):
        compiled = script.compile_for(*args)
        again, signature = owned(compiled.eject(), tmp_path, 1)
        same_program(compiled, again.compile(signature))


class Few(tilus.Script):
    """Old elements of eight, which many threads hold."""

    def __call__(self, p: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        s = self.shared_tensor(dtype=int32, shape=[64])
        self.store_shared(s, self.register_tensor(dtype=int32, shape=[64], init=lambda i: i * 3))
        at = self.register_tensor(dtype=int32, shape=[8], init=lambda i: i * 2)
        self.sync()
        old = self.atomic.shared_scatter_add(s, dim=0, indices=at, values=at)
        self.store_global(self.global_view(p, dtype=int32, shape=[8]), old, offsets=[0])


def test_all_threads_get_old_elements_that_several_hold():
    found = np.zeros(8, np.int32)
    compiled = Few().compile(["*i32:16"])
    assert compiled.cubin
    compiled.simulate(found, grid=(1,), seed=1)
    assert (found == np.arange(8) * 6).all()


class Refused(tilus.Script):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def __call__(self, p: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        s = self.shared_tensor(dtype=int32, shape=[64])
        h = self.shared_tensor(dtype=bfloat16, shape=[64])
        x = self.register_tensor(dtype=int32, shape=[64], init=lambda i: i)
        few = self.register_tensor(dtype=int32, shape=[8], init=1)
        y = self.register_tensor(dtype=float32, shape=[64], init=1.0)
        if self.what == "shape":
            self.atomic.shared_add(s, few)
        if self.what == "dtype":
            self.atomic.shared_add(h, y)
        if self.what == "indices":
            self.atomic.shared_scatter_add(s, dim=0, indices=y, values=x)
        if self.what == "scope":
            self.atomic.shared_max(s, x, scope="grid")
        if self.what == "thread":
            with self.single_thread():
                self.store_shared_scatter(s, dim=0, indices=x, values=x)


REFUSED = {
    "shape": ("store-shape", "self.atomic.shared_add(s, few)", "as many elements"),
    "dtype": ("atomic-dtype", "self.atomic.shared_add(h, y)", "32 or 64 bits"),
    "indices": ("scatter", "self.atomic.shared_scatter_add(s,", "one integer"),
    "scope": ("scope", "self.atomic.shared_max(s,", "cta"),
    "thread": ("one-thread", "self.store_shared_scatter(s,", "single_thread"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what):
    code, line, advice = REFUSED[what]
    with pytest.raises(CompileError) as e:
        Refused(what).compile(["*i32:16"]).cuda  # noqa: B018
    assert e.value.code == code and e.value.loc is not None and advice in str(e.value)
    text = Path(e.value.loc.file).read_text().splitlines()[e.value.loc.line - 1]
    assert line in text
