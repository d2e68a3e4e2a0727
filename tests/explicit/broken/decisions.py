"""A product whose protocol hangs on conditions: a wait, an arrival, a copy or a trip count that an argument, a
block, a late iteration or a word of memory decides.  Each `case` is right or harmful as test_decisions.py says."""

from warploom import Script
from warploom.language import bfloat16, cdiv, float32, int32


class Product(Script):
    def __init__(self, case: str = ""):
        super().__init__()
        self.case = case
        self.is_loaded = case.startswith("loaded bound")

    def __call__(
        self,
        a_ptr: ~bfloat16,
        b_ptr: ~bfloat16,
        c_ptr: ~bfloat16,
        flag_ptr: ~int32,
        m: int32,
        n: int32,
        k: int32,
    ):
        self.attrs.blocks = [cdiv(m, 64), cdiv(n, 128)]
        self.attrs.warps = 8
        case = self.case
        row, col = self.blockIdx.x * 64, self.blockIdx.y * 128
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[3, 64, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[3, 128, 64])
        full = self.mbarrier.alloc([1, 1, 1])
        empty = self.mbarrier.alloc([4, 4, 4])
        with self.thread_group(128, 32, name="producer"):
            if case == "assumed":
                self.assume(k % 64 == 0)
                self.assume(k >= 256)
            slot: int32 = 0
            phase: int32 = 0
            end: int32 = k
            if self.is_loaded:
                end = self.load(flag_ptr) * k
            if case == "loaded bound, the producer's is another word":
                end = self.load(flag_ptr + 1) * k
            for at in range(0, end, 64):
                self.mbarrier.wait(empty[slot], phase ^ 1)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[slot], a[slot].nbytes + b[slot].nbytes)
                    self.tma.global_to_shared(g_a, a[slot], offsets=[row, at], mbarrier=full[slot])
                    if case == "copy skipped where m is 192":
                        if m != 192:
                            self.tma.global_to_shared(
                                g_b, b[slot], offsets=[col, at], mbarrier=full[slot]
                            )
                    else:
                        self.tma.global_to_shared(
                            g_b, b[slot], offsets=[col, at], mbarrier=full[slot]
                        )
                slot, phase = self.ring_next(slot, phase, 3)
        with self.thread_group(0, 128, name="consumer"):
            acc = self.register_tensor(dtype=float32, shape=[64, 128], init=0.0)
            slot: int32 = 0
            phase: int32 = 0
            end: int32 = k
            if self.is_loaded:
                end = self.load(flag_ptr) * k
            if case == "one trip fewer for every 64":
                end = k - 64 * (k // 4096)
            seen: int32 = 0
            if case == "at most 50 trips":
                end = min(k, 64 * 50)
            for at in range(0, end, 64):
                if case == "late wait":
                    if at != 64 * 40:
                        self.mbarrier.wait(full[slot], phase)
                elif case == "wait in every seventh iteration but one":
                    if at % 448 != 192:
                        self.mbarrier.wait(full[slot], phase)
                elif case == "very late wait":
                    if at != 64 * 40000:
                        self.mbarrier.wait(full[slot], phase)
                elif case == "wait hangs on two arguments":
                    if (m < 128) | (k < 512):
                        self.mbarrier.wait(full[slot], phase)
                elif case == "wait hangs on three arguments":
                    if not ((m == 192) & (n == 384) & (k > 1000)):
                        self.mbarrier.wait(full[slot], phase)
                elif case == "wait hangs on memory":
                    if self.load(flag_ptr) == 0:
                        self.mbarrier.wait(full[slot], phase)
                elif case == "wait hangs on a word of its own":
                    if self.load(flag_ptr + at // 64) != 77:
                        self.mbarrier.wait(full[slot], phase)
                elif case == "wait hangs on a hash":
                    if (m * 7919 + at * 31) % 100003 != 4242:
                        self.mbarrier.wait(full[slot], phase)
                elif case != "loaded bound, no wait":
                    self.mbarrier.wait(full[slot], phase)
                # A second wait for the same phase: right whether it comes or not.
                if case == "again in a late iteration":  # noqa: SIM102
                    if at == 64 * 40:
                        self.mbarrier.wait(full[slot], phase)
                if case == "again in a very late iteration":  # noqa: SIM102
                    if at >= 64 * 40000:
                        self.mbarrier.wait(full[slot], phase)
                if case == "again where an argument says so":  # noqa: SIM102
                    if m == 192:
                        self.mbarrier.wait(full[slot], phase)
                if case == "again where three arguments say so":  # noqa: SIM102
                    if (m == 192) & ((n == 384) | (k > 1000)):
                        self.mbarrier.wait(full[slot], phase)
                if case == "again in one block":  # noqa: SIM102
                    if self.blockIdx.x == 7:
                        self.mbarrier.wait(full[slot], phase)
                if case == "again where memory says so":  # noqa: SIM102
                    if self.load(flag_ptr + at // 64) == 3:
                        self.mbarrier.wait(full[slot], phase)
                if case == "again by a hash":  # noqa: SIM102
                    if (m * 7919 + at * 31) % 100003 == 4242:
                        self.mbarrier.wait(full[slot], phase)
                self.wgmma.fence()
                self.wgmma.mma(a[slot], b[slot].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                if case == "late arrival":
                    if at != 64 * 40:
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival up to a very late iteration":
                    if at < 64 * 5000:
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival up to a late iteration, doubled":
                    if at * 2 < 64 * 6000:
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival up to a late iteration beyond an argument":
                    if at < 64 * (m + 500):
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival up to a count":
                    if seen < 1000:
                        self.mbarrier.arrive(empty[slot], by="warp")
                    seen = seen + 1
                elif case == "arrival hangs on an argument":
                    if m != 192:
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival hangs on the block":
                    if self.blockIdx.x != 7:
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival hangs on the block and an argument":
                    if (self.blockIdx.x != 3) | (n != 384):
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival hangs on three arguments":
                    if not ((m == 192) & (n == 384) & (k > 1000)):
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival hangs on conditions in conditions":
                    skipped: int32 = 0
                    if m == 192:  # noqa: SIM102
                        if n == 384:  # noqa: SIM102
                            if k > 1000:
                                skipped = 1
                    if skipped == 0:
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival hangs on two words in a row":
                    word = self.load(flag_ptr + at // 64)
                    if (word == 0) | (self.load(flag_ptr + at // 64 + 2) != 0):
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case == "arrival hangs on memory":
                    if self.load(flag_ptr) == 0:
                        self.mbarrier.arrive(empty[slot], by="warp")
                elif case != "loaded bound, no arrival":
                    self.mbarrier.arrive(empty[slot], by="warp")
                if case == "next slot hangs on three arguments":
                    if not ((m == 192) & (n == 384) & (k > 1000)):
                        slot, phase = self.ring_next(slot, phase, 3)
                else:
                    slot, phase = self.ring_next(slot, phase, 3)
            self.store_global(g_c, acc.to(bfloat16), offsets=[row, col])
