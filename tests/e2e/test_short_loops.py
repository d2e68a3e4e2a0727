"""Kernels that walk a few known steps, one loop after the other: what their rings take, and that they are right."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.orders import default_orders
from warploom.check import Case, Verdict, check
from warploom.ir.core import walk
from warploom.ir.ops import smem
from warploom.ir.rewrite import rewrite

BF16 = ml_dtypes.bfloat16


@wl.jit
def chunk(
    q_ptr: Any,
    k_ptr: Any,
    v_ptr: Any,
    o_ptr: Any,
    T: int,
    K: tl.constexpr,
    V: tl.constexpr,
    BK: tl.constexpr,
    BV: tl.constexpr,
) -> None:
    """Causal attention without softmax inside chunks of 64 rows."""
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    inside = at[:, None] < T
    scores = tl.zeros((64, 64), tl.float32)
    for i in range(0, tl.cdiv(K, BK)):
        columns = i * BK + tl.arange(0, BK)[None, :]
        q = tl.load(q_ptr + at[:, None] * K + columns, mask=inside, other=0.0)
        k = tl.load(k_ptr + at[:, None] * K + columns, mask=inside, other=0.0)
        scores += tl.dot(q, tl.trans(k))
    scores = tl.where(at[:, None] >= at[None, :], scores, 0.0).to(tl.bfloat16)
    for i in range(0, tl.cdiv(V, BV)):
        columns = i * BV + tl.arange(0, BV)[None, :]
        v = tl.load(v_ptr + at[:, None] * V + columns, mask=inside, other=0.0)
        tl.store(o_ptr + at[:, None] * V + columns, tl.dot(scores, v), mask=inside)


def inputs(T: int, K: int, V: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-2, 3, (T, n)).astype(BF16) for n in (K, K, V)]
    return [*arrays, np.zeros((T, V), np.float32)]


def wanted(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    out = []
    for at in range(0, len(q), 64):
        part = slice(at, at + 64)
        out.append(np.tril(q[part] @ k[part].T).astype(BF16).astype(np.float32) @ v[part])
    return np.concatenate(out)


# Blocks of K and V: how many iterations each of the two loops has.
BLOCKS = [(128, 64), (64, 64), (64, 32)]


@pytest.mark.parametrize("blocks", BLOCKS)
def test_short_loops_compute_the_same_and_are_proved(blocks: tuple[int, int]) -> None:
    K, V, (BK, BV) = 128, 128, blocks
    args = [*inputs(100, K, V), 100]
    made = chunk.compile_for(*args, K=K, V=V, BK=BK, BV=BV, grid=(2,), num_warps=4)
    for order in default_orders(("late", "early")):
        args[3][:] = 0
        made.simulate(*args, grid=(2,), order=order)
        np.testing.assert_array_equal(args[3], wanted(*args[:3]))
    assert check(made.placed, launch=Case(tuple(args), (2, 1, 1))).verdict is Verdict.PROVED
    depths = {c.name: c.depth for c in made.schedule.channels}
    assert all(d <= max(K // BK, V // BV) for d in depths.values())


@wl.jit
def after_a_loop(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, o_ptr: Any, T: int, K: int, V: tl.constexpr
) -> None:
    """As chunk, with any K: what the second product takes is loaded after the first loop."""
    at = tl.program_id(0) * 64 + tl.arange(0, 64)
    inside = at[:, None] < T
    scores = tl.zeros((64, 64), tl.float32)
    for i in range(0, tl.cdiv(K, 64)):
        columns = i * 64 + tl.arange(0, 64)[None, :]
        q = tl.load(q_ptr + at[:, None] * K + columns, mask=inside & (columns < K), other=0.0)
        k = tl.load(k_ptr + at[:, None] * K + columns, mask=inside & (columns < K), other=0.0)
        scores += tl.dot(q, tl.trans(k))
    scores = tl.where(at[:, None] >= at[None, :], scores, 0.0).to(tl.bfloat16)
    columns = tl.arange(0, V)[None, :]
    v = tl.load(v_ptr + at[:, None] * V + columns, mask=inside, other=0.0)
    tl.store(o_ptr + at[:, None] * V + columns, tl.dot(scores, v), mask=inside)


def parted() -> tuple[Any, list[Any]]:
    args = [*inputs(100, 192, 128), 100, 192]
    made = after_a_loop.compile_for(*args, V=128, grid=(2,), num_warps=4, num_consumer_groups=0)
    return made, args


def test_what_is_loaded_after_a_loop_lies_in_its_ring() -> None:
    made, args = parted()
    (v,) = (o for o in made.placed.body.ops if o.attrs.get("name") == "v")
    assert v.attrs["reuses"] and v.attrs["offset"] < 3 * 2 * 8192
    for order in default_orders(("late", "early")):
        args[3][:] = 0
        made.simulate(*args, grid=(2,), order=order)
        np.testing.assert_array_equal(args[3], wanted(*args[:3]))
    assert check(made.placed, launch=Case(tuple(args), (2, 1, 1))).verdict is Verdict.PROVED


def test_without_the_barrier_it_is_a_race() -> None:
    made, args = parted()
    lost = [o for o in walk(made.placed.body) if o.attrs.get("scope") == "task"]
    assert [o.kind for o in lost] == [smem.group_sync]
    func = rewrite(made.placed, lambda o, b: () if o in lost else None)
    assert check(func, launch=Case(tuple(args), (2, 1, 1))).verdict is Verdict.BROKEN
