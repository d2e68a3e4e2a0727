"""A product in clusters of 2×2: A is multicast along one axis of the cluster, B along the other."""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class Squares(Script):
    """A slot is fed by three CTAs: this one, its neighbour in the row and its neighbour in the column."""

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~float32, m: int32, n: int32, k: int32
    ):
        self.attrs.cluster_blocks = (2, 2)
        self.attrs.blocks = [cdiv(m, 128) * 2, cdiv(n, 128) * 2]
        self.attrs.warps = 5
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[2, 64, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[2, 64, 64])
        full = self.mbarrier.alloc([1, 1])
        empty = self.mbarrier.alloc([12, 12])
        x = self.cluster.blockIdx.x
        y = self.cluster.blockIdx.y
        row = self.blockIdx.x * 64
        col = self.blockIdx.y * 64
        same_row = 0b0101 << x  # ranks x and x + 2
        same_col = 0b0011 << (2 * y)
        self.cluster.sync()

        with self.thread_group(0, 128, name="consumer"):
            acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
            slot: int32 = 0
            phase: int32 = 0
            for _ in range(0, k, 64):
                self.mbarrier.wait(full[slot], phase)
                self.wgmma.fence()
                self.wgmma.mma(a[slot], b[slot].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                self.mbarrier.arrive_multicast(
                    empty[slot], same_row | same_col, sem="relaxed", by="warp"
                )
                slot, phase = self.ring_next(slot, phase, 2)
            self.store_global(g_c, acc, offsets=[row, col])
            self.cluster.sync()

        with self.single_warp(4, name="producer"):
            with self.single_thread():
                slot: int32 = 0
                phase: int32 = 0
                for at in range(0, k, 64):
                    self.mbarrier.wait(empty[slot], phase ^ 1)
                    self.mbarrier.arrive_and_expect_tx(full[slot], a[slot].nbytes + b[slot].nbytes)
                    half = a[slot].block([32, 64], at=[y, 0])
                    self.tma.global_to_shared(
                        g_a, half, [row + y * 32, at], full[slot], multicast_mask=same_row
                    )
                    half = b[slot].block([32, 64], at=[x, 0])
                    self.tma.global_to_shared(
                        g_b, half, [col + x * 32, at], full[slot], multicast_mask=same_col
                    )
                    slot, phase = self.ring_next(slot, phase, 2)
            self.cluster.sync()
