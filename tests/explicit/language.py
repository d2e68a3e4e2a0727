"""Scripts for single features of the explicit language, and what they compute; used with and without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import warploom.tilus as tilus
from warploom.tilus import bfloat16, float16, float32, int32, int64, uint32, uint64

DTYPES = {
    "bf16": (bfloat16, ml_dtypes.bfloat16),
    "f16": (float16, np.float16),
    "f32": (float32, np.float32),
    "i32": (int32, np.int32),
    "u32": (uint32, np.uint32),
    "i64": (int64, np.int64),
    "u64": (uint64, np.uint64),
}

# Each reduction in one dtype of each family that TMA knows.
REDUCED = [
    *(("add", d) for d in ("f32", "bf16", "f16", "i32", "u32", "u64")),
    *((fn, d) for fn in ("min", "max") for d in ("i32", "u32", "i64", "u64", "bf16", "f16")),
    *((fn, d) for fn in ("and", "or", "xor") for d in ("i32", "u64")),
    *((fn, "u32") for fn in ("inc", "dec")),
]


def reached(n: int, name: str) -> int:
    """Columns that a TMA store of n columns reaches: whole units of 16 bytes."""
    unit = 16 // np.dtype(DTYPES[name][1]).itemsize
    return -(-n // unit) * unit


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, new: np.where(old >= new, 0, old + 1),
    "dec": lambda old, new: np.where((old == 0) | (old > new), new, old - 1),
}


def reducer(name: str) -> type[tilus.Script]:
    """The script that combines the first n columns of x into those of y, box by box, by TMA; both have rows of ld
    elements of that dtype."""
    dtype, _ = DTYPES[name]

    class Reduce(tilus.Script):
        def __init__(self, fn: str) -> None:
            super().__init__()
            self.fn = fn

        def __call__(self, m: int32, n: int32, ld: int32, x_ptr: ~dtype, y_ptr: ~dtype):  # type: ignore[valid-type]
            self.attrs.blocks = [tilus.utils.cdiv(m, 32), tilus.utils.cdiv(n, 64)]
            self.attrs.warps = 4
            g_x = self.global_view(x_ptr, dtype=dtype, shape=[m, ld])
            g_y = self.global_view(y_ptr, dtype=dtype, shape=[m, n], strides=[ld, 1])
            s_x = self.shared_tensor(dtype=dtype, shape=[32, 64])
            at = [self.blockIdx.x * 32, self.blockIdx.y * 64]
            x = self.load_global(g_x, offsets=at, shape=[32, 64], cache_policy="evict_first")
            self.store_shared(s_x, x)
            self.fence.proxy_async()
            self.sync()
            with self.single_thread():
                self.tma.shared_to_global(
                    s_x, g_y, offsets=at, reduce=self.fn, cache_policy="evict_last"
                )
                self.tma.commit_group()
                self.tma.wait_group(0, read=False)

    return Reduce


def values(name: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Small numbers: sums of two are exact in every dtype."""
    low = 0 if name[0] == "u" else -60
    return rng.integers(low, 60, shape).astype(DTYPES[name][1])


