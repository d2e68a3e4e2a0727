"""Scripts that go wrong late, or at inputs far from those that make their loops run: each is a right one, with one
number or condition changed.  None is proved; the right ones are."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.pairwise import every
from warploom.check import Verdict, check

# name: (what the producer does, what the consumer does, the mistake, what is right in its place)
RINGS = {
    "both stop by a number, one by at most 200": (
        "go: int32 = 1\nfor t in range(m):\n    if go == 1:\n        q.load(g)\n    if t * 3 > n:\n        go = 0",
        "go: int32 = 1\nfor t in range(m):\n    if go == 1:\n        q.use()\n    if t * 3 > {}:\n        go = 0",
        "min(n, 200)",
        "n",
    ),
    "a count that ends at 77": (
        "c: int32 = 0\nfor t in range(m):\n    if c < n:\n        q.load(g)\n    c = c + 1",
        "c: int32 = 0\nfor t in range(m):\n    if c < n:\n        q.use()\n    c = {}",
        "min(c + 1, 77)",
        "c + 1",
    ),
    "a condition that another one hides": (
        "for t in range(m):\n    if (t > n) | (t % 4 == 1):\n        q.load(g)",
        "for t in range(m):\n    if (t > n) | (t % 4 == 1) & {}:\n        q.use()",
        "(t < 300)",
        "(t >= 0)",
    ),
    "a step that grows": (
        "t: int32 = 0\nwhile t < m:\n    q.load(g)\n    t = t + 3",
        "t: int32 = 0\nwhile t < m:\n    q.use()\n    t = t + 3 + {}",
        "t // 300",
        "0",
    ),
    "a number that doubles, and parts from 128 on": (
        "x: int32 = 1\nwhile x < m:\n    q.load(g)\n    x = x * 2",
        "x: int32 = 1\nwhile x < m:\n    q.use()\n    x = x * 2{}",
        " + x // 128",
        "",
    ),
    "a `while` beside a `for`": (
        "for t in range(0, m, 3):\n    q.load(g)",
        "t: int32 = 0\nwhile t < m:\n    q.use()\n    t = t + 3 + {}",
        "t // 300",
        "0",
    ),
    "a `while` and a `for` beside two that run as often as one of them": (
        "for t in range(n):\n    q.load(g)\nt: int32 = 0\nwhile t < n:\n    q.load(g)\n    t = t + 1 + {}",
        "for t in range(n):\n    q.use()\nfor t in range(n):\n    q.use()",
        "t * t // 90000",
        "0",
    ),
    "an inner loop that is shorter where what a `while` carries is large": (
        "x: int32 = 1\nwhile x < m:\n    for j in range(n):\n        q.load(g)\n    x = x * 2",
        "x: int32 = 1\nwhile x < m:\n    for j in range(n - {}):\n        q.use()\n    x = x * 2",
        "x // 3000",
        "0",
    ),
    "slots from a base that is wrong for large tiles": (
        "for t in range(m):\n    for j in range(n):\n        q.load(g)",
        "for t in range(m):\n    for j in range(n):\n        u = n * t - {} + j\n"
        "        q.take(u % 2, u // 2 % 2)",
        "n // 200",
        "0",
    ),
    "the last tile is shorter where there are many": (
        "for t in range(m):\n    for j in range(2):\n        q.load(g)",
        "for t in range(m):\n    for j in range(2 - {}):\n        q.use()",
        "(t + 1) // m * (m // 50)",
        "t // m",
    ),
    "counted by another word": (
        "for t in range(m):\n    for j in range(self.load(f_ptr + t)):\n        q.load(g)",
        "for t in range(m):\n    for j in range(self.load(f_ptr + {})):\n        q.use()",
        "t % 50",
        "t",
    ),
    "a sum of words, the last ones one word": (
        "c: int32 = 0\nfor j in range(n):\n    c = c + self.load(f_ptr + j)\nfor t in range(c):\n    q.load(g)",
        "c: int32 = 0\nfor j in range(n):\n    c = c + self.load(f_ptr + {})\nfor t in range(c):\n    q.use()",
        "min(j, 40)",
        "j",
    ),
    "inner loops that grow, no release in one iteration": (
        "for t in range(m):\n    for j in range(t + 1):\n        q.load(g)",
        "for t in range(m):\n    for j in range(t + 1):\n        q.wait()\n        if {}:\n"
        "            q.release()\n        q.advance()",
        "(t != 30) | (j != 7)",
        "t >= 0",
    ),
    "inner loops that shrink, a wait left out": (
        "for t in range(m):\n    for j in range(m - t):\n        q.load(g)",
        "for t in range(m):\n    for j in range(m - t):\n        if {}:\n            q.wait()\n"
        "        q.release()\n        q.advance()",
        "j < 20",
        "j >= 0",
    ),
    "inner loops that grow, slots from a wrong sum": (
        "for t in range(m):\n    for j in range(t + 1):\n        q.load(g)",
        "for t in range(m):\n    for j in range(t + 1):\n        u = t * (t + 1) // 2 + {} + j\n"
        "        q.take(u % 2, u // 2 % 2)",
        "t // 30",
        "0",
    ),
    "inner loops that grow unequally": (
        "for t in range(m):\n    for j in range(t // 2 + 1):\n        q.load(g)",
        "for t in range(m):\n    for j in range(t // 2 + 1 - {}):\n        q.use()",
        "t // 40",
        "0",
    ),
    "the last of several is ragged": (
        "for at in range(0, m, 7):\n    for j in range(min(7, m - at)):\n        q.load(g)\nq.load(g)",
        "for at in range(0, m, 7):\n    for j in range(min(7, m - at)):\n        q.use()\nq.wait()\n{}",
        "q.wait()\nq.advance()\nq.wait()",
        "q.release()",
    ),
}

HEAD = """
from warploom import Class, Script
from warploom.language import bfloat16, float32, int32

