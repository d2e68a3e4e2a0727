# mypy: ignore-errors
"""Products for Hopper in the shapes of Tilus's ladder, as a user of Tilus writes them: each step from loads by TMA
to four consumers and an epilogue by the producer.  Nothing here but `import tilus`: run it with

    warploom run corpus/tilus_hopper.py            # small, in the simulator
    warploom run corpus/tilus_hopper.py 8192       # on a GPU, all schedules, beside torch.matmul
    warploom run corpus/tilus_hopper.py 8192 InFlight FourConsumers

C (m, n) = A (m, k) · B (n, k)ᵀ, all float16.
"""

import functools
import sys

import numpy as np
import tilus
from tilus import RegisterTensor, float16, float32, int32, uint32
from tilus.utils import benchmark_func, cdiv

TILES = [[128, 64], [128, 128], [128, 256], [256, 128]]


@tilus.autotune("block_m, block_n", TILES)
@tilus.autotune("block_k", [16, 32, 64])
class CopiedByTma(tilus.Script):
    """Step 0: TMA fills shared memory, all warps wait for one barrier and multiply from registers."""

    def __init__(self, block_m, block_n, block_k):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        row: int32 = self.blockIdx.x * block_m
        column: int32 = self.blockIdx.y * block_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        s_a = self.shared_tensor(dtype=float16, shape=[block_m, block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[block_n, block_k])
        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        loaded = self.mbarrier.alloc(count=[1])
        phase: uint32 = 0
        for offset in range(0, k, block_k):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(
                    loaded, transaction_bytes=s_a.nbytes + s_b.nbytes
                )
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[row, offset], mbarrier=loaded)
                self.tma.global_to_shared(
                    src=g_b, dst=s_b, offsets=[column, offset], mbarrier=loaded
                )
            self.mbarrier.wait(loaded, phase=phase)
            a = self.load_shared(s_a)
            b = self.load_shared(s_b)
            self.dot(a, b.transpose(), acc, out=acc)
            self.sync()
            phase ^= 1
        self.free_shared(s_a)
        self.free_shared(s_b)
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        self.store_global(g_c, self.cast(acc, dtype=float16), offsets=[row, column])


