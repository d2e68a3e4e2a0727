"""Rows of numbers that a tile needs once (biases, scales): the producer brings them, so that no tile's end waits
for memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.orders import default_orders
from tests.pairwise import diagonals
from warploom.kernels.gemm import grouped_tile

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@wl.jit
def biased(
    a_ptr: Any, b_ptr: Any, row_ptr: Any, column_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EARLY: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B + row[:, None] + column[None, :], persistent; row is loaded before the sum where EARLY."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tiles_n, tl.num_programs(0)):
        pid_m, pid_n = grouped_tile(tile, tl.cdiv(M, BLOCK_M), tiles_n, 2)
        m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        row = tl.zeros((BLOCK_M,), tl.float32)
        if EARLY:
            row = tl.load(row_ptr + m, mask=m < M, other=0.0)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(0, tl.cdiv(K, BLOCK_K)):
            k = step * BLOCK_K + tl.arange(0, BLOCK_K)
            a_mask = (m[:, None] < M) & (k[None, :] < K)
            b_mask = (k[:, None] < K) & (n[None, :] < N)
            a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=a_mask, other=0.0)
            b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc)
        if not EARLY:
            row = tl.load(row_ptr + m, mask=m < M, other=0.0)
        column = tl.load(column_ptr + n, mask=n < N, other=0.0)
        c = acc + row[:, None] + column[None, :]
        c_mask = (m[:, None] < M) & (n[None, :] < N)
        tl.store(c_ptr + m[:, None] * N + n[None, :], c.to(c_ptr.dtype.element_ty), mask=c_mask)


@wl.jit
def scaled_blocks(
    a_ptr: Any, b_ptr: Any, scale_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
) -> None:  # fmt: skip
    """C = Σ over blocks of K: A·B · scale[block, None, :]."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        a_mask = (m[:, None] < M) & (k[None, :] < K)
        b_mask = (k[:, None] < K) & (n[None, :] < N)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=b_mask, other=0.0)
        scale = tl.load(scale_ptr + step * N + n, mask=n < N, other=0.0)
        acc += tl.dot(a, b) * scale[None, :]
    c_mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(c_ptr.dtype.element_ty), mask=c_mask)


@wl.jit
def masked_attention(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, bias_ptr: Any, o_ptr: Any, S: Any, scale: Any,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr,
) -> None:  # fmt: skip
    """softmax2(Q·Kᵀ·scale + bias[None, :])·V: a vector that each block of keys needs."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + m[:, None] * D + d[None, :], mask=m[:, None] < S, other=0.0)
    top = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    o = tl.zeros((BLOCK_M, D), tl.float32)
    for start in range(0, S, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + n[None, :] * D + d[:, None], mask=n[None, :] < S, other=0.0)
        v = tl.load(v_ptr + n[:, None] * D + d[None, :], mask=n[:, None] < S, other=0.0)
        bias = tl.load(bias_ptr + n, mask=n < S, other=0.0)
        s = tl.dot(q, k) * scale + bias[None, :]
        s = tl.where(n[None, :] < S, s, -1e30)
        most = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - most[:, None])
        shrink = tl.exp2(top - most)
        total = total * shrink + tl.sum(p, 1)
        o = o * shrink[:, None]
        o = tl.dot(p.to(v_ptr.dtype.element_ty), v, o)
        top = most
    out = (o / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + m[:, None] * D + d[None, :], out, mask=m[:, None] < S)


def ints(rng: np.random.Generator, *shape: int, dtype: Any = BF16) -> Any:
    return road.filled(rng.integers(-3, 4, shape), dtype)


def whole(rng: np.random.Generator, *shape: int) -> Any:
    """A matrix without gaps between rows, flat."""
    return ints(rng, int(np.prod(shape)))


@pytest.mark.parametrize(("early", "k"), diagonals(2, [False, True], [208, 0]))
def test_a_bias_travels_by_the_producer(early: bool, k: int) -> None:
    rng = np.random.default_rng(1)
    m, n = 272, 200
    args = [
        whole(rng, m, k), whole(rng, k, n), ints(rng, m, dtype=np.float32),
        ints(rng, n, dtype=np.float32), road.array((m * n,), BF16), m, n, k,
    ]  # fmt: skip
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "EARLY": early}
    compiled, found = road.check_equal(biased, args, 2, meta, levels=not early)
    a, b = (x.astype(np.float64) for x in (args[0].reshape(m, k), args[1].reshape(k, n)))
    wanted = a @ b + args[2][:, None] + args[3]
    np.testing.assert_array_equal(
        found[4].reshape(m, n).astype(np.float32), wanted.astype(BF16).astype(np.float32)
    )
    assert compiled.check().ok
    if not k:  # no TMA where an extent is 0
        return
    rings = {c.name: c for c in compiled.schedule.channels}
    assert set(rings) == {"a_b", "row_column"}
    assert rings["row_column"].via == ("tma", "tma") and rings["row_column"].depth == 2


def test_a_vector_that_starts_anywhere_stays_with_its_reader() -> None:
    rng = np.random.default_rng(2)
    m, n, k = 128, 64, 128
    odd = ints(rng, m + 1, dtype=np.float32)[1:]
    args = [
        whole(rng, m, k), whole(rng, k, n), odd, ints(rng, n, dtype=np.float32),
        road.array((m * n,), BF16), m, n, k,
    ]  # fmt: skip
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "EARLY": False}
    compiled = road.compile_for(biased, args, 1, meta)
    assert [c.name for c in compiled.schedule.channels] == ["a_b", "column"]


def test_a_vector_of_every_step_shares_its_ring_depth() -> None:
    rng = np.random.default_rng(3)
    m, n, k = 144, 96, 320
    steps = -(-k // 64)
    args = [
        whole(rng, m, k), whole(rng, k, n), ints(rng, steps * n, dtype=np.float32),
        road.array((m * n,), BF16), m, n, k,
    ]  # fmt: skip
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}
    compiled, _ = road.check_equal(scaled_blocks, args, (2, 2), meta)
    assert [c.name for c in compiled.schedule.channels] == ["a_b", "scale"]
    assert compiled.check().ok


@pytest.mark.parametrize("stages", [None, 1])
@pytest.mark.each(2)
def test_attention_with_a_bias_of_keys(stages: int | None) -> None:
    rng = np.random.default_rng(4)
    s, d = 272, 64
    q, k, v = (road.filled(rng.standard_normal((s, d)), BF16) for _ in range(3))
    bias = road.filled(rng.standard_normal(s), np.float32)
    args = [q, k, v, bias, road.array((s, d), BF16), s, 0.125]
    meta: dict[str, Any] = {"BLOCK_M": 128, "BLOCK_N": 64, "D": d}
    if stages:
        meta["consumer_stages"] = stages
    compiled = road.compile_for(masked_attention, args, 3, meta)
    assert any("bias" in c.name for c in compiled.schedule.channels)
    for order in default_orders(("late", "seeded")):
        found = road.simulated(compiled, args, 3, order)[4].astype(np.float64)
        scores = q.astype(np.float64) @ k.astype(np.float64).T * 0.125 + bias
        p = np.exp2(scores - scores.max(1, keepdims=True))
        wanted = p @ v.astype(np.float64) / p.sum(1, keepdims=True)
        assert np.linalg.norm(found - wanted) < 1e-2 * np.linalg.norm(wanted)
    assert compiled.check().ok
