# mypy: ignore-errors
# (annotations of scripts are values)
"""What the library's explicit products share: the order of tiles, the consumers' loop, and who comes first at
the tiles' ends."""

from __future__ import annotations

from warploom.explicit.script import Class
from warploom.language import bfloat16, cdiv, float32, int32
from warploom.runtime.script import Script

ORDER_BARRIERS = 8  # the first of the named barriers that order the consumers


class Tiles(Class):
    """The tiles of an (m, n) result, numbered in bands of `band` rows of tiles, column by column: what
    neighbouring programs read at one time stays in the L2 cache."""

    def __init__(self, m, n, block_m: int, block_n: int, band: int):
        self.block_m = block_m
        self.block_n = block_n
        self.band = band
        self.rows = cdiv(m, block_m)
        self.columns = cdiv(n, block_n)
        self.count = self.rows * self.columns

    def programs(self, most: int):
        """The fewest programs, of `most`, that take no more waves (512 tiles on 132 multiprocessors: 4
        waves, for which 128 suffice, and what idles draws no power)."""
        return cdiv(self.count, max(cdiv(self.count, most), 1))

    def at(self, t):
        """First row and column of tile number t."""
        per_band = self.band * self.columns
        done = t // per_band * self.band
        rows = min(self.rows - done, self.band)
        inside = t % per_band
        return (done + inside % rows) * self.block_m, inside // rows * self.block_n


class Stagger(Class):
    """Two consumers finish their tiles one after the other.  The first time the second one waits for the
    first; from then on it is that much behind, and the arithmetic at the end of one consumer's tile runs
    while the tensor core multiplies for the other."""

    def __init__(self, group, wanted: bool):
        self.group = group
        self.wanted = wanted
        if wanted and group == 1:  # group 0 begins
            self.arrive()

    def wait(self):
        if self.wanted:
            self.named_barrier.sync(ORDER_BARRIERS, 256, index=self.group, n=2)

    def arrive(self):
        if self.wanted:
            self.named_barrier.arrive(ORDER_BARRIERS, 256, index=1 - self.group, n=2)


class Products(Script):
    """Scripts whose two consumers multiply what a producer brings through one ring."""

    def release(self, barrier):
        """A warp of a consumer has read a slot."""
        self.mbarrier.arrive(barrier, by="warp")

    def right(self, b, slot):
        """What a slot of B holds, as (k, n): its rows are those of Bᵀ."""
        return b[slot].transpose()

    def multiply(self, group, a, b, full, empty, slot, phase, steps, stagger, columns, depth):
        """A group's 64 rows of a tile, columns wide, over `steps` slots of depth elements of k; and where the
        ring stands after it.  One product is in flight while the next one is issued."""
        acc = self.register_tensor(dtype=float32, shape=[64, columns])
        previous: int32 = 0
        for step in range(steps):
            self.mbarrier.wait(full[slot], phase)
            half = a[slot].block([64, depth], at=[group, 0])
            self.wgmma.fence()
            self.wgmma.mma(half, self.right(b, slot), acc, use_acc=step > 0)
            self.wgmma.commit_group()
            self.wgmma.wait_group(1)  # the product before this one: its slot is free
            if step > 0:
                self.release(empty[previous])
            previous = slot
            slot, phase = self.ring_next(slot, phase, self.stages)
        stagger.wait()  # before the wait: the assembler keeps arithmetic behind a wait, not a named barrier
        self.wgmma.wait_group(0)
        if steps > 0:
            self.release(empty[previous])
        zero = self.register_tensor(dtype=float32, shape=[64, columns], init=0.0)
        return self.where(steps > 0, acc, zero), slot, phase

    def stage(self, staging, value):
        """A value in its staging, from which TMA has read what was there before."""
        with self.single_thread():
            self.tma.wait_group(0, read=True)
        self.sync()
        self.store_shared(staging, value.to(bfloat16))

    def send(self, group, staging, view, row, col, at=0):
        """Stores what a group has staged: columns of its 64 rows of a tile, from `at` on."""
        self.fence.proxy_async()
        self.sync()
        with self.single_thread():
            self.tma.shared_to_global(staging, view, offsets=[row + group * 64, col + at])
            self.tma.commit_group()
