"""Kernels that the compiler once got wrong, each as small as it shows the mistake."""

from __future__ import annotations

import re
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from corpus import in_order
from tests.e2e import road
from tests.e2e.gemms import UNIFORM, WS, WS_ONE
from tests.sass import disassembled, disassembler
from warploom.errors import LaunchError
from warploom.ir.core import walk
from warploom.ir.ops import mma, smem, tile, tma

BF16 = ml_dtypes.bfloat16


def integers(*shape: int, order: str = "r", pad: int = 0) -> Any:
    rng = np.random.default_rng(sum(shape))
    return road.filled(rng.integers(-2, 3, shape).astype(np.float32), BF16, order, pad)


def strides(*arrays: Any) -> list[int]:
    return [s // a.itemsize for a in arrays for s in a.strides]


@wl.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn, flag,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, DOUBLE: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip
    if flag > 0:
        b_block = tl.make_block_ptr(b_ptr, (K, N), (sbk, sbn), (0, 0), (BK, BN), (1, 0))
        rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            ap = a_ptr + rm[:, None] * sam + (k + rk[None, :]) * sak
            a = tl.load(ap, mask=(rm[:, None] < M) & (rk[None, :] < K - k), other=0.0)
            b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
            if DOUBLE:
                b = b * 2
            acc = tl.dot(a, b, acc)
            b_block = tl.advance(b_block, (BK, 0))
        mask = (rm[:, None] < M) & (rn[None, :] < N)
        cp = c_ptr + rm[:, None] * scm + rn[None, :] * scn
        tl.store(cp, acc.to(c_ptr.dtype.element_ty), mask=mask)


def arguments(m: int, n: int, k: int) -> list[Any]:
    a, b, c = integers(m, k), integers(k, n), road.array((m, n), BF16)
    return [a, b, c, m, n, k, *strides(a, b, c)]


def test_a_view_made_under_an_if() -> None:
    """A tensor map stands before the tasks, its view stood inside the `if`."""
    meta = {"BM": 64, "BN": 64, "BK": 32, "DOUBLE": False}
    for flag in (0, 1):
        for knobs in (WS_ONE, UNIFORM):
            args = [*arguments(64, 60, 90), flag]
            compiled, _ = road.check_equal(product, args, 1, {**meta, **knobs}, levels=True)
            assert all(c.via == ("tma", "tma") for c in compiled.schedule.channels)


def test_a_right_operand_computed_in_registers() -> None:
    """Its staging was overwritten by the next iteration while a wgmma in flight still read it."""
    meta = {"BM": 128, "BN": 64, "BK": 32, "DOUBLE": True}
    args = [*arguments(128, 64, 130), 1]
    compiled, _ = road.check_equal(product, args, 1, {**meta, **WS}, levels=True)
    waits = [o.attrs["pending"] for o in walk(compiled.placed.body) if o.kind is mma.wgmma_wait]
    assert waits == [0]
    assert compiled.check().ok


def test_half_of_a_right_operand_is_no_whole_panel() -> None:
    """112 columns are whole panels of 32 bytes, the 56 of each of two groups are not: wgmma then reads
    them K-major, which TMA can't make of a row-major array."""
    meta = {"BM": 64, "BN": 112, "BK": 32, "DOUBLE": False}
    args = [*arguments(60, 100, 70), 1]
    compiled, _ = road.check_equal(product, args, 1, {**meta, **WS}, levels=True)
    assert compiled.schedule.split.axis == "N"
    assert [c.via for c in compiled.schedule.channels] == [("tma", "registers")]


@wl.jit
def transposed(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN, BM), tl.float32)
    for k in range(0, K, BK):
        ap = a_ptr + rm[:, None] * sam + (k + rk[None, :]) * sak
        bp = b_ptr + (k + rk[:, None]) * sbk + rn[None, :] * sbn
        a = tl.load(ap, mask=(rm[:, None] < M) & (rk[None, :] < K - k), other=0.0)
        b = tl.load(bp, mask=(rk[:, None] < K - k) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(b.T, a.T, acc)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    cp = c_ptr + rm[:, None] * scm + rn[None, :] * scn
    tl.store(cp, acc.T.to(c_ptr.dtype.element_ty), mask=mask)


def test_a_turned_product_in_two_parts() -> None:
    """The 192 columns of the dot are the rows of what is stored: 96 a group, no whole chunks of 64."""
    for knobs in (WS, {**UNIFORM, "num_warps": 8}):
        meta = {"BM": 192, "BN": 64, "BK": 32, **knobs}
        compiled, _ = road.check_equal(transposed, arguments(190, 64, 70), 1, meta, levels=True)
        assert compiled.schedule.split.axis == "N"


@wl.jit
def strides_made_inside(x_ptr, y_ptr, N, S, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0)
    if i < 2:
        row = S // 3
        r, q = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
        x = tl.load(x_ptr + r[:, None] * row + q[None, :], mask=r[:, None] < N, other=0.0)
        y = tl.make_block_ptr(
            y_ptr + i * (S * BLOCK), (N, BLOCK), (row, 1), (0, 0), (BLOCK, BLOCK), (1, 0)
        )
        tl.store(y, x, boundary_check=(0, 1))


def test_a_view_of_what_an_if_computes() -> None:
    """Its stride is known at launch, but computed in an arm of the `if` around the access."""
    x = road.filled(np.arange(16 * 16).reshape(1, -1), np.float32)[0]
    y = road.array((1, 3 * 48 * 16), np.float32)[0]
    compiled, found = road.check_equal(
        strides_made_inside, [x, y, 10, 48], 3, {"BLOCK": 16}, levels=True
    )
    written = found[1].reshape(3, 48, 16)
    np.testing.assert_array_equal(written[:2, :10], np.stack([x.reshape(16, 16)[:10]] * 2))
    assert np.isnan(written[2]).all() and np.isnan(written[:2, 10:]).all()
    kinds = {o.kind for o in walk(compiled.lowered.tile.body)}
    assert {tile.load_box, tile.store_box} < kinds and not {tile.load, tile.store} & kinds


@wl.jit
def a_middle_part(x_ptr, y_ptr, low, high, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    mask = (i < high) & (i >= low)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask), mask=mask)


