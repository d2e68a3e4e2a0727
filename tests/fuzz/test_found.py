"""What the fuzzer found, each as the smallest kernel that showed it."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.e2e.road import array, filled

pytestmark = pytest.mark.usefixtures("without_nvrtc")


def ints(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-2, 3, shape).astype(np.float32)


@wl.jit
def bytes_product(a, b, c, k, BN: tl.constexpr, BK: tl.constexpr):
    m, n, r = tl.arange(0, 64), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((64, BN), tl.int32)
    for at in range(0, k, BK):
        x = tl.load(a + m[:, None] * k + (at + r)[None, :])
        y = tl.load(b + (at + r)[:, None] * BN + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * BN + n[None, :], acc)


@pytest.mark.parametrize("bn", [16, 48, 64, 96, 112])
@pytest.mark.parametrize("bk", [32, 64, 128])
@pytest.mark.each(4)
def test_bytes_turned_in_rows_of_any_length(bn: int, bk: int) -> None:
    """Addresses of ldmatrix in rows of 48 or 112 bytes are a multiple of what is linear over F2."""
    k = 2 * bk
    a, b = filled(ints(64, k), np.int8), filled(ints(k, bn), np.int8)
    args = [a, b, array((64, bn), np.int32), k]
    road.check_equal(bytes_product, args, 1, {"BN": bn, "BK": bk}, ("late",))


@wl.jit
def wide_tail(q, k, v, o, s, steps, DTYPE: tl.constexpr):
    m, n, d = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 32)
    left = tl.load(q + m[:, None] * 32 + d[None, :])
    acc = tl.zeros((64, 32), tl.float32)
    total = tl.zeros((64,), tl.float32)
    for i in range(steps):
        at = i * 64 + n
        p = tl.dot(left, tl.trans(tl.load(k + at[:, None] * 32 + d[None, :])))
        p = tl.minimum(tl.maximum(p, -1.0), 1.0)
        total += tl.sum(p, 1)
        acc = tl.dot(p.to(tl.float16), tl.load(v + at[:, None] * 32 + d[None, :]), acc)
    tl.store(s + m, total.to(DTYPE))
    tl.store(o + m[:, None] * 32 + d[None, :], acc)


@pytest.mark.parametrize(
    "dtype", [(tl.int64, np.int64), (tl.float64, np.float64)], ids=["i64", "f64"]
)
def test_64_bits_are_held_under_the_last_dots(dtype: Any) -> None:
    """What the end of a chain of dots computes under them may have 64 bits."""
    f16 = np.float16
    q, k, v = filled(ints(64, 32), f16), filled(ints(192, 32), f16), filled(ints(192, 32), f16)
    args = [q, k, v, array((64, 32), np.float32), array((64,), dtype[1]), 3]
    compiled, _ = road.check_equal(wide_tail, args, 1, {"DTYPE": dtype[0]}, ("late",))
    assert "hold(" in compiled.cuda


@wl.jit
def unused_wait(x, w, o, n):
    pid = tl.program_id(0)
    for _ in range(n):
        tl.load(x + pid * 64 + tl.arange(0, 64), volatile=True)
    row = tl.load(w + pid * 64 + tl.arange(0, 64))
    tl.store(o + pid * 64 + tl.arange(0, 64), row)


def test_a_prefetch_loads_of_a_loop_that_nobody_needs() -> None:
    """The loop that the load was to be issued before is no code of any task in the end."""
    args = [
        filled(ints(128), ml_dtypes.bfloat16),
        filled(ints(128), np.float32),
        array((128,), np.float32),
        2,
    ]
    road.check_equal(unused_wait, args, 2, {}, ("late",))


@wl.jit
def idle_while(a, b, c, m, k, BM: tl.constexpr):
    r, n, s = tl.arange(0, BM), tl.arange(0, 64), tl.arange(0, 32)
    left = m
    while left > 1:
        left = left // 2
    acc = tl.zeros((BM, 64), tl.float32)
    for at in range(0, k, 32):
        x = tl.load(a + r[:, None] * k + (at + s)[None, :])
        y = tl.load(b + (at + s)[:, None] * 64 + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + r[:, None] * 64 + n[None, :], acc)


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_a_while_that_nobody_needs_is_split_whole(groups: int) -> None:
    """A `while` is never dropped, as it may not end: what its condition takes is kept with it."""
    args = [
        filled(ints(128, 64), np.float16),
        filled(ints(64, 64), np.float16),
        array((128, 64), np.float32),
        5,
        64,
    ]
    road.check_equal(
        idle_while, args, 1, {"BM": 128, "num_consumer_groups": groups}, ("late",), levels=True
    )


@wl.jit
def odd_mask(q, k, v, o, steps):
    m, n, d = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 32)
    left = tl.load(q + m[:, None] * 32 + d[None, :])
    acc = tl.zeros((64, 32), tl.float32)
    for i in range(steps):
        at = i * 64 + n
        p = tl.dot(left, tl.trans(tl.load(k + at[:, None] * 32 + d[None, :])))
        odd = (at % 2).to(tl.int1)
        p = tl.where(odd[None, :], tl.minimum(tl.maximum(p, -1.0), 1.0), 0.0)
        acc = tl.dot(p.to(tl.float16), tl.load(v + at[:, None] * 32 + d[None, :]), acc)
    tl.store(o + m[:, None] * 32 + d[None, :], acc)


def test_the_mask_of_a_chain_may_be_no_comparison() -> None:
    """Where a mask turns is asked of comparisons; a cast to i1 is none."""
    f16 = np.float16
    q, k, v = filled(ints(64, 32), f16), filled(ints(192, 32), f16), filled(ints(192, 32), f16)
    args = [q, k, v, array((64, 32), np.float32), 3]
    road.check_equal(odd_mask, args, 1, {}, ("late",))


@wl.jit
def two_orders(a, b, d, c, k):
    m, n, s = tl.arange(0, 64), tl.arange(0, 16), tl.arange(0, 16)
    one = tl.zeros((64, 16), tl.float32)
    two = tl.zeros((64, 16), tl.float32)
    for at in range(0, k, 16):
        x = tl.load(a + m[:, None] * k + (at + s)[None, :])
        y = tl.load(b + (at + s)[:, None] + n[None, :] * k)
        z = tl.load(d + (at + s)[:, None] * 16 + n[None, :])
        one = tl.dot(x, y, one)
        two = tl.dot(x, z, two)
    tl.store(c + m[:, None] * 16 + n[None, :], one + two)


def test_right_operands_of_two_orders_are_not_joined() -> None:
    """Dots become one where their right operands can lie in one slot: not K-major beside N-major."""
    bf16 = ml_dtypes.bfloat16
    b = filled(ints(16, 64), bf16)
    args = [
        filled(ints(64, 64), bf16),
        b,
        filled(ints(64, 16), bf16),
        array((64, 16), np.float32),
        64,
    ]
    compiled, _ = road.check_equal(two_orders, args, 1, {}, ("late",))
    assert not compiled.schedule.fused_dots


@wl.jit
def two_orders_by_pointers(a, b, d, c, k, rows):
    m, n, s = tl.arange(0, 64), tl.arange(0, 16), tl.arange(0, 16)
    one = tl.zeros((64, 16), tl.float32)
    two = tl.zeros((64, 16), tl.float32)
    for at in range(0, k, 16):
        x = tl.load(a + m[:, None] * k + (at + s)[None, :])
        y = tl.load(b + ((at + s) % rows)[:, None] + n[None, :] * rows)
        z = tl.load(d + ((at + s) % rows)[:, None] * 16 + n[None, :])
        one = tl.dot(x, y, one)
        two = tl.dot(x, z, two)
    tl.store(c + m[:, None] * 16 + n[None, :], one + two)


def test_right_operands_of_two_orders_by_pointers_are_not_joined() -> None:
    """The same of pointers that are no box: runs of them lie along K beside runs along N."""
    bf16 = ml_dtypes.bfloat16
    rows = 48
    args = [
        filled(ints(64, 64), bf16),
        filled(ints(16, rows), bf16),
        filled(ints(rows, 16), bf16),
        array((64, 16), np.float32),
        64,
        rows,
    ]
    compiled, _ = road.check_equal(two_orders_by_pointers, args, 1, {}, ("late",))
    assert not compiled.schedule.fused_dots


@wl.jit
def in_place(a, b, c, k, HOW: tl.constexpr):
    m, n, s = tl.arange(0, 128), tl.arange(0, 32), tl.arange(0, 32)
    places = c + m[:, None] * 32 + n[None, :]
    if HOW == "cleared":  # whole, as it depends on no product
        tl.store(places, tl.full((128, 32), 3.0, tl.float32))
    acc = tl.zeros((128, 32), tl.float32)
    for at in range(0, k, 32):
        x = tl.load(a + m[:, None] * k + (at + s)[None, :])
        acc = tl.dot(x, tl.load(b + (at + s)[:, None] * 32 + n[None, :]), acc)
    if HOW == "again":  # the first group alone stores, in each round
        for i in range(3):
            acc += tl.load(places)
            tl.store(places, tl.full((128, 32), 1.0, tl.float32) * i)
    if HOW == "added":
        tl.store(places, tl.load(places) + acc)
    elif HOW == "doubled":  # all rows by the first group, while the other one still loads its own
        old = tl.load(places)
        tl.store(places, old * 2.0)
        tl.store(a + m[:, None] * k + n[None, :], (old + acc).to(tl.float16))
    else:
        tl.store(places, acc)


@pytest.mark.parametrize(
    ("how", "groups"),
    [("plain", 2), ("added", 2), ("doubled", 1), ("cleared", 1), ("again", 1)],
)
def test_groups_that_share_a_tile_keep_to_their_rows(how: str, groups: int) -> None:
    """Two groups keep no order: where one stores what the other loads or stores, the tile is not split.  In
    a uniform kernel they meet before they do."""
    c = filled(ints(128, 32), np.float32)
    args = [filled(ints(128, 64), np.float16), filled(ints(64, 32), np.float16), c, 64]
    meta = {"HOW": how, "num_consumer_groups": 2}
    compiled, _ = road.check_equal(in_place, args, 1, meta, ("late",), levels=True)
    assert compiled.schedule.split.count == groups
    meta = {"HOW": how, "num_consumer_groups": 0, "num_warps": 8}
    compiled, _ = road.check_equal(in_place, args, 1, meta, levels=True)
    assert compiled.schedule.split.count == 2


@wl.jit
def second_half(o, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.arange(0, BM), tl.arange(0, BN)
    x = (m[:, None] * BN + n[None, :]).to(tl.float32)
    y = tl.split(tl.join(x, x + 0.5))[1]
    both = tl.interleave(x, y)
    tl.store(o + m[:, None] * BN + n[None, :], tl.maximum(y, 3.0))
    wide = tl.arange(0, 2 * BN)
    tl.store(o + BM * BN + m[:, None] * (2 * BN) + wide[None, :], both)


@pytest.mark.parametrize("shape", [(64, 48), (16, 96), (64, 80), (128, 24), (32, 112)])
def test_rows_of_any_length_go_through_shared_memory(shape: tuple[int, int]) -> None:
    """A row that neither lanes nor warps divide into powers of two has addresses that are looked up."""
    meta = {"BM": shape[0], "BN": shape[1]}
    args = [array((3 * shape[0] * shape[1],), np.float32)]
    compiled, _ = road.check_equal(second_half, args, 1, meta, ("late",))
    if shape == (64, 48):
        assert ">> lane & 1u" in compiled.cuda


@wl.jit
def two_results(a, b, c, d, tiles, k):
    m, n, s = tl.arange(0, 64), tl.arange(0, 16), tl.arange(0, 32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        rows = tile * 64 + m
        acc = tl.zeros((64, 16), tl.float32)
        for at in range(0, k, 32):
            x = tl.load(a + rows[:, None] * k + (at + s)[None, :])
            acc = tl.dot(x, tl.load(b + (at + s)[:, None] * 16 + n[None, :]), acc)
        tl.store(c + rows[:, None] * 16 + n[None, :], acc + 1.0)
        tl.store(d + rows[:, None] * 16 + n[None, :], tl.minimum(acc, 4.0))


def test_a_task_stores_two_arrays() -> None:
    """Each of the stores handed over has barriers with names of their own."""
    f16, f32 = np.float16, np.float32
    results = [array((192, 16), f32), array((192, 16), f32)]
    args = [filled(ints(192, 64), f16), filled(ints(64, 16), f16), *results, 3, 64]
    compiled, _ = road.check_equal(two_results, args, 2, {"store_task": True}, road.ORDERS)
    assert [s.by_task for s in compiled.schedule.stores] == [True, True]


@wl.jit
def watched(a, b, w, c, k, m0):
    m, n, s = tl.arange(0, 128), tl.arange(0, 64), tl.arange(0, 32)
    acc = tl.zeros((128, 64), tl.float32)
    step = 8
    if m0 > 0:
        step = 16
    walk = w + m[:, None] * 64 + tl.arange(0, 8)[None, :]
    for at in range(0, k, 32):
        x = tl.load(a + m[:, None] * k + (at + s)[None, :])
        tl.load(walk, mask=m[:, None] < m0, volatile=True)
        acc = tl.dot(x, tl.load(b + (at + s)[:, None] * 64 + n[None, :]), acc)
        walk += step
    tl.store(c + m[:, None] * 64 + n[None, :], acc)
    for _ in range(0, k, 32):  # nothing but the load needs this loop
        tl.load(walk, volatile=True)
        walk -= step


@pytest.mark.parametrize("knobs", [{"num_ctas": 2}, {"num_consumer_groups": 2}], ids=str)
def test_a_volatile_load_keeps_the_pointers_that_a_loop_carries(knobs: dict[str, Any]) -> None:
    """What observes memory for nobody stays, with all that its addresses and mask are made from."""
    f16 = np.float16
    words = filled(ints(128, 64), np.int16)
    c = array((128, 64), np.float32)
    args = [filled(ints(128, 96), f16), filled(ints(96, 64), f16), words, c, 96, 100]
    compiled, _ = road.check_equal(watched, args, 1, knobs, ("late",), levels=True)
    schedule = compiled.schedule
    assert schedule.cluster.ctas == 2 if "num_ctas" in knobs else schedule.split.count == 2
    assert sum("volatile" in line for line in compiled.ir["PLACED"].splitlines()) >= 2


@wl.jit
def read_again(q, k, v, o, s, tiles, steps):
    m, n, d = tl.arange(0, 64), tl.arange(0, 32), tl.arange(0, 64)
    rows = tl.make_tensor_descriptor(q, [32, 192], [256, 1], [32, 64])
    for tile in range(0, tiles):
        left = tl.trans(rows.load([0, tile * 64]))
        acc = tl.zeros((64, 64), tl.float32)
        for i in range(0, steps):
            at = i * 32 + n
            p = tl.dot(left, tl.load(k + n[:, None] * 64 + at[None, :]))
            p = tl.minimum(tl.maximum(p, -2.0), 2.0).to(tl.float8e5)
            acc = tl.dot(p, tl.load(v + at[:, None] * 64 + d[None, :]), acc)
        tl.store(s + tile * 64 + m, tl.max(left.to(tl.float32), axis=1))
        tl.store(o + (tile * 64 + m)[:, None] * 64 + d[None, :], acc)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_slot_that_is_read_behind_a_chain_is_released_behind_that(steps: int) -> None:
    """A release moves in front of the last dots of an overlapped loop where nothing behind reads the slot."""
    f8 = ml_dtypes.float8_e5m2
    q, k, v = filled(ints(32, 192), f8, pad=64), filled(ints(32, 64), f8), filled(ints(64, 64), f8)
    args = [q, k, v, array((192, 64), np.float32), array((192,), np.float32), 3, steps]
    compiled, _ = road.check_equal(read_again, args, 1, {}, road.ORDERS)
    assert compiled.schedule.pipelines or steps == 1  # one iteration is no loop


@wl.jit
def doubles(a, b, c, k, BN: tl.constexpr, BK: tl.constexpr):
    m, n, r = tl.arange(0, 64), tl.arange(0, BN), tl.arange(0, BK)
    box = tl.make_tensor_descriptor(b, [k, BN], [BN, 1], [BK, BN])
    acc = tl.zeros((64, BN), tl.float64)
    for at in range(0, k, BK):
        x = tl.load(a + m[:, None] * k + (at + r)[None, :])
        acc = tl.dot(x, tl.maximum(box.load([at, 0]), -8.0), acc)
    tl.store(c + m[:, None] * BN + n[None, :], acc)


@pytest.mark.parametrize("bk", [4, 12, 16])
def test_panels_of_twelve_rows_begin_where_the_pattern_does(bk: int) -> None:
    """Seed 60368, a misaligned address on the GPU: the second panel of 12 rows of 64 bytes."""
    bn, k = 24, 2 * bk
    a, b = filled(ints(64, k), np.float64), filled(ints(k, bn), np.float64)
    args = [a, b, array((64, bn), np.float64), k]
    meta = {"BN": bn, "BK": bk, "num_warps": 1, "num_consumer_groups": 0}
    compiled, found = road.check_equal(doubles, args, 1, meta)
    np.testing.assert_array_equal(found[2], a @ b)
    places = re.findall(r"tma_load_\dd\(\w+(?: \+ (\d+))?, &", compiled.cuda)
    assert places and all(int(x or 0) % 128 == 0 for x in places)


@wl.jit
def units(a, c, n, N: tl.constexpr):
    z, i, j = tl.arange(0, 1), tl.arange(0, 16), tl.arange(0, N)
    at = z[:, None, None] * n + i[None, :, None] * N + j[None, None, :]
    x = tl.load(a + at)
    y = tl.where(tl.load(c) > 0, x, tl.cumsum(x, 1))
    ones = tl.full((1, 16, 16), 1.0, tl.float16)
    tl.store(c + at, tl.dot(ones, y.to(tl.float16)))


def test_what_is_no_smaller_tile_leaves_nothing_behind() -> None:
    """Seed 300095, simplification without an end: splats of a select that can't lose its axis of size 1."""
    a, c = filled(ints(1, 16, 32), np.float32), array((1, 16, 32), np.float32)
    c[0, 0, 0] = -1
    _, found = road.check_equal(units, [a, c, 512], 1, {"N": 32})
    np.testing.assert_array_equal(found[1][0], np.broadcast_to(np.cumsum(a[0], 0).sum(0), (16, 32)))


