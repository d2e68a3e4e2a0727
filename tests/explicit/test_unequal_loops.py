# mypy: ignore-errors
# (annotations of scripts are values: `slot: int32 = 0` declares a variable)
"""Loops whose inner loops run unequally often: what goes wrong in late iterations alone is found."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
from tests.pairwise import diagonals
from warploom.check import Verdict
from warploom.language import bfloat16, float32, int32

DEPTH = 2


class Ring(wl.Class):
    """Slots of 64×64 elements with a barrier pair each; where the task is in them."""

    def __init__(self):
        self.blocks = self.shared_tensor(dtype=bfloat16, shape=[DEPTH, 64, 64])
        self.full = self.mbarrier.alloc([1] * DEPTH)
        self.empty = self.mbarrier.alloc([4] * DEPTH)
        self.slot: int32 = 0
        self.phase: int32 = 0

    def block(self):
        return self.blocks[self.slot]

    def load(self, view, row):
        self.mbarrier.wait(self.empty[self.slot], self.phase ^ 1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(self.full[self.slot], self.block().nbytes)
            self.tma.global_to_shared(view, self.block(), [row, 0], self.full[self.slot])
        self.advance()

    def wait(self):
        self.mbarrier.wait(self.full[self.slot], self.phase)

    def release(self):
        self.mbarrier.arrive(self.empty[self.slot], by="warp")

    def advance(self):
        self.slot, self.phase = self.ring_next(self.slot, self.phase, DEPTH)


class Unequal(wl.Script):
    """Tile t of Q meets as many tiles of K as its count says."""

    def __init__(self, count, mistake=None):
        super().__init__()
        self.count, self.mistake = count, mistake

    def blocks_of(self, t):
        if self.count == "from the 40th on":
            return self.where(t >= 40, self.n, 0)
        if self.count == "every 40 more":
            return t // 40 * self.n
        return t % 2 * self.n  # in turn

    def __call__(
        self, q_ptr: ~bfloat16, k_ptr: ~bfloat16, o_ptr: ~bfloat16, tiles: int32, n: int32
    ):
        self.attrs.blocks = [1]
        self.attrs.warps = 8
        self.n = n
        g_q = self.global_view(q_ptr, dtype=bfloat16, shape=[tiles * 64, 64])
        g_k = self.global_view(k_ptr, dtype=bfloat16, shape=[64, 64])
        g_o = self.global_view(o_ptr, dtype=bfloat16, shape=[64, 64])
        q, k = Ring(), Ring()
        with self.thread_group(128, 32, name="producer"):
            for t in range(tiles):
                q.load(g_q, t * 64)
                for _ in range(self.blocks_of(t)):
                    k.load(g_k, 0)
        with self.thread_group(0, 128, name="consumer"):
            acc = self.register_tensor(dtype=float32, shape=[64, 64], init=0.0)
            for t in range(tiles):
                q.wait()
                if self.mistake == "released too early":
                    q.release()
                for _ in range(self.blocks_of(t)):
                    k.wait()
                    self.wgmma.fence()
                    self.wgmma.mma(q.block(), k.block(), acc)
                    self.wgmma.commit_group()
                    self.wgmma.wait_group(0)
                    k.release()
                    k.advance()
                if self.mistake != "released too early":
                    q.release()
                q.advance()
                if self.mistake == "a slot further":
                    for _ in range(self.blocks_of(t)):
                        q.advance()
            self.store_global(g_o, acc.to(bfloat16), offsets=[0, 0])


def verdict(count, mistake=None):
    x = np.zeros((320, 64), ml_dtypes.bfloat16)
    return Unequal(count, mistake).check(x, x, x, 5, 3).verdict


@pytest.mark.parametrize(
    ("mistake", "count"),
    diagonals(2, ["released too early", "a slot further"], ["from the 40th on", "every 40 more"]),
)
def test_mistakes_of_late_iterations_with_an_inner_loop_are_found(count, mistake):
    """The 40 iterations before, in which it does not run, recur by themselves."""
    assert verdict(count, mistake) is Verdict.BROKEN


@pytest.mark.parametrize("count", ["from the 40th on", "every 40 more", "in turn"])
@pytest.mark.each(2)
def test_right_ones_are_proved(count):
    assert verdict(count) is Verdict.PROVED