@tilus.autotune("block_m, block_n", TILES)
@tilus.autotune("block_k", [16, 32, 64])
class Asynchronous(tilus.Script):
    """Step 1: wgmma reads its operands from shared memory."""

    def __init__(self, block_m, block_n, block_k):
        super().__init__()
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        row: int32 = self.blockIdx.x * block_m
        column: int32 = self.blockIdx.y * block_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        s_a = self.shared_tensor(dtype=float16, shape=[block_m, block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[block_n, block_k])
        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        loaded = self.mbarrier.alloc(count=[1])
        phase: uint32 = 0
        for offset in range(0, k, block_k):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        loaded, transaction_bytes=s_a.nbytes + s_b.nbytes
                    )
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[row, offset], mbarrier=loaded)
                self.tma.global_to_shared(
                    src=g_b, dst=s_b, offsets=[column, offset], mbarrier=loaded
                )
            self.mbarrier.wait(loaded, phase=phase)
            self.wgmma.fence()
            self.wgmma.mma(s_a, s_b.transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()
            phase ^= 1
        self.free_shared(s_a)
        self.free_shared(s_b)
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        self.store_global(g_c, self.cast(acc, dtype=float16), offsets=[row, column])


@tilus.autotune("num_stages", [2, 3, 4])
@tilus.autotune("block_m, block_n", TILES)
@tilus.autotune("block_k", [16, 32, 64])
class Ring(tilus.Script):
    """Step 2: a ring of slots, filled ahead; each slot's phase is an element of a register tensor."""

    def __init__(self, num_stages, block_m, block_n, block_k):
        super().__init__()
        self.num_stages = num_stages
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k

    def load(self, view_a, view_b, slot_a, slot_b, row, column, offset, loaded):
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(
                loaded, transaction_bytes=slot_a.nbytes + slot_b.nbytes
            )
            self.tma.global_to_shared(
                src=view_a, dst=slot_a, offsets=[row, offset], mbarrier=loaded
            )
            self.tma.global_to_shared(
                src=view_b, dst=slot_b, offsets=[column, offset], mbarrier=loaded
            )

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        row: int32 = self.blockIdx.x * block_m
        column: int32 = self.blockIdx.y * block_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        s_a = self.shared_tensor(dtype=float16, shape=[self.num_stages, block_m, block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.num_stages, block_n, block_k])
        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        loaded = self.mbarrier.alloc(count=[1 for _ in range(self.num_stages)])
        phase = self.register_tensor(dtype=uint32, shape=[self.num_stages], init=0)
        steps: int32 = cdiv(k, block_k)
        ahead: int32 = min(steps, self.num_stages)
        for stage in range(ahead):
            self.load(g_a, g_b, s_a[stage], s_b[stage], row, column, stage * block_k, loaded[stage])
        for step in range(steps):
            stage = step % self.num_stages
            self.mbarrier.wait(loaded[stage], phase=phase[stage])
            self.wgmma.fence()
            self.wgmma.mma(s_a[stage], s_b[stage].transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            phase[stage] ^= 1
            self.sync()
            later = step + self.num_stages
            if later < steps:
                refilled = later % self.num_stages
                self.load(
                    g_a, g_b, s_a[refilled], s_b[refilled], row, column, later * block_k,
                    loaded[refilled],
                )  # fmt: skip
        self.sync()
        self.free_shared(s_a)
        self.free_shared(s_b)
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        self.store_global(g_c, self.cast(acc, dtype=float16), offsets=[row, column])


@tilus.autotune("num_stages", [2, 3, 4, 5, 6, 7])
@tilus.autotune("block_m, block_n", TILES)
@tilus.autotune("block_k", [16, 32, 64])
class Specialized(tilus.Script):
    """Step 3: a warp that loads and a warp group that multiplies; the sums are declared for all threads."""

    def __init__(self, num_stages, block_m, block_n, block_k):
        super().__init__()
        self.num_stages = num_stages
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        num_stages = self.num_stages
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 5
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        row: int32 = self.blockIdx.x * block_m
        column: int32 = self.blockIdx.y * block_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        s_a = self.shared_tensor(dtype=float16, shape=[num_stages, block_m, block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[num_stages, block_n, block_k])
        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        full = self.mbarrier.alloc(count=[1 for _ in range(num_stages)])
        empty = self.mbarrier.alloc(count=[128 for _ in range(num_stages)])

        with self.thread_group(thread_begin=128, num_threads=32):
            stage: int32 = 0
            phases = self.register_tensor(dtype=uint32, shape=[num_stages], init=1)
            for offset in self.range(0, k, block_k, unroll=num_stages):
                self.mbarrier.wait(empty[stage], phase=phases[stage])
                phases[stage] ^= 1
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        full[stage], transaction_bytes=s_a[stage].nbytes + s_b[stage].nbytes
                    )
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[stage], offsets=[row, offset], mbarrier=full[stage]
                    )
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[stage], offsets=[column, offset], mbarrier=full[stage]
                    )
                stage = (stage + 1) % num_stages
            for _ in self.range(min(num_stages, cdiv(k, block_k))):
                self.mbarrier.wait(empty[stage], phase=phases[stage])
                phases[stage] ^= 1
                stage = (stage + 1) % num_stages

        with self.thread_group(thread_begin=0, num_threads=128):
            stage: int32 = 0
            phases = self.register_tensor(dtype=uint32, shape=[num_stages], init=0)
            for _ in self.range(0, k, block_k, unroll=num_stages):
                self.mbarrier.wait(full[stage], phase=phases[stage])
                phases[stage] ^= 1
                self.wgmma.fence()
                self.wgmma.mma(s_a[stage], s_b[stage].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                self.mbarrier.arrive(empty[stage])
                stage = (stage + 1) % num_stages
            self.sync()
            g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
            self.store_global(g_c, self.cast(acc, dtype=float16), offsets=[row, column])


class Pipeline(tilus.Class):
    """The barriers of a ring, and where producer and consumer stand in it."""

    def __init__(
        self, num_stages: int, producer_arrive_count: int = 1, consumer_arrive_count: int = 1
    ):
        self.num_stages: int = num_stages
        self.empty_barriers = self.mbarrier.alloc(
            [consumer_arrive_count for _ in range(num_stages)]
        )
        self.full_barriers = self.mbarrier.alloc([producer_arrive_count for _ in range(num_stages)])
        self.producer_stage: int32 = 0
        self.consumer_stage: int32 = 0
        self.producer_phase: uint32 = self.mbarrier.producer_initial_phase
        self.consumer_phase: uint32 = self.mbarrier.consumer_initial_phase

    def producer_acquire(self):
        self.mbarrier.wait(
            barrier=self.empty_barriers[self.producer_stage],
            phase=self.producer_phase,
            sem="relaxed",
            scope="cta",
        )

    def producer_barrier(self) -> RegisterTensor:
        return self.full_barriers[self.producer_stage]

    def producer_advance(self):
        self.producer_stage = (self.producer_stage + 1) % self.num_stages
        self.producer_phase = self.producer_phase ^ (self.producer_stage == 0)

    def consumer_acquire(self):
        self.mbarrier.wait(
            barrier=self.full_barriers[self.consumer_stage],
            phase=self.consumer_phase,
            sem="relaxed",
            scope="cta",
        )

    def consumer_advance(self):
        self.consumer_stage = (self.consumer_stage + 1) % self.num_stages
        self.consumer_phase = self.consumer_phase ^ (self.consumer_stage == 0)

    def previous_barrier(self) -> RegisterTensor:
        stage = (self.consumer_stage + (self.num_stages - 1)) % self.num_stages
        return self.empty_barriers[stage]


class Rasterized(tilus.Script):
    """Tiles in bands of columns, so that neighbours share operands in the L2."""

    def tile_of(self, index: int32, rows: int32, columns: int):
        band = rows * self.swizzle_size
        number, inside = self.fast_divmod(index, band)
        first = number * self.swizzle_size
        tile_m: int32 = 0
        tile_n: int32 = 0
        rest = columns - columns // self.swizzle_size * self.swizzle_size
        last = rest if rest > 0 else self.swizzle_size
        if first + self.swizzle_size <= columns:
            tile_m, r = self.fast_divmod(inside, self.swizzle_size)
            tile_n = first + r
        else:
            tile_m, r = self.fast_divmod(inside, last)
            tile_n = first + r
        return tile_m, tile_n


@tilus.autotune("num_stages", [3, 4, 5, 6])
@tilus.autotune("block_m, block_n", [[128, 128], [128, 256], [256, 128]])
@tilus.autotune("block_k", [16, 32, 64])
@tilus.autotune("swizzle_size", [4, 8])
class TwoConsumers(Rasterized):
    """Step 4: a Pipeline, tiles in bands, and two groups that share a tile of B."""

    def __init__(self, num_stages, block_m, block_n, block_k, swizzle_size):
        super().__init__()
        self.num_stages = num_stages
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k
        self.swizzle_size = swizzle_size

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        num_stages = self.num_stages
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        half = block_m // 2
        rows, columns = cdiv(m, block_m), cdiv(n, block_n)
        self.attrs.blocks = rows * columns
        self.attrs.warps = 9
        tile_m, tile_n = self.tile_of(self.blockIdx.x, rows, columns)
        row: int32 = tile_m * block_m
        column: int32 = tile_n * block_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[num_stages, 2, half, block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[num_stages, block_n, block_k])
        acc = self.register_tensor(dtype=float32, shape=[half, block_n], init=0.0)
        pipe = Pipeline(num_stages, producer_arrive_count=1, consumer_arrive_count=256)

        with self.thread_group(thread_begin=256, num_threads=32):
            for offset in self.range(0, k, block_k, unroll=num_stages):
                pipe.producer_acquire()
                stage = pipe.producer_stage
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        pipe.producer_barrier(),
                        transaction_bytes=2 * s_a[stage, 0].nbytes + s_b[stage].nbytes,
                    )
                for i in self.range(2, unroll="all"):
                    self.tma.global_to_shared(
                        src=g_a,
                        dst=s_a[stage, i],
                        offsets=[row + i * half, offset],
                        mbarrier=pipe.producer_barrier(),
                    )
                self.tma.global_to_shared(
                    src=g_b,
                    dst=s_b[stage],
                    offsets=[column, offset],
                    mbarrier=pipe.producer_barrier(),
                )
                pipe.producer_advance()
            for _ in self.range(min(num_stages, cdiv(k, block_k))):
                pipe.producer_acquire()
                pipe.producer_advance()

        for i in self.range(2, unroll="all"):
            with self.warp_group(warp_begin=4 * i, num_warps=4):
                for _ in self.range(0, k, block_k, unroll=num_stages):
                    pipe.consumer_acquire()
                    self.wgmma.fence()
                    self.wgmma.mma(
                        s_a[pipe.consumer_stage, i], s_b[pipe.consumer_stage].transpose(), acc
                    )
                    self.wgmma.commit_group()
                    self.wgmma.wait_group(0)
                    self.mbarrier.arrive(pipe.empty_barriers[pipe.consumer_stage])
                    pipe.consumer_advance()
                self.store_global(
                    g_c, self.cast(acc, dtype=float16), offsets=[row + i * half, column]
                )


