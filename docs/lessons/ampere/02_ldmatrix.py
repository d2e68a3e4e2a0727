# mypy: ignore-errors
"""Ampere, lesson 2: ldmatrix, swizzled rows and larger tiles.

What changed: rows of shared memory are swizzled, which is what a shared tensor does by itself: the 16-byte
units of a row trade places by the row's number, so that eight rows lie in different banks, and one ldmatrix
reads four 8 × 8 matrices without a conflict (B's with `.trans`, as its columns lie along memory's rows).

And a tile is 128 × 128 of eight warps: each element that is loaded takes part in twice as many products.  How
the warps share it is said with `resolve_dot_config`: 2 × 4 of them, 64 × 32 of the sum each.  The layout
`lc` fixes the sum's, and the operands' follow.
"""

from warploom import Script
from warploom.language import cdiv, float16, float32, int32


class Ldmatrix(Script):
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
        s_a = self.shared_tensor(dtype=float16, shape=[tile_m, tile_k])
        s_b = self.shared_tensor(dtype=float16, shape=[tile_k, tile_n])
        acc = self.register_tensor(dtype=float32, layout=self.mma.lc, init=0.0)
        for at in range(0, k, tile_k):
            a = self.load_global(g_a, offsets=[row, at], shape=[tile_m, tile_k])
            b = self.load_global(g_b, offsets=[at, col], shape=[tile_k, tile_n])
            self.store_shared(s_a, a)
            self.store_shared(s_b, b)
            self.sync()
            acc = self.dot(self.load_shared(s_a), self.load_shared(s_b), acc)
            self.sync()
        self.store_global(g_c, acc.to(float16), offsets=[row, col])
