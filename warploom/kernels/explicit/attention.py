# mypy: ignore-errors
# (annotations of scripts are values: `slot: int32 = 0` declares a variable)
"""O = softmax(Q·Kᵀ·scale)·V forward, bf16, head size 128, every role and barrier placed by hand.

Q, K, V, O are (heads, seq, 128), contiguous; heads counts batch × heads.  A CTA owns 128 rows of one
head: two consumers of 64 rows, one loading thread.  Inside a consumer the scores of the next block and this
block's P·V are in flight together, and the softmax runs under P·V; between consumers the turn to issue
products passes back and forth (ping-pong), so that one group's softmax runs under the other's products.
"""

from __future__ import annotations

from warploom.language import bfloat16, cdiv, float32, int32
from warploom.runtime.script import Script

NEGATIVE = float("-inf")
TURNS = 8  # the first of the named barriers that pass the turn


class Attention(Script):
    """causal: row i sees columns 0 … i.  pingpong: consumers take turns at issuing products.  stages:
    blocks of K, and of V, in their rings."""

    def __init__(self, causal: bool = False, pingpong: bool = True, stages: int = 2) -> None:
        super().__init__()
        self.causal = causal
        self.pingpong = pingpong
        self.stages = stages
        self.d, self.block = 128, 128

    def my_turn(self, group):
        if self.pingpong:
            self.named_barrier.sync(TURNS, 256, index=group, n=2)

    def pass_turn(self, group):
        if self.pingpong:
            self.named_barrier.arrive(TURNS, 256, index=1 - group, n=2)

    def masked(self, s, row, j, seq):
        """Scores of columns that a row does not see are -inf."""
        columns = (j * self.block + self.arange(0, self.block))[None, :]
        seen = columns < seq
        if self.causal:
            seen = seen & (columns <= (row + self.arange(0, 64))[:, None])
        return self.where(seen, s, NEGATIVE)

    def load(self, view, ring, full, empty, slot, phase, head, j):
        """Asks for block j of K or V."""
        self.mbarrier.wait(empty[slot], phase ^ 1)
        self.mbarrier.arrive_and_expect_tx(full[slot], ring[slot].nbytes)
        self.tma.global_to_shared(view, ring[slot], [head, j * self.block, 0], full[slot])
        return self.ring_next(slot, phase, self.stages)

    def __call__(
        self,
        q_ptr: ~bfloat16,
        k_ptr: ~bfloat16,
        v_ptr: ~bfloat16,
        o_ptr: ~bfloat16,
        heads: int32,
        seq: int32,
        scale: float32,
    ):
        """scale: the softmax scale times log2(e)."""
        self.attrs.blocks = [cdiv(seq, 128), heads]
        self.attrs.warps = 12
        shape = [heads, seq, self.d]
        g_q = self.global_view(q_ptr, dtype=bfloat16, shape=shape)
        g_k = self.global_view(k_ptr, dtype=bfloat16, shape=shape)
        g_v = self.global_view(v_ptr, dtype=bfloat16, shape=shape)
        g_o = self.global_view(o_ptr, dtype=bfloat16, shape=shape)
        q = self.shared_tensor(dtype=bfloat16, shape=[2, 64, self.d])
        k = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block, self.d])
        v = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block, self.d])
        o_out = self.shared_tensor(dtype=bfloat16, shape=[2, 64, self.d])
        q_full = self.mbarrier.alloc([1, 1])
        k_full = self.mbarrier.alloc([1] * self.stages)
        k_empty = self.mbarrier.alloc([8] * self.stages)
        v_full = self.mbarrier.alloc([1] * self.stages)
        v_empty = self.mbarrier.alloc([8] * self.stages)

        tile = self.blockIdx.x
        if self.causal:  # heavy tiles first
            tile = self.gridDim.x - 1 - tile
        head = self.blockIdx.y
        first_row = tile * 128
        blocks = cdiv(seq, self.block)
        if self.causal:
            blocks = min(blocks, tile + 1)

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            self.setmaxnreg(240)
            row = first_row + group * 64
            ks: int32 = 0
            kp: int32 = 0
            vs: int32 = 0
            vp: int32 = 0
            if group == 1:  # group 0 begins
                self.pass_turn(group)

            # The last block first: alone, masked.
            self.mbarrier.wait(q_full[group], 0)
            self.mbarrier.wait(k_full[ks], kp)
            s = self.register_tensor(dtype=float32, shape=[64, self.block])
            self.wgmma.fence()
            self.wgmma.mma(q[group], k[ks].transpose(), s, use_acc=False)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.mbarrier.arrive(k_empty[ks], by="warp")
            ks, kp = self.ring_next(ks, kp, self.stages)
            s = self.masked(s, row, blocks - 1, seq)
            top = self.max(s, dim=1)
            e = self.exp2(s * scale - (top * scale)[:, None])
            total = self.sum(e, dim=1)
            p = e.to(bfloat16)
            o = self.register_tensor(dtype=float32, shape=[64, self.d], init=0.0)

            for _ in range(1, blocks):
                # In flight together: the scores of this block, P·V of the one before.
                self.mbarrier.wait(k_full[ks], kp)
                self.my_turn(group)
                s_next = self.register_tensor(dtype=float32, shape=[64, self.block])
                self.wgmma.fence()
                self.wgmma.mma(q[group], k[ks].transpose(), s_next, use_acc=False)
                self.wgmma.commit_group()
                self.mbarrier.wait(v_full[vs], vp)
                self.wgmma.mma(p, v[vs], o)
                self.wgmma.commit_group()
                self.pass_turn(group)
                self.wgmma.wait_group(1)
                self.mbarrier.arrive(k_empty[ks], by="warp")
                ks, kp = self.ring_next(ks, kp, self.stages)
                higher = self.maximum(top, self.max(s_next, dim=1))
                alpha = self.exp2((top - higher) * scale)
                top = higher
                e = self.exp2(s_next * scale - (top * scale)[:, None])
                total = total * alpha + self.sum(e, dim=1)
                self.wgmma.wait_group(0)
                self.mbarrier.arrive(v_empty[vs], by="warp")
                vs, vp = self.ring_next(vs, vp, self.stages)
                p = e.to(bfloat16)
                o = o * alpha[:, None]

            self.mbarrier.wait(v_full[vs], vp)
            self.wgmma.fence()
            self.wgmma.mma(p, v[vs], o)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.store_shared(o_out[group], (o * (1.0 / total)[:, None]).to(bfloat16))
            self.fence.proxy_async()
            self.sync()
            with self.single_thread():
                self.tma.shared_to_global(o_out[group], g_o, [head, row, 0])
                self.tma.commit_group()
                self.tma.wait_group(0)

        with self.warp_group(2, name="producer"):
            self.setmaxnreg(24)
            with self.single_thread():
                for i in self.range(0, 2, unroll="all"):
                    self.mbarrier.arrive_and_expect_tx(q_full[i], q[i].nbytes)
                    self.tma.global_to_shared(g_q, q[i], [head, first_row + 64 * i, 0], q_full[i])
                ks: int32 = 0
                kp: int32 = 0
                vs: int32 = 0
                vp: int32 = 0
                ks, kp = self.load(g_k, k, k_full, k_empty, ks, kp, head, blocks - 1)
                for i in range(1, blocks):
                    ks, kp = self.load(g_k, k, k_full, k_empty, ks, kp, head, blocks - 1 - i)
                    vs, vp = self.load(g_v, v, v_full, v_empty, vs, vp, head, blocks - i)
                vs, vp = self.load(g_v, v, v_full, v_empty, vs, vp, head, 0)
