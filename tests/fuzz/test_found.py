"""What the fuzzer found, each as the smallest kernel that showed it."""

from __future__ import annotations

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


def test_a_load_ahead_of_a_loop_that_nobody_needs() -> None:
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
    assert not compiled.schedule.joined


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
    if HOW == "added":
        tl.store(places, tl.load(places) + acc)
    elif HOW == "doubled":  # all rows by the first group, while the other one still loads its own
        old = tl.load(places)
        tl.store(places, old * 2.0)
        tl.store(a + m[:, None] * k + n[None, :], (old + acc).to(tl.float16))
    else:
        tl.store(places, acc)


@pytest.mark.parametrize(
    ("how", "groups"), [("plain", 2), ("added", 2), ("doubled", 1), ("cleared", 1)]
)
def test_groups_that_share_a_tile_keep_to_their_rows(how: str, groups: int) -> None:
    """Two groups keep no order: where one stores what the other loads or stores, the tile is not split."""
    c = filled(ints(128, 32), np.float32)
    args = [filled(ints(128, 64), np.float16), filled(ints(64, 32), np.float16), c, 64]
    meta = {"HOW": how, "num_consumer_groups": 2}
    compiled, _ = road.check_equal(in_place, args, 1, meta, ("late",), levels=True)
    assert compiled.schedule.split.count == groups