class Hinted(tilus.Script):
    """Every kind of access that takes a policy: y ← x by TMA, boxes and pointers, beside copies by cp.async."""

    def __init__(self, policy: str) -> None:
        super().__init__()
        self.policy = policy

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = [tilus.utils.cdiv(n, 32)]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[4, n, 32])
        first = self.blockIdx.x * 32
        by_tma = self.shared_tensor(dtype=float32, shape=[32, 32])
        by_copy = self.shared_tensor(dtype=float32, shape=[32, 32])
        arrived = self.mbarrier.alloc(1)
        copied = self.mbarrier.alloc(128)
        with self.thread_group(0, 128):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(arrived, by_tma.nbytes)
                self.tma.global_to_shared(
                    g_x, by_tma, [first, 0], arrived, cache_policy=self.policy
                )
            self.cp_async.load(g_x, by_copy, [first, 0])
            self.cp_async.arrive(copied)
            self.mbarrier.wait(arrived, 0)
            with self.single_thread():
                self.tma.shared_to_global(
                    by_tma, g_y, [0, first, 0], dims=[1, 2], cache_policy=self.policy
                )
                self.tma.commit_group()
                self.tma.wait_group(0, read=True)
            self.mbarrier.wait(copied, 0)
            box = self.load_shared(by_copy)
            self.store_global(
                g_y, box, offsets=[1, first, 0], dims=[1, 2], cache_policy=self.policy
            )
            box = self.load_global(
                g_x, offsets=[first, 0], shape=[32, 32], cache_policy=self.policy
            )
            self.store_global(g_y, box, offsets=[2, first, 0], dims=[1, 2])
            at = (first + self.arange(0, 32))[:, None] * 32 + self.arange(0, 32)[None, :]
            inside = (first + self.arange(0, 32))[:, None] < n
            v = self.load(x_ptr + at, mask=inside, eviction_policy="evict_first")
            self.store(y_ptr + 3 * n * 32 + at, v, mask=inside, eviction_policy="evict_last")


class Passed(tilus.Script):
    """y ← x by way of a ring of slots that TMA fills; the consumers read them themselves, or let TMA read.

    waits: sem of the waits for full slots, arrivals: of the arrivals that free them, acquires: of the waits for
    free slots."""

    def __init__(
        self,
        by_tma: bool = False,
        waits: str = "acquire",
        arrivals: str = "release",
        acquires: str = "acquire",
    ) -> None:
        super().__init__()
        self.by_tma, self.waits, self.arrivals, self.acquires = by_tma, waits, arrivals, acquires

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n, 32])
        slots = self.shared_tensor(dtype=float32, shape=[2, 32, 32])
        full = self.mbarrier.alloc([1, 1])
        empty = self.mbarrier.alloc([1, 1] if self.by_tma else [128, 128])
        tiles = tilus.utils.cdiv(n, 32)
        with self.thread_group(0, 128):
            slot: int32 = 0
            phase: int32 = 0
            with self.single_thread():
                for i in range(tiles):
                    self.mbarrier.wait(empty[slot], phase ^ 1, sem=self.acquires)
                    self.mbarrier.arrive_and_expect_tx(
                        full[slot], slots[slot].nbytes, sem="relaxed"
                    )
                    self.tma.global_to_shared(g_x, slots[slot], [i * 32, 0], full[slot])
                    slot, phase = self.ring_next(slot, phase, 2)
        with self.thread_group(128, 128):
            slot: int32 = 0
            phase: int32 = 0
            if self.by_tma:
                with self.single_thread():
                    for i in range(tiles):
                        self.mbarrier.wait(full[slot], phase, sem=self.waits)
                        self.tma.shared_to_global(slots[slot], g_y, [i * 32, 0])
                        self.tma.commit_group()
                        self.tma.wait_group(0, read=True)
                        self.mbarrier.arrive(empty[slot], sem=self.arrivals)
                        slot, phase = self.ring_next(slot, phase, 2)
            else:
                for i in range(tiles):
                    self.mbarrier.wait(full[slot], phase, sem=self.waits)
                    tile = self.load_shared(slots[slot])
                    self.store_global(g_y, tile, offsets=[i * 32, 0])
                    self.mbarrier.arrive(empty[slot], sem=self.arrivals)
                    slot, phase = self.ring_next(slot, phase, 2)


