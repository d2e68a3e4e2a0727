# mypy: ignore-errors
# (annotations of scripts are values: `slot: int32 = 0` declares a variable)
"""C = (A·Bᵀ) scaled by rows, from e4m3 to bf16: c[i, j] = scale_a[i] · scale_b[j] · Σ a[i, k]·b[j, k].

A is (M, K), B is (N, K), C is (M, N), all row-major; the scales are float32, one for each row of A and of B.

The tensor core sums 8-bit products with fewer bits than float32 has.  `Fp8Gemm` leaves the sum to it;
`Fp8GemmPromoted` takes it out every 128 of K and adds it in float32.

The scales of a tile travel as its operands do, by TMA, behind the last of them: when the products are done
they are in shared memory.
"""

from __future__ import annotations

from warploom.kernels.explicit.parts import Products, Stagger, Tiles
from warploom.language import bfloat16, cdiv, float8e4nv, float32, int32
from warploom.runtime.script import autotune


class Fp8Gemm(Products):
    """C (m×n) = (A·Bᵀ) scaled by rows: A (m×k), B (n×k) dense e4m3, scale_a (m), scale_b (n) f32, C bf16.

    programs: CTAs of a launch at most (one for each SM).  block_n: columns of a tile (it has 128 rows).
    stages: slots of the ring, each of 128 of K.  band: rows of tiles that are walked together.  stagger:
    consumers finish their tiles one after the other."""

    pieces = 1  # a consumer's columns are summed, scaled and stored in so many pieces

    def __init__(
        self,
        programs: int = 132,
        block_n: int = 256,
        stages: int = 3,
        band: int = 16,
        stagger: bool = False,
    ) -> None:
        super().__init__()
        self.programs = programs
        self.block_n = block_n
        self.stages = stages
        self.band = band
        self.stagger = stagger

    def product(self, group, a, b, full, empty, slot, phase, steps, stagger):
        """64 rows of a tile as column pieces, and where the ring stands after it."""
        acc, slot, phase = self.multiply(
            group, a, b, full, empty, slot, phase, steps, stagger, self.block_n, 128
        )
        return (acc,), slot, phase

    def __call__(
        self,
        a_ptr: ~float8e4nv,
        b_ptr: ~float8e4nv,
        scale_a_ptr: ~float32,
        scale_b_ptr: ~float32,
        c_ptr: ~bfloat16,
        m: int32,
        n: int32,
        k: int32,
    ):
        tiles = Tiles(m, n, 128, self.block_n, self.band)
        self.attrs.blocks = tiles.programs(self.programs)
        self.attrs.warps = 12

        width = self.block_n // self.pieces
        g_a = self.global_view(a_ptr, dtype=float8e4nv, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float8e4nv, shape=[n, k])
        g_scale_a = self.global_view(scale_a_ptr, dtype=float32, shape=[m])
        g_scale_b = self.global_view(scale_b_ptr, dtype=float32, shape=[n])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=float8e4nv, shape=[self.stages, 128, 128])
        b = self.shared_tensor(dtype=float8e4nv, shape=[self.stages, self.block_n, 128])
        c = self.shared_tensor(dtype=bfloat16, shape=[2, 64, width])
        scale_a = self.shared_tensor(dtype=float32, shape=[128])
        scale_b = self.shared_tensor(dtype=float32, shape=[self.block_n])
        full = self.mbarrier.alloc(counts=[1] * self.stages)  # a slot's bytes are there
        empty = self.mbarrier.alloc(counts=[8] * self.stages)  # each warp of both consumers read it
        scales_full = self.mbarrier.alloc(1)
        scales_empty = self.mbarrier.alloc(8)

        steps = cdiv(k, 128)
        first = self.blockIdx.x
        programs = self.gridDim.x

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            self.setmaxnreg(240)
            stagger = Stagger(group, self.stagger)
            slot: int32 = 0
            phase: int32 = 0
            s_phase: int32 = 0
            for t in range(first, tiles.count, programs):
                row, col = tiles.at(t)
                sums, slot, phase = self.product(
                    group, a, b, full, empty, slot, phase, steps, stagger
                )
                self.mbarrier.wait(scales_full, s_phase)
                by_row = self.load_shared(scale_a.block([64], at=[group]))
                for i in self.range(0, self.pieces, unroll="all"):
                    by_column = self.load_shared(scale_b.block([width], at=[i]))
                    out = sums[i] * by_row[:, None] * by_column[None, :]
                    self.stage(c[group], out)
                    if i == self.pieces - 1:
                        stagger.arrive()
                        self.mbarrier.arrive(scales_empty, by="warp")
                    self.send(group, c[group], g_c, row, col, width * i)
                s_phase ^= 1
            with self.single_thread():
                self.tma.wait_group(0, read=True)

        with self.thread_group(256, 128, name="producer"):
            self.setmaxnreg(24)
            with self.single_thread():
                slot: int32 = 0
                phase: int32 = 0
                s_phase: int32 = 0
                for t in range(first, tiles.count, programs):
                    row, col = tiles.at(t)
                    for step in range(steps):
                        self.mbarrier.wait(empty[slot], phase ^ 1)
                        self.mbarrier.arrive_and_expect_tx(
                            full[slot], a[slot].nbytes + b[slot].nbytes
                        )
                        at = step * 128
                        self.tma.global_to_shared(g_a, a[slot], [row, at], full[slot])
                        self.tma.global_to_shared(g_b, b[slot], [col, at], full[slot])
                        slot, phase = self.ring_next(slot, phase, self.stages)
                    self.mbarrier.wait(scales_empty, s_phase ^ 1)
                    self.mbarrier.arrive_and_expect_tx(scales_full, scale_a.nbytes + scale_b.nbytes)
                    self.tma.global_to_shared(g_scale_a, scale_a, [row], scales_full)
                    self.tma.global_to_shared(g_scale_b, scale_b, [col], scales_full)
                    s_phase ^= 1


