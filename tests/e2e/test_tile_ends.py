"""Consumer groups stagger their epilogues: where it is chosen, that it is proved and computes the same."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from warploom.ir.core import Level, walk
from warploom.ir.ops import smem
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@wl.jit
def activated(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, LONG: tl.constexpr,
) -> None:  # fmt: skip
    """C = f(A·Bᵀ), persistent.  f takes special functions where LONG, else a multiplication."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    for t in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tiles_n, tl.num_programs(0)):
        m = t // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        n = t % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(0, tl.cdiv(K, BLOCK_K)):
            k = step * BLOCK_K + tl.arange(0, BLOCK_K)
            a = tl.load(a_ptr + m * K + k[None, :], mask=(m < M) & (k[None, :] < K), other=0.0)
            b = tl.load(b_ptr + n * K + k[:, None], mask=(n < N) & (k[:, None] < K), other=0.0)
            acc = tl.dot(a, b, acc)
        if LONG:
            acc = tl.where(tl.cos(acc) > 2.0, tl.sin(acc), acc) * 0.5
        else:
            acc *= 0.5
        tl.store(c_ptr + m * N + n, acc.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


TILES = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "LONG": True, "num_consumer_groups": 2}


def staggered(meta: dict[str, Any], k: int = 200, m: int = 300, n: int = 272) -> CompiledKernel:
    """Compiled for a call whose results were compared, in all orders of events."""
    rng = np.random.default_rng(k)
    a, b = (
        road.filled(rng.integers(-2, 3, shape).astype(np.float32), BF16)
        for shape in ((m, k), (n, k))
    )
    c = road.array((m, n), BF16)
    compiled, found = road.check_equal(activated, [a, b, c, m, n, k], 2, {**TILES, **meta})
    wanted = (a.astype(np.float32) @ b.astype(np.float32).T) * 0.5
    np.testing.assert_array_equal(found[2], wanted.astype(BF16))
    return compiled


def barriers(compiled: CompiledKernel) -> list[bool]:
    """Of the named barriers, in order: do groups only arrive at it?"""
    ops = walk(compiled.lowered.at(Level.WARP).body)
    return [o.attrs["arrive"] for o in ops if o.kind is smem.named_barrier]


@pytest.mark.parametrize("k", [0, 64, 208])
def test_long_ends_are_taken_in_turns(k: int) -> None:
    compiled = staggered({}, k)
    assert compiled.schedule.staggered_loops == ("loop0.0",)
    assert barriers(compiled) == [True, False, True]  # the first one passed on, taken, passed on
    assert compiled.schedule.channels[0].depth >= 4
    assert "groups stagger their epilogues" in compiled.explain()


def test_it_is_proved() -> None:
    report = staggered({"BLOCK_N": 32, "stagger_epilogues": True}, k=208).check()
    assert report.ok, str(report)


def test_three_groups() -> None:
    compiled = staggered({"BLOCK_M": 192, "num_consumer_groups": 3})
    assert compiled.schedule.staggered_loops
    assert compiled.check().ok


@pytest.mark.parametrize(
    ("meta", "why"),
    [
        ({"LONG": False}, "cycles of a group's arithmetic are not worth a turn"),
        ({"num_buffers_warp_spec": 2}, "a ring of 2 slots doesn't span"),
        ({"stagger_epilogues": False}, "stagger_epilogues=False"),
        ({"BLOCK_M": 256, "num_ctas": 2}, "CTAs of a cluster"),
    ],
    ids=["short", "shallow", "knob", "cluster"],
)
@pytest.mark.each(2)
def test_together(meta: dict[str, Any], why: str) -> None:
    compiled = staggered(meta)
    assert not compiled.schedule.staggered_loops and not barriers(compiled)
    assert why in compiled.explain()


@pytest.mark.parametrize("task", [None, True], ids=["by groups", "by a task"])
@pytest.mark.each(2)
def test_what_leaves_in_chunks_by_the_groups_is_no_turn(task: bool | None) -> None:
    """Long ends ask for a fourth slot all the same."""
    compiled = staggered({"BLOCK_N": 256, "store_task": task}, k=64)
    assert bool(compiled.schedule.staggered_loops) == bool(task)
    assert task or "4 chunks of results, of which each waits for others" in compiled.explain()
    assert compiled.schedule.channels[0].depth == 4
    assert staggered({"BLOCK_N": 256, "stagger_epilogues": True}, k=64).schedule.staggered_loops


def test_the_knob_overrules() -> None:
    assert staggered(
        {"LONG": False, "stagger_epilogues": True, "num_buffers_warp_spec": 2}
    ).schedule.staggered_loops


def test_what_has_no_epilogues_to_stagger() -> None:
    meta = {"num_consumer_groups": 1, "BLOCK_M": 64, "stagger_epilogues": True}
    with pytest.raises(wl.CompileError) as e:
        staggered({**meta, "strict": True})
    assert e.value.code == "not-as-asked" and "stagger" in str(e.value)
    with pytest.warns(wl.WarploomWarning, match="stagger"):
        assert not staggered(meta).schedule.staggered_loops