class Printed(tilus.Script):
    """Prints numbers, and a register tensor beside one."""

    def __call__(self, n: int32, x: float32, x_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        with self.thread_group(0, 128):
            self.printf("n = %5d|%-4d|%x, x = %.3f 100%%\n", n, -n, -n, x)
            with self.single_thread():
                self.printf("one thread: %u %g\n", n, x)
            row = self.load(x_ptr + self.arange(0, 8))
            self.printf('%d: "%+.2e" %i\n', self.arange(0, 8), row, n)
            self.printf("end\n")


PRINTED = (7, 1.25, np.arange(8, dtype=np.float32) / 3)
PRINTED_LINES = [
    "n =     7|-7  |fffffff9, x = 1.250 100%",
    "one thread: 7 1.25",
    *(f'{i}: "{np.float32(i) / np.float32(3):+.2e}" 7' for i in range(8)),
    "end",
]


class Divided(tilus.Script):
    """(q, r) ← (x // d, x % d), and the same of d1 · d2 + 1, element by element in loops of numbers."""

    def __call__(self, n: int32, d: int32, e: int32, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = [n]
        self.attrs.warps = 1
        i = self.blockIdx.x
        x = self.load(x_ptr + i)
        q, r = self.fast_divmod(x, d)
        with self.single_thread():
            self.store(y_ptr + i * 4, q)
            self.store(y_ptr + i * 4 + 1, r)
            q, r = self.fast_divmod(x, d * e + 1)
            self.store(y_ptr + i * 4 + 2, q)
            self.store(y_ptr + i * 4 + 3, r)


def dividends(rng: np.random.Generator, *divisors: int) -> Any:
    """Numbers at which a wrong quotient would show: around multiples of the divisors, and the largest."""
    edges = [0, 1, 2**31 - 1, 2**31 - 2, 2**30]
    for d in divisors:
        multiples = d * rng.integers(0, (2**31 - 1) // d + 1, 6)
        edges += [*multiples, *(m - 1 for m in multiples), (2**31 - 1) // d * d, d - 1, d]
    x = np.array([n for n in edges if 0 <= n < 2**31], np.int64)
    return np.concatenate([x, rng.integers(0, 2**31, 8)]).astype(np.int32)


DIVISORS = [
    (1, 1),
    (2, 3),
    (3, 5),
    (7, 11),
    (641, 46340),
    (65536, 32767),
    (2**31 - 2, 1),
    (1000, 1),
]


class Nested(tilus.Script):
    """y ← 2·x + 1, by groups in groups in a loop: a warp that loads, two groups of two warps that compute a half
    each, a barrier of their parent, and a warp that stores."""

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = [2]
        self.attrs.warps = 8
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n, 32])
        s = self.shared_tensor(dtype=float32, shape=[32, 32])
        out = self.shared_tensor(dtype=float32, shape=[32, 32])
        full = self.mbarrier.alloc(1)
        taken = self.mbarrier.alloc(128)
        phase: int32 = 0
        for i in range(self.blockIdx.x, tilus.utils.cdiv(n, 32), 2):
            with self.thread_group(0, 32, name="loader"), self.single_thread():
                self.mbarrier.wait(taken, phase ^ 1)
                self.mbarrier.arrive_and_expect_tx(full, s.nbytes)
                self.tma.global_to_shared(g_x, s, [i * 32, 0], full)
            with self.thread_group(64, 160):
                with self.thread_group(0, 64, replicas=2) as half:
                    self.mbarrier.wait(full, phase)
                    x = self.load_shared(s.block((16, 32), (half, 0)))
                    self.mbarrier.arrive(taken)
                    self.store_shared(out.block((16, 32), (half, 0)), x * 2.0 + 1.0)
                    self.fence.proxy_async()
                self.sync()
                with self.single_warp(4), self.single_thread():
                    self.tma.shared_to_global(out, g_y, [i * 32, 0])
                    self.tma.commit_group()
                    self.tma.wait_group(0, read=True)
                self.sync()
            phase ^= 1


class Handed(tilus.Script):
    """y ← x or -x in turns: groups in loops and ifs of all threads, parted by barriers of the CTA."""

    def __call__(self, turns: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        s = self.shared_tensor(dtype=float32, shape=[64])
        for i in range(turns):
            at = i * 64
            with self.thread_group(0, 64):
                self.store_shared(s, self.load(x_ptr + at + self.arange(0, 64)))
            self.sync()
            if i % 2 == 0:
                with self.thread_group(64, 64):
                    self.store(y_ptr + at + self.arange(0, 64), self.load_shared(s))
            else:
                with self.thread_group(0, 64):
                    self.store(y_ptr + at + self.arange(0, 64), -self.load_shared(s))
            self.sync()


class Annotated(tilus.Script):
    """y ← 2·x with a layout given to the product; or a product of wgmma on what has another layout."""

    def __init__(self, layout: str, conflict: str = "") -> None:
        super().__init__()
        self.layout, self.conflict = layout, conflict

    def __call__(self, x_ptr: ~bfloat16, y_ptr: ~bfloat16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=bfloat16, shape=[64, 64])
        g_y = self.global_view(y_ptr, dtype=bfloat16, shape=[64, 64])
        s = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        if self.conflict == "shared":
            self.annotate_layout(s, swizzle=0)
        with self.thread_group(0, 128):
            x = self.load_global(g_x, offsets=[0, 0], shape=[64, 64])
            y = x * 2
            if self.conflict in ("", "operand"):
                self.annotate_layout(y, self.layout)
            if self.conflict:
                self.store_shared(s, x)
                self.fence.proxy_async()
                self.sync()
                acc = self.register_tensor(dtype=float32, shape=[64, 64])
                if self.conflict == "accumulator":
                    acc = y.to(float32)
                    self.annotate_layout(acc, self.layout)
                self.wgmma.fence()
                if self.conflict == "operand":
                    self.wgmma.mma(y, s, acc, use_acc=False)
                else:
                    self.wgmma.mma(s, s, acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                y = acc.to(bfloat16)
            self.store_global(g_y, y, offsets=[0, 0])


class Elementwise(tilus.Script):
    """Names of the surface that no kernel of the library uses; each writes a row of 32 numbers."""

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32, 8])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[12, 32])
        x = self.load_global(g_x, offsets=[0, 0], shape=[32, 8])
        shared = self.shared_tensor(dtype=float32, shape=[2, 32, 8])
        self.store_shared(shared[1], x)
        self.sync()
        self.store_shared(shared[0], self.load_shared(shared[1, 0:32, 0:8]) * 2.0)
        self.sync()
        doubled = self.load_shared(shared[0].transpose())
        rows = self.sum(x, dim=1)
        self.store_global(g_y, rows, offsets=[0, 0], dims=[1])
        self.store_global(g_y, self.max(x, dim=1), offsets=[1, 0], dims=[1])
        self.store_global(g_y, self.min(x, dim=-1), offsets=[2, 0], dims=[1])
        self.store_global(
            g_y, self.cast(self.any(x > 1.5, dim=1), float32), offsets=[3, 0], dims=[1]
        )
        self.store_global(g_y, self.all(x > -1.5, dim=1).to(float32), offsets=[4, 0], dims=[1])
        self.store_global(g_y, self.clip(rows, -1.0, 1.0), offsets=[5, 0], dims=[1])
        self.store_global(g_y, self.square(rows), offsets=[6, 0], dims=[1])
        self.store_global(g_y, self.max(doubled, dim=0), offsets=[7, 0], dims=[1])
        one = self.sum(x.transpose(), dim=0, keepdim=True)
        self.store_global(g_y, self.squeeze(one, dim=0), offsets=[8, 0], dims=[1])
        wide = self.unsqueeze(rows, 0) - one
        self.store_global(g_y, wide, offsets=[9, 0])
        total = self.register_tensor(dtype=float32, shape=[32], init=0.0)
        i: int32 = 0
        while i < n:
            for j in self.range(2, unroll=2):
                total = total + rows * j
            for j in self.range(3, unroll="all"):
                total = total + j
            i += 1
        self.store_global(g_y, total, offsets=[10, 0], dims=[1])
        self.store_global(g_y, self.fma(rows, rows, 1.0), offsets=[11, 0], dims=[1])


def elementwise(x: Any, n: int) -> Any:
    """What Elementwise writes."""
    rows = x.sum(axis=1)
    return np.stack(
        [
            rows, x.max(axis=1), x.min(axis=1), (x > 1.5).any(axis=1), (x > -1.5).all(axis=1),
            rows.clip(-1, 1), rows**2, 2 * x.max(axis=1), rows, 0 * rows, n * (rows + 3), rows**2 + 1,
        ]
    )  # fmt: skip


class Lent(tilus.Script):
    """Registers change again and again: in a loop, in a branch, in a group inside a group, after a phase."""

    def __call__(self, x_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        lent, back = self.mbarrier.alloc(128), self.mbarrier.alloc(128)
        with self.thread_group(0, 128, name="lends"):
            phase: int32 = 0
            for _ in range(n):
                self.setmaxnreg(232)
                self.mbarrier.arrive(lent)
                self.mbarrier.wait(back, phase)
                self.setmaxnreg(248)
                self.sync()
                phase = phase ^ 1
            if n > 2:
                self.setmaxnreg(240)
                self.sync()
                self.setmaxnreg(248, action="inc")
        with self.thread_group(128, 128, name="borrows"):
            phase: int32 = 0
            for _ in range(n):
                self.mbarrier.wait(lent, phase)
                self.setmaxnreg(256, "inc")
                self.sync()
                self.setmaxnreg(248)
                self.mbarrier.arrive(back)
                phase = phase ^ 1
        self.sync()
        self.setmaxnreg(200)
        self.sync()
        with self.thread_group(0, 128):
            x = self.load(x_ptr + self.arange(0, 128))
            self.store(x_ptr + self.arange(0, 128), x + float(7))


class Reread(tilus.Script):
    """Writes by ordinary stores what TMA reads after it: a fence of global memory.  And the spellings that no
    other kernel here has: alias, promote, permute, static_assert, a typed parameter of a method."""

    def twice(self, x: tilus.RegisterTensor):
        return x * 2.0

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        self.static_assert(2 + 2 == 4, "arithmetic")
        x = self.global_view(x_ptr, dtype=float32, shape=[n, 32, 64])
        y = self.global_view(y_ptr, dtype=float32, shape=[n, 64, 32])
        s = self.shared_tensor(dtype=float32, shape=[32, 64])
        full = self.mbarrier.alloc(counts=1)
        phase: int32 = self.mbarrier.consumer_initial_phase
        for i in range(n):
            tile = self.load_global(x, offsets=[i, 0, 0], shape=[32, 64])
            self.store_global(x, self.twice(tile) + 1.0, offsets=[i, 0, 0])
            self.fence.proxy_async(space="global")
            self.sync()
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, s.nbytes)
                self.tma.global_to_shared(x, s, [i, 0, 0], full, dims=[1, 2], promote=64)
            self.mbarrier.wait(full, phase)
            phase = phase ^ 1
            transposed = self.load_shared(s.permute(1, 0))
            self.store_global(y, transposed, offsets=[i, 0, 0])
            self.sync()


class SplitSum(tilus.Script):
    """y[row] = Σ x[row, :], each row by `parts` CTAs that add up in memory of the kernel's own; who comes last
    writes the sum, and leaves the memory as it was.  forgets: the count, the sum."""

    def __init__(self, forgets: str = ""):
        super().__init__()
        self.forgets = forgets

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, rows: int32, parts: int32):
        self.attrs.blocks = [rows, parts]
        self.attrs.warps = 1
        totals = self.global_tensor(float32, [rows], requires_clean=True)
        counts = self.global_tensor(int32, [rows], requires_clean=True)
        unused = self.global_tensor(bfloat16, shape=[2, rows * 8 + 1, 3], requires_clean=False)
        row, part = self.blockIdx.x, self.blockIdx.y
        x = self.load(x_ptr + (row * parts + part) * 128 + self.arange(0, 128))
        before = self.atomic_add(totals.pointer + row, self.sum(x, 0), sem="acq_rel")
        came = self.atomic_add(counts.pointer + row, 1, sem="acq_rel")
        if came == parts - 1:
            self.store(y_ptr + row, self.atomic_add(totals.pointer + row, 0.0))
            if self.forgets != "the sum":
                self.store(totals.pointer + row, 0.0)
            if self.forgets != "the count":
                self.store(counts.pointer + row, 0)
        if before == -1.0:  # never
            self.store_global(
                unused, self.register_tensor(bfloat16, [1, 1, 1], init=0.0), [0, 0, 0]
            )
