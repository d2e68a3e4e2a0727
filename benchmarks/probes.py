# mypy: ignore-errors
# (annotations of scripts are values: `iteration: int32 = 0` declares a variable)
"""Micro-kernels that do one thing `iterations` times, for `benchmarks.calibrate`: what one more costs.

Every CTA of the grid does the same, so that what SMs share (the L2 cache) is under load.
"""

from __future__ import annotations

from warploom import Script
from warploom.language import bfloat16, float32, int32

PROGRAMS = 132  # SMs of an H200
# Rows of 128 bytes that loads walk over, for each SM: 17 MB in all, which the L2 holds, and 130 MB.
NEAR, FAR = 1024, 7680


class Products(Script):
    """`each` products of 64×n×64 in a group, then a wait for it; of each of `groups` warp groups.  The left
    operand lies in shared memory, or in registers."""

    def __init__(self, n: int, each: int, registers: bool = False, groups: int = 1) -> None:
        super().__init__()
        self.n, self.each, self.registers, self.groups = n, each, registers, groups

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 4 * self.groups
        g_x = self.global_view(x_ptr, dtype=float32, shape=[64, self.n])
        g_y = self.global_view(y_ptr, dtype=bfloat16, shape=[64, 64])
        a = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.n, 64])
        with self.thread_group(0, 128, replicas=self.groups):
            if self.registers:
                a = self.load_global(g_y, offsets=[0, 0], shape=[64, 64])
            acc = self.register_tensor(dtype=float32, shape=[64, self.n], init=0.0)
            for _ in range(iterations):
                self.wgmma.fence()
                for _ in self.range(0, self.each, unroll="all"):
                    self.wgmma.mma(a, b.transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
            self.store_global(g_x, acc, offsets=[0, 0])  # else the assembler drops the products


class InOrder(Script):
    """A product of 64×n×64 by mma.sync, all in registers, in each of `groups` warp groups."""

    def __init__(self, n: int, groups: int = 1) -> None:
        super().__init__()
        self.n, self.groups = n, groups

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 4 * self.groups
        g_x = self.global_view(x_ptr, dtype=float32, shape=[64, self.n])
        g_y = self.global_view(y_ptr, dtype=bfloat16, shape=[64, self.n])
        with self.thread_group(0, 128, replicas=self.groups):
            a = self.load_global(g_y, offsets=[0, 0], shape=[64, 64])
            b = self.load_global(g_y, offsets=[0, 0], shape=[64, self.n])
            acc = self.register_tensor(dtype=float32, shape=[64, self.n], init=0.0)
            for _ in range(iterations):
                acc = self.dot(a, b, acc, unit="mma.sync")
            self.store_global(g_x, acc, offsets=[0, 0])  # else the assembler drops the products


class Arithmetic(Script):
    """One elementwise operation on 64×128 elements, in each of `groups` warp groups: 'exp2', 'add', 'cast'
    (to bf16 and back); 'softmax' is a row's maximum, a multiply-add, exp2 and the cast."""

    def __init__(self, what: str, groups: int = 1) -> None:
        super().__init__()
        self.what, self.groups = what, groups

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 4 * self.groups
        g_x = self.global_view(x_ptr, dtype=float32, shape=[64, 128])
        with self.thread_group(0, 128, replicas=self.groups):
            x = self.load_global(g_x, offsets=[0, 0], shape=[64, 128])
            for _ in range(iterations):
                if self.what == "exp2":
                    x = self.exp2(x)
                elif self.what == "add":
                    x = x + 1.5
                elif self.what == "softmax":
                    top = self.max(x, dim=1, keepdim=True)
                    x = self.exp2(x * 0.5 - top)
                    x = x.to(bfloat16).to(float32)
                    self.hold(x)
                else:
                    x = x.to(bfloat16).to(float32)
                    self.hold(x)
            self.store_global(g_x, x, offsets=[0, 0])


class ExpBesideProducts(Script):
    """exp2 of 64×128 elements in one warp group, while another one multiplies without a pause."""

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 8
        g_x = self.global_view(x_ptr, dtype=float32, shape=[64, 128])
        a = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[128, 64])
        with self.thread_group(0, 128):
            x = self.load_global(g_x, offsets=[0, 0], shape=[64, 128])
            for _ in range(iterations):
                x = self.exp2(x)
            self.store_global(g_x, x, offsets=[0, 0])
        with self.thread_group(128, 128):
            acc = self.register_tensor(dtype=float32, shape=[64, 128], init=0.0)
            for _ in range(iterations):
                self.wgmma.fence()
                for _ in self.range(0, 2, unroll="all"):
                    self.wgmma.mma(a, b.transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
            self.store_global(g_x, acc, offsets=[0, 0])


class SharedStores(Script):
    """A tile of 64×64 bf16 into shared memory, as an epilogue stores it."""

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=bfloat16, shape=[64, 64])
        staging = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        with self.thread_group(0, 128):
            x = self.load_global(g_y, offsets=[0, 0], shape=[64, 64])
            for _ in range(iterations):
                self.store_shared(staging, x)
            self.fence.proxy_async()
            self.sync()
            with self.single_thread():
                self.tma.shared_to_global(staging, g_y, offsets=[0, 0])
                self.tma.commit_group()
                self.tma.wait_group(0, read=True)


