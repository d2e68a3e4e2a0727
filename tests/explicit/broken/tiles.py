"""A persistent product: each program takes every second tile, whose steps follow from the tile's number.  Each
`case` is right or harmful as test_decisions.py says."""

from warploom import Script
from warploom.language import bfloat16, float32, int32

PROGRAMS = 2


class Drained(Script):
    """Producer and consumer each go on by a `while`.  late: from so many tiles on the consumer leaves out the
    last one; 0: never."""

    def __init__(self, late: int = 0):
        super().__init__()
        self.late = late

    def __call__(self, a_ptr: ~bfloat16, m: int32, tiles: int32):
        self.attrs.blocks = [PROGRAMS]
        self.attrs.warps = 8
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, 64])
        a = self.shared_tensor(dtype=bfloat16, shape=[3, 64, 64])
        full = self.mbarrier.alloc([1, 1, 1])
        empty = self.mbarrier.alloc([4, 4, 4])
        with self.thread_group(128, 32, name="producer"):
            slot: int32 = 0
            phase: int32 = 0
            tile: int32 = self.blockIdx.x
            while tile < tiles:
                self.mbarrier.wait(empty[slot], phase ^ 1)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[slot], a[slot].nbytes)
                    self.tma.global_to_shared(
                        g_a, a[slot], offsets=[tile * 64, 0], mbarrier=full[slot]
                    )
                slot, phase = self.ring_next(slot, phase, 3)
                tile += 1 + tile % PROGRAMS  # no `for` has such steps
        with self.thread_group(0, 128, name="consumer"):
            slot: int32 = 0
            phase: int32 = 0
            tile: int32 = self.blockIdx.x
            end: int32 = tiles
            if self.late > 0:
                end = tiles - min(tiles // self.late, 1) * PROGRAMS
            while tile < end:
                self.mbarrier.wait(full[slot], phase)
                self.mbarrier.arrive(empty[slot], by="warp")
                slot, phase = self.ring_next(slot, phase, 3)
                tile += 1 + tile % PROGRAMS  # no `for` has such steps


class Tiles(Script):
    def __init__(self, case: str = ""):
        super().__init__()
        self.case, self.by_turns = case, case.startswith("steps by turns")

    def steps_of(self, tile, of_producer):
        """How many steps a tile has."""
        steps: int32 = 1
        if self.by_turns:
            steps = tile // 2 % 3 + 1
        elif self.case == "two steps in far tiles" or (
            self.case == "two steps in far tiles, one copy" and not of_producer
        ):
            steps = 1 + min(tile // 700, 1)
        return steps

    def __call__(
        self, a_ptr: ~bfloat16, b_ptr: ~bfloat16, c_ptr: ~bfloat16, m: int32, n: int32, k: int32, tiles: int32
    ):  # fmt: skip
        self.attrs.blocks = [PROGRAMS]
        self.attrs.warps = 8
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        a = self.shared_tensor(dtype=bfloat16, shape=[3, 64, 64])
        b = self.shared_tensor(dtype=bfloat16, shape=[3, 128, 64])
        full = self.mbarrier.alloc([1, 1, 1])
        empty = self.mbarrier.alloc([4, 4, 4])
        with self.thread_group(128, 32, name="producer"):
            slot: int32 = 0
            phase: int32 = 0
            for tile in range(self.blockIdx.x, tiles, PROGRAMS):
                for step in range(0, self.steps_of(tile, True)):
                    self.mbarrier.wait(empty[slot], phase ^ 1)
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(
                            full[slot], a[slot].nbytes + b[slot].nbytes
                        )
                        self.tma.global_to_shared(
                            g_a, a[slot], offsets=[tile * 64, step * 64], mbarrier=full[slot]
                        )
                        self.tma.global_to_shared(
                            g_b, b[slot], offsets=[0, step * 64], mbarrier=full[slot]
                        )
                    slot, phase = self.ring_next(slot, phase, 3)
        with self.thread_group(0, 128, name="consumer"):
            slot: int32 = 0
            phase: int32 = 0
            before: int32 = 0
            for tile in range(self.blockIdx.x, tiles, PROGRAMS):
                acc = self.register_tensor(dtype=float32, shape=[64, 128], init=0.0)
                steps = self.steps_of(tile, False)
                for step in range(0, steps):
                    self.mbarrier.wait(full[slot], phase)
                    self.wgmma.fence()
                    self.wgmma.mma(a[slot], b[slot].transpose(), acc)
                    self.wgmma.commit_group()
                    self.wgmma.wait_group(0)
                    if self.case == "steps by turns, no arrival where they fall":
                        if (steps >= before) | (step > 0):
                            self.mbarrier.arrive(empty[slot], by="warp")
                    else:
                        self.mbarrier.arrive(empty[slot], by="warp")
                    slot, phase = self.ring_next(slot, phase, 3)
                before = steps
                self.store_global(g_c, acc.to(bfloat16), offsets=[tile * 64, 0])