@tilus.autotune("num_stages", [2, 3, 4, 5])
@tilus.autotune("block_m, block_n", TILES)
@tilus.autotune("block_k", [16, 32, 64])
@tilus.autotune("swizzle_size", [4, 8])
class InFlight(Rasterized):
    """Step 5: one product is always going on, and a warp of the consumer stores the tile by TMA."""

    def __init__(self, num_stages, block_m, block_n, block_k, swizzle_size):
        super().__init__()
        self.num_stages = num_stages
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k
        self.swizzle_size = swizzle_size

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        num_stages = self.num_stages
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        rows, columns = cdiv(m, block_m), cdiv(n, block_n)
        self.attrs.blocks = rows * columns
        self.attrs.warps = 5
        tile_m, tile_n = self.tile_of(self.blockIdx.x, rows, columns)
        row: int32 = tile_m * block_m
        column: int32 = tile_n * block_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[num_stages, block_m, block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[num_stages, block_n, block_k])
        s_c = self.shared_tensor(dtype=float16, shape=[block_m, block_n])
        acc = self.register_tensor(dtype=float32, shape=[block_m, block_n], init=0.0)
        pipe = Pipeline(num_stages, producer_arrive_count=1, consumer_arrive_count=128)

        with self.thread_group(thread_begin=128, num_threads=32):
            for offset in self.range(0, k, block_k, unroll=num_stages):
                pipe.producer_acquire()
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        pipe.producer_barrier(),
                        transaction_bytes=s_a[pipe.producer_stage].nbytes
                        + s_b[pipe.producer_stage].nbytes,
                    )
                self.tma.global_to_shared(
                    src=g_a,
                    dst=s_a[pipe.producer_stage],
                    offsets=[row, offset],
                    mbarrier=pipe.producer_barrier(),
                )
                self.tma.global_to_shared(
                    src=g_b,
                    dst=s_b[pipe.producer_stage],
                    offsets=[column, offset],
                    mbarrier=pipe.producer_barrier(),
                )
                pipe.producer_advance()
            for _ in self.range(min(num_stages, cdiv(k, block_k))):
                pipe.producer_acquire()
                pipe.producer_advance()

        with self.thread_group(thread_begin=0, num_threads=128):
            pipe.consumer_acquire()
            self.wgmma.fence()
            self.wgmma.mma(s_a[pipe.consumer_stage], s_b[pipe.consumer_stage].transpose(), acc)
            self.wgmma.commit_group()
            pipe.consumer_advance()
            for _ in self.range(block_k, k, block_k, unroll=num_stages):
                pipe.consumer_acquire()
                self.wgmma.fence()
                self.wgmma.mma(s_a[pipe.consumer_stage], s_b[pipe.consumer_stage].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(1)
                self.mbarrier.arrive(pipe.previous_barrier())
                pipe.consumer_advance()
            self.wgmma.wait_group(0)
            self.mbarrier.arrive(pipe.previous_barrier())

            self.sync()
            self.store_shared(s_c, self.cast(acc, dtype=float16))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                self.tma.shared_to_global(s_c, g_c, offsets=[row, column], dims=[0, 1])
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()


@tilus.autotune("num_stages", [3])
@tilus.autotune("block_m, block_n", [[256, 128]])
@tilus.autotune("block_k", [64])
@tilus.autotune("swizzle_size", [8])
class FourConsumers(Rasterized):
    """Step 6: four groups, a quarter of the rows each, hand their sums one after the other to the producer warp,
    which stores them."""

    def __init__(self, num_stages, block_m, block_n, block_k, swizzle_size):
        super().__init__()
        self.num_stages = num_stages
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k
        self.swizzle_size = swizzle_size

    def consume(self, s_a, s_b, s_c, pipe: Pipeline, ready, free, index: int, k: int):
        acc = self.register_tensor(dtype=float32, shape=[self.block_m // 4, self.block_n], init=0.0)
        pipe.consumer_acquire()
        self.wgmma.fence()
        self.wgmma.mma(s_a[pipe.consumer_stage, index], s_b[pipe.consumer_stage].transpose(), acc)
        self.wgmma.commit_group()
        pipe.consumer_advance()
        for _ in self.range(self.block_k, k, self.block_k, unroll=self.num_stages):
            pipe.consumer_acquire()
            self.wgmma.fence()
            self.wgmma.mma(
                s_a[pipe.consumer_stage, index], s_b[pipe.consumer_stage].transpose(), acc
            )
            self.wgmma.commit_group()
            self.wgmma.wait_group(1)
            self.mbarrier.arrive(pipe.previous_barrier())
            pipe.consumer_advance()
        self.wgmma.wait_group(0)
        self.mbarrier.arrive(pipe.previous_barrier())
        if index > 0:
            self.mbarrier.wait(free[index - 1], phase=0)
        self.store_shared(s_c, self.cast(acc, dtype=float16))
        self.fence.proxy_async(space="shared")
        self.mbarrier.arrive(ready[index])

    def store(self, s_c, g_c, ready, free, index: int, row: int32, column: int32):
        self.mbarrier.wait(ready[index], phase=0)
        self.tma.shared_to_global(s_c, g_c, offsets=[row, column], dims=[0, 1])
        self.tma.commit_group()
        self.tma.wait_group(n=0, read=True)
        if index < 3:
            with self.single_thread():
                self.mbarrier.arrive(free[index])

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        num_stages = self.num_stages
        block_m, block_n, block_k = self.block_m, self.block_n, self.block_k
        quarter = block_m // 4
        rows, columns = cdiv(m, block_m), cdiv(n, block_n)
        self.attrs.blocks = rows * columns
        self.attrs.warps = 17
        tile_m, tile_n = self.tile_of(self.blockIdx.x, rows, columns)
        row: int32 = tile_m * block_m
        column: int32 = tile_n * block_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[num_stages, 4, quarter, block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[num_stages, block_n, block_k])
        s_c = self.shared_tensor(dtype=float16, shape=[quarter, block_n])
        ready = self.mbarrier.alloc([128, 128, 128, 128])
        free = self.mbarrier.alloc([1, 1, 1])
        pipe = Pipeline(num_stages, producer_arrive_count=1, consumer_arrive_count=512)

        with self.thread_group(thread_begin=512, num_threads=32):
            for offset in self.range(0, k, block_k, unroll=num_stages):
                pipe.producer_acquire()
                stage = pipe.producer_stage
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        pipe.producer_barrier(),
                        transaction_bytes=s_a[stage, 0].nbytes * 4 + s_b[stage].nbytes,
                    )
                for i in self.range(4, unroll="all"):
                    self.tma.global_to_shared(
                        src=g_a,
                        dst=s_a[stage, i],
                        offsets=[row + i * quarter, offset],
                        mbarrier=pipe.producer_barrier(),
                    )
                self.tma.global_to_shared(
                    src=g_b,
                    dst=s_b[stage],
                    offsets=[column, offset],
                    mbarrier=pipe.producer_barrier(),
                )
                pipe.producer_advance()
            for _ in self.range(min(num_stages, cdiv(k, block_k))):
                pipe.producer_acquire()
                pipe.producer_advance()
            for i in self.range(4, unroll="all"):
                self.store(s_c, g_c, ready, free, i, row + i * quarter, column)

        with self.thread_group(thread_begin=0, num_threads=128):
            self.consume(s_a, s_b, s_c, pipe, ready, free, 0, k)
        with self.thread_group(thread_begin=128, num_threads=128):
            self.consume(s_a, s_b, s_c, pipe, ready, free, 1, k)
        with self.thread_group(thread_begin=256, num_threads=128):
            self.consume(s_a, s_b, s_c, pipe, ready, free, 2, k)
        with self.thread_group(thread_begin=384, num_threads=128):
            self.consume(s_a, s_b, s_c, pipe, ready, free, 3, k)


LADDER = [
    CopiedByTma, Asynchronous, Ring, Specialized, TwoConsumers, InFlight, FourConsumers,
]  # fmt: skip


def tell(name: str, size: int, run) -> None:
    ms = benchmark_func(run, warmup=5, repeat=20)
    print(f"{name}: {ms:.4f} ms, {2e-9 * size**3 / ms:.0f} TFLOP/s")


def main(size: str = "", *names: str) -> None:
    if not size:  # in the simulator, with the first schedule of each
        rng = np.random.default_rng(0)
        m, n, k = 256, 128, 192
        a, b = (rng.integers(-3, 4, (rows, k)).astype(np.float16) for rows in (m, n))
        for step in LADDER:
            c = np.empty((m, n), np.float16)
            step()(m, n, k, a, b, c)
            assert np.array_equal(c, a.astype(np.float64) @ b.T.astype(np.float64)), step
            print(f"{step.__name__}: right")
        return
    import torch

    size = int(size)
    a, b = (torch.randn(size, size, device="cuda").half() for _ in range(2))
    c, expected = torch.empty_like(a), a @ b.T
    tell("torch", size, lambda: torch.matmul(a, b.T, out=expected))
    for step in (s for s in LADDER if s.__name__ in names or not names):
        product = step()
        product(size, size, size, a, b, c)
        torch.testing.assert_close(c, expected, atol=1e-1, rtol=1e-2)
        tell(step.__name__, size, functools.partial(product, size, size, size, a, b, c))


if __name__ == "__main__":
    main(*sys.argv[1:])
