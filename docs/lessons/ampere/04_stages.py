# mypy: ignore-errors
"""Ampere, lesson 4: several stages, and a wide store.

What changed: memory answers later than one iteration takes, so copies run further ahead.  A ring has `stages`
slots, and each iteration's copies are one *group*: `wait_group(stages - 2)` lets that many of the latest
groups be on their way, and waits for the older ones, of which the oldest is the one that is read now.  An
iteration commits its group even where there is nothing left to copy: the count stays right to the end.

The slot that is filled is the one that was read in the iteration before: the barrier lies between the two.

The result goes out through shared memory, in which all threads of a row meet, so that a store writes 16
bytes.  `free_shared` gives the ring's bytes to it: no copy is on its way to them any more (the last groups
are empty), and the barrier in front of the store ends the last reads.
"""

from warploom import Script
from warploom.language import cdiv, float16, float32, int32


class Stages(Script):
    def __init__(self, tile_m: int = 128, tile_n: int = 128, tile_k: int = 32, stages: int = 4):
        super().__init__()
        self.tile_m, self.tile_n, self.tile_k, self.stages = tile_m, tile_n, tile_k, stages
        self.mma = self.cuda.resolve_dot_config(
            float16, float32, m=tile_m, n=tile_n, k=tile_k, warp_m=2, warp_n=4
        )

    def __call__(
        self, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16, m: int32, n: int32, k: int32
    ):
        tile_m, tile_n, tile_k, stages = self.tile_m, self.tile_n, self.tile_k, self.stages
        self.attrs.blocks = [cdiv(m, tile_m), cdiv(n, tile_n)]
        self.attrs.warps = 8
        row, col = self.blockIdx.x * tile_m, self.blockIdx.y * tile_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[k, n])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[stages, tile_m, tile_k])
        s_b = self.shared_tensor(dtype=float16, shape=[stages, tile_k, tile_n])
        acc = self.register_tensor(dtype=float32, layout=self.mma.lc, init=0.0)
        for stage in range(stages - 1):
            self.copy_async(g_a, s_a[stage], offsets=[row, stage * tile_k])
            self.copy_async(g_b, s_b[stage], offsets=[stage * tile_k, col])
            self.copy_async_commit_group()
        slot: int32 = 0
        fill: int32 = stages - 1
        for at in range(0, k, tile_k):
            self.copy_async_wait_group(stages - 2)
            self.sync()
            ahead = at + (stages - 1) * tile_k
            if ahead < k:
                self.copy_async(g_a, s_a[fill], offsets=[row, ahead])
                self.copy_async(g_b, s_b[fill], offsets=[ahead, col])
            self.copy_async_commit_group()
            acc = self.dot(self.load_shared(s_a[slot]), self.load_shared(s_b[slot]), acc)
            fill = slot
            slot = (slot + 1) % stages
        self.copy_async_wait_all()
        self.sync()
        self.free_shared(s_a)
        self.free_shared(s_b)
        s_c = self.shared_tensor(dtype=float16, shape=[tile_m, tile_n])
        self.store_shared(s_c, acc.to(float16))
        self.sync()
        self.store_global(g_c, self.load_shared(s_c), offsets=[row, col])
