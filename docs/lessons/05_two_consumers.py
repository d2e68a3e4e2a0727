# mypy: ignore-errors
"""Lesson 5: two consumers and a register split.

What changed: the tile is 128×256 and two warp groups share it, 64 rows each: they read the same B slot, so
each byte from shared memory feeds twice the work.  128×256 float32 sums are 128 registers a thread.
`setmaxnreg` gives the consumers 240 and the producer 24; 384 threads × 168 is what the launch has, and
256·240 + 128·24 is just that.  It works on whole warp groups: the producer is padded to 128 threads.

And the *late release*: one product stays in flight (wait_group(1)); the slot that is released is the one
before.  The tensor core never runs dry between two products.

Measured, TFLOP/s on an NVIDIA H200 at M×N×K:
715 at 8192×8192×8192, 681 at 4096×4096×4096, 350 at 8192×8192×512.
"""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class TwoConsumers(Script):
    def __init__(self, stages: int = 3):
        super().__init__()
        self.stages = stages

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, 256)]
        self.attrs.warps = 12
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 256, 64])
        full = self.mbarrier.alloc(counts=[1] * self.stages)
        empty = self.mbarrier.alloc(
            counts=[8] * self.stages
        )  # a warp of either consumer: one arrival
        row = self.blockIdx.x * 128
        col = self.blockIdx.y * 256

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            self.setmaxnreg(240)
            acc = self.register_tensor(dtype=float32, shape=[64, 256], init=0.0)
            slot: int32 = 0
            phase: int32 = 0
            previous: int32 = 0
            for at in range(0, k, 64):
                self.mbarrier.wait(full[slot], phase)
                half = a[slot].block([64, 64], at=[group, 0])
                self.wgmma.fence()
                self.wgmma.mma(half, b[slot].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(1)
                if at > 0:
                    self.mbarrier.arrive(empty[previous], by="warp")
                previous = slot
                slot, phase = self.ring_next(slot, phase, self.stages)
            self.wgmma.wait_group(0)
            self.store_global(g_c, acc.to(bfloat16), offsets=[row + group * 64, col])

        with self.warp_group(8, 4, name="producer"):
            self.setmaxnreg(24)
            with self.single_thread():
                slot: int32 = 0
                phase: int32 = 0
                for at in range(0, k, 64):
                    self.mbarrier.wait(empty[slot], phase ^ 1)
                    self.mbarrier.arrive_and_expect_tx(full[slot], a[slot].nbytes + b[slot].nbytes)
                    self.tma.global_to_shared(g_a, a[slot], offsets=[row, at], mbarrier=full[slot])
                    self.tma.global_to_shared(g_b, b[slot], offsets=[col, at], mbarrier=full[slot])
                    slot, phase = self.ring_next(slot, phase, self.stages)