@wl.jit
def scaled(a, sa, b, sb, c, k, steps):
    m, n, r, g = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 2)
    acc = tl.zeros((64, 64), tl.float32)
    for i in tl.range(0, steps):
        x = tl.load(a + m[:, None] * k + (i * 64 + r)[None, :])
        y = tl.load(b + (i * 64 + r)[:, None] + n[None, :] * k)
        at_x = tl.load(sa + m[:, None] * 16 + (i * 2 + g)[None, :])
        at_y = tl.load(sb + n[:, None] + (i * 2 + g)[None, :] * 64)
        acc = tl.dot_scaled(x, at_x, "e5m2", y, at_y, "e4m3", acc)
    tl.store(c + m[:, None] * 64 + n[None, :], acc)


def test_parts_of_few_rows_are_panels_of_the_whole() -> None:
    """Seed 207148, no tensor map: 2 rows of 64 bytes, read in two halves."""
    rng = np.random.default_rng(0)
    x, y = ints(64, 128), ints(64, 128)
    scales = [rng.integers(126, 129, shape).astype(np.float32) for shape in ((64, 16), (4, 64))]
    args = [
        filled(x, ml_dtypes.float8_e5m2), filled(scales[0], np.uint8), filled(y, ml_dtypes.float8_e4m3fn),
        filled(scales[1], np.uint8), array((64, 64), np.float32), 128, 2,
    ]  # fmt: skip
    meta = {"num_warps": 8, "num_consumer_groups": 1, "num_stages": 2}
    compiled, found = road.check_equal(scaled, args, 1, meta)
    assert compiled.schedule.channels
    by_k = [
        np.exp2(s - 127).repeat(32, axis) for s, axis in ((scales[0][:, :4], 1), (scales[1], 0))
    ]
    np.testing.assert_array_equal(found[4], (x * by_k[0]) @ (y.T * by_k[1]))


