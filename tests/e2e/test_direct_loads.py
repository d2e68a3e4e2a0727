"""Loads of uniform kernels that go straight into registers, and rings of loops of few iterations."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@wl.jit
def gated(a, v, g, o, N: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, MOST: tl.constexpr):
    """A sum of dots of gated blocks, as many as the program's index says, then of rows one by one."""
    i = tl.program_id(0) % MOST
    rows = tl.program_id(0) * 16 + tl.arange(0, 16)
    k = tl.arange(0, BK)
    n = tl.arange(0, BN)
    total = tl.zeros((16, BN), dtype=tl.float32)
    for j in range(0, i):
        x = tl.load(a + rows[:, None] * N + (j * BK + k)[None, :])
        y = tl.load(v + (j * BK + k)[:, None] * BN + n[None, :])
        z = tl.load(g + (j * BK + k)[:, None] * BN + n[None, :])
        total = tl.dot(x, (y * z).to(y.dtype), total)
    for j in range(0, 6):
        total += tl.load(v + j * BN + n).to(tl.float32)[None, :]
    tl.store(o + rows[:, None] * BN + n[None, :], total)


def given(most: int, bk: int, bn: int) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    a = random.standard_normal((16 * most, most * bk)).astype(BF16)
    v, g = (random.standard_normal((most * bk, bn)).astype(BF16) for _ in range(2))
    return a, v, g, np.zeros((16 * most, bn), np.float32), most * bk


def compiled(most: int, bk: int = 16, bn: int = 32, **knobs: Any) -> Any:
    args = given(most, bk, bn)
    return gated.compile_for(*args, BK=bk, BN=bn, MOST=most, grid=(most,), **knobs), args


def direct(made: Any) -> set[str]:
    return {r.subject for r in made.schedule.reasons if r.decision == "loaded into registers"}


def test_few_small_tiles_need_no_shared_memory() -> None:
    made, args = compiled(4, num_consumer_groups=0)
    assert direct(made) == {"loop0/load0", "loop0/load1", "loop0/load2", "loop1/load0"}
    assert not made.schedule.channels
    out = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
    made.simulate(*out[:4], grid=(4,), order="late")
    a, v, g, _, _ = (x.astype(np.float32) if isinstance(x, np.ndarray) else x for x in args)
    w = (v * g).astype(BF16).astype(np.float32)
    for i in range(4):
        wanted = a[16 * i : 16 * i + 16, : 16 * i] @ w[: 16 * i] + v[:6].sum(0)
        np.testing.assert_allclose(out[3][16 * i : 16 * i + 16], wanted, rtol=1e-4, atol=1e-3)
    assert "proved" in str(made.check())


def test_many_iterations_keep_their_ring_but_no_dot_no_ring() -> None:
    made, _ = compiled(7, num_consumer_groups=0)
    assert direct(made) == {"loop1/load0"}
    assert {i for c in made.schedule.channels for i in c.items} == {
        f"loop0/load{n}" for n in range(3)
    }


def test_wide_tiles_keep_their_ring_of_as_many_slots_as_iterations() -> None:
    made, _ = compiled(3, bk=64, bn=128, num_consumer_groups=0, num_stages=4)
    assert {c.depth for c in made.schedule.channels} == {2}
    assert "its loop has no more iterations" in made.explain()


def test_a_producer_is_asked_for() -> None:
    made, _ = compiled(4, num_consumer_groups=1)
    assert not direct(made) and {
        c.depth for c in made.schedule.channels if c.items[0] < "loop1"
    } == {3}
