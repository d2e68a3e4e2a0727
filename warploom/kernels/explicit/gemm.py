# mypy: ignore-errors
# (annotations of scripts are values: `slot: int32 = 0` declares a variable)
"""C = A·Bᵀ or A·B in bf16, every role and barrier placed by hand: the last step of the ladder in
docs/lessons/.

A is (M, K), B is (N, K) or (K, N), C is (M, N), all row-major.  One thread loads; two consumers of 64 rows
share a tile; the store of a tile overlaps the next one's main loop.

In a cluster the CTAs' tiles lie beside each other and share an operand: each loads its part of that operand
and multicasts it to all.  A slot is free when the consumers of every CTA that it feeds have read it, so they
arrive at each CTA's barrier.
"""

from __future__ import annotations

from warploom.kernels.explicit.parts import Products, Stagger, Tiles
from warploom.language import bfloat16, cdiv, int32
from warploom.runtime.script import autotune


class Gemm(Products):
    """C (m×n) = A·Bᵀ, or A·B: all dense bf16, A (m×k), sums in f32.

    programs: CTAs of a launch at most (one for each SM).  block_n: columns of a tile of 128 rows, a
    multiple of 64.  stages: slots of the ring.  band: rows of tiles that are walked together, so that
    their operands stay in the L2 cache.  transposed: B is stored n×k, else k×n.  ctas: of a
    cluster, whose tiles share operand 'a' (side by side) or 'b' (one above the other)."""

    def __init__(
        self,
        programs: int = 132,
        block_n: int = 256,
        stages: int = 3,
        band: int = 16,
        transposed: bool = True,
        ctas: int = 1,
        share: str = "b",
    ) -> None:
        super().__init__()
        self.ctas = ctas
        self.shares_a = ctas > 1 and share == "a"
        self.shares_b = ctas > 1 and share == "b"
        self.programs = programs
        self.stages = stages
        self.band = band
        self.transposed = transposed
        self.block_m, self.block_n, self.block_k = 128, block_n, 64
        self.everyone = (1 << ctas) - 1  # mask of the CTAs
        self.cluster_m = self.block_m * (ctas if self.shares_b else 1)
        self.cluster_n = self.block_n * (ctas if self.shares_a else 1)

    def tile_of(self, row: int32, col: int32):
        """Row and column of this CTA's part of the cluster's tile."""
        if self.shares_a:
            col += self.cluster.blockRank * self.block_n
        if self.shares_b:
            row += self.cluster.blockRank * self.block_m
        return row, col

    def release(self, barrier):
        """A warp of a consumer has read a slot: the CTAs that fill it may know."""
        if self.ctas > 1:
            # relaxed: wgmma's reads are over, and nothing else was read
            self.mbarrier.arrive_multicast(barrier, self.everyone, sem="relaxed", by="warp")
        else:
            self.mbarrier.arrive(barrier, by="warp")

    def right(self, b, slot):
        return b[slot]

    def __call__(
        self,
        a_ptr: ~bfloat16,
        b_ptr: ~bfloat16,
        c_ptr: ~bfloat16,
        m: int32,
        n: int32,
        k: int32,
    ):
        tiles = Tiles(m, n, self.cluster_m, self.cluster_n, self.band)
        self.attrs.blocks = tiles.programs(self.programs // self.ctas) * self.ctas
        self.attrs.warps = 12
        self.attrs.cluster_blocks = self.ctas

        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        strides = [1, k] if self.transposed else [n, 1]
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[k, n], strides=strides)
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block_m, self.block_k])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block_k, self.block_n])
        c = self.shared_tensor(dtype=bfloat16, shape=[2, self.block_n // 64, 64, 64])
        full = self.mbarrier.alloc(counts=[1] * self.stages)  # a slot's bytes are there
        # each warp of both consumers read it, in every CTA
        empty = self.mbarrier.alloc(counts=[8 * self.ctas] * self.stages)
        if self.ctas > 1:
            self.cluster.sync()  # every CTA's barriers are initialised

        steps = cdiv(k, self.block_k)
        first = self.cluster.clusterIdx.x
        programs = self.cluster.gridDim.x

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            self.setmaxnreg(232)
            stagger = Stagger(group, False)
            slot: int32 = 0
            phase: int32 = 0
            for t in range(first, tiles.count, programs):
                row, col = tiles.at(t)
                row, col = self.tile_of(row, col)
                acc, slot, phase = self.multiply(
                    group, a, b, full, empty, slot, phase, steps, stagger, self.block_n, 64
                )
                out = acc.to(bfloat16)
                for i in self.range(0, self.block_n // 64, unroll="all"):
                    staging = c[group, i]
                    self.store_shared(staging, out[:, 64 * i : 64 * i + 64])
                    self.fence.proxy_async()
                    with self.single_thread():
                        # The next chunk's staging has been read.
                        self.tma.wait_group(self.block_n // 64 - 2, read=True)
                    self.sync()
                    with self.single_thread():
                        self.tma.shared_to_global(
                            staging, g_c, offsets=[row + group * 64, col + 64 * i]
                        )
                        self.tma.commit_group()
            with self.single_thread():
                self.tma.wait_group(0, read=True)
            if self.ctas > 1:
                self.cluster.sync()  # no CTA ends while another may arrive at its barriers

        with self.thread_group(256, 128, name="producer"):
            self.setmaxnreg(40)
            rank = self.cluster.blockRank
            with self.single_thread():
                slot: int32 = 0
                phase: int32 = 0
                for t in range(first, tiles.count, programs):
                    row, col = tiles.at(t)
                    row, col = self.tile_of(row, col)
                    for step in range(steps):
                        self.mbarrier.wait(empty[slot], phase ^ 1)
                        self.mbarrier.arrive_and_expect_tx(
                            full[slot], transaction_bytes=a[slot].nbytes + b[slot].nbytes
                        )
                        at = step * self.block_k
                        if self.shares_a:
                            rows = self.block_m // self.ctas
                            self.tma.global_to_shared(
                                g_a,
                                a[slot].block([rows, self.block_k], at=[rank, 0]),
                                [row + rank * rows, at],
                                full[slot],
                                multicast_mask=self.everyone,
                            )
                        else:
                            self.tma.global_to_shared(g_a, a[slot], [row, at], full[slot])
                        if self.shares_b:
                            cols = self.block_n // self.ctas
                            self.tma.global_to_shared(
                                g_b,
                                b[slot].block([self.block_k, cols], at=[0, rank]),
                                [at, col + rank * cols],
                                full[slot],
                                multicast_mask=self.everyone,
                            )
                        else:
                            self.tma.global_to_shared(g_b, b[slot], [at, col], full[slot])
                        slot, phase = self.ring_next(slot, phase, self.stages)
            if self.ctas > 1:
                self.cluster.sync()


@autotune("block_n, stages", [[256, 3], [128, 6]])
@autotune("band", [4, 8, 16])
class TunedGemm(Gemm):
    """Gemm with the tile, the ring and the order that are fastest for its arguments: timed at the first call
    with their kind."""
