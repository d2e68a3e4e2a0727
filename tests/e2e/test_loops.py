"""Loops and branches that are not a plain product's: specialized, equal to a float64 reference at every level, bit
for bit, and proved; loops of no step and of one among them.  What can't be specialized says why."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.e2e import loops, road
from tests.pairwise import diagonals
from warploom.ir.ops import mbarrier
from warploom.runtime.compiled import CompiledKernel

pytestmark = [
    pytest.mark.usefixtures("without_nvrtc"),
    pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning"),
]
BF16 = ml_dtypes.bfloat16
BM, BN, BK = 128, 64, 64
KNOBS = {
    "two": {"num_consumer_groups": 2},
    "one-shallow": {"num_consumer_groups": 1, "num_buffers_warp_spec": 1},
    "uniform": {"num_consumer_groups": 0},
}
Blocks = list[Any]
Wanted = Callable[[Blocks, Blocks, int], Any]


def masked(b: Any) -> Any:
    return np.where(np.arange(BK)[:, None] <= np.arange(BN)[None, :], b, 0)


def _sum(terms: Any) -> Any:
    return sum(terms, np.zeros((BM, BN)))


def _two_phases(a: Blocks, b: Blocks, cut: int) -> Any:
    first = _sum(x @ y for x, y in zip(a[:cut], b[:cut], strict=True))
    return first + _sum(x @ masked(y) for x, y in zip(a[cut:], b[cut:], strict=True))


def _plain_phases(a: Blocks, b: Blocks, cut: int) -> Any:
    p = [x @ y for x, y in zip(a, b, strict=True)]
    return 2 * _sum(p[:cut]) + _sum(p[cut:])


def _rescaled(a: Blocks, b: Blocks, cut: int) -> Any:
    acc = np.zeros((BM, BN))
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        acc = (-acc if i >= cut else acc) + x @ y
    return acc


def _signed(a: Blocks, b: Blocks, cut: int) -> Any:
    return _sum((1 if i < cut else -1) * (x @ y) for i, (x, y) in enumerate(zip(a, b, strict=True)))


def _whole(a: Blocks, b: Blocks, cut: int) -> Any:
    return _sum(x @ y for x, y in zip(a, b, strict=True))


def _column_sums(a: Blocks, b: Blocks, cut: int) -> Any:
    p = [x @ y for x, y in zip(a, b, strict=True)]
    return _sum(d - d.sum(0) for d in p)


def _nested(a: Blocks, b: Blocks, cut: int) -> Any:
    return _whole(a, b, cut) * ((cut + 1) % 2)


def _while_some(a: Blocks, b: Blocks, cut: int) -> Any:
    taken = [2**i - 1 for i in range(8) if 2**i - 1 < len(a)]
    return _sum(a[i] @ b[i] for i in taken)


def _chained(a: Blocks, b: Blocks, cut: int) -> Any:
    pairs = zip(a[cut:], b[cut:], strict=True)
    return sum((np.maximum(x @ y, 0) @ y.T for x, y in pairs), np.zeros((BM, BK)))


CASES: dict[str, Wanted] = {
    "two_phases": _two_phases,
    "plain_phases": _plain_phases,
    "rescaled": _rescaled,
    "either_arm": _signed,
    "twice_on_one": _whole,
    "needed_by_both": _signed,
    "column_sums": _column_sums,
    "nested": _nested,
    "carried_load": _whole,
    "while_some": _while_some,
    "chained": _chained,
}


def run(name: str, steps: int, cut: int, knobs: dict[str, int], rest: int = 0) -> CompiledKernel:
    k = max(0, steps * BK - rest)
    rng = np.random.default_rng(steps + 10 * cut)
    high = 2 if name == "chained" else 3  # its products of products stay exact in bf16
    a = road.filled(rng.integers(-1, high, (BM, k)).astype(np.float32), BF16)
    b = road.filled(rng.integers(-1, high, (k, BN)).astype(np.float32), BF16)
    c = road.array((BM, BK if name == "chained" else BN), np.float32)
    if k == 0:  # rows of something all the same
        a, b = (road.array((16, 16), BF16) for _ in range(2))
    args = [a, b, c, k, cut]
    if name == "needed_by_both":
        order = (np.arange(max(1, steps)) * 3 % max(1, steps)).astype(np.int32) * BK
        args.insert(3, road.filled(order if steps % 3 else np.arange(max(1, steps)) * BK, np.int32))
    meta = {"BM": BM, "BN": BN, "BK": BK, **knobs}
    compiled, found = road.check_equal(getattr(loops, name), args, 1, meta, levels=True)
    padded = [np.zeros((BM, steps * BK)), np.zeros((steps * BK, BN))]
    if k:
        padded[0][:, :k], padded[1][:k] = a, b
    xs = [padded[0][:, i * BK : (i + 1) * BK] for i in range(steps)]
    ys = [padded[1][i * BK : (i + 1) * BK] for i in range(steps)]
    wanted = CASES[name](xs, ys, min(cut, steps))
    if name in ("either_arm", "rescaled", "nested", "needed_by_both"):
        wanted = CASES[name](xs, ys, cut)
    np.testing.assert_array_equal(found[2], wanted)
    return compiled


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        *itertools.product(CASES, ["two"]),
        *diagonals(4, [*CASES], ["one-shallow", "uniform"]),
    ],
)
@pytest.mark.each(2)
def test_loops(name: str, knobs: str) -> None:
    """Five steps, two of them before the cut."""
    compiled = run(name, 5, 2, KNOBS[knobs])
    assert compiled.schedule.specialized == (knobs != "uniform"), compiled.explain()
    report = compiled.check()
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("name", "steps_cut"), diagonals(4, [*CASES], [(0, 0), (1, 0), (1, 1), (2, 1)])
)
@pytest.mark.each(2)
def test_loops_of_few_steps(name: str, steps_cut: tuple[int, int]) -> None:
    steps, cut = steps_cut
    run(name, steps, cut, KNOBS["two"])


@pytest.mark.parametrize("name", ["two_phases", "carried_load", "either_arm"])
def test_the_last_block_may_end_early(name: str) -> None:
    run(name, 3, 1, KNOBS["two"], rest=24)


@pytest.mark.parametrize(
    ("depth", "steps_cut"),
    diagonals(3, [1, 2, 3], [(0, 0), (2, 0), (2, 2), (3, 2), (4, 4), (7, 3)]),
)
@pytest.mark.each(2)
def test_loops_that_follow_share_slots(depth: int, steps_cut: tuple[int, int]) -> None:
    """One ring, whose cursor the second loop takes where the first one left it."""
    steps, cut = steps_cut
    knobs = {"num_consumer_groups": 2, "num_buffers_warp_spec": depth}
    compiled = run("plain_phases", steps, cut, knobs)
    if not steps:  # nothing counts as aligned where there is nothing: no TMA
        return
    (ring,) = compiled.schedule.channels
    assert [len(site) for site in ring.sites] == [2, 2] and ring.depth == depth
    assert len([o for o in compiled.placed.body.ops if o.kind is mbarrier.mbarrier_alloc]) == 2
    report = compiled.check()
    assert report.ok, str(report)


def test_loops_whose_blocks_differ_do_not() -> None:
    """In the second loop B goes through registers: its slots are laid out for that as for the dot, but A and B
    are no longer read by the same op."""
    compiled = run("two_phases", 3, 1, KNOBS["two"])
    assert all(not c.also for c in compiled.schedule.channels if len(c.items) == 2)
