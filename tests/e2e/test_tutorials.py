"""Kernels of Triton's tutorials, from source to PLACED: right, proved, and specialized where they say so; for every
chip (all but sm_90a's in `make test-all`) right, proved, and built without spills."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from corpus import tutorials
from tests.conftest import THOROUGH
from tests.e2e import road
from tests.pairwise import diagonals
from warploom.runtime.compiled import CompiledKernel
from warploom.target import TARGETS

OTHERS = [name for name in TARGETS if name not in ("sm_90a", "sm_121a")]
pytestmark = [
    pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning"),
]
BF16 = ml_dtypes.bfloat16


@pytest.fixture(params=["sm_90a", *(pytest.param(t, marks=pytest.mark.thorough) for t in OTHERS)])
def target(request: pytest.FixtureRequest) -> str:
    if request.param == "sm_90a":
        request.getfixturevalue("without_nvrtc")
    return str(request.param)


def whole(*shape: int, dtype: Any = BF16) -> Any:
    rng = np.random.default_rng(sum(shape))
    return road.filled(rng.integers(-2, 3, shape).astype(np.float32), dtype)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return road.filled(np.random.default_rng(sum(shape)).standard_normal(shape), dtype)


def lead(a: Any) -> int:
    return int(a.strides[0]) // int(a.itemsize)


def own(compiled: CompiledKernel) -> bool:
    """Is it for the chip whose forms and figures are known?"""
    return compiled.placed.target.name == "sm_90a"


def proved(
    compiled: CompiledKernel,
    specialized: bool,
    args: Sequence[Any] = (),
    grid: Any = None,
    left_open: Sequence[str] = (),
) -> None:
    """args, grid: the launch that global memory is decided for, where no claim is made of all launches.
    left_open: parts of the reasons for which it may be not proved."""
    if own(compiled):
        assert compiled.schedule.specialized == specialized
    else:
        assert compiled.resources.problems() == ()
    report = compiled.check(*args, grid=grid)
    assert not report.failures and report.runs, str(report)
    assert all(any(x in u.reason for x in left_open) for u in report.unproved), str(report)


@pytest.mark.parametrize("groups", [None, 2, 0])
@pytest.mark.parametrize("activation", ["leaky", ""])
@pytest.mark.each(2)
def test_matmul(groups: int | None, activation: str, target: str) -> None:
    m, n, k = 200, 136, 160
    a, b, c = whole(m, k), whole(k, n), road.array((m, n), np.float32)
    args = [a, b, c, m, n, k, lead(a), 1, lead(b), 1, lead(c), 1]
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "ACTIVATION": activation}
    meta["target"] = target
    if groups is not None:
        meta["num_consumer_groups"] = groups
    compiled, found = road.check_equal(tutorials.matmul, args, 6, meta)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    if activation:
        wanted = np.where(wanted >= 0, wanted, np.float32(0.01) * wanted.astype(np.float32))
    np.testing.assert_array_equal(found[2], wanted.astype(np.float32))
    proved(compiled, groups != 0)


@pytest.mark.parametrize(("subtile", "ws"), diagonals(2, [True, False], [True, False]))
@pytest.mark.each(2)
def test_persistent_matmul(subtile: bool, ws: bool, target: str) -> None:
    m, n, k = 300, 256, 192
    a, b, c = whole(m, k), whole(n, k), road.array((m, n), BF16)
    meta = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "NUM_SMS": 3}
    meta |= {"SUBTILE": subtile, "WARP_SPECIALIZE": ws, "target": target}
    args = [a, b, c, m, n, k]
    compiled, found = road.check_equal(tutorials.matmul_persistent, args, 3, meta)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_array_equal(found[2], wanted.astype(np.float32).astype(BF16))
    # The grid has to be NUM_SMS programs at most, which nothing in the kernel says.
    proved(compiled, ws, args, 3)
    assert not own(compiled) or {s.via for s in compiled.schedule.stores} == {"tma"}


@pytest.mark.parametrize(
    "knobs", [{"num_consumer_groups": 1}, {"num_consumer_groups": 0}, {"ALIGNED": True}, {}]
)
@pytest.mark.each(2)
def test_grouped_matmul(knobs: dict[str, int], target: str) -> None:
    """Sizes and places from memory: addresses in registers, a while around the loop, and still a producer."""
    sizes = np.array([[128, 128, 64], [256, 64, 128], [128, 192, 64]], np.int32)
    a = [whole(m, k) for m, _, k in sizes]
    b = [whole(k, n) for _, n, k in sizes]
    extents = np.array(
        [[x.size, y.size, m * n] for x, y, (m, n, _) in zip(a, b, sizes, strict=True)]
    )
    starts = np.cumsum(extents, axis=0) - extents

    def flat(parts: list[Any]) -> Any:
        return road.filled(np.concatenate([x.astype(np.float32).ravel() for x in parts]), BF16)

    c = road.array((int(extents[:, 2].sum()),), np.float32)
    args = [flat(a), flat(b), c, *(road.filled(x.ravel(), np.int32) for x in (starts, sizes)), 3]
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "NUM_SM": 2, "target": target, **knobs}
    compiled, found = road.check_equal(tutorials.grouped_matmul, args, 2, meta)
    wanted = [
        (x.astype(np.float64) @ y.astype(np.float64)).ravel() for x, y in zip(a, b, strict=True)
    ]
    np.testing.assert_array_equal(found[2], np.concatenate(wanted))
    # Not every group has a tile for each program: longer loops over groups were not seen to recur, and whether
    # the first copy of a group by pointers comes at all follows from a size in memory.
    left_open = (
        "no input was found that makes it run",
        "no recurrence was seen of longer loops",
        "no input was found that flips this condition",
    )
    if not own(compiled):
        assert compiled.resources.problems() == ()
    if THOROUGH and (own(compiled) or not knobs):  # a check takes ten seconds
        proved(compiled, knobs.get("num_consumer_groups") != 0, args, 2, left_open)
    if not own(compiled):
        return
    assert compiled.schedule.specialized == (knobs.get("num_consumer_groups") != 0)
    assert bool(re.search(r"cp_async(_if)?<16>\(", compiled.cuda)) == bool(knobs.get("ALIGNED"))


@pytest.mark.parametrize("columns", [128, 100])
def test_softmax(columns: int, target: str) -> None:
    x, out = normal(5, columns), road.array((5, columns), np.float32)
    args = [out, x, lead(x), lead(out), 5, columns]
    meta = {"BLOCK_SIZE": 128, "STAGES": 4, "target": target}
    compiled, found = road.check_equal(tutorials.softmax, args, 2, meta)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found[0], e / e.sum(1, keepdims=True), rtol=1e-5)
    proved(compiled, False)


def test_layer_norm(target: str) -> None:
    x, w, b = normal(4, 300, dtype=np.float16), normal(300, dtype=np.float16), normal(300)
    y, mean, rstd = road.array((4, 300), np.float16), *(road.array((4,), np.float32) for _ in "ab")
    args = [x, y, w, b, mean, rstd, lead(x), 300, 1e-5]
    meta = {"BLOCK_SIZE": 128, "target": target}
    compiled, found = road.check_equal(tutorials.layer_norm, args, 4, meta)
    exact = x.astype(np.float64)
    hat = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found[1], hat * w.astype(np.float64) + b, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found[4], exact.mean(1), rtol=1e-4, atol=1e-6)
    proved(compiled, False)


def test_layer_norm_backward(target: str) -> None:
    x, dy, w = normal(6, 100), normal(6, 100) + np.float32(1), normal(100)
    dy = road.filled(dy, np.float32)
    mean, rstd = (road.filled(v, np.float32) for v in (x.mean(1), 1 / np.sqrt(x.var(1) + 1e-5)))
    sums = [road.filled(np.zeros(200), np.float32) for _ in range(2)]
    lock = road.filled(np.zeros(4), np.int32)
    dx = road.array((6, 100), np.float32)
    args = [dx, dy, *sums, x, w, mean, rstd, lock, lead(x), 100]
    meta = {"GROUP_SIZE_M": 2, "BLOCK_SIZE_N": 128, "target": target}
    compiled = road.compile_for(tutorials.layer_norm_backward, args, 6, meta)
    hat = (x.astype(np.float64) - mean[:, None]) * rstd[:, None]
    wdy = dy.astype(np.float64) * w
    c1, c2 = (np.mean(v, axis=1, keepdims=True) for v in (hat * wdy, wdy))
    for found in (road.expected_of(compiled, args, 6), road.simulated(compiled, args, 6)):
        np.testing.assert_allclose(found[0], (wdy - hat * c1 - c2) * rstd[:, None], atol=1e-4)
        for row in range(2):
            part = slice(100 * row, 100 * row + 100)
            np.testing.assert_allclose(found[2][part], (dy * hat)[row::2].sum(0), atol=1e-4)
            np.testing.assert_allclose(found[3][part], dy[row::2].sum(0), atol=1e-4)


@pytest.mark.parametrize(("stage", "ws"), diagonals(2, [3, 1], [True, False, None]))
@pytest.mark.each(2)
def test_attention(stage: int, ws: bool | None, target: str) -> None:
    heads, seq, d = 2, 256, 64
    q, k, v = (normal(heads * seq, d, dtype=BF16) for _ in range(3))
    q = road.filled(np.roll(q.astype(np.float32), 7, axis=0), BF16)
    out, m = road.array((heads * seq, d), BF16), road.array((heads * seq,), np.float32)
    args = [d**-0.5, m, 1, heads, q, k, v, out, seq]
    meta = {"HEAD_DIM": d, "BLOCK_M": 128, "BLOCK_N": 64, "STAGE": stage, "WARP_SPECIALIZE": ws}
    meta["target"] = target
    grid = (seq // 128, heads)
    compiled = road.compile_for(tutorials.attention, args, grid, meta)
    for found in (
        road.expected_of(compiled, args, grid),
        *(road.simulated(compiled, args, grid, order) for order in road.default_orders()),
    ):
        for h in range(heads):
            part = slice(h * seq, (h + 1) * seq)
            s = q[part].astype(np.float64) @ k[part].astype(np.float64).T * d**-0.5
            if stage == 3:
                s = np.where(np.tril(np.ones((seq, seq), bool)), s, -np.inf)
            p = np.exp(s - s.max(1, keepdims=True))
            wanted = p / p.sum(1, keepdims=True) @ v[part].astype(np.float64)
            error = found[7][part].astype(np.float64) - wanted
            assert np.linalg.norm(error) < 0.005 * np.linalg.norm(wanted)
    proved(compiled, ws is not False)
    if not own(compiled):
        return
    loops = {p.loop for p in compiled.schedule.pipelines}
    assert loops == (set() if ws is False else {"loop0", "loop1"} if stage == 3 else {"loop0"})