@wl.jit
def scanned_in_rows(a, c, N: tl.constexpr, ROWS: tl.constexpr):
    i = tl.arange(0, ROWS * N)
    x = tl.reshape(tl.load(a + i), (ROWS, N))
    tl.store(c + i, tl.reshape(tl.cumsum(x, 1), (ROWS * N,)))


@wl.jit
def scanned_flat(a, c, N: tl.constexpr, ROWS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, N)[None, :]
    x = tl.cumsum(tl.reshape(tl.load(a + i * N + j), (ROWS * N,)), 0)
    tl.store(c + i * N + j, tl.reshape(x, (ROWS, N)))


@pytest.mark.parametrize("rows, n", [(32, 8), (8, 64), (1, 256)])
@pytest.mark.parametrize("kernel, axis", [(scanned_in_rows, 1), (scanned_flat, None)])
def test_axes_of_scans_are_those_of_their_tile(
    kernel: wl.JITFunction, axis: int | None, rows: int, n: int
) -> None:
    """Seed 302686, an internal error: what is scanned is a reshape of what is loaded."""
    a = filled(ints(rows, n), np.float32)
    _, found = road.check_equal(
        kernel, [a, array((rows, n), np.float32)], 1, {"N": n, "ROWS": rows}
    )
    np.testing.assert_array_equal(found[1], np.cumsum(a, axis).reshape(rows, n))


