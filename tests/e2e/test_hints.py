"""Hints in the source, from `tl.range` and `tl.async_task` to PLACED: what they change, that the result
stays the same at every level, and that one which can't be honoured says so with its line."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.pairwise import diagonals
from warploom.errors import CompileError, WarploomWarning
from warploom.ir.core import walk
from warploom.ir.ops import tma
from warploom.runtime.compiled import CompiledKernel
from warploom.schedule.model import ChannelPlan, Reason

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@wl.jit
def hinted(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, OUTER: tl.constexpr = None, FLAT: tl.constexpr = False,
    STAGES: tl.constexpr = None, WS: tl.constexpr = None, UNROLL: tl.constexpr = None,
    ONCE: tl.constexpr = False, STAY: tl.constexpr = False,
) -> None:  # fmt: skip
    """C = A·B, persistent; every hint of both loops is a parameter."""
    columns = tl.cdiv(N, BLOCK_N)
    for t in tl.range(
        tl.program_id(0), tl.cdiv(M, BLOCK_M) * columns, tl.num_programs(0), num_stages=OUTER, flatten=FLAT
    ):  # fmt: skip
        m = t // columns * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        n = t % columns * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in tl.range(
            0, K, BLOCK_K, num_stages=STAGES, warp_specialize=WS, loop_unroll_factor=UNROLL,
            disallow_acc_multi_buffer=ONCE, disable_licm=STAY,
        ):  # fmt: skip
            ka = k + tl.arange(0, BLOCK_K)[None, :]
            kb = k + tl.arange(0, BLOCK_K)[:, None]
            a = tl.load(a_ptr + m * K + ka, mask=(m < M) & (ka < K), other=0.0)
            b = tl.load(b_ptr + kb * N + n, mask=(kb < K) & (n < N), other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + m * N + n, acc, mask=(m < M) & (n < N))


@wl.jit
def grouped(
    a_ptr: Any, b_ptr: Any, bias_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, A: tl.constexpr, B: tl.constexpr, DOT: tl.constexpr,
    BIAS: tl.constexpr, STORE: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B + bias (a matrix); which task does what is a parameter."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        ka = k + tl.arange(0, BLOCK_K)[None, :]
        kb = k + tl.arange(0, BLOCK_K)[:, None]
        with tl.async_task(A):
            a = tl.load(a_ptr + m * K + ka, mask=(m < M) & (ka < K), other=0.0)
        with tl.async_task(B):
            b = tl.load(b_ptr + kb * N + n, mask=(kb < K) & (n < N), other=0.0)
        with tl.async_task(DOT):
            acc = tl.dot(a, b, acc)
    with tl.async_task(BIAS):
        bias = tl.load(bias_ptr + m * N + n, mask=(m < M) & (n < N), other=0.0)
    with tl.async_task(STORE):
        tl.store(c_ptr + m * N + n, acc + bias, mask=(m < M) & (n < N))


@wl.jit
def panels(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, OUTER: tl.constexpr, STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B for short K: a block of rows of A stays while B goes by."""
    k = tl.arange(0, K)
    for t in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.num_programs(0), num_stages=OUTER):
        m = t * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
        a = tl.load(a_ptr + m * K + k[None, :], mask=m < M, other=0.0)
        for start in tl.range(0, N, BLOCK_N, num_stages=STAGES):
            n = start + tl.arange(0, BLOCK_N)[None, :]
            b = tl.load(b_ptr + k[:, None] * N + n, mask=n < N, other=0.0)
            c = tl.dot(a, b)
            tl.store(c_ptr + m * N + n, c, mask=(m < M) & (n < N))