class Barriers(Script):
    """A barrier of a warp group."""

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 8
        with self.thread_group(0, 128):
            for _ in range(iterations):
                self.sync()


class Rounds(Script):
    """From one warp group to another and back, through mbarriers; alone: to itself."""

    def __init__(self, alone: bool) -> None:
        super().__init__()
        self.alone = alone

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 8
        there = self.mbarrier.alloc([4])
        back = self.mbarrier.alloc([4])
        with self.thread_group(0, 128, name="here"):
            phase: int32 = 0
            for _ in range(iterations):
                self.mbarrier.arrive(there[0], by="warp")
                self.mbarrier.wait(there[0] if self.alone else back[0], phase)
                phase = phase ^ 1
        if not self.alone:
            with self.thread_group(128, 128, name="other"):
                phase: int32 = 0
                for _ in range(iterations):
                    self.mbarrier.wait(there[0], phase)
                    self.mbarrier.arrive(back[0], by="warp")
                    phase = phase ^ 1


class Loads(Script):
    """`each` boxes of rows×64 bf16 by TMA, then a wait for their bytes.  Each iteration reads other lines;
    `sharing` neighbouring CTAs read the same."""

    def __init__(self, rows: int, each: int, sharing: int = 1, region: int = NEAR) -> None:
        super().__init__()
        self.rows, self.each, self.sharing, self.region = rows, each, sharing, region

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=bfloat16, shape=[PROGRAMS * self.region, 64])
        box = self.shared_tensor(dtype=bfloat16, shape=[self.each, self.rows, 64])
        full = self.mbarrier.alloc([1])
        at = self.blockIdx.x // self.sharing * self.region
        with self.thread_group(0, 128), self.single_thread():
            phase: int32 = 0
            for _ in range(iterations):
                self.mbarrier.arrive_and_expect_tx(full[0], self.each * self.rows * 128)
                for i in self.range(0, self.each, unroll="all"):
                    self.tma.global_to_shared(g_y, box[i], offsets=[at, 0], mbarrier=full[0])
                    at = (at + self.rows) % (PROGRAMS * self.region)
                self.mbarrier.wait(full[0], phase)
                phase = phase ^ 1


class Ring(Script):
    """`ahead` boxes of rows×64 bf16 by TMA always under way: what a producer with free slots gets."""

    def __init__(self, rows: int, ahead: int, sharing: int = 1, region: int = NEAR) -> None:
        super().__init__()
        self.rows, self.ahead, self.sharing, self.region = rows, ahead, sharing, region

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=bfloat16, shape=[PROGRAMS * self.region, 64])
        box = self.shared_tensor(dtype=bfloat16, shape=[self.ahead, self.rows, 64])
        full = self.mbarrier.alloc([1] * self.ahead)
        at = self.blockIdx.x // self.sharing * self.region
        with self.thread_group(0, 128), self.single_thread():
            for i in self.range(0, self.ahead, unroll="all"):
                self.mbarrier.arrive_and_expect_tx(full[i], self.rows * 128)
                self.tma.global_to_shared(g_y, box[i], offsets=[at, 0], mbarrier=full[i])
                at = (at + self.rows) % (PROGRAMS * self.region)
            slot: int32 = 0
            phase: int32 = 0
            for _ in range(iterations):
                self.mbarrier.wait(full[slot], phase)
                self.mbarrier.arrive_and_expect_tx(full[slot], self.rows * 128)
                self.tma.global_to_shared(g_y, box[slot], offsets=[at, 0], mbarrier=full[slot])
                at = (at + self.rows) % (PROGRAMS * self.region)
                slot, phase = self.ring_next(slot, phase, self.ahead)
            for _ in range(self.ahead):
                self.mbarrier.wait(full[slot], phase)
                slot, phase = self.ring_next(slot, phase, self.ahead)


class Stores(Script):
    """A box of 64×64 bf16 by TMA to memory, then a wait until it is read, or written."""

    def __init__(self, read: bool) -> None:
        super().__init__()
        self.read = read

    def __call__(self, x_ptr: ~float32, y_ptr: ~bfloat16, iterations: int32):
        self.attrs.blocks = PROGRAMS
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=bfloat16, shape=[16384, 64])
        box = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        at = self.blockIdx.x * 64
        with self.thread_group(0, 128), self.single_thread():
            for _ in range(iterations):
                self.tma.shared_to_global(box, g_y, offsets=[at, 0])
                self.tma.commit_group()
                self.tma.wait_group(0, read=self.read)
            self.tma.wait_group(0, read=True)
