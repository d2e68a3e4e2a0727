# mypy: ignore-errors
"""Ampere, lesson 0: the naive product.

C = A·B in float16, A (m, k), B (k, n) and C (m, n) row-major.  Four warps compute a tile of 64 × 64 together.
Each step of K they load a piece of A and one of B into registers, and multiply them: `self.dot` is the tensor
cores' mma.sync, whose operands and sum lie in registers, spread over the lanes as the instruction wants them.

What to see: two warps that share rows of the tile load the same piece of A, each for itself; how a warp's
lanes hold a piece is the instruction's choice, not memory's, so that loads are narrow; and nothing is on its
way while the tensor cores multiply.
"""

from warploom import Script
from warploom.language import cdiv, float16, float32, int32


class Naive(Script):
    def __call__(
        self, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = [cdiv(m, 64), cdiv(n, 64)]
        self.attrs.warps = 4
        row, col = self.blockIdx.x * 64, self.blockIdx.y * 64
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[k, n])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
        for at in range(0, k, 32):
            a = self.load_global(g_a, offsets=[row, at], shape=[64, 32])
            b = self.load_global(g_b, offsets=[at, col], shape=[32, 64])
            acc = self.dot(a, b, acc)
        self.store_global(g_c, acc.to(float16), offsets=[row, col])