def test_a_lower_bound_is_kept() -> None:
    """An array's lower bound is 0: a mask with another one is none of a box."""
    x = road.filled(np.arange(64).reshape(1, -1), np.int32)[0]
    y = road.array((1, 64), np.int32)[0]
    _, found = road.check_equal(a_middle_part, [x, y, 5, 40], 1, {"BLOCK": 64}, levels=True)
    wanted = np.where((np.arange(64) >= 5) & (np.arange(64) < 40), x, y)
    np.testing.assert_array_equal(found[1], wanted)


@wl.jit
def announced(a_ptr, b_ptr, c_ptr, flags_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
              READS: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, k = tl.arange(0, BN), tl.arange(0, BK)
    mask = (m[:, None] < M) & (n[None, :] < N)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        left = K - k0
        a = tl.load(
            a_ptr + m[:, None] * K + k0 + k[None, :], mask=(m[:, None] < M) & (k[None, :] < left)
        )
        b = tl.load(
            b_ptr + n[None, :] * K + k0 + k[:, None], mask=(n[None, :] < N) & (k[:, None] < left)
        )
        acc = tl.dot(a, b, acc)
    c_ptrs = c_ptr + m[:, None] * N + n[None, :]
    tl.store(c_ptrs, acc, mask=mask)
    tl.atomic_xchg(flags_ptr + tl.program_id(0), 1)
    if READS:
        tl.store(c_ptrs, tl.load(c_ptrs, mask=mask) + 1.0, mask=mask)


@pytest.mark.parametrize("knobs", [WS, WS_ONE, UNIFORM], ids=str)
@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.each(2)
def test_a_flag_comes_behind_all_stores(knobs: dict[str, Any], reads: bool) -> None:
    """Those of TMA and of the other group, too: whoever sees it may be outside of the launch.  And where one
    group alone sets it, or stores, all come to the barrier in front."""
    a, b = integers(200, 72), integers(64, 72)
    c = road.array((200, 64), np.float32)
    flags = road.filled(np.zeros((1, 2)), np.int32)[0]
    meta = {"BM": 128, "BN": 64, "BK": 64, "READS": reads, **knobs}
    compiled, found = road.check_equal(announced, [a, b, c, flags, 200, 64, 72], 2, meta)
    wanted = a.astype(np.float64) @ b.astype(np.float64).T + reads
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_array_equal(found[3], 1)
    report = compiled.check()
    assert report.ok, str(report)
    ops = list(walk(compiled.lowered.placed.body))
    (flag,) = (i for i, o in enumerate(ops) if o.kind is tile.atomic)
    barrier = max(i for i, o in enumerate(ops[:flag]) if o.kind is smem.group_sync)
    stores = [i for i, o in enumerate(ops) if o.kind is tma.tma_store]
    assert bool(stores) != reads
    if stores:
        waits = [i for i, o in enumerate(ops) if o.kind is tma.tma_store_wait]
        assert any(max(stores) < i < barrier and not ops[i].attrs["read"] for i in waits)
        assert ops[barrier].attrs["scope"] == "task"


@wl.jit
def summed_and_counted(
    x_ptr, sums_ptr, done_ptr, last_ptr, BLOCK: tl.constexpr, USED: tl.constexpr
):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    tl.atomic_add(sums_ptr + i, tl.load(x_ptr + tl.program_id(0) * BLOCK + i))
    before = tl.atomic_add(done_ptr, 1)
    if USED:
        tl.store(last_ptr, before)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("used", [False, True])
def test_a_count_comes_behind_what_all_threads_added(warps: int, used: bool) -> None:
    """Other warps' sums, or other lanes', could be on their way yet when the leader counted."""
    x = road.filled(np.arange(256).reshape(2, 128) % 7, np.float32)
    sums, done, last = (road.filled(np.zeros((1, n)), t)[0] for n, t in
                        ((128, np.float32), (1, np.int32), (1, np.int32)))  # fmt: skip
    meta = {"BLOCK": 128, "USED": used, "num_warps": warps}
    compiled, found = road.check_equal(summed_and_counted, [x, sums, done, last], 2, meta)
    np.testing.assert_array_equal(found[1], x.sum(axis=0))
    np.testing.assert_array_equal(found[2], 2)
    barrier = "__syncwarp();" if warps == 1 else "__syncthreads();"
    _, _, body = compiled.cuda.partition("---- the kernel")
    lines = [line.strip() for line in body.split("\n")]
    count = next(n for n, line in enumerate(lines) if "atomicAdd(done" in line)
    summed = max(n for n, line in enumerate(lines[:count]) if re.search("red_add|atomicAdd", line))
    between = lines[summed:count]
    assert barrier in between
    assert "fence_gpu();" in between[between.index(barrier) :]


@wl.jit
def named_as_a_task_does(
    a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # type: ignore[no-untyped-def]
    replica = tl.program_id(0)
    warp, lane = replica * 2, replica + 1
    thread, leader = lane * 3, warp + 5
    scratch = thread + leader
    rm, rn, rk = replica * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rm[:, None] * K + (k + rk)[None, :])
        b = tl.load(b_ptr + rn[None, :] * K + (k + rk)[:, None])
        acc = tl.dot(a, b, acc)
    acc += (warp + lane + thread + leader + scratch).to(tl.float32)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.bfloat16))


