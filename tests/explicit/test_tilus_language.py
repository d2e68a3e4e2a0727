# mypy: ignore-errors
"""Idioms of Tilus's: scans, scatters, atomics, semaphores, random numbers, `out=`, elements, and who holds what."""

import functools
from pathlib import Path

import numpy as np
import pytest

import warploom.tilus as tilus
from warploom.errors import CompileError
from warploom.ir.core import walk
from warploom.ir.ops import task
from warploom.runtime import script
from warploom.runtime.binding import Call
from warploom.runtime.config import Config
from warploom.runtime.race import Candidate, Verdict
from warploom.tilus import float16, float32, int32, uint32, uint64
from warploom.tilus.utils import cdiv

UFUNCS = {
    "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
NEUTRAL = {"add": 0, "mul": 1, "max": -(2**31), "min": 2**31 - 1, "and": -1, "or": 0, "xor": 0}


class Scan(tilus.Script):
    def __init__(self, op, exclusive, reverse):
        super().__init__()
        self.op, self.exclusive, self.reverse = op, exclusive, reverse

    def __call__(self, p: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g = self.global_view(p, dtype=int32, shape=[4, 32])
        x = self.load_global(g, offsets=[0, 0], shape=[4, 32])
        self.scan(x, 1, self.op, exclusive=self.exclusive, reverse=self.reverse, out=x)
        self.store_global(g, x, offsets=[0, 0])


@pytest.mark.parametrize("op", UFUNCS)
@pytest.mark.parametrize("exclusive", [False, True])
def test_scans(op, exclusive):
    for reverse in (False, True):
        x = np.random.default_rng(0).integers(-2, 3, (4, 32)).astype(np.int32)
        want = UFUNCS[op].accumulate(x[:, ::-1] if reverse else x, axis=1)
        if exclusive:
            first = np.full((4, 1), NEUTRAL[op])
            want = np.concatenate([first, want[:, :-1]], axis=1)
        Scan(op, exclusive, reverse)(x)
        assert np.array_equal(x, want[:, ::-1] if reverse else want)


class Scatters(tilus.Script):
    def __init__(self, n: int = 64, bins: int = 4):
        super().__init__()
        self.n, self.bins = n, bins

    def __call__(self, bins_ptr: ~int32, out_ptr: ~int32, old_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        n = self.n
        ones = self.register_tensor(dtype=int32, shape=[n], init=1)
        bins = self.register_tensor(dtype=int32, shape=[n], init=lambda i: i % self.bins)
        g_bins = self.global_view(bins_ptr, dtype=int32, shape=[self.bins])
        self.atomic.global_scatter_add(g_bins, dim=0, indices=bins, values=ones)
        transposed = self.register_tensor(
            dtype=int32, shape=[n], init=lambda i: n - i
        )  # one is outside
        values = self.register_tensor(dtype=int32, shape=[n], init=lambda i: 100 + i)
        g_out = self.global_view(out_ptr, dtype=int32, shape=[n])
        self.store_global_scatter(g_out, dim=0, indices=transposed, values=values)
        self.sync()
        self.atomic.global_max(g_out, values)
        old = self.atomic.global_sub(g_out, ones)
        self.store_global(self.global_view(old_ptr, dtype=int32, shape=[n]), old, offsets=[0])


def test_scatters_and_atomics():
    bins, out, old = np.zeros(4, np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32)
    Scatters()(bins, out, old)
    scattered = np.zeros(64, np.int64)
    scattered[1:] = 163 - np.arange(63)
    want = np.maximum(scattered, 100 + np.arange(64))
    assert (bins == 16).all() and np.array_equal(old, want) and np.array_equal(out, want - 1)


class Semaphores(tilus.Script):
    """Each part adds to what the one before it left."""

    parts = 3

    def __call__(self, p: ~float32, n: int32):
        self.attrs.blocks = [n, 1, self.parts]
        self.attrs.warps = 4
        g = self.global_view(p, dtype=float32, shape=[n, 128])
        counters = self.global_tensor(dtype=int32, shape=[n], requires_clean=True)
        semaphore: ~int32 = ~counters[self.blockIdx.x]
        part = self.register_tensor(dtype=float32, shape=[128], init=1.0)
        if self.blockIdx.z > 0:
            self.lock_semaphore(semaphore, value=self.blockIdx.z)
            before = self.load_global(g, offsets=[self.blockIdx.x, 0], shape=[128])
            self.add(part, before * 10.0, out=part)
        self.store_global(g, part, offsets=[self.blockIdx.x, 0])
        self.sync()
        self.release_semaphore(semaphore, value=(self.blockIdx.z + 1) % self.parts)


def test_semaphores_put_programs_in_order():
    p = np.zeros((2, 128), np.float32)
    Semaphores()(p, 2)
    assert (p == 111).all()


def test_what_semaphores_order_is_not_proved_and_not_broken():
    p = np.zeros((2, 128), np.float32)
    report = Semaphores().check(p, 2)
    assert not report.ok and "ordered perhaps by" in str(report)
    assert "error[" not in str(report)


class Random(tilus.Script):
    def __call__(self, p: ~float32, q: ~uint32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        offset = self.register_tensor(dtype=uint32, shape=[128], init=lambda i: i)
        first, _, _, _ = self.randint4x(seed=uint64(42), offset=offset)
        self.store_global(self.global_view(q, dtype=uint32, shape=[128]), first, offsets=[0])
        uniform = self.rand(seed=uint64(42), offset=offset)
        self.store_global(self.global_view(p, dtype=float32, shape=[128]), uniform, offsets=[0])


def test_random_numbers():
    p, q = np.zeros(128, np.float32), np.zeros(128, np.uint32)
    Random()(p, q)
    assert q[:2].tolist() == [2632642643, 4242219303]  # Philox 4x32-10 of (seed 42, offsets 0, 1)
    assert 0 <= p.min() < p.max() < 1


class Values(tilus.Script):
    def __call__(self, p: ~float32, q: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        self.static_assert(self.attrs.warps == 4, "what was set can be read")
        self.static_assert(self.current_num_threads == 128, "and how many run")
        g = self.global_view(p, dtype=float32, shape=[8, 16])
        h = self.global_view(q, dtype=float32, shape=[8, 16])
        x = self.load_global(g, offsets=[0, 0], shape=[8, 16])
        s = self.shared_tensor(dtype=float32, shape=[2, 8, 16])
        self.store_shared(s, x, offsets=[1, 0, 0], dims=[1, 2])
        self.sync()
        y = self.register_tensor(dtype=float32, shape=[8, 16], init=0.0)
        self.load_shared(s[1], out=y)
        self.exp(self.sqrt(self.abs(y)), out=y)
        self.assign(y, y + x)
        total = self.sum(y, dim=[0, 1], keepdim=True)
        most = self.max(x, dim=1, keepdim=True).squeeze(1)
        wide = self.repeat_interleave(self.repeat(most, (2,)), (8,))
        y = y + total + x[3, 4] + self.flatten(self.reshape(wide, [8, 16])).reshape([8, 16])
        least: float32 = self.min(x).to(float32)
        self.store_global(h, y + least + g[2, 3].item(), offsets=[0, 0])


def test_out_elements_and_shapes():
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    q = np.zeros_like(x)
    Values()(x, q)
    y = np.exp(np.sqrt(abs(x))) + x
    most = np.repeat(np.tile(x.max(1), 2), 8).reshape(8, 16)
    assert np.allclose(q, y + y.sum() + x[3, 4] + most + x.min() + x[2, 3], rtol=1e-4)


class Elements(tilus.Script):
    """A register tensor of numbers: assigned in a loop, in an arm of an if, and in a method."""

    def bump(self, counts, at: int32):
        counts[at] += 10

    def __call__(self, p: ~int32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        counts = self.register_tensor(dtype=int32, shape=[4], init=lambda i: 2 * i)
        for i in range(n):
            counts[i % 4] += 1
            if i == 5:
                counts[0] = 100
        self.bump(counts, n % 4)
        g = self.global_view(p, dtype=int32, shape=[4])
        for i in self.range(4, unroll="all"):
            one = self.register_tensor(dtype=int32, shape=[1], init=counts[i])
            self.store_global(g, one, offsets=[i])


def test_elements_that_are_assigned():
    p = np.zeros(4, np.int32)
    Elements()(p, 7)
    want = [0, 2, 4, 6]
    for i in range(7):
        want[i % 4] += 1
        if i == 5:
            want[0] = 100
    want[3] += 10
    assert p.tolist() == want


class TwoGroups(tilus.Script):
    """A tensor of all threads, which each of two groups changes for itself."""

    def __call__(self, p: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g = self.global_view(p, dtype=float32, shape=[2, 32])
        x = self.register_tensor(dtype=float32, shape=[32], init=lambda i: i)
        for group in self.range(2, unroll="all"):
            with self.warp_group(2 * group, 2):
                for _ in range(3):
                    self.assign(x, x * (group + 2.0))
                self.store_global(g, x, offsets=[group, 0])


def test_a_tensor_of_all_threads_in_each_group():
    p = np.zeros((2, 32), np.float32)
    TwoGroups()(p)
    assert np.array_equal(p, np.arange(32) * [[8], [27]])


class OneThreadLoads(tilus.Script):
    """The sums are declared for all threads, and a loop of one thread of another group loads."""

    def __call__(
        self, m: int32, n: int32, k: int32, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16
    ):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, 64)]
        self.attrs.warps = 5
        row, column = self.blockIdx.x * 128, self.blockIdx.y * 64
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[2, 128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[2, 64, 64])
        pipe = tilus.Pipeline(2, producer_arrive_count=1, consumer_arrive_count=128)
        acc = self.register_tensor(dtype=float32, shape=[128, 64], init=0.0)
        with self.single_warp(4), self.single_thread():
            for at in range(0, k, 64):
                pipe.producer_acquire()
                a, b = s_a[pipe.producer_stage], s_b[pipe.producer_stage]
                full = pipe.producer_barrier()
                self.mbarrier.arrive_and_expect_tx(full, a.nbytes + b.nbytes)
                self.tma.global_to_shared(g_a, a, offsets=[row, at], mbarrier=full)
                self.tma.global_to_shared(g_b, b, offsets=[column, at], mbarrier=full)
                pipe.producer_advance()
        with self.warp_group(0, 4):
            for _ in range(0, k, 64):
                pipe.consumer_acquire()
                self.wgmma.fence()
                self.wgmma.mma(s_a[pipe.consumer_stage], s_b[pipe.consumer_stage].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                self.mbarrier.arrive(pipe.consumer_barrier())
                pipe.consumer_advance()
            self.store_global(g_c, acc.to(float16), offsets=[row, column])


def test_one_thread_loads_for_sums_of_all_threads():
    m, n, k = 128, 128, 192
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (x, k)).astype(np.float16) for x in (m, n))
    c = np.full((m, n), np.nan, np.float16)
    OneThreadLoads()(m, n, k, a, b, c)
    assert np.array_equal(c, a.astype(np.float64) @ b.T.astype(np.float64))
    assert OneThreadLoads().check(m, n, k, a, b, c).ok


class Stores(tilus.Script):
    """All threads compute tiles in a loop; one warp of theirs stores each by TMA."""

    def __init__(self, top: bool = False):
        super().__init__()
        self.top = top

    def __call__(self, p: ~float16, rows: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g = self.global_view(p, dtype=float16, shape=[rows, 64])
        s = self.shared_tensor(dtype=float16, shape=[64, 64])
        x = self.register_tensor(dtype=float16, shape=[64, 64], init=lambda i, j: i)
        if self.top:
            self.store_shared(s, x)
            self.fence.proxy_async()
            self.sync()
            with self.single_warp():
                self.tma.shared_to_global(s, g, offsets=[0, 0])
                self.tma.commit_group()
                self.tma.wait_group(0, read=True)
            self.sync()
            self.store_shared(s, x * 2)
            self.sync()
            y = self.load_shared(s)
            self.store_global(g, y + x, offsets=[64, 0])
        else:
            for row in range(0, rows, 64):
                x = x + 1
                self.store_shared(s, x)
                self.fence.proxy_async()
                self.sync()
                with self.thread_group(0, 32):
                    self.tma.shared_to_global(s, g, offsets=[row, 0])
                    self.tma.commit_group()
                    self.tma.wait_group(n=0, read=True)
                self.sync()


@pytest.mark.parametrize("top", [False, True])
def test_a_warp_of_the_group_copies(top):
    p = np.zeros((128, 64), np.float16)
    Stores(top)(p, 128)
    rows = np.arange(64)[:, None] * np.ones(64)
    want = [rows, 3 * rows] if top else [rows + 1, rows + 2]
    assert np.array_equal(p, np.concatenate(want))
    report = Stores(top).check(p, 128)
    assert report.ok, str(report)


@pytest.mark.usefixtures("without_nvrtc")
def test_it_is_the_elected_thread():
    compiled = Stores().compile(["*fp16:16", "i32"])
    groups = [o for o in walk(compiled.placed.body) if o.kind is task.tasks]
    assert [o.attrs["names"] for o in groups] == [("main",)]
    assert any(o.kind is task.elect for o in walk(compiled.placed.body))


class WholeTiles(tilus.Script):
    """Its grid has no programs at small sizes."""

    def __call__(self, n: int32, p: ~float32):
        self.attrs.blocks = n // 128
        self.attrs.warps = 4
        g = self.global_view(p, dtype=float32, shape=[n])
        for _ in range(n):
            x = self.load_global(g, offsets=[self.blockIdx.x * 128], shape=[128])
            self.store_global(g, x + 1.0, offsets=[self.blockIdx.x * 128])


def test_a_grid_without_programs_is_checked():
    p = np.zeros(256, np.float32)
    assert "error[" not in str(WholeTiles().check(256, p))
    WholeTiles()(256, p)
    assert (p == 256).all()


@tilus.autotune("times", [1, 2, 3])
class Tuned(tilus.Script):
    def __init__(self, times):
        super().__init__()
        self.times = times

    def __call__(self, p: ~float32):
        self.attrs.blocks = self.attrs.warps = 1


@pytest.mark.parametrize(("broken", "chosen"), [((), 1), ((1,), 2), ((1, 2), 0), ((0, 1, 2), None)])
def test_the_fastest_schedule_that_is_not_broken(monkeypatch, broken, chosen):
    tuned, names = Tuned(), ["first", "second", "third"]
    made = [Candidate(i, Config({"times": i + 1}), kernel=name) for i, name in enumerate(names)]
    times = {str(c.config): ms for c, ms in zip(made, (3.0, 1.1, 1.2), strict=True)}

    def check(kernel, fields):
        if names.index(kernel) in broken:
            raise CompileError("race", f"{kernel} is broken")

    monkeypatch.setattr(script, "check_first_launch", check)
    choose = functools.partial(
        tuned._first_sound, made, Verdict(1, times, {}), Call((), (), (), None)
    )
    if chosen is not None:
        assert choose() is tuned.scripts[chosen]
        return
    with pytest.raises(CompileError, match="second is broken"):
        choose()


class Any(tilus.Script):
    def __call__(self, p: tilus.void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g = self.global_view(p, dtype=float32, shape=[32])
        self.store_global(g, self.load_global(g, offsets=[0], shape=[32]) + 1.0, offsets=[0])


def test_pointers_without_a_dtype():
    p = np.zeros(32, np.float32)
    Any()(p)
    assert (p == 1).all()
    with pytest.raises(CompileError, match="a view of f32 of a pointer to f16"):
        Any()(np.zeros(32, np.float16))


class Reshaped(tilus.Script):
    """Slots as one tile, a tile as slots, slots cut into halves that TMA fills and a product reads."""

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16, c_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float16, shape=[128, 64])
        y = self.global_view(y_ptr, dtype=float16, shape=[128, 64])
        c = self.global_view(c_ptr, dtype=float32, shape=[64, 64])
        a = self.shared_tensor(dtype=float16, shape=[2, 64, 64])
        loaded = self.mbarrier.alloc(1)
        halves = self.reshape_shared(a, [2, 2, 32, 64])
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(loaded, a.nbytes)
            for i in self.range(4, unroll="all"):
                self.tma.global_to_shared(x, halves[i // 2, i % 2], [32 * i, 0], loaded)
        self.mbarrier.wait(loaded, 0)
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        self.wgmma.fence()
        self.wgmma.mma(a[0], a[1].transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(c, acc, offsets=[0, 0])
        whole = self.reshape_shared(a, [128, 64])
        self.store_global(y, self.load_shared(whole) + 1.0, offsets=[0, 0])


def test_shared_tensors_under_other_shapes():
    x = np.random.default_rng(0).integers(-3, 4, (128, 64)).astype(np.float16)
    y, c = np.zeros_like(x), np.zeros((64, 64), np.float32)
    Reshaped()(x, y, c)
    assert np.array_equal(y, x + 1)
    assert np.array_equal(c, x[:64].astype(np.float32) @ x[64:].T.astype(np.float32))
    assert Reshaped().check(x, y, c).ok


class Permuted(tilus.Script):
    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float32, shape=[32, 24])
        y = self.global_view(y_ptr, dtype=float32, shape=[24, 32])
        s = self.shared_tensor(dtype=float32, shape=[32, 24])
        self.store_shared(s, self.load_global(x, offsets=[0, 0], shape=[32, 24]))
        self.sync()
        t = self.load_shared(s.permute([1, 0])) + self.load_shared(s.permute(dims=(1, 0)))
        self.store_global(y, t + self.load_shared(s.permute(1, 0)), offsets=[0, 0])


def test_shared_tensors_are_permuted_by_lists():
    x = np.random.default_rng(0).standard_normal((32, 24)).astype(np.float32)
    y = np.zeros((24, 32), np.float32)
    Permuted()(x, y)
    np.testing.assert_allclose(y, 3 * x.T, rtol=1e-6)


class WrongShape(tilus.Script):
    def __init__(self, shape, to, dtype=float16):
        super().__init__()
        self.shape, self.to, self.dtype = shape, to, dtype

    def __call__(self, p: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        s = self.shared_tensor(dtype=self.dtype, shape=self.shape)
        self.reshape_shared(s, self.to)


@pytest.mark.parametrize(
    ("shape", "to", "why"),
    [
        ([64, 64], [32, 64], "another number of elements"),
        ([64, 64], [32, 128], "the last axis is to stay"),
        ([64, 128], [2, 32, 128], "lie in panels"),
        ([4, 4, 64], [16, 64], "padded"),
    ],
)
def test_shapes_that_lie_otherwise(shape, to, why):
    with pytest.raises(CompileError, match=why) as e:
        WrongShape(shape, to).compile(["*fp16:16"])
    assert e.value.code == "reshape-shared" and "block(shape" in e.value.help


class Refused(tilus.Script):
    """A mistake each, in the line that is marked."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def __call__(self, p: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g = self.global_view(p, dtype=float32, shape=[8, 64])
        s = self.shared_tensor(dtype=float32, shape=[8, 64])
        x = self.register_tensor(dtype=float32, shape=[8, 64], init=1.0)
        if self.what == "inside":
            with self.thread_group(0, 128):
                y = self.load_global(g, offsets=[0, 0], shape=[8, 64])
                with self.single_warp():
                    self.store_shared(s, self.load_shared(s) + 1.0)
                self.store_global(g, y, offsets=[0, 0])
        if self.what == "changed":
            with self.thread_group(0, 128):
                self.assign(x, x + 1.0)
            self.sync()
            self.store_global(g, x, offsets=[0, 0])
        if self.what == "element":
            x[0, 0] = 2.0
        if self.what == "reshape":
            self.reshape_shared(s, [512])
        if self.what == "out":
            self.exp(x, out=self.register_tensor(dtype=float32, shape=[64], init=0.0))
        if self.what == "view":
            self.view(x, dtype=float16)
        if self.what == "part":
            self.store_shared(
                s, self.register_tensor(dtype=float32, shape=[4, 64], init=0.0), [3, 0]
            )
        if self.what == "semaphore":
            self.lock_semaphore(p, value=1)


REFUSED = {
    "inside": ("group-collective", "y = self.load_global(", "may copy by TMA, wait and arrive"),
    "changed": ("group-tile", "self.store_global(g, x, offsets=[0, 0])", "use it in that group"),
    "element": ("element", "x = self.register_tensor(dtype=float32, shape=[8, 64], init=1.0)", "shared memory"),
    "reshape": ("reshape-shared", "self.reshape_shared(s, [512])", "self.reshape what is loaded"),
    "out": ("out-shape", "self.exp(x, out=", "one shape"),
    "view": ("view", "self.view(x, dtype=float16)", "self.bitcast"),
    "part": ("slice", "self.store_shared(", "multiples of its size"),
    "semaphore": ("semaphore", "self.lock_semaphore(p, value=1)", "~counters[i] of a global_tensor"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_says_what_to_write_instead(what):
    code, line, advice = REFUSED[what]
    with pytest.raises(CompileError) as e:
        Refused(what).compile(["*fp32:16"])
    text = Path(__file__).read_text().splitlines()[e.value.loc.line - 1]
    assert e.value.code == code and text.strip().startswith(line), (e.value, text)
    assert advice in str(e.value.help)
