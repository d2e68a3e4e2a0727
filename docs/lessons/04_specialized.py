# mypy: ignore-errors
"""Lesson 4: warp specialization.

What changed: two roles.  One warp (the producer) only loads, a warp group (the consumer) only multiplies.
They never meet at a sync; a second barrier a slot, `empty`, tells the producer that the consumer is done.

The phases: consumers wait for full[slot] with phase 0 first.  Producers wait for empty[slot] with phase 1
first, which a fresh barrier lets through at once: every slot starts empty.

Why: the producer runs ahead as far as the ring allows, whatever the consumer does.  `Pipeline` is a
wl.Class: an object of the language that owns barriers and cursors.

Measured, TFLOP/s on an NVIDIA H200 at M×N×K:
626 at 8192×8192×8192, 598 at 4096×4096×4096, 375 at 8192×8192×512.
"""

from warploom import Class, Script
from warploom.language import bfloat16, cdiv, float32, int32


class Pipeline(Class):
    """Barriers and cursors of a ring.  consumers: arrivals that free a slot."""

    def __init__(self, stages: int, consumers: int):
        self.stages = stages
        self.full = self.mbarrier.alloc(counts=[1] * stages)
        self.empty = self.mbarrier.alloc(counts=[consumers] * stages)
        self.slot: int32 = 0
        self.phase: int32 = 0

    def acquire(self):
        self.mbarrier.wait(self.empty[self.slot], self.phase ^ 1)

    def wait(self):
        self.mbarrier.wait(self.full[self.slot], self.phase)

    def release(self):
        self.mbarrier.arrive(self.empty[self.slot])

    def advance(self):
        self.slot, self.phase = self.ring_next(self.slot, self.phase, self.stages)


class Specialized(Script):
    def __init__(self, stages: int = 2):
        super().__init__()
        self.stages = stages

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, 128)]
        self.attrs.warps = 5
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        ring = Pipeline(self.stages, 128)
        row = self.blockIdx.x * 128
        col = self.blockIdx.y * 128

        with self.thread_group(0, 128, name="consumer"):
            acc = self.register_tensor(dtype=float32, shape=[128, 128], init=0.0)
            for _ in range(0, k, 64):
                ring.wait()
                self.wgmma.fence()
                self.wgmma.mma(a[ring.slot], b[ring.slot].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                ring.release()
                ring.advance()
            self.store_global(g_c, acc.to(bfloat16), offsets=[row, col])

        with self.single_warp(4, name="producer"), self.single_thread():
            for at in range(0, k, 64):
                ring.acquire()
                full = ring.full[ring.slot]
                a_slot, b_slot = a[ring.slot], b[ring.slot]
                self.mbarrier.arrive_and_expect_tx(full, a_slot.nbytes + b_slot.nbytes)
                self.tma.global_to_shared(g_a, a_slot, offsets=[row, at], mbarrier=full)
                self.tma.global_to_shared(g_b, b_slot, offsets=[col, at], mbarrier=full)
                ring.advance()
