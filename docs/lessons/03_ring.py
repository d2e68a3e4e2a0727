# mypy: ignore-errors
"""Lesson 3: a ring.

What changed: `stages` slots instead of one, each with its own barrier.  Before the loop the first stages − 1
loads are on their way; iteration i asks for the slot of iteration i + stages − 1, then multiplies its own.

Why: now a load has stages − 1 products' time to arrive.  What remains: one group of threads does both jobs,
and its `sync` holds the issue of loads up behind the slowest warp.

What to notice: at large K this is no faster than lesson 2.  One slot of 32 KB is so little that several CTAs
share an SM, and while one waits for its load another multiplies; they are each other's ring.  The more
slots a CTA has, the fewer CTAs fit: 2 slots reach 609 TFLOP/s at 8192×8192×8192, 4 slots 519.  What a ring
is for comes when a CTA has the SM for itself: with larger tiles, two lessons on.

Measured, TFLOP/s on an NVIDIA H200 at M×N×K:
589 at 8192×8192×8192, 585 at 4096×4096×4096, 378 at 8192×8192×512.
"""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class Ring(Script):
    def __init__(self, stages: int = 2):
        super().__init__()
        self.stages = stages

    def load(self, g_a, g_b, a, b, full, slot, row, col, at):
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(
                full[slot], transaction_bytes=a[slot].nbytes + b[slot].nbytes
            )
            self.tma.global_to_shared(g_a, a[slot], offsets=[row, at], mbarrier=full[slot])
            self.tma.global_to_shared(g_b, b[slot], offsets=[col, at], mbarrier=full[slot])

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, 128)]
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        full = self.mbarrier.alloc(counts=[1] * self.stages)
        row = self.blockIdx.x * 128
        col = self.blockIdx.y * 128
        steps = cdiv(k, 64)

        for i in self.range(0, self.stages - 1, unroll="all"):
            if i < steps:
                self.load(g_a, g_b, a, b, full, i, row, col, i * 64)
        acc = self.register_tensor(dtype=float32, shape=[128, 128], init=0.0)
        slot: int32 = 0
        phase: int32 = 0
        for step in range(steps):
            ahead = step + self.stages - 1
            if ahead < steps:
                self.load(g_a, g_b, a, b, full, ahead % self.stages, row, col, ahead * 64)
            self.mbarrier.wait(full[slot], phase)
            self.wgmma.fence()
            self.wgmma.mma(a[slot], b[slot].transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()  # the slot is free in every warp: the next iteration fills it
            slot, phase = self.ring_next(slot, phase, self.stages)
        self.store_global(g_c, acc.to(bfloat16), offsets=[row, col])
