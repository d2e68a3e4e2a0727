# mypy: ignore-errors
"""Ampere, lesson 1: shared memory.

What changed: the four warps load each piece once, together, in the order in which it lies in memory (16 bytes
a thread), and put it into shared memory.  From there every warp takes what its products need.

Why two barriers: the first one lets nobody read a piece before all of it is stored, the second one lets
nobody store the next piece over it while others still read.  Leave one out, and `check` names both lines.

The rows of a piece lie one behind the other (`swizzle=0`).  Eight rows of A at 64 bytes begin in the same few
banks, so a read of eight of them takes four turns: the next lesson.
"""

from warploom import Script
from warploom.language import cdiv, float16, float32, int32


class Shared(Script):
    def __call__(
        self, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = [cdiv(m, 64), cdiv(n, 64)]
        self.attrs.warps = 4
        row, col = self.blockIdx.x * 64, self.blockIdx.y * 64
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[k, n])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[64, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        self.annotate_layout(s_a, swizzle=0)
        self.annotate_layout(s_b, swizzle=0)
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        for at in range(0, k, 32):
            self.store_shared(s_a, self.load_global(g_a, offsets=[row, at], shape=[64, 32]))
            self.store_shared(s_b, self.load_global(g_b, offsets=[at, col], shape=[32, 64]))
            self.sync()
            acc = self.dot(self.load_shared(s_a), self.load_shared(s_b), acc)
            self.sync()
        self.store_global(g_c, acc.to(float16), offsets=[row, col])