@wl.jit
def both(a, b, c, d):
    return a + c, tl.maximum(b, d)


@wl.jit
def pairs_of_products(a, b, c, rows, k, AXIS: tl.constexpr, BM: tl.constexpr):
    m, n, r = tl.arange(0, BM), tl.arange(0, 64), tl.arange(0, 64)
    acc = tl.zeros((BM, 64), tl.float32)
    for at in range(0, k, 64):
        x = tl.load(a + m[:, None] * k + (at + r)[None, :])
        y = tl.load(b + (at + r)[:, None] * 64 + n[None, :])
        acc = tl.dot(x, y, acc)
    s, most = tl.associative_scan((acc, acc), AXIS, both)
    tl.store(c + m[:, None] * 64 + n[None, :], s + most)
    s, most = tl.reduce((acc, acc), AXIS, both)
    tl.store(rows + tl.arange(0, 64 if AXIS == 0 else BM), s - most)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("knobs", [{"num_consumer_groups": 2}, {"num_ctas": 2}])
def test_tiles_combined_together_are_cut_together(axis: int, knobs: dict[str, int]) -> None:
    """Seeds 401185 and 401229, internal errors: results of one op along the axis that groups or CTAs share."""
    a, b = (
        filled(ints(128, 128), ml_dtypes.bfloat16),
        filled(ints(128, 64), ml_dtypes.bfloat16),
    )
    out = [array((128, 64), np.float32), array((64 if axis == 0 else 128,), np.float32)]
    meta = {"AXIS": axis, "BM": 128, **knobs}
    compiled, found = road.check_equal(pairs_of_products, [a, b, *out, 128], 1, meta)
    product = a.astype(np.float32) @ b.astype(np.float32)
    wanted = np.cumsum(product, axis) + np.maximum.accumulate(product, axis)
    np.testing.assert_array_equal(found[2], wanted)
    np.testing.assert_array_equal(found[3], product.sum(axis) - product.max(axis))
    plans = compiled.schedule.split, compiled.schedule.cluster
    assert "MN"[1 - axis] in {plan.axis for plan in plans}


