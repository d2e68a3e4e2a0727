"""Clusters of two, right with bug="", wrong in one place with every other: a ring whose B is multicast, and an
exchange of tiles through each other's shared memory."""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class Multicast(Script):
    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug
        self.stages = 2

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32
    ):
        bug = self.bug
        self.attrs.cluster_blocks = 9 if bug == "nine CTAs" else 2
        self.attrs.blocks = [cdiv(m, 128) * 2, cdiv(n, 128)]
        self.attrs.warps = 5
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 64, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        full = self.mbarrier.alloc(counts=[1] * self.stages)
        count = 4 if bug == "empty counts one CTA" else 9 if bug == "empty count over" else 8
        empty = self.mbarrier.alloc(counts=[count] * self.stages)
        rank = self.cluster.blockRank
        row = self.blockIdx.x * 64
        col = self.blockIdx.y * 128
        if bug not in ("no sync after init", "sync in one group"):
            self.cluster.sync()

        with self.thread_group(0, 128, name="consumer"):
            if bug == "sync in one group":
                self.cluster.sync()
            acc = self.register_tensor(dtype=float32, shape=[64, 128], init=0.0)
            slot: int32 = 0
            phase: int32 = 0
            for _ in range(0, k, 64):
                if bug == "wait at a peer's barrier":
                    theirs = self.cluster.map_shared_addr(full, rank ^ 1)
                    self.mbarrier.wait(theirs[slot], phase)
                else:
                    self.mbarrier.wait(full[slot], phase)
                right = b[slot]
                if bug == "wgmma of a peer's slot":
                    right = self.cluster.map_shared_addr(right, rank ^ 1)
                self.wgmma.fence()
                self.wgmma.mma(a[slot], right.transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                if bug == "release to the own CTA":
                    self.mbarrier.arrive(empty[slot], by="warp")
                elif bug == "release to the peer":
                    self.mbarrier.arrive_remote(empty[slot], rank ^ 1, sem="relaxed", by="warp")
                elif bug == "rank outside":
                    self.mbarrier.arrive_remote(empty[slot], 2, by="warp")
                else:
                    self.mbarrier.arrive_multicast(empty[slot], 3, sem="relaxed", by="warp")
                slot, phase = self.ring_next(slot, phase, self.stages)
            self.store_global(g_c, acc.to(bfloat16), offsets=[row, col])
            if bug not in ("no sync at the end", "only the producer waits"):
                self.cluster.sync()

        with self.single_warp(4, name="producer"):
            with self.single_thread():
                slot: int32 = 0
                phase: int32 = 0
                for at in range(0, k, 64):
                    self.mbarrier.wait(empty[slot], phase ^ 1)
                    size = a[slot].nbytes + b[slot].nbytes
                    if bug == "expects its own part":
                        size = a[slot].nbytes + b[slot].nbytes // 2
                    self.mbarrier.arrive_and_expect_tx(full[slot], transaction_bytes=size)
                    self.tma.global_to_shared(g_a, a[slot], [row, at], full[slot])
                    mask = 3
                    if bug == "mask of the own CTA":
                        mask = 1 << rank
                    if bug == "mask of the peer":
                        mask = 2 >> rank
                    if bug == "mask outside":
                        mask = 5
                    if bug == "mask outside at run time":
                        mask = 5 + rank
                    self.tma.global_to_shared(
                        g_b,
                        b[slot].block([64, 64], at=[rank, 0]),
                        [col + rank * 64, at],
                        full[slot],
                        multicast_mask=mask,
                    )
                    slot, phase = self.ring_next(slot, phase, self.stages)
            if bug != "no sync at the end":
                self.cluster.sync()


class Exchange(Script):
    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, n: int32):
        bug = self.bug
        self.attrs.cluster_blocks = 2
        self.attrs.blocks = [cdiv(n, 64) * 2]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n, 32])
        mine = self.shared_tensor(dtype=float32, shape=[32, 32])
        theirs = self.shared_tensor(dtype=float32, shape=[32, 32])
        arrived = self.mbarrier.alloc(128)
        at = self.blockIdx.x * 32
        peer = self.cluster.blockRank ^ 1
        tile = self.load_global(g_x, offsets=[at, 0], shape=[32, 32])
        self.cluster.sync()
        # pull: the peer's tile, read where it lies
        self.store_shared(mine, tile)
        if bug == "read without a cluster sync":
            self.sync()
        elif bug == "relaxed sync":
            self.cluster.arrive(sem="relaxed")
            self.cluster.wait()
        else:
            self.cluster.sync()
        if bug != "exit while the peer may read":
            pulled = self.load_shared(self.cluster.map_shared_addr(mine, peer))
        # push: this tile, written where the peer reads it
        self.store_shared(self.cluster.map_shared_addr(theirs, peer), tile + 1.0)
        if bug == "arrives twice":
            self.cluster.arrive()
            self.cluster.arrive()
        if bug == "waits without an arrival":
            self.cluster.wait()
        if bug == "relaxed arrival":
            self.mbarrier.arrive_remote(arrived, peer, sem="relaxed")
        elif bug == "arrives at its own barrier":
            self.mbarrier.arrive(arrived)
        else:
            self.mbarrier.arrive_remote(arrived, peer)
        self.mbarrier.wait(arrived, 0, scope="cta" if bug == "acquires in the CTA" else "cluster")
        if bug == "exit while the peer may read":
            pulled = self.load_shared(self.cluster.map_shared_addr(mine, peer))
        self.store_global(g_y, pulled + self.load_shared(theirs), offsets=[at, 0])
        if bug != "exit while the peer may read":
            self.cluster.sync()