@pytest.mark.parametrize("knobs", [WS, UNIFORM])
def test_variables_named_as_a_tasks_own_are_not_hidden(knobs: dict[str, Any]) -> None:
    """`const int replica` of a task hid the program's: only the emitted C was wrong, and nothing told."""
    signature = ["*bf16:16"] * 3 + ["i32:16"] * 2
    meta = {"BM": 128, "BN": 64, "BK": 64}
    compiled = named_as_a_task_does.compile(signature, meta, **knobs)
    body = compiled.cuda.partition('extern "C" __global__')[2]
    outer = set(re.findall(r"(?m)^  (?:const )?int (\w+) = ", body))  # of the program
    inner = set(re.findall(r"(?m)^    (?:const )?int (\w+) = ", body))  # at the head of a task
    assert outer, "the kernel has variables of its own"
    assert not outer & inner


@wl.jit
def sizes_of_zeros(out, x, f, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    row = tl.load(x + at)
    tl.store(out + at, tl.abs(tl.where(row > 0, -0.0, row * row)).to(tl.int32, bitcast=True))
    tl.store(out + BLOCK + pid, tl.abs(tl.where(pid > f, -0.0, 6.0)).to(tl.int32, bitcast=True))


@pytest.mark.skipif(disassembler() is None, reason="no disassembler")
def test_ptxas_does_not_drop_absolute_values() -> None:
    """ptxas 13.5 drops the abs.f32 of a choice between -0.0 and what isn't negative (fuzz seed 201906)."""
    x = road.filled(np.arange(-64, 64), np.float32)
    out = road.array((128 + 4,), np.int32)
    args = [out, x, 1]
    road.check_equal(sizes_of_zeros, args, (4,), {"BLOCK": 64}, ("late",))
    lines = disassembled(sizes_of_zeros.compile_for(*args, grid=(4,), BLOCK=64).cubin).splitlines()
    assert sum("LOP3" in line and "0x7fffffff" in line for line in lines) == 2


@wl.jit
def dropped_quotients(out, x, d, limit):
    at = tl.arange(0, 8)
    by = tl.interleave(tl.zeros((4,), tl.int32), tl.arange(1, 5)) % 100 % 9
    tl.store(out + at, tl.where(by != 0, at // by + tl.arange(5, 13), -1))
    by = tl.load(d + at)
    tl.store(out + 8 + at, tl.load(x + at // by % limit, mask=by != 0, other=7))


def quotients() -> tuple[list[Any], Any]:
    """Arguments and what `out` holds."""
    x, d, at = np.arange(100, 164), np.arange(8) % 3, np.arange(8)
    by = at % 2 * (at // 2 + 1)
    rows = [
        np.where(by, at // np.maximum(by, 1) + at + 5, -1),
        np.where(d, x[at // np.maximum(d, 1) % 3], 7),
    ]
    args = [road.array((16,), np.int32), road.filled(x, np.int32), road.filled(d, np.int32), 3]
    return args, np.concatenate(rows)


def test_a_divisor_is_not_taken_for_nonzero() -> None:
    """C leaves a division by 0 undefined: NVRTC dropped the test of the divisor behind it (fuzz seed 300660)."""
    args, wanted = quotients()
    compiled, found = road.check_equal(dropped_quotients, args, 1, {}, ("late",))
    np.testing.assert_array_equal(found[0], wanted)
    assert len(re.findall(r"[/%] nonzero\(", compiled.cuda)) >= 2


@wl.jit
def shared_out(out, x, rows, columns):
    at = tl.arange(0, 8)
    row = at // (rows * columns)
    tl.store(out + at, tl.where(columns == 0, -1, tl.load(x + row, mask=columns != 0) + rows))


@pytest.mark.parametrize("columns", [2, 0])
def test_sizes_that_divide_are_taken_to_be_positive(columns: int) -> None:
    """By the usual variant: a launch with a size of 0 runs one that tests the divisor."""
    at = np.arange(8)
    x, out = road.filled(np.arange(100, 108), np.int32), road.array((8,), np.int32)
    compiled, found = road.check_equal(shared_out, [out, x, 2, columns], 1, {}, ("late",))
    np.testing.assert_array_equal(found[0], 102 + at // 4 if columns else np.full(8, -1))
    assert compiled.plan.positive == ((2, 3) if columns else ())
    assert ("nonzero(" in compiled.cuda) is (columns == 0)
    usual = shared_out.compile_for(out, x, 2, 2)
    with pytest.raises(LaunchError, match="columns is 0, and this variant takes it for no less"):
        usual.simulate(out, x, 2, 0, grid=1)


def test_replicas_of_two_warps_count_warps() -> None:
    """Their number was that of the warp group, so that all were the first (fuzz seed 300528)."""
    case = in_order.CASES["ieee-32x32-four"]()
    knobs = {**case.meta, **case.knobs, "num_warps": 6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", wl.WarploomWarning)
        compiled = case.kernel.compile_for(*case.args, grid=case.grid, **knobs)
    main, *_ = compiled.schedule.tasks
    assert (main.warps, main.replicas) == (2, 2)
    assert "const int replica = warp_id / 2;" in compiled.cuda


@wl.jit
def both_ways(q_ptr, k_ptr, out_ptr, T, D: tl.constexpr, B: tl.constexpr, S: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip
    d, m = tl.arange(0, D), tl.arange(0, B)
    k = tl.load(k_ptr + m[:, None] * D + d[None, :])
    acc = tl.zeros((B, D), tl.float32)
    for i in range(0, T, S):
        n = i + tl.arange(0, S)
        q = tl.load(q_ptr + n[:, None] * D + d[None, :], mask=n[:, None] < T, other=0.0)
        acc = tl.dot(tl.maximum(tl.dot(k, tl.trans(q)), 0.0), q, acc)
    tl.store(out_ptr + m[:, None] * D + d[None, :], acc)


def test_an_item_that_two_dots_want_in_two_ways() -> None:
    """wgmma reads tf32 only with K adjacent, so that one dot's operand is written anew: no overlap then."""
    rng = np.random.default_rng(3)
    q, k = (road.filled(rng.integers(-2, 3, (rows, 32)), np.float32) for rows in (100, 64))
    args = [q, k, road.array((64, 32), np.float32), 100]
    knobs = {"D": 32, "B": 64, "S": 32, "num_stages": 2, "num_consumer_groups": 1}
    compiled, found = road.check_equal(both_ways, args, 1, knobs, ("late",))
    np.testing.assert_array_equal(found[2], np.maximum(k @ q.T, 0) @ q)
    assert "right operand goes through shared memory" in compiled.explain()
