# mypy: ignore-errors
# (annotations of scripts are values)
"""What the library's explicit products share: the order of tiles, and of the consumers at their ends."""

from __future__ import annotations

from warploom.explicit.script import Class
from warploom.language import cdiv

TURNS = 8  # the first of the named barriers that hand the turn over


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
        """The fewest programs, of `most`, that take no more turns (512 tiles on 132 multiprocessors: 4
        turns, for which 128 suffice, and what idles draws no power)."""
        return cdiv(self.count, max(cdiv(self.count, most), 1))

    def at(self, t):
        """First row and column of tile number t."""
        per_band = self.band * self.columns
        done = t // per_band * self.band
        rows = min(self.rows - done, self.band)
        inside = t % per_band
        return (done + inside % rows) * self.block_m, inside // rows * self.block_n


class Turns(Class):
    """Two consumers finish their tiles one after the other.  The first time the second one waits for the
    first; from then on it is that much behind, and the arithmetic at the end of one consumer's tile runs
    while the tensor core multiplies for the other."""

    def __init__(self, group, wanted: bool):
        self.group = group
        self.wanted = wanted
        if wanted and group == 1:  # group 0 begins
            self.give()

    def take(self):
        if self.wanted:
            self.named_barrier.sync(TURNS, 256, index=self.group, n=2)

    def give(self):
        if self.wanted:
            self.named_barrier.arrive(TURNS, 256, index=1 - self.group, n=2)
