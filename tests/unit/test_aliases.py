"""Launches whose arrays share memory: checked as one array, refused by variants that take them apart."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom import Script
from warploom.check import Place, Verdict
from warploom.check.aliases import shared_memory
from warploom.errors import LaunchError
from warploom.language import float32, int32

pytestmark = pytest.mark.usefixtures("without_nvrtc")


@wl.jit
def neighbours(x: Any, o: Any, n: Any) -> None:
    """Each block becomes the one that is n further on."""
    p, i = tl.program_id(0), tl.arange(0, 64)
    tl.store(o + p * 64 + i, tl.load(x + (p + n) * 64 + i))


WHOLE = np.zeros(64 * 32, np.float32)
HALVES = {"front": WHOLE[: 64 * 16], "behind": WHOLE[64 * 16 :], "from 64 on": WHOLE[64 : 64 * 17]}
HALVES |= {"odd": WHOLE[1 : 64 * 16], "bits": WHOLE.view(np.int32)[: 64 * 16]}


@pytest.mark.parametrize(
    ("x", "o", "n", "verdict"),
    [
        ("front", "front", 1, Verdict.BROKEN),
        ("front", "front", 0, Verdict.PROVED),  # in place
        ("front", "front", 8, Verdict.PROVED),  # what the grid does not reach
        ("front", "behind", 1, Verdict.PROVED),
        ("front", "from 64 on", 1, Verdict.PROVED),  # in place, by way of another address
        ("from 64 on", "front", 0, Verdict.BROKEN),
        ("odd", "front", 0, Verdict.BROKEN),
        ("bits", "front", 0, Verdict.NOT_PROVED),
        ("bits", "behind", 0, Verdict.PROVED),
    ],
)
def test_arrays_that_share_memory_are_one(x: str, o: str, n: int, verdict: Verdict) -> None:
    args = (HALVES[x], HALVES[o], n)
    report = neighbours.compile_for(*args, grid=(8,)).check(*args, grid=(8,))
    assert report.verdict is verdict, str(report)
    if verdict is Verdict.PROVED and o != "behind":
        assert "do not overlap (but " in str(report)
    if verdict is Verdict.NOT_PROVED:
        assert "x and o share memory" in str(report) or "o and x share memory" in str(report)


def test_arrays_share_by_way_of_a_third() -> None:
    places = (Place(0, 0, 40), None, Place(60, 60, 100), Place(32, 32, 64), Place(200, 200, 200))
    assert shared_memory(places) == ({0: 0, 2: 60, 3: 32},)
    assert not shared_memory((*places[:3], Place(40, 40, 60)))


class Moved(Script):
    def __call__(self, x_ptr: ~float32, o_ptr: ~float32, n: int32) -> None:
        self.attrs.blocks = n
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1024])
        g_o = self.global_view(o_ptr, dtype=float32, shape=[1024])
        at = self.blockIdx.x * 64
        block = self.load_global(g_x, offsets=[at + 64], shape=[64])
        self.store_global(g_o, block, offsets=[at])


def test_a_script_is_checked_for_the_arrays_of_its_launch() -> None:
    x, o = np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    assert Moved().check(x, o, 8).ok
    report = Moved().check(x, x, 8)
    assert report.verdict is Verdict.BROKEN and report.diagnostics[0].code == "global-race"


@wl.jit
def product(a: Any, b: Any, c: Any, K: Any, N: tl.constexpr) -> None:
    i, k = tl.arange(0, N), tl.arange(0, 64)
    acc = tl.zeros((N, N), dtype=tl.float32)
    for step in range(tl.cdiv(K, 64)):
        x = tl.load(a + i[:, None] * K + (step * 64 + k)[None, :])
        y = tl.load(b + (step * 64 + k)[:, None] * N + i[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + i[:, None] * N + i[None, :], acc.to(tl.bfloat16))


def test_a_variant_that_loads_ahead_refuses_arrays_that_overlap() -> None:
    a, b, c = (np.zeros((64, 64), ml_dtypes.bfloat16) for _ in range(3))
    apart = product.compile_for(a, b, c, 64, N=64, grid=(1,))
    with pytest.warns(wl.errors.WarploomWarning, match="c and a overlap"):
        together = product.compile_for(a, b, a, 64, N=64, grid=(1,))
    assert apart.plan.disjoint and not together.plan.disjoint
    for ask in (apart.simulate, apart.check, apart.timeline):
        ask(a, b, c, 64, grid=(1,))
        with pytest.raises(LaunchError, match="share memory") as refused:
            ask(a, b, a, 64, grid=(1,))
        assert refused.value.code == "variant-argument"
    with pytest.raises(LaunchError, match="share memory"):
        apart[(1,)](a, b, b, 64)
    together.simulate(a, b, a, 64, grid=(1,))
