# mypy: ignore-errors
"""Tilus programs for Ampere, written anew: what such files say of layouts, copies and products."""

from __future__ import annotations

import warploom.tilus as tilus
from warploom.tilus import boolean, float16, float32, int32
from warploom.tilus.ir.layout import column_spatial, reduce, spatial
from warploom.tilus.utils import cdiv


class Staged(tilus.Script):
    """C = A·B through stages that copy_async fills, and out through what they leave free."""

    def __init__(self, num_warps=4, block_m=64, block_n=64, block_k=32, num_stages=3, sums=float32):
        super().__init__()
        self.sums = sums
        self.mma = self.cuda.resolve_dot_config(
            float16, sums, num_warps=num_warps, m=block_m, n=block_n, k=block_k
        )
        self.block_m, self.block_n, self.block_k = block_m, block_n, block_k
        self.num_warps, self.num_stages = num_warps, num_stages
        self.layout_sa = self.cuda.swizzled_shared_layout(
            float16, shape=[num_stages, block_m, block_k]
        )

    def __call__(
        self,
        m_size: int32,
        n_size: int,
        k_size: int,
        a_ptr: ~float16,
        b_ptr: ~float16,
        c_ptr: ~float16,
    ):
        self.attrs.blocks = [
            self.utils.ceil_div(m_size, self.block_m), cdiv(n_size, self.block_n)
        ]  # fmt: skip
        self.attrs.warps = self.num_warps
        block_m, block_n, block_k, stages = (
            self.block_m, self.block_n, self.block_k, self.num_stages
        )  # fmt: skip
        offset_m: int32 = block_m * self.blockIdx.x
        offset_n: int32 = block_n * self.blockIdx.y
        ga = self.global_view(a_ptr, dtype=float16, shape=[m_size, k_size])
        gb = self.global_view(b_ptr, dtype=float16, shape=[k_size, n_size])
        gc = self.global_view(c_ptr, dtype=float16, shape=[m_size, n_size])
        sa = self.shared_tensor(dtype=float16, layout=self.layout_sa)
        sb = self.shared_tensor(dtype=float16, shape=[stages, block_k, block_n])
        acc = self.register_tensor(dtype=self.sums, layout=self.mma.lc, init=0.0)
        for stage in range(stages - 1):
            self.copy_async(src=ga, dst=sa[stage], offsets=[offset_m, stage * block_k])
            self.copy_async(gb, sb[stage], offsets=[stage * block_k, offset_n], dims=[0, 1])
            self.copy_async_commit_group()
        self.copy_async_wait_group(n=stages - 2)
        self.sync()
        current: int32 = 0
        preload: int32 = stages - 1
        for offset_k in self.range(0, k_size, block_k):
            a = self.load_shared(sa[current])
            b = self.load_shared(sb[current])
            self.dot(a, b, acc, acc_dtype=self.sums, out=acc)
            ahead = offset_k + (stages - 1) * block_k
            if ahead < k_size:
                self.copy_async(src=ga, dst=sa[preload], offsets=[offset_m, ahead])
                self.copy_async(src=gb, dst=sb[preload], offsets=[ahead, offset_n])
            self.copy_async_commit_group()
            current = (current + 1) % stages
            preload = (preload + 1) % stages
            self.copy_async_wait_group(n=stages - 2)
            self.sync()
        self.free_shared(sa)
        self.free_shared(sb)
        sc = self.shared_tensor(dtype=float16, shape=[block_m, block_n])
        self.store_shared(sc, self.cast(acc, dtype=float16))
        self.sync()
        self.store_global(gc, self.load_shared(sc), offsets=[offset_m, offset_n])
        self.free_shared(sc)


class Halves(tilus.Script):
    """C = A·B of one block, or of each of a batch, summed in float16."""

    def __init__(self, *shape, warps=4):
        super().__init__()
        *batch, m, n, k = shape
        self.a, self.b, self.c = ((*batch, *s) for s in ((m, k), (k, n), (m, n)))
        self.warps = warps

    def __call__(self, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        g_a = self.global_view(a_ptr, dtype=float16, shape=self.a)
        g_b = self.global_view(b_ptr, dtype=float16, shape=self.b)
        g_c = self.global_view(c_ptr, dtype=float16, shape=self.c)
        at = [0 for _ in self.c]
        a = self.load_global(g_a, offsets=at, shape=self.a)
        b = self.load_global(g_b, offsets=at, shape=self.b)
        c = self.dot(a, b, acc_dtype=float16)
        self.store_global(g_c, self.dot(a, b, c), offsets=at)


class Scores(tilus.Script):
    """Masked scores S = Q·Kᵀ where i ≥ j, and their sums over rows, by warps that have whole rows."""

    def __init__(self, warps=4, rows=64, columns=64, head=64):
        super().__init__()
        self.warps, self.rows, self.columns, self.head = warps, rows, columns, head
        self.scores = self.cuda.resolve_dot_config(
            float16, float32, m=rows, n=columns, k=head, warp_m=warps, warp_n=1
        )

    def __call__(
        self, n: int32, q_ptr: ~float16, k_ptr: ~float16, s_ptr: ~float32, sum_ptr: ~float32
    ):
        self.attrs.blocks = [self.utils.cdiv(n, self.rows)]
        self.attrs.warps = self.warps
        first: int32 = self.rows * self.blockIdx.x
        gq = self.global_view(q_ptr, dtype=float16, shape=[n, self.head])
        gk = self.global_view(k_ptr, dtype=float16, shape=[self.columns, self.head])
        gs = self.global_view(s_ptr, dtype=float32, shape=[n, self.columns])
        g_sum = self.global_view(sum_ptr, dtype=float32, shape=[n])
        sq = self.shared_tensor(dtype=float16, shape=[self.rows, self.head])
        sk = self.shared_tensor(dtype=float16, shape=[self.columns, self.head])
        self.copy_async(gq, sq, offsets=[first, 0])
        self.copy_async(gk, sk, offsets=[0, 0])
        self.copy_async_wait_all()
        self.sync()
        score = self.register_tensor(dtype=float32, layout=self.scores.lc, init=0.0)
        score = self.dot(self.load_shared(sq), self.load_shared(sk.transpose()), score)
        mask = self.register_tensor(
            dtype=boolean,
            shape=[self.rows, self.columns],
            init=lambda i, j: i + first >= j,
        )
        score = self.where(mask, score, 0.0)
        self.store_global(gs, score, offsets=[first, 0])
        self.store_global(g_sum, self.sum(score, dim=1), offsets=[first])


class Laid(tilus.Script):
    """y = 2 x + i, in layouts that the script gives."""

    def __init__(self, layout):
        super().__init__()
        self.layout = layout

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 64])
        x = self.load_global(g_x, offsets=[0, 0], shape=[32, 64])
        self.annotate_layout(x, self.layout)
        rows = self.register_tensor(dtype=float32, layout=self.layout, init=lambda i, j: i)
        self.store_global(g_y, x + x + rows, offsets=[0, 0])


LAYOUTS = {
    "vectors": spatial(8, 16).local(4, 4),
    "columns": column_spatial(32, 4).local(1, 16),
    "replicated": reduce(spatial(8, 8, 2), dims=[2]).local(4, 8),
}
