# mypy: ignore-errors
"""Lesson 8: cluster multicast.

What changed: CTAs come in pairs.  A cluster of two takes two tiles one above the other, which need the
same columns of B.  Each loads one half of them and *multicasts* it into the shared memory of both; A stays
private.  Four things follow:

* A full barrier still expects all bytes of a slot: half of B's come from the other CTA.
* A slot may be filled anew when the consumers of *both* CTAs have read it, so each warp arrives at the
  empty barriers of both, and they count 16.  The arrivals are relaxed: only wgmma has read the slot, and its
  reads are over.  A release would be right, and cost a quarter of the speed.
* Nobody touches a barrier of the other CTA before that is initialised: a cluster barrier at the start.
* Nobody ends while the other may still arrive at its barriers: a cluster barrier at the end, of all threads.

Why: the pair reads B once from the L2 instead of twice, and walks two rows of tiles together.  Bytes cost
power, which limits large products.  Lesson 9 saves more of them by the order of tiles alone; the two don't
add up, since the CTAs of a pair have to keep step, and so the ladder's last program does without (the
library's has it as an option, `ctas=2`: 1 % slower there).

Measured, TFLOP/s on an NVIDIA H200 at M×N×K:
757 at 8192×8192×8192, 758 at 4096×4096×4096, 648 at 8192×8192×512.
"""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class Multicast(Script):
    def __init__(self, stages: int = 3, programs: int = 132):
        super().__init__()
        self.stages = stages
        self.programs = programs

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = self.programs
        self.attrs.warps = 12
        self.attrs.cluster_blocks = 2
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 256, 64])
        c = self.shared_tensor(dtype=bfloat16, shape=[2, 4, 64, 64])
        full = self.mbarrier.alloc(counts=[1] * self.stages)
        empty = self.mbarrier.alloc(counts=[16] * self.stages)  # the warps of both CTAs
        rank = self.cluster.blockRank
        self.cluster.sync()
        n_tiles = cdiv(n, 256)
        tiles = cdiv(m, 256) * n_tiles  # of clusters
        steps = cdiv(k, 64)
        first = self.cluster.clusterIdx.x
        clusters = self.cluster.gridDim.x

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            self.setmaxnreg(240)
            slot: int32 = 0
            phase: int32 = 0
            for t in range(first, tiles, clusters):
                row, col = t // n_tiles * 256 + rank * 128, t % n_tiles * 256
                acc = self.register_tensor(dtype=float32, shape=[64, 256])
                previous: int32 = 0
                for step in range(steps):
                    self.mbarrier.wait(full[slot], phase)
                    half = a[slot].block([64, 64], at=[group, 0])
                    self.wgmma.fence()
                    self.wgmma.mma(half, b[slot].transpose(), acc, use_acc=step > 0)
                    self.wgmma.commit_group()
                    self.wgmma.wait_group(1)
                    if step > 0:
                        self.mbarrier.arrive_multicast(
                            empty[previous], 0b11, sem="relaxed", by="warp"
                        )
                    previous = slot
                    slot, phase = self.ring_next(slot, phase, self.stages)
                self.wgmma.wait_group(0)
                if steps > 0:
                    self.mbarrier.arrive_multicast(empty[previous], 0b11, sem="relaxed", by="warp")
                zero = self.register_tensor(dtype=float32, shape=[64, 256], init=0.0)
                out = self.where(steps > 0, acc, zero).to(bfloat16)  # without products: zeros
                for i in self.range(0, 4, unroll="all"):
                    self.store_shared(c[group, i], out[:, 64 * i : 64 * i + 64])
                    self.fence.proxy_async()  # every writer, before the sync
                    with self.single_thread():
                        # The next chunk's buffer has been read: one sync says both.
                        self.tma.wait_group(2, read=True)
                    self.sync()
                    with self.single_thread():
                        self.tma.shared_to_global(
                            c[group, i], g_c, [row + group * 64, col + 64 * i]
                        )
                        self.tma.commit_group()
            with self.single_thread():
                self.tma.wait_group(0, read=True)  # shared memory must outlive the stores
            self.cluster.sync()

        with self.warp_group(8, 4, name="producer"):
            self.setmaxnreg(24)
            with self.single_thread():
                slot: int32 = 0
                phase: int32 = 0
                for t in range(first, tiles, clusters):
                    row, col = t // n_tiles * 256 + rank * 128, t % n_tiles * 256
                    for step in range(steps):
                        self.mbarrier.wait(empty[slot], phase ^ 1)
                        self.mbarrier.arrive_and_expect_tx(
                            full[slot], a[slot].nbytes + b[slot].nbytes
                        )
                        at = step * 64
                        self.tma.global_to_shared(g_a, a[slot], [row, at], full[slot])
                        half = b[slot].block([128, 64], at=[rank, 0])
                        self.tma.global_to_shared(
                            g_b, half, [col + rank * 128, at], full[slot], multicast_mask=0b11
                        )
                        slot, phase = self.ring_next(slot, phase, self.stages)
            self.cluster.sync()
