"""A group writes, arrives and is waited for, round after round; its barrier is made for `count` arrivals.

by: whose arrivals count, `times` each.  form: at its own barrier ("local"), at the peer's in a cluster of two ("remote"), or
at both ("multicast")."""

from warploom import Script
from warploom.language import float32, int32

BOTH = 3  # CTAs of the cluster, as a mask


class Counted(Script):
    def __init__(self, form: str, by: str, count: int, times: int = 1):
        super().__init__()
        self.form, self.by, self.count, self.times = form, by, count, times

    def arrive(self, done):
        if self.form == "local":
            self.mbarrier.arrive(done, by=self.by, count=self.times)
        elif self.form == "remote":
            self.mbarrier.arrive_remote(
                done, self.cluster.blockRank ^ 1, by=self.by, count=self.times
            )
        else:
            self.mbarrier.arrive_multicast(done, BOTH, by=self.by, count=self.times)

    def __call__(self, x_ptr: ~float32, n: int32):
        is_alone = self.form == "local"
        if not is_alone:
            self.attrs.cluster_blocks = 2
        self.attrs.blocks = 1 if is_alone else 2
        self.attrs.warps = 5
        s = self.shared_tensor(dtype=float32, shape=[128])
        done = self.mbarrier.alloc(self.count)
        read = self.mbarrier.alloc(32 if self.form != "multicast" else 64)
        self.cluster.sync()
        own = x_ptr if is_alone else x_ptr + self.cluster.blockRank * n * 128
        with self.thread_group(0, 128, name="writer"):
            phase: int32 = 1
            for i in range(n):
                self.mbarrier.wait(read, phase, scope="cluster")
                self.store_shared(s, self.load(own + i * 128 + self.arange(0, 128)))
                if self.by == "one":
                    self.sync()
                self.arrive(done)
                phase = phase ^ 1
        with self.single_warp(4, name="reader"):
            phase: int32 = 0
            for i in range(n):
                self.mbarrier.wait(done, phase, scope="cluster")
                if self.form == "remote":
                    theirs = self.cluster.map_shared_addr(s, self.cluster.blockRank ^ 1)
                    x = self.load_shared(theirs)
                else:
                    x = self.load_shared(s)
                self.store(own + i * 128 + self.arange(0, 128), x + 1.0)
                if self.form == "local":
                    self.mbarrier.arrive(read)
                elif self.form == "remote":
                    self.mbarrier.arrive_remote(read, self.cluster.blockRank ^ 1)
                else:
                    self.mbarrier.arrive_multicast(read, BOTH)
                phase = phase ^ 1
        self.cluster.sync()
