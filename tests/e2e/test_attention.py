"""The library's attention: numbers in every order, proof, resources, machine code beside the hand-written one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests import sass
from tests.e2e import road
from tests.e2e.library_attention import CONFIGS, SIGNATURE, compiled
from tests.eject.owned import owned, same_program
from tests.orders import default_orders
from tests.pairwise import every
from tests.softmax import expected
from warploom.errors import LaunchError
from warploom.kernels.attention import (
    ATTENTION_CONFIGS,
    attend,
    attention_forward,
    grid_of,
    launches,
    parts_pay,
    parts_size,
    room_for_parts,
    section_of,
)
from warploom.kernels.explicit.attention import Attention
from warploom.runtime.compiled import CompiledKernel

BF16 = ml_dtypes.bfloat16
LOG2_E = 1.4426950408889634
needs_nvdisasm = pytest.mark.skipif(sass.disassembler() is None, reason="no nvdisasm")


def arguments(heads: int, seq: int, d: int, shared_by: int) -> list[Any]:
    rng = np.random.default_rng(seq)
    q, k, v = (
        road.filled(rng.standard_normal((h, seq, d)).astype(np.float32), BF16)
        for h in (heads, heads // shared_by, heads // shared_by)
    )
    o, lse = road.array((heads, seq, d), BF16), road.array((heads * seq,), np.float32)
    scale = float(np.float32(LOG2_E * d**-0.5))
    counter = road.filled(np.zeros(2), np.int32)
    section = section_of(heads, seq, d, shared_by, 1 << 15)
    return [q, k, v, o, lse, counter, heads, seq, section, scale]


def close(found: list[Any], causal: bool) -> None:
    q, k, v, o, lse, counter = found[:6]
    assert not counter.any()
    wanted, logs = expected(q, k, v, causal)
    error = o.astype(np.float64) - wanted
    assert np.linalg.norm(error) < 6e-3 * np.linalg.norm(wanted)
    assert np.abs(error).max() < 0.02
    np.testing.assert_allclose(lse, logs.ravel(), atol=2e-5)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("heads", "seq", "causal", "options"),
    every(
        3,
        [
            (2, 1, True, {"D": 64, "groups": 2}),
            (2, 100, False, {"D": 128, "groups": 2, "mma_wait_position": 3}),
            (
                4,
                300,
                True,
                {"D": 64, "groups": 3, "GQA_GROUP": 2, "BALANCED_PAIRS": True, "Q_STAGES": 2},
            ),
            (2, 257, True, {"D": 64, "groups": 2, "BLOCK_N": 64, "ping_pong": False}),
            (2, 257, False, {"D": 64, "groups": 2, "BLOCK_N": 80, "num_buffers_warp_spec": 3}),
            (4, 300, True, {"D": 64, "groups": 2, "DYNAMIC": True, "GQA_GROUP": 2}),
            (2, 257, False, {"D": 64, "groups": 3, "DYNAMIC": True, "Q_STAGES": 2}),
            (2, 600, True, {"D": 64, "groups": 2, "DYNAMIC": True, "BALANCED_PAIRS": True}),
            (2, 257, False, {"D": 64, "groups": 3, "DYNAMIC": True, "skip_idle": True}),
            (2, 300, True, {"D": 64, "groups": 3, "DYNAMIC": True, "skip_idle": "masked"}),
            (2, 257, False, {"D": 64, "groups": 2, "consumer_stages": 1, "skip_idle": True}),
            (
                2,
                500,
                True,
                {
                    "D": 64,
                    "groups": 4,
                    "BLOCK_N": 64,
                    "reg_inc_consumer": 112,
                    "skip_idle": "masked",
                },
            ),
            (2, 200, True, {"D": 64, "groups": 1, "BLOCK_N": 96, "consumer_stages": 1}),
            (
                1,
                600,
                False,
                {"D": 64, "groups": 2, "BLOCK_M": 256, "num_ctas": 2, "mma_wait_position": 2},
            ),
        ],
    ),
)
@pytest.mark.each(2)
def test_it_computes_attention(heads: int, seq: int, causal: bool, options: dict[str, Any]) -> None:
    """The oracle and the simulated program are close to float64, in adversarial orders."""
    options = dict(options)
    groups = options.pop("groups")
    meta = {"BLOCK_M": 64 * groups, "BLOCK_N": 128, "CAUSAL": causal, "LSE": True}
    meta |= {"num_consumer_groups": groups, "num_buffers_warp_spec": 2, **options}
    args = arguments(heads, seq, options["D"], options.get("GQA_GROUP", 1))
    grid = grid_of(heads, seq, programs=2)(meta)
    compiled = road.compile_for(attention_forward, args, grid, meta)
    close(road.expected_of(compiled, args, grid), causal)
    for order in default_orders(("late", "early", "reverse")):
        close(road.simulated(compiled, args, grid, order), causal)
    assert bool(compiled.schedule.pipelines) == ("consumer_stages" not in options)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize(
    ("heads", "seq", "programs", "parts", "options"),
    every(
        2,
        [
            (2, 257, 2, 0, {"groups": 2}),  # six tiles for two programs: none is left
            (1, 300, 5, 7, {"groups": 2, "BLOCK_N": 64}),  # fewer tiles than programs
            (2, 384, 5, 3, {"groups": 2}),  # fewer blocks left than programs
            (2, 257, 4, 4, {"groups": 2, "DYNAMIC": True, "Q_STAGES": 2}),
            (2, 300, 3, 3, {"groups": 3, "GQA_GROUP": 2, "Q_STAGES": 2}),
            (1, 600, 4, 4, {"groups": 2, "mma_wait_position": 3, "Q_STAGES": 2}),
        ],
    ),
)
@pytest.mark.each(2)
def test_tiles_in_parts(
    heads: int, seq: int, programs: int, parts: int, options: dict[str, Any]
) -> None:
    """Whole tiles, then shares of those left; both kernels by the oracle, and simulated in adversarial orders."""
    options = {"D": 64, "BLOCK_N": 128, "GQA_GROUP": 1, **options}
    groups = options.pop("groups")
    meta = {"BLOCK_M": 64 * groups, "CAUSAL": False, "LSE": True, "SPLIT_KV_TAIL": True}
    meta |= {"num_consumer_groups": groups, "num_buffers_warp_spec": 2, **options}
    d, block_m = meta["D"], meta["BLOCK_M"]
    args = arguments(heads, seq, d, meta["GQA_GROUP"])
    room = road.array((room_for_parts(heads, seq, d, programs, block_m),), np.float32)
    (main, _, how), *joins = launches(tuple(args), programs, room, **meta)
    grid = how.pop("grid")(meta)
    compiled = road.compile_for(main, args, grid, how)
    for order in ("oracle", "late", "early"):
        found = done(compiled, [*args, room], grid, order)
        ends = found[10].reshape(-1, block_m * (d + 1))
        assert (
            np.isfinite(ends).all(1).sum() == parts
            and np.isnan(ends).all(1).sum() == len(ends) - parts
        )
        for join, (_, _, _, *sizes), its in joins:
            its = dict(its)
            shares = its.pop("grid")
            given = [found[10], found[3], found[4], *sizes]
            of_join = road.compile_for(join, given, shares, its)
            _, found[3], found[4], *_ = done(of_join, given, shares, order)
        close(found, False)


def done(compiled: CompiledKernel, args: list[Any], grid: Any, order: str) -> list[Any]:
    """The arguments after the oracle, or a simulation in that order."""
    if order == "oracle":
        return road.expected_of(compiled, args, grid)
    return road.simulated(compiled, args, grid, order)


def test_parts_where_they_pay() -> None:
    """By the count: of 16 rounds 15.5 are work; a short sequence has less to win than joining takes."""
    assert parts_pay(16, 16384, 132, 128, 128) and parts_pay(64, 4096, 132, 128, 128)
    assert not parts_pay(256, 1024, 132, 128, 128) and not parts_pay(33, 16384, 132, 128, 128)
    assert parts_size(16, 16384, 128, 132) == (132 + 68) * 128 * 129
    assert parts_size(16, 16384, 128, 132, causal=True) == 0
    assert parts_size(256, 1024, 128, 132) == parts_size(33, 16384, 128, 132) == 0


@pytest.mark.parametrize("seq", [100, 384])
def test_the_host_s_function(seq: int) -> None:
    """As the tuner chooses, and in parts."""
    in_parts = next(c for c in ATTENTION_CONFIGS[128, False] if c.kwargs["SPLIT_KV_TAIL"])
    q, k, v, o, lse, counter = arguments(4, seq, 128, 2)[:6]
    attend(q, k, v, o, lse, counter, programs=5, causal=True, want_lse=True)
    close([q, k, v, o, lse, counter], True)
    with pytest.raises(LaunchError, match="elements of float32 are needed for parts, got none"):
        attend(q, k, v, o, lse, counter, programs=5, config=in_parts)
    room = road.array((room_for_parts(4, seq, 128, 5, 128),), np.float32)
    attend(q, k, v, o, lse, counter, room, programs=5, want_lse=True, config=in_parts)
    close([q, k, v, o, lse, counter], False)


@pytest.mark.parametrize(
    "config",
    [pytest.param(c, marks=pytest.mark.thorough if i % 2 else ()) for i, c in enumerate(CONFIGS)],
)
@pytest.mark.each(3)
def test_its_configs_compile_without_spills(config: tuple[int, bool, int]) -> None:
    found = compiled(*config)
    assert found.resources.problems() == ()
    (plan,) = found.schedule.pipelines
    d, causal, index = config
    turns = ATTENTION_CONFIGS[d, causal][index].ping_pong is not False
    assert plan.ping_pong == turns and found.schedule.delayed_reductions


@pytest.mark.parametrize(
    "config",
    [
        pytest.param((128, True, 0), marks=pytest.mark.thorough),
        pytest.param((64, False, 0), marks=pytest.mark.thorough),
        (128, False, 3),
        pytest.param((64, False, 2), marks=pytest.mark.thorough),
    ],
)
def test_it_is_proved(config: tuple[int, bool, int]) -> None:
    """In any order of events; its places for the launch that is asked about.  A share of the tail (128, 3) may
    have parts of two tiles."""
    d, causal, index = config
    heads, seq, programs = 3, 500, 4
    meta = ATTENTION_CONFIGS[d, causal][index].kwargs
    parts = [road.array((room_for_parts(heads, seq, d, programs, meta["BLOCK_M"]),), np.float32)]
    args = [*arguments(heads, seq, d, 1), *(parts if meta["SPLIT_KV_TAIL"] else [])]
    report = compiled(*config).check(*args, grid=grid_of(heads, seq, programs)(meta))
    assert report.ok, str(report)
    halves = {n for loop, n in report.runs_at_most.items() if "over half" in loop}
    assert halves == ({2} if meta["SPLIT_KV_TAIL"] or meta["BALANCED_PAIRS"] else set())


@needs_nvdisasm
@pytest.mark.parametrize(
    ("d", "groups", "eighths"), every(2, [(128, 2, 3), (64, 3, 2), (64, 3, 0)], first=1)
)
def test_its_main_loop_is_the_hand_written_one(d: int, groups: int, eighths: int) -> None:
    """As many instructions of each kind, but for two to scale the sums, which stay in two registers a row."""
    meta = {"D": d, "CAUSAL": False, "GQA_GROUP": 1, "LSE": False}
    meta |= {"BLOCK_M": 64 * groups, "BLOCK_N": 128}
    knobs = {
        "num_consumer_groups": groups,
        "num_buffers_warp_spec": 2,
        "mma_wait_position": eighths,
    }
    ours = attention_forward.compile(signature=SIGNATURE, constexprs=meta, **knobs)
    by_hand = Attention(d=d, groups=groups, eighths=eighths).compile(
        ["*bf16:16"] * 4 + ["*fp32:16", "*i32:16", "i32", "i32", "fp32"]
    )
    mine, theirs = (sass.loops(k.cubin)[0] for k in (ours, by_hand))
    for opcode in ("HGMMA", "MUFU.EX2", "F2FP", "SHFL", "FMNMX", "SYNCS", "BAR", "WARPGROUP"):
        assert mine.count(opcode) == theirs.count(opcode), opcode
    for opcode, more in {"FFMA": 2, "FMUL": 0, "FADD": 0}.items():
        assert mine.count(opcode) <= theirs.count(opcode) + more, opcode
    # Scalars; an accumulator that is copied would be 64 of them.
    assert mine.count("MOV") + mine.count("FSEL") <= 4
    first, held, late = mine.before_waits("MUFU.EX2")
    assert first == 0 and held + late == 66 and abs(held - theirs.before_waits("MUFU.EX2")[1]) <= 4


@wl.jit
def two_phases(
    q_ptr: Any,
    k_ptr: Any,
    v_ptr: Any,
    o_ptr: Any,
    seq: Any,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Causal, without a maximum (scores are small): blocks before the diagonal, then the one on it."""
    row = tl.program_id(0) * BLOCK
    q_desc = tl.make_tensor_descriptor(q_ptr, [seq, D], [D, 1], [BLOCK, D])
    k_desc = tl.make_tensor_descriptor(k_ptr, [seq, D], [D, 1], [BLOCK, D])
    v_desc = tl.make_tensor_descriptor(v_ptr, [seq, D], [D, 1], [BLOCK, D])
    o_desc = tl.make_tensor_descriptor(o_ptr, [seq, D], [D, 1], [BLOCK, D])
    total = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, D], tl.float32)
    q = q_desc.load([row, 0])
    for j in tl.range(0, row, BLOCK):
        p = tl.exp2(tl.maximum(tl.minimum(tl.dot(q, k_desc.load([j, 0]).T), 1.0), -2.0))
        total += tl.sum(p, 1)
        acc = tl.dot(p.to(q.dtype), v_desc.load([j, 0]), acc)
    for j in tl.range(row, tl.minimum(row + BLOCK, seq), BLOCK):
        seen = j + tl.arange(0, BLOCK)[None, :] <= row + tl.arange(0, BLOCK)[:, None]
        p = tl.exp2(tl.maximum(tl.minimum(tl.dot(q, k_desc.load([j, 0]).T), 1.0), -2.0))
        p = tl.where(seen, p, 0.0)
        total += tl.sum(p, 1)
        acc = tl.dot(p.to(q.dtype), v_desc.load([j, 0]), acc)
    o_desc.store([row, 0], acc + total[:, None])


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("seq", [100, 128, 300])
@pytest.mark.each(2)
def test_two_loops_both_overlap(seq: int) -> None:
    """The sums of powers of two, bit for bit; loops of no and of one iteration are among them."""
    rng = np.random.default_rng(seq)
    q, k, v = (
        road.filled(rng.integers(-2, 3, (seq, 64)).astype(np.float32), BF16) for _ in range(3)
    )
    args = [q, k, v, road.array((seq, 64), np.float32), seq]
    meta = {"D": 64, "BLOCK": 128, "num_consumer_groups": 2, "num_buffers_warp_spec": 2}
    found, _ = road.check_equal(two_phases, args, -(-seq // 128), meta)
    assert [p.ping_pong for p in found.schedule.pipelines] == [True, True]
    assert len(found.schedule.delayed_reductions) == 2
    if seq == 300:
        report = found.check()
        assert report.ok, str(report)


@wl.jit
def far_apart(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, o_ptr: Any, seq: Any, limit: Any, AHEAD: tl.constexpr
) -> None:
    """A loop that overlaps, with a branch or a mask (AHEAD < 0) that turns at a limit; which may stand for
    "never", or "always"."""
    q_desc = tl.make_tensor_descriptor(q_ptr, [64, 64], [64, 1], [64, 64])
    k_desc = tl.make_tensor_descriptor(k_ptr, [seq, 64], [64, 1], [64, 64])
    v_desc = tl.make_tensor_descriptor(v_ptr, [seq, 64], [64, 1], [64, 64])
    o_desc = tl.make_tensor_descriptor(o_ptr, [64, 64], [64, 1], [64, 64])
    acc = tl.zeros([64, 64], tl.float32)
    q = q_desc.load([0, 0])
    for j in tl.range(0, seq, 64):
        s = tl.dot(q, k_desc.load([j, 0]).T)
        if AHEAD < 0:
            columns = (j + tl.arange(0, 64)).to(tl.int64)
            s = tl.where((columns <= limit)[None, :], s, 1.0)
        elif j + AHEAD > limit:
            s = tl.where(tl.arange(0, 64)[None, :] % 2 == 0, s, 1.0)
        s = tl.maximum(tl.minimum(s, 2.0), -2.0)
        acc = tl.dot(s.to(q.dtype), v_desc.load([j, 0]), acc)
    o_desc.store([0, 0], acc)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("ahead", [-1, 0, 64])
@pytest.mark.parametrize("limit", [-(2**31), 64, 2**31 - 1])
@pytest.mark.each(2)
def test_what_turns_once_may_turn_never(limit: int, ahead: int) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (
        road.filled(rng.integers(-1, 2, (n, 64)).astype(np.float32), BF16) for n in (64, 192, 192)
    )
    args = [q, k, v, road.array((64, 64), np.float32), 192, limit]
    meta = {"AHEAD": ahead, "num_consumer_groups": 1, "consumer_stages": 2}
    found, _ = road.check_equal(far_apart, args, 1, meta)
    assert found.schedule.pipelines[0].split


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("tiles", ["BALANCED_PAIRS", "DYNAMIC", "SPLIT_KV_TAIL"])
@pytest.mark.each(2)
def test_it_ejects_and_compiles_back(tiles: str, tmp_path: Path) -> None:
    parts = tiles == "SPLIT_KV_TAIL"
    meta = {"D": 64, "BLOCK_M": 128, "BLOCK_N": 128, "CAUSAL": not parts, "LSE": True, tiles: True}
    found = attention_forward.compile(
        signature=[*SIGNATURE, "*fp32:16"] if parts else SIGNATURE,
        constexprs={**meta, "GQA_GROUP": 1, "Q_STAGES": 2},
        num_consumer_groups=2,
    )
    script, signature = owned(found.eject(), tmp_path, 4)
    same_program(found, script.compile(signature))
