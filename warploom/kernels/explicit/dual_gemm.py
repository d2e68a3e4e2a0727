# mypy: ignore-errors
# (annotations of scripts are values: `slot: int32 = 0` declares a variable)
"""C = silu(A·B1ᵀ) · (A·B2ᵀ) in bf16 (the gated half of a transformer's feed-forward layer), in one pass.

A is (M, K), B1 and B2 are (N, K), C is (M, N), all row-major.

128 rows of B1 and 128 of B2 lie one behind the other in a slot, so that one wgmma of 256 columns makes both
products: a thread's first 64 sums are of A·B1ᵀ, the others of A·B2ᵀ, element for element of the same place.
The main loop is the plain GEMM's with tiles of 128×256, and the weights need no interleaving.
"""

from __future__ import annotations

from warploom.kernels.explicit.parts import Products, Stagger, Tiles
from warploom.language import bfloat16, cdiv, int32
from warploom.runtime.script import autotune

LOG2_E = 1.4426950408889634


class DualGemm(Products):
    """C (m×n) = silu(A·B1ᵀ) · (A·B2ᵀ): A (m×k), B1, B2 (n×k) and C dense bf16, sums in f32.

    programs: CTAs of a launch at most (one for each SM).  stages: slots of the ring.  band: rows of tiles
    that are walked together.  stagger: consumers finish their tiles one after the other."""

    def __init__(
        self, programs: int = 132, stages: int = 4, band: int = 16, stagger: bool = True
    ) -> None:
        super().__init__()
        self.programs = programs
        self.stages = stages
        self.band = band
        self.stagger = stagger

    def silu(self, x):
        return x * self.rcp(1.0 + self.exp2(x * -LOG2_E))

    def __call__(
        self,
        a_ptr: ~bfloat16,
        b1_ptr: ~bfloat16,
        b2_ptr: ~bfloat16,
        c_ptr: ~bfloat16,
        m: int32,
        n: int32,
        k: int32,
    ):
        tiles = Tiles(m, n, 128, 128, self.band)
        self.attrs.blocks = tiles.programs(self.programs)
        self.attrs.warps = 12

        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b1 = self.global_view(b1_ptr, dtype=bfloat16, shape=[n, k])
        g_b2 = self.global_view(b2_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 256, 64])
        c = self.shared_tensor(dtype=bfloat16, shape=[2, 64, 128])
        full = self.mbarrier.alloc(counts=[1] * self.stages)  # a slot's bytes are there
        empty = self.mbarrier.alloc(counts=[8] * self.stages)  # each warp of both consumers read it

        steps = cdiv(k, 64)
        first = self.blockIdx.x
        programs = self.gridDim.x

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            self.setmaxnreg(232)
            stagger = Stagger(group, self.stagger)
            slot: int32 = 0
            phase: int32 = 0
            for t in range(first, tiles.count, programs):
                row, col = tiles.at(t)
                acc, slot, phase = self.multiply(
                    group, a, b, full, empty, slot, phase, steps, stagger, 256, 64
                )
                out = (self.silu(acc[:, 0:128]) * acc[:, 128:256]).to(bfloat16)
                self.stage(c[group], out)
                stagger.arrive()
                self.send(group, c[group], g_c, row, col)
            with self.single_thread():
                self.tma.wait_group(0, read=True)

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
                        at = step * 64
                        self.tma.global_to_shared(g_a, a[slot], [row, at], full[slot])
                        self.tma.global_to_shared(g_b1, b[slot, 0:128], [col, at], full[slot])
                        self.tma.global_to_shared(g_b2, b[slot, 128:256], [col, at], full[slot])
                        slot, phase = self.ring_next(slot, phase, self.stages)


@autotune("stages", [3, 4])
@autotune("band", [8, 16])
class TunedDualGemm(DualGemm):
    """DualGemm with the ring and the order of tiles that are fastest for its arguments: timed at the first
    call with their kind."""