@wl.jit
def two_loops(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B + A·B, the second loop without tasks."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in tl.range(0, K, BLOCK_K, warp_specialize=True):
        ka = k + tl.arange(0, BLOCK_K)[None, :]
        kb = k + tl.arange(0, BLOCK_K)[:, None]
        a = tl.load(a_ptr + m * K + ka, mask=(m < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * N + n, mask=(kb < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc)
    for k in tl.range(0, K, BLOCK_K, warp_specialize=False):
        ka = k + tl.arange(0, BLOCK_K)[None, :]
        kb = k + tl.arange(0, BLOCK_K)[:, None]
        a = tl.load(a_ptr + m * K + ka, mask=(m < M) & (ka < K), other=0.0)
        b = tl.load(b_ptr + kb * N + n, mask=(kb < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m * N + n, acc, mask=(m < M) & (n < N))


TILE = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}
SIZES = (136, 40, 200)


def integers(*shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    return road.filled(rng.integers(-3, 4, shape).astype(np.float32), BF16)


def run(meta: dict[str, Any], quiet: bool = True, prove: bool = False) -> CompiledKernel:
    """`hinted` on integers, against the product; quiet: no warning may come; prove: check() is clean."""
    m, n, k = SIZES
    a, b, c = integers(m, k), integers(k, n), road.array((m, n), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if quiet else "ignore", WarploomWarning)
        compiled, found = road.check_equal(
            hinted, [a, b, c, m, n, k], 2, {**TILE, **meta}, ("late",)
        )
    np.testing.assert_array_equal(found[2], a.astype(np.float64) @ b.astype(np.float64))
    if prove:
        report = compiled.check()
        assert report.ok, str(report)
    return compiled


def tasks(quiet: bool = True, **meta: Any) -> CompiledKernel:
    """`grouped` on integers, against the product."""
    m, n, k = SIZES
    a, b, bias, c = integers(m, k), integers(k, n), integers(m, n), road.array((m, n), np.float32)
    given = {"A": (0,), "B": (0,), "DOT": (1, 2), "BIAS": (1, 2), "STORE": (1, 2), **TILE, **meta}
    with warnings.catch_warnings():
        warnings.simplefilter("error" if quiet else "ignore", WarploomWarning)
        compiled, found = road.check_equal(
            grouped, [a, b, bias, c, m, n, k], (2, 2), given, ("late",)
        )
    wanted = a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64)
    np.testing.assert_array_equal(found[3], wanted)
    report = compiled.check()
    assert report.ok, str(report)
    return compiled


def channels(compiled: CompiledKernel) -> tuple[ChannelPlan, ...]:
    return compiled.schedule.channels


def reasons(compiled: CompiledKernel, word: str, warn: bool) -> list[Reason]:
    found = [r for r in compiled.schedule.reasons if word in r.decision + r.because]
    assert all(r.warn == warn for r in found), found
    return found


WS_KNOBS = {"num_consumer_groups": 2, "num_buffers_warp_spec": 2}
PLAIN = {"num_consumer_groups": 0, "num_stages": 2}


@pytest.mark.parametrize(
    ("knobs", "stages"), diagonals(2, [WS_KNOBS, PLAIN, {"num_stages": 2}], [1, 4])
)
@pytest.mark.each(2)
def test_num_stages_of_a_loop_is_the_depth_of_its_rings(knobs: dict[str, int], stages: int) -> None:
    compiled = run({"STAGES": stages, **knobs}, prove=True)
    assert {c.depth for c in channels(compiled)} == {stages}
    assert "num_stages of its loop" in compiled.explain()


def test_a_flattened_loop_speaks_for_the_loop_in_it() -> None:
    compiled = run({"OUTER": 3, "FLAT": True, **WS_KNOBS})
    assert {c.depth for c in channels(compiled)} == {3}
    assert reasons(compiled, "flat already", False)
    own = run({"OUTER": 3, "FLAT": True, "STAGES": 4, **WS_KNOBS}, quiet=False)
    assert {c.depth for c in channels(own)} == {4}
    assert reasons(own, "one stage instead of 3", True)


def test_a_ring_of_the_outer_loop() -> None:
    """The left operand of a persistent kernel's tile, loaded once a tile: by itself one slot."""
    m, n, k = 300, 72, 64
    a, b, c = integers(m, k), integers(k, n), road.array((m, n), np.float32)
    for outer, knobs, depths in ((None, WS_KNOBS, [1, 2]), (2, WS_KNOBS, [2, 2]), (3, {}, [3, 4])):
        meta = {"OUTER": outer, "STAGES": max(depths) if not knobs else None, "BLOCK_M": 128}
        meta |= {"BLOCK_N": 32, "K": k, **knobs}
        args = [a, b, c, m, n]
        compiled, found = road.check_equal(panels, args, 2, meta, levels=True)
        np.testing.assert_array_equal(found[2], a.astype(np.float64) @ b.astype(np.float64))
        assert sorted(x.depth for x in channels(compiled)) == depths
        assert compiled.check().ok
    with pytest.warns(WarploomWarning, match="only innermost loops run ahead"):
        road.compile_for(panels, args, 2, {**meta, **PLAIN})


def test_loops_of_one_kernel_may_disagree_about_tasks() -> None:
    """The loop that refuses has its loads in the consumers, the other one a producer."""
    m, n, k = SIZES
    a, b, c = integers(m, k), integers(k, n), road.array((m, n), np.float32)
    args = [a, b, c, m, n, k]
    compiled, found = road.check_equal(two_loops, args, (2, 2), TILE, levels=True)
    np.testing.assert_array_equal(found[2], 2 * (a.astype(np.float64) @ b.astype(np.float64)))
    assert compiled.schedule.specialized and sum(len(x.items) for x in channels(compiled)) == 2
    assert len(reasons(compiled, "warp_specialize=False", False)) == 2
    assert compiled.check().ok


def test_a_loop_may_refuse_tasks() -> None:
    compiled = run({"WS": False})
    assert not compiled.schedule.specialized and {c.producer for c in channels(compiled)} == {
        "loads"
    }
    assert reasons(compiled, "warp_specialize=False", False)
    against = run({"WS": False, "num_consumer_groups": 2}, quiet=False)
    assert not against.schedule.specialized
    assert reasons(against, "warp_specialize=False", True)


def test_a_loop_may_ask_for_tasks() -> None:
    assert run({"WS": True}).schedule.specialized
    assert not run({"WS": True, **PLAIN}).schedule.specialized  # the launch's word is the last


@pytest.mark.parametrize("knobs", [WS_KNOBS, PLAIN])
def test_a_loop_is_unrolled(knobs: dict[str, int]) -> None:
    plain, four = run(knobs), run({"UNROLL": 4, **knobs})
    assert "#pragma unroll 4" in four.cuda and "#pragma unroll 4" not in plain.cuda
    assert run({"UNROLL": 0, **knobs}).cuda.count("#pragma unroll 1") > 0


def test_accumulators_have_one_buffer() -> None:
    assert reasons(run({"ONCE": True}), "one buffer already", False)


CANNOT: list[tuple[dict[str, Any], str, str]] = [
    ({"OUTER": 3, **WS_KNOBS}, "no load in it runs ahead", "for t in tl.range("),
    ({"FLAT": True, **PLAIN}, "not flattened", "for t in tl.range("),
    ({"STAY": True, **WS_KNOBS}, "against disable_licm", "for k in tl.range("),
    ({"STAGES": 30, **PLAIN}, "stages instead of 30", "a = tl.load"),
]


@pytest.mark.parametrize("case", CANNOT, ids=lambda c: c[1])
def test_what_a_loop_cannot_have_is_a_warning_with_its_line(case: tuple[Any, ...]) -> None:
    meta, says, line = case
    m, n, k = SIZES
    args = [integers(m, k), integers(k, n), road.array((m, n), np.float32), m, n, k]
    with pytest.warns(WarploomWarning, match=says) as caught:
        road.compile_for(hinted, args, 2, {**TILE, **meta})
    assert any(line.split("(")[0] in str(w.message) for w in caught)
    with pytest.raises(CompileError, match=says) as strict:
        road.compile_for(hinted, args, 2, {**TILE, **meta, "strict": True})
    error = strict.value
    assert error.code == "not-as-asked" and error.help and error.loc is not None
    text = Path(error.loc.file).read_text().splitlines()
    assert line in text[error.loc.line - 1] + "(" or "tl.range(" in text[error.loc.line - 1]


def test_no_slot_and_too_many_slots() -> None:
    for stages, code, advice in ((0, "depth", "num_stages=3"), (30, "shared-memory", "its loop")):
        with pytest.raises(CompileError) as caught:
            run({"STAGES": stages, **WS_KNOBS})
        error = caught.value
        assert error.code == code and error.help is not None and advice in error.help
        assert error.loc is not None and "tl.range(" in str(error)


# ---- tl.async_task


def test_loads_and_dots_in_tasks_of_their_own() -> None:
    compiled = tasks()
    assert compiled.schedule.specialized and compiled.schedule.split.count == 2
    assert len(reasons(compiled, "issued by the producer", False)) == 2


def test_a_load_that_feeds_no_dot_may_be_the_producers() -> None:
    compiled = tasks(BIAS=(0,))
    assert sum(len(c.items) for c in channels(compiled)) == 3
    assert sum(len(c.items) for c in channels(tasks())) == 2


def test_a_load_may_stay_with_the_dots() -> None:
    compiled = tasks(A=(1, 2))
    assert sum(len(c.items) for c in channels(compiled)) == 1
    assert reasons(compiled, "task of the dots", False)


def test_one_task_for_all_is_a_uniform_kernel() -> None:
    one = (1,)
    compiled = tasks(A=one, B=one, DOT=one, BIAS=one, STORE=one)
    assert not compiled.schedule.specialized and channels(compiled)


def test_the_dots_numbers_are_the_groups() -> None:
    assert tasks(DOT=(1,), BIAS=(1,), STORE=(1,), num_consumer_groups=1).schedule.split.count == 1
    fewer = tasks(num_consumer_groups=1)  # the launch's word is the last
    assert fewer.schedule.split.count == 1 and reasons(fewer, "not 2 groups", False)
    uniform = tasks(num_consumer_groups=0)
    assert not uniform.schedule.specialized
    assert reasons(uniform, "against tl.async_task([0])", False)


@pytest.mark.parametrize(
    ("groups", "says", "line"),
    [
        ({"B": (3,)}, "not by a task of its own", "b = tl.load"),
        ({"STORE": (3,)}, "run by the consumers", "tl.store"),
    ],
)
def test_tasks_that_there_are_not(groups: dict[str, Any], says: str, line: str) -> None:
    compiled = tasks(quiet=False, **groups)
    (told,) = reasons(compiled, says, True)
    (text,) = [w for w in compiled.warnings if says in w]
    assert line in text and told.subject in text
    with pytest.raises(CompileError, match=says) as caught:
        tasks(strict=True, **groups)
    assert caught.value.code == "not-as-asked"


def test_tasks_of_a_kernel_without_dots() -> None:
    @wl.jit
    def copy(x_ptr: Any, y_ptr: Any, BLOCK: tl.constexpr) -> None:
        for i in tl.range(0, 4, num_stages=2, warp_specialize=True):
            at = i * BLOCK + tl.arange(0, BLOCK)
            with tl.async_task([0]):
                x = tl.load(x_ptr + at)
            tl.store(y_ptr + at, x)

    x, y = road.filled(np.arange(256.0), np.float32), road.array((256,), np.float32)
    with pytest.warns(WarploomWarning) as caught:
        compiled, found = road.check_equal(copy, [x, y], 1, {"BLOCK": 64})
    np.testing.assert_array_equal(found[1], x)
    told = "\n".join(str(w.message) for w in caught)
    assert "against tl.range" in told and "against tl.async_task" in told
    assert len(compiled.warnings) == 2
    assert [p.distance for p in compiled.schedule.pipelines] == [1]  # two stages, in registers


@wl.jit
def cached(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any, BLOCK_M: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B with a cache policy for each: A by pointers, B and C by block pointers."""
    first = tl.program_id(0) * BLOCK_M
    m = first + tl.arange(0, BLOCK_M)[:, None]
    b = tl.make_block_ptr(b_ptr, (K, N), (N, 1), (0, 0), (64, 128), (1, 0))
    c = tl.make_block_ptr(c_ptr, (M, N), (N, 1), (first, 0), (BLOCK_M, 128), (1, 0))
    acc = tl.zeros((BLOCK_M, 128), tl.float32)
    for k in range(0, K, 64):
        ka = k + tl.arange(0, 64)[None, :]
        inside = (m < M) & (ka < K)
        left = tl.load(a_ptr + m * K + ka, mask=inside, other=0.0, eviction_policy="evict_first")
        right = tl.load(b, boundary_check=(0, 1), eviction_policy="evict_last")
        acc = tl.dot(left, right, acc)
        b = tl.advance(b, (64, 0))
    tl.store(c, acc.to(tl.bfloat16), boundary_check=(0, 1), eviction_policy="evict_first")


@pytest.mark.parametrize(
    ("rows", "knobs"),
    [
        (128, {"num_consumer_groups": 2}),
        (128, {"num_consumer_groups": 0}),
        (256, {"num_consumer_groups": 1, "num_ctas": 2}),
    ],
    ids=["specialized", "uniform", "cluster"],
)
def test_a_cache_policy_reaches_the_copies(rows: int, knobs: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    a, b = (road.filled(rng.integers(-3, 4, s), BF16) for s in ((256, 192), (192, 128)))
    args = [a, b, road.array((256, 128), BF16), 256, 128, 192]
    meta = {"BLOCK_M": rows, **knobs}
    compiled, _ = road.check_equal(cached, args, 256 // rows, meta, orders=("late",))
    found = [o for o in walk(compiled.placed.body) if o.kind in (tma.tma_load, tma.tma_store)]
    policies = {(o.kind.name, o.attrs.get("cache_policy")) for o in found}
    loads = {("tma_load", "evict_first"), ("tma_load", "evict_last")}
    assert policies == {*loads, ("tma_store", "evict_first")}
    assert "tma_store_2d_hinted" in compiled.cuda
