# mypy: ignore-errors
"""Ampere, lesson 3: cp.async, and a second buffer.

What changed: `copy_async` moves a piece from global to shared memory beside the threads, without registers in
between.  There are two buffers: while the warps multiply what is in one, the next piece comes into the other.

A thread waits for its own copies (`copy_async_wait_all`), and knows nothing of others': the barrier behind
the wait tells it that all have waited.  The same barrier says that everybody has read the other buffer, so
the next copies may go there.  One barrier an iteration is enough.

Out of bounds a copy writes zeros, as a load does; past the last piece there is nothing to copy.
"""

from warploom import Script
from warploom.language import cdiv, float16, float32, int32


class CopyAsync(Script):
    def __init__(self, tile_m: int = 128, tile_n: int = 128, tile_k: int = 32):
        super().__init__()
        self.tile_m, self.tile_n, self.tile_k = tile_m, tile_n, tile_k
        self.mma = self.cuda.resolve_dot_config(
            float16, float32, m=tile_m, n=tile_n, k=tile_k, warp_m=2, warp_n=4
        )

    def __call__(
        self, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16, m: int32, n: int32, k: int32
    ):
        tile_m, tile_n, tile_k = self.tile_m, self.tile_n, self.tile_k
        self.attrs.blocks = [cdiv(m, tile_m), cdiv(n, tile_n)]
        self.attrs.warps = 8
        row, col = self.blockIdx.x * tile_m, self.blockIdx.y * tile_n
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[k, n])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[2, tile_m, tile_k])
        s_b = self.shared_tensor(dtype=float16, shape=[2, tile_k, tile_n])
        acc = self.register_tensor(dtype=float32, layout=self.mma.lc, init=0.0)
        self.copy_async(g_a, s_a[0], offsets=[row, 0])
        self.copy_async(g_b, s_b[0], offsets=[0, col])
        buffer: int32 = 0
        for at in range(0, k, tile_k):
            self.copy_async_wait_all()
            self.sync()
            ahead = at + tile_k
            if ahead < k:
                self.copy_async(g_a, s_a[buffer ^ 1], offsets=[row, ahead])
                self.copy_async(g_b, s_b[buffer ^ 1], offsets=[ahead, col])
            acc = self.dot(self.load_shared(s_a[buffer]), self.load_shared(s_b[buffer]), acc)
            buffer = buffer ^ 1
        self.copy_async_wait_all()
        self.store_global(g_c, acc.to(float16), offsets=[row, col])