@wl.jit
def flattened(a, b, c, d, k):
    z, m, n, s = tl.arange(0, 2), tl.arange(0, 32), tl.arange(0, 8), tl.arange(0, 64)
    acc = tl.zeros((2, 32, 8), tl.float32)
    for at in range(0, k, 64):
        x = tl.load(a + (z[:, None, None] * 32 + m[None, :, None]) * k + (at + s)[None, None, :])
        y = tl.load(b + (z[:, None, None] * k + (at + s)[None, :, None]) * 8 + n[None, None, :])
        acc = tl.dot(x, y, acc)
    rows = tl.arange(0, 64)
    tl.store(c + rows[:, None] * 8 + n[None, :], tl.reshape(acc, (64, 8)).to(tl.float16))
    tl.store(d + n, n.to(tl.float32))
    tl.atomic_add(d + n, 1.0)


@pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning")
def test_a_row_beside_a_matrix_that_groups_share() -> None:
    """Along the columns of the matrix the row has no offset to compare."""
    memory, b = filled(ints(64, 128), np.float16), filled(ints(2, 128, 8), np.float16)
    args = [memory, b, memory[:4], np.zeros(8, np.float32), 128]
    meta = {"num_consumer_groups": 0, "num_warps": 6}
    with pytest.warns(wl.errors.WarploomWarning, match="overlap"):
        compiled = flattened.compile_for(*args, grid=(1,), **meta)
    wanted = np.einsum("zmk,zkn->zmn", memory.reshape(2, 32, 128).astype(float), b.astype(float))
    compiled.simulate(*args, grid=(1,))
    np.testing.assert_array_equal(
        memory[:4].reshape(64, 8), wanted.reshape(64, 8).astype(np.float16)
    )


@wl.jit
def unaligned_rows_before_a_loop(a, b, o, stride, steps):
    m, k = tl.arange(0, 64), tl.arange(0, 32)
    x = tl.load(a + m[:, None] * stride + k[None, :])
    acc = tl.zeros((64, 64), tl.float32)
    for t in range(steps):
        acc = tl.dot(x, tl.load(b + k[:, None] + (t * 64 + m)[None, :] * 32), acc)
    tl.store(o + m[:, None] * 64 + m[None, :], acc + tl.sum(x.to(tl.float32), 1)[:, None])


@pytest.mark.parametrize("warps", [2, 4])
def test_a_slot_that_threads_fill_once_is_waited_for(warps: int) -> None:
    """Nobody waits for a slot that is filled once to be free again; until it is full all wait."""
    a, b = filled(ints(64, 33), np.float16), filled(ints(192, 32), np.float16)
    args = [a, b, array((64, 64), np.float32), 33, 3]
    knobs = {"num_warps": warps, "num_consumer_groups": 0}
    compiled, _ = road.check_equal(unaligned_rows_before_a_loop, args, 1, knobs, ("late",))
    assert compiled.check().ok
