"""A ring with one producer warp and two consumers, right with bug="", wrong in one place with every other."""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class Ring(Script):
    def __init__(self, bug: str = ""):
        super().__init__()
        self.bug = bug
        self.stages = 3

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32
    ):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, 128)]
        self.attrs.warps = 9
        bug = self.bug
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        full_count = 2 if bug == "full count is two" else 1
        full = self.mbarrier.alloc(counts=[full_count] * self.stages)
        counts = 7 if bug == "empty count short" else 9 if bug == "empty count over" else 8
        empty = self.mbarrier.alloc(counts=[counts] * self.stages)
        row = self.blockIdx.x * 128
        col = self.blockIdx.y * 128

        with self.thread_group(0, 128, replicas=2, name="consumer") as group:
            acc = self.register_tensor(dtype=float32, shape=[64, 128], init=0.0)
            slot: int32 = 0
            phase: int32 = 1 if bug == "consumer starts with phase 1" else 0
            previous: int32 = 0
            for at in range(0, k, 64):
                if bug != "no wait for full":
                    self.mbarrier.wait(full[slot], phase)
                half = a[slot].block([64, 64], at=[group, 0])
                if bug != "no wgmma fence":
                    self.wgmma.fence()
                self.wgmma.mma(half, b[slot].transpose(), acc)
                if bug != "no commit":
                    self.wgmma.commit_group()
                if bug == "released before the wait":
                    self.mbarrier.arrive(empty[slot], by="warp")
                if bug == "two in flight":
                    self.wgmma.wait_group(2)
                else:
                    self.wgmma.wait_group(1)
                if bug == "two groups, one release":
                    if (at > 0) & (group == 0):
                        self.mbarrier.arrive(empty[previous], by="warp")
                elif bug == "first slot released at once":
                    self.mbarrier.arrive(empty[previous], by="warp")
                elif bug not in ("released before the wait", "never released"):  # noqa: SIM102
                    if at > 0:
                        self.mbarrier.arrive(empty[previous], by="warp")
                previous = slot
                depth = self.stages - 1 if bug == "consumer ring too short" else self.stages
                slot, phase = self.ring_next(slot, phase, depth)
                if bug == "phase never flips":
                    phase = 0
            if bug == "last product never waited for":
                self.wgmma.wait_group(1)
            else:
                self.wgmma.wait_group(0)
                self.store_global(g_c, acc.to(bfloat16), offsets=[row + group * 64, col])

        with self.single_warp(8, name="producer"), self.single_thread():
            slot: int32 = 0
            phase: int32 = 0
            for at in range(0, k, 64):
                start = phase if bug == "producer starts with phase 0" else phase ^ 1
                if bug != "no wait for empty":
                    self.mbarrier.wait(empty[slot], start)
                size = a[slot].nbytes + b[slot].nbytes
                if bug == "too few bytes":
                    size = a[slot].nbytes
                if bug == "too many bytes":
                    size = 2 * a[slot].nbytes + b[slot].nbytes
                if bug == "no expect":
                    self.mbarrier.arrive(full[slot])
                elif bug != "no arrival at full":
                    self.mbarrier.arrive_and_expect_tx(full[slot], transaction_bytes=size)
                self.tma.global_to_shared(g_a, a[slot], [row, at], full[slot])
                if bug == "B on the next barrier":
                    other, _ = self.ring_next(slot, phase, self.stages)
                    self.tma.global_to_shared(g_b, b[slot], [col, at], full[other])
                else:
                    self.tma.global_to_shared(g_b, b[slot], [col, at], full[slot])
                slot, phase = self.ring_next(slot, phase, self.stages)
            if bug == "one load too many":
                self.mbarrier.wait(empty[slot], phase ^ 1)
                self.mbarrier.arrive_and_expect_tx(full[slot], a[slot].nbytes)
                self.tma.global_to_shared(g_a, a[slot], [row, 0], full[slot])