class Ring(Class):
    def __init__(self, depth):
        self.depth = depth
        self.blocks = self.shared_tensor(dtype=bfloat16, shape=[depth, 64, 64])
        self.full = self.mbarrier.alloc([1] * depth)
        self.empty = self.mbarrier.alloc([4] * depth)
        self.slot: int32 = 0
        self.phase: int32 = 0

    def load(self, view):
        self.mbarrier.wait(self.empty[self.slot], self.phase ^ 1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(self.full[self.slot], self.blocks[self.slot].nbytes)
            self.tma.global_to_shared(view, self.blocks[self.slot], [0, 0], self.full[self.slot])
        self.advance()

    def wait(self):
        self.mbarrier.wait(self.full[self.slot], self.phase)

    def release(self):
        self.mbarrier.arrive(self.empty[self.slot], by="warp")

    def advance(self):
        self.slot, self.phase = self.ring_next(self.slot, self.phase, self.depth)

    def use(self):
        self.wait()
        self.release()
        self.advance()

    def take(self, slot, phase):
        self.mbarrier.wait(self.full[slot], phase)
        self.mbarrier.arrive(self.empty[slot], by="warp")

class Late(Script):
    def __call__(self, x_ptr: ~bfloat16, f_ptr: ~int32, o_ptr: ~float32, m: int32, n: int32):
        self.attrs.blocks = [BLOCKS]
        self.attrs.warps = 8
        g = self.global_view(x_ptr, dtype=bfloat16, shape=[64, 64])
        out = self.global_view(o_ptr, dtype=float32, shape=[m * 64, 64])
"""
TWO_TASKS = """
q = Ring(2)
with self.thread_group(128, 32, name="producer"):
{}
with self.thread_group(0, 128, name="consumer"):
{}
"""

# Two groups, or two CTAs, that run one loop.
REPLICAS = """
with self.thread_group(0, 128, replicas=2, name="both") as group:
    x: int32 = 1
    while x < m:
{}
"""
CTAS = """
self.attrs.cluster_blocks = 2
peer = self.cluster.blockRank ^ 1
done = self.mbarrier.alloc([1, 1])
self.cluster.sync()
with self.single_warp(0), self.single_thread():
    for t in range(m):
{}
        self.mbarrier.wait(done[t % 2], t // 2 % 2, scope="cluster")
self.cluster.sync()
"""
UNLIKE = {
    "groups that go on by numbers of their own": (
        REPLICAS,
        "self.named_barrier.sync(4, 256)\nx = x * 2 + {}",
        "group * (x // 128)",
        "0",
    ),
    "groups with an inner loop by numbers of their own": (
        REPLICAS,
        "for j in range(n - {}):\n    self.named_barrier.sync(4, 256)\nx = x * 2",
        "group * (x // 3000)",
        "group * 0",
    ),
    "CTAs, one of which leaves out an arrival": (
        CTAS,
        "if (t != 40) | (peer > {}):\n    self.mbarrier.arrive_remote(done[t % 2], peer)",
        "0",
        "-1",
    ),
}

STORES = {
    "tiles that overlap from the 90th on": (
        "n",
        "x = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)\n"
        "for t in range(self.blockIdx.x, m, n):\n"
        "    self.store_global(out, x + t.to(float32), offsets=[t * 64 - {}, 0])",
        "t // 90",
        "0",
    ),
    "tiles that overlap from the 40th block on, where there are so many rows": (
        "n",
        "x = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)\n"
        "at = self.blockIdx.x - {}\n"
        "self.store_global(out, x + self.blockIdx.x.to(float32), offsets=[at * 64, 0])",
        "self.blockIdx.x // 40",
        "0",
    ),
    "a fence between the proxies up to the 20th": (
        "1",
        "s = self.shared_tensor(dtype=float32, shape=[64, 64])\nfull = self.mbarrier.alloc([1])\n"
        "x = self.register_tensor(dtype=float32, shape=[64, 64], init=1.0)\n"
        "for t in range(m):\n    self.store_global(out, x, offsets=[t * 64, 0])\n{}\n    self.sync()\n"
        "    with self.single_thread():\n        self.mbarrier.arrive_and_expect_tx(full, s.nbytes)\n"
        "        self.tma.global_to_shared(out, s, [t * 64, 0], full)\n    self.mbarrier.wait(full, t % 2)\n"
        "    x = x + self.load_shared(s)\n    self.sync()\n",
        '    if t < 20:\n        self.fence.proxy_async("global")',
        '    self.fence.proxy_async("global")',
    ),
}


def verdict(folder: Path, blocks: str, body: str) -> Verdict:
    path = folder / "late.py"
    path.write_text(HEAD.replace("BLOCKS", blocks) + textwrap.indent(body, " " * 8))
    spec = importlib.util.spec_from_file_location("late", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    script: Any = module.Late()
    x, f, out = np.zeros((64, 64), ml_dtypes.bfloat16), np.zeros(64, np.int32), np.zeros(64, "f4")
    request = script._request(script.bind([x, f, out, 7, 5], {}), "sm_90a")
    return check(script._lowered(request).placed).verdict


def of_ring(name: str, which: int) -> tuple[str, str]:
    producer, consumer, *numbers = RINGS[name]
    parts = (part.replace("{}", numbers[which]) for part in (producer, consumer))
    return "1", TWO_TASKS.format(*(textwrap.indent(part, " " * 4) for part in parts))


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.each(2)
def test_a_late_mistake_is_not_proved(name: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, *of_ring(name, 0)) is not Verdict.PROVED


@pytest.mark.parametrize("name", every(2, [*RINGS]))
@pytest.mark.each(2)
def test_the_same_without_it_is_proved(name: str, tmp_path: Path) -> None:
    assert verdict(tmp_path, *of_ring(name, 1)) is Verdict.PROVED


@pytest.mark.parametrize("name", UNLIKE)
def test_groups_and_ctas(name: str, tmp_path: Path) -> None:
    template, body, mistake, right = UNLIKE[name]
    blocks = "2" if template is CTAS else "1"

    def judged(number: str) -> Verdict:
        inside = textwrap.indent(body.replace("{}", number), " " * 8)
        return verdict(tmp_path, blocks, template.format(inside))

    assert judged(mistake) is not Verdict.PROVED
    assert judged(right) is Verdict.PROVED


@pytest.mark.parametrize("name", STORES)
@pytest.mark.each(2)
def test_global_memory(name: str, tmp_path: Path) -> None:
    blocks, body, mistake, right = STORES[name]
    assert verdict(tmp_path, blocks, body.replace("{}", mistake)) is not Verdict.PROVED
    assert verdict(tmp_path, blocks, body.replace("{}", right)) is Verdict.PROVED