class Fp8GemmPromoted(Fp8Gemm):
    """As Fp8Gemm, with sums of 128 of K added up in float32.

    A consumer's columns are cut into `pieces` (so that the piece with the tensor core and the totals fit its
    registers).  While a consumer adds a piece to its total, the tensor core is the other consumer's.
    """

    def __init__(
        self,
        programs: int = 132,
        block_n: int = 192,
        pieces: int = 1,
        stages: int = 4,
        band: int = 16,
        stagger: bool = False,
    ) -> None:
        super().__init__(programs, block_n, stages, band, stagger)
        self.pieces = pieces

    def product(self, group, a, b, full, empty, slot, phase, steps, stagger):
        width = self.block_n // self.pieces
        totals = [
            self.register_tensor(dtype=float32, shape=[64, width], init=0.0)
            for _ in range(self.pieces)
        ]
        for _ in range(steps):
            self.mbarrier.wait(full[slot], phase)
            half = a[slot].block([64, 128], at=[group, 0])
            for i in self.range(0, self.pieces, unroll="all"):
                part = self.register_tensor(dtype=float32, shape=[64, width])
                self.wgmma.fence()
                columns = b[slot].block([width, 128], at=[i, 0])
                self.wgmma.mma(half, columns.transpose(), part, use_acc=False)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                if i == self.pieces - 1:
                    self.mbarrier.arrive(empty[slot], by="warp")
                totals = [totals[j] + part if j == i else totals[j] for j in range(self.pieces)]
            slot, phase = self.ring_next(slot, phase, self.stages)
        stagger.wait()
        return totals, slot, phase


@autotune("band", [4, 8, 16])
class TunedFp8Gemm(Fp8Gemm):
    """Fp8Gemm with the order of tiles that is fastest for its arguments: timed at the first call with their
    kind."""


@autotune("block_n, pieces, stagger", [[192, 1, False], [256, 2, True]])
@autotune("band", [8, 16])
class TunedFp8GemmPromoted(Fp8GemmPromoted):
    """Fp8GemmPromoted with the tile and the order that are fastest for its arguments: 192 columns have the
    longer products, 256 fewer bytes to load, and which of them fills the last wave of programs depends
    on the size."""
