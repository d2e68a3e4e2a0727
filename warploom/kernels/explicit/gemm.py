# mypy: ignore-errors
# (annotations of scripts are values: `slot: int32 = 0` declares a variable)
"""C = A·Bᵀ or A·B in bf16, every role and barrier placed by hand: the last step of the ladder in
docs/lessons/.

A is (M, K), B is (N, K) or (K, N), C is (M, N), all row-major.  One thread loads; two consumers of 64 rows
share a tile; the store of a tile overlaps the next one's main loop.
"""

from __future__ import annotations

from warploom.kernels.explicit.parts import Tiles
from warploom.language import bfloat16, cdiv, float32, int32
from warploom.runtime.script import Script, autotune


class Gemm(Script):
    """programs: CTAs of a launch at most (one for each SM).  block_n: columns of a tile of 128 rows, a
    multiple of 64.  stages: slots of the ring.  band: rows of tiles that are walked together, so that
    their operands stay in the L2 cache.  transposed: B is (N, K)."""

    def __init__(
        self,
        programs: int = 132,
        block_n: int = 256,
        stages: int = 3,
        band: int = 16,
        transposed: bool = True,
    ) -> None:
        super().__init__()
        self.programs = programs
        self.stages = stages
        self.band = band
        self.transposed = transposed
        self.block_m, self.block_n, self.block_k = 128, block_n, 64

    def __call__(
        self,
        a_ptr: ~bfloat16,
        b_ptr: ~bfloat16,
        c_ptr: ~bfloat16,
        m: int32,
        n: int32,
        k: int32,
    ):
        tiles = Tiles(m, n, self.block_m, self.block_n, self.band)
        self.attrs.blocks = tiles.programs(self.programs)
        self.attrs.warps = 12

        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        strides = [1, k] if self.transposed else [n, 1]
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[k, n], strides=strides)
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block_m, self.block_k])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block_k, self.block_n])
        c = self.shared_tensor(dtype=bfloat16, shape=[2, self.block_n // 64, 64, 64])
        full = self.mbarrier.alloc(counts=[1] * self.stages)  # a slot's bytes are there
        empty = self.mbarrier.alloc(counts=[8] * self.stages)  # each warp of both consumers read it

        steps = cdiv(k, self.block_k)
        first = self.blockIdx.x
        programs = self.gridDim.x

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            self.setmaxnreg(232)
            slot: int32 = 0
            phase: int32 = 0
            for t in range(first, tiles.count, programs):
                row, col = tiles.at(t)
                acc = self.register_tensor(dtype=float32, shape=[64, self.block_n])
                previous: int32 = 0
                for step in range(steps):
                    self.mbarrier.wait(full[slot], phase)
                    half = a[slot].block([64, 64], at=[group, 0])
                    self.wgmma.fence()
                    self.wgmma.mma(half, b[slot], acc, use_acc=step > 0)
                    self.wgmma.commit_group()
                    self.wgmma.wait_group(1)  # the product before this one: its slot is free
                    if step > 0:
                        self.mbarrier.arrive(empty[previous], by="warp")
                    previous = slot
                    slot, phase = self.ring_next(slot, phase, self.stages)
                self.wgmma.wait_group(0)
                if steps > 0:
                    self.mbarrier.arrive(empty[previous], by="warp")
                zero = self.register_tensor(dtype=float32, shape=[64, self.block_n], init=0.0)
                out = self.where(steps > 0, acc, zero).to(bfloat16)
                for i in self.range(0, self.block_n // 64, unroll="all"):
                    staging = c[group, i]
                    self.store_shared(staging, out[:, 64 * i : 64 * i + 64])
                    self.fence.proxy_async()
                    with self.single_thread():
                        self.tma.wait_group(
                            self.block_n // 64 - 2
                        )  # the next chunk's staging has been read
                    self.sync()
                    with self.single_thread():
                        self.tma.shared_to_global(
                            staging, g_c, offsets=[row + group * 64, col + 64 * i]
                        )
                        self.tma.commit_group()
            with self.single_thread():
                self.tma.wait_group(0)

        with self.thread_group(256, 128, name="producer"):
            self.setmaxnreg(40)
            with self.single_thread():
                slot: int32 = 0
                phase: int32 = 0
                for t in range(first, tiles.count, programs):
                    row, col = tiles.at(t)
                    for step in range(steps):
                        self.mbarrier.wait(empty[slot], phase ^ 1)
                        self.mbarrier.arrive_and_expect_tx(
                            full[slot], transaction_bytes=a[slot].nbytes + b[slot].nbytes
                        )
                        at = step * self.block_k
                        self.tma.global_to_shared(g_a, a[slot], [row, at], full[slot])
                        self.tma.global_to_shared(g_b, b[slot], [at, col], full[slot])
                        slot, phase = self.ring_next(slot, phase, self.stages)


@autotune("block_n, stages", [[256, 3], [128, 6]])
@autotune("band", [4, 8, 16])
class TunedGemm(Gemm):
    """Gemm with the tile, the ring and the order that are fastest for its arguments: timed at the first call
    with their kind."""
