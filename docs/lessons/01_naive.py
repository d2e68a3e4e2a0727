# mypy: ignore-errors
"""Lesson 1: the naive product.

What it does: 128 threads own a 64×64 tile of C = A·Bᵀ.  They load a piece of A and of B into registers, write
both to shared memory, and the tensor core multiplies them there.

Why it is slow: everything waits for everything.  While the loads travel the tensor core idles, while it
multiplies no load travels.  And every element passes through registers on its way to shared memory.

What to notice: `fence.proxy_async`.  The tensor core reads shared memory by another path (the async proxy)
than ordinary stores write it; the fence makes the stores visible to it, the sync makes them everybody's.

Measured, TFLOP/s on an NVIDIA H200 at M×N×K:
226 at 8192×8192×8192, 215 at 4096×4096×4096, 200 at 8192×8192×512.
"""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class Naive(Script):
    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = [cdiv(m, 64), cdiv(n, 64)]
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[64, 64])
        row = self.blockIdx.x * 64
        col = self.blockIdx.y * 64

        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        for at in range(0, k, 64):
            self.store_shared(a, self.load_global(g_a, offsets=[row, at], shape=[64, 64]))
            self.store_shared(b, self.load_global(g_b, offsets=[col, at], shape=[64, 64]))
            self.fence.proxy_async()
            self.sync()
            self.wgmma.fence()
            self.wgmma.mma(a, b.transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()  # nobody overwrites a and b before all have multiplied
        self.store_global(g_c, acc.to(bfloat16), offsets=[row, col])
