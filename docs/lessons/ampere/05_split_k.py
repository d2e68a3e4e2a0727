# mypy: ignore-errors
"""Ampere, lesson 5: split-K.

What changed: where C is small and K long, there are fewer tiles than multiprocessors.  So `parts` CTAs
compute one tile, each over its part of K, and leave their sums in memory of the kernel's own
(`global_tensor`).  Who comes last adds them up, in order, and writes C: the result does not depend on who
that is.

A counter for each tile says who comes last.  `atomic_add` is made after all threads of the CTA have stored
their sums (the barrier in front of it), and releases them; the last one acquires all others'.  One thread
draws the number and leaves it in shared memory for all.  The last CTA leaves the counter at zero, as
`requires_clean` asks, for the next launch.
"""

from warploom import Script
from warploom.language import cdiv, float16, float32, int32


class SplitK(Script):
    def __init__(
        self,
        tile_m: int = 64,
        tile_n: int = 64,
        tile_k: int = 32,
        stages: int = 4,
        parts: int = 4,
    ):
        super().__init__()
        self.tile_m, self.tile_n, self.tile_k, self.stages = tile_m, tile_n, tile_k, stages
        self.parts = parts
        self.mma = self.cuda.resolve_dot_config(
            float16, float32, m=tile_m, n=tile_n, k=tile_k, num_warps=4
        )

    def __call__(
        self, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16, m: int32, n: int32, k: int32
    ):
        tile_m, tile_n, tile_k, stages = self.tile_m, self.tile_n, self.tile_k, self.stages
        rows, columns = cdiv(m, tile_m), cdiv(n, tile_n)
        self.attrs.blocks = [rows, columns, self.parts]
        self.attrs.warps = 4
        row, col, part = self.blockIdx.x * tile_m, self.blockIdx.y * tile_n, self.blockIdx.z
        sums = self.global_tensor(float32, [self.parts, rows * tile_m, columns * tile_n])
        counts = self.global_tensor(int32, [rows, columns], requires_clean=True)
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[k, n])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[stages, tile_m, tile_k])
        s_b = self.shared_tensor(dtype=float16, shape=[stages, tile_k, tile_n])
        acc = self.register_tensor(dtype=float32, layout=self.mma.lc, init=0.0)
        share = cdiv(cdiv(k, tile_k), self.parts) * tile_k
        begin = part * share
        end = min(begin + share, k)
        for stage in range(stages - 1):
            early = begin + stage * tile_k
            if early < end:
                self.copy_async(g_a, s_a[stage], offsets=[row, early])
                self.copy_async(g_b, s_b[stage], offsets=[early, col])
            self.copy_async_commit_group()
        slot: int32 = 0
        fill: int32 = stages - 1
        for at in range(begin, end, tile_k):
            self.copy_async_wait_group(stages - 2)
            self.sync()
            ahead = at + (stages - 1) * tile_k
            if ahead < end:
                self.copy_async(g_a, s_a[fill], offsets=[row, ahead])
                self.copy_async(g_b, s_b[fill], offsets=[ahead, col])
            self.copy_async_commit_group()
            acc = self.dot(self.load_shared(s_a[slot]), self.load_shared(s_b[slot]), acc)
            fill = slot
            slot = (slot + 1) % stages
        self.store_global(sums, acc, offsets=[part, row, col])
        self.sync()
        count = counts.pointer + self.blockIdx.x * columns + self.blockIdx.y
        drawn = self.shared_tensor(dtype=int32, shape=[1])
        with self.single_thread():
            self.store_shared(drawn, self.atomic_add(count, 1, sem="acq_rel"))
        self.sync()
        if self.load_shared(drawn) == self.parts - 1:
            total = self.register_tensor(dtype=float32, shape=[tile_m, tile_n], init=0.0)
            for other in range(self.parts):
                total += self.load_global(sums, offsets=[other, row, col], shape=[tile_m, tile_n])
            self.store_global(g_c, total.to(float16), offsets=[row, col])
            self.store(count, 0)
