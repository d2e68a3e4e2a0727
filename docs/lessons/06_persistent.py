# mypy: ignore-errors
"""Lesson 6: persistence.

What changed: a CTA for each SM, which walks tiles; grid and tile count no longer agree.  Barriers, slot and
phase run on across tiles, so the producer loads the next tile while the consumers still store this one.
The last slot of a tile has to be released after its loop, which lesson 5 could leave to the kernel's end.

Why: no launch of a CTA between tiles, and the first loads of a tile no longer wait.  It shows at short K
only: elsewhere the consumers' stores, which nothing overlaps yet, weigh more than what is saved.

Measured, TFLOP/s on an NVIDIA H200 at M×N×K:
700 at 8192×8192×8192, 683 at 4096×4096×4096, 374 at 8192×8192×512.
"""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class Persistent(Script):
    def __init__(self, stages: int = 3, programs: int = 132):
        super().__init__()
        self.stages = stages
        self.programs = programs

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = self.programs
        self.attrs.warps = 12
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 256, 64])
        full = self.mbarrier.alloc(counts=[1] * self.stages)
        empty = self.mbarrier.alloc(counts=[8] * self.stages)
        n_tiles = cdiv(n, 256)
        tiles = cdiv(m, 128) * n_tiles
        first = self.blockIdx.x

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            self.setmaxnreg(240)
            slot: int32 = 0
            phase: int32 = 0
            for t in range(first, tiles, self.gridDim.x):
                row, col = t // n_tiles * 128, t % n_tiles * 256
                acc = self.register_tensor(dtype=float32, shape=[64, 256], init=0.0)
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
                if k > 0:
                    self.mbarrier.arrive(empty[previous], by="warp")
                self.store_global(g_c, acc.to(bfloat16), offsets=[row + group * 64, col])

        with self.warp_group(8, 4, name="producer"):
            self.setmaxnreg(24)
            with self.single_thread():
                slot: int32 = 0
                phase: int32 = 0
                for t in range(first, tiles, self.gridDim.x):
                    row, col = t // n_tiles * 128, t % n_tiles * 256
                    for at in range(0, k, 64):
                        self.mbarrier.wait(empty[slot], phase ^ 1)
                        self.mbarrier.arrive_and_expect_tx(
                            full[slot], a[slot].nbytes + b[slot].nbytes
                        )
                        self.tma.global_to_shared(g_a, a[slot], [row, at], full[slot])
                        self.tma.global_to_shared(g_b, b[slot], [col, at], full[slot])
                        slot, phase = self.ring_next(slot, phase, self.stages)
