"""Gathers by cp.async: of tiles that have fewer pieces than the task has threads, and beside rings of TMA."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.pairwise import pairwise
from warploom.ir.core import walk
from warploom.ir.ops import arith, mbarrier, smem, tma
from warploom.ir.types import Tile

pytestmark = pytest.mark.usefixtures("without_nvrtc")
STEPS = 4


@wl.jit
def gathered_rows(
    a: Any, b: Any, idx: Any, o: Any, T: Any, S: Any,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
) -> None:  # fmt: skip
    """Sums of products with rows whose number is loaded in the loop."""
    k, m, n = tl.arange(0, K), tl.arange(0, M), tl.arange(0, N)
    acc = tl.zeros((M, N), tl.float32)
    for i in range(T):
        x = tl.load(a + m[:, None] * K + k[None, :])
        g = tl.load(idx + i)
        y = tl.load(b + (g * N + n)[:, None] * S + (i * K + k)[None, :])
        acc += tl.dot(x, y.T)
    tl.store(o + m[:, None] * N + n[None, :], acc)


def arguments(dtype: Any, lead: int, n: int, k: int) -> list[Any]:
    rng = np.random.default_rng(n + k)

    def numbers(*shape: int) -> Any:
        return road.filled(rng.integers(-2, 3, shape).astype(np.float32), dtype)

    b = road.filled(rng.integers(-2, 3, (8 * n, lead)).astype(np.float32), dtype)
    idx = road.filled(np.array([7, 0, 3, 5]), np.int32)
    return [numbers(64, k), b, idx, road.array((64, n), np.float32), STEPS, lead]


SETTINGS = {
    "dtype": [np.float32, np.float16, ml_dtypes.bfloat16],
    "k": [16, 32],
    "n": [8, 16, 24],
    "lead": [128, 132, 131],  # rows begin at 16 bytes, at 4 elements, anywhere
    "groups": [0, 1],
}


@pytest.mark.parametrize(list(SETTINGS), pairwise(*SETTINGS.values()))
@pytest.mark.each(3)
def test_small_gathers(dtype: Any, k: int, n: int, lead: int, groups: int) -> None:
    meta = {"M": 64, "N": n, "K": k, "num_consumer_groups": groups}
    args = arguments(dtype, lead, n, k)
    compiled, _ = road.check_equal(gathered_rows, args, 1, meta, orders=["late"])
    assert compiled.check().ok
    copied = {o.attrs["bytes"] for o in walk(compiled.placed.body) if o.kind is smem.cp_async}
    pieces = {128: 16, 132: min(16, 4 * np.dtype(dtype).itemsize)}
    if lead in pieces:
        assert pieces[lead] in copied
        assert f"cp_async_if<{pieces[lead]}>" in compiled.cuda


@wl.jit
def tiles_of_gathers(
    a: Any, b: Any, rows: Any, o: Any, T: Any, S: Any, M: tl.constexpr, K: tl.constexpr
) -> None:
    """Each tile of a, by a box, times the same rows, which are gathered."""
    m, k = tl.arange(0, M), tl.arange(0, K)
    for t in range(T):
        x = tl.load(a + (t * M + m)[:, None] * K + k[None, :])
        acc = tl.zeros((M, M), tl.float32)
        for i in range(0, S, M):
            y = tl.load(b + tl.load(rows + i + m)[:, None] * K + k[None, :])
            acc = tl.dot(x, y.T, acc)
        tl.store(o + (t * M + m)[:, None] * M + m[None, :], acc)


def test_copies_in_groups_beside_a_ring_of_tma() -> None:
    """A ring that is filled anew in an outer loop keeps its phases, where the inner loop's ring has none."""
    rng = np.random.default_rng(0)
    a, b = (
        road.filled(rng.integers(-2, 3, (n, 64)).astype(np.float32), np.float16) for n in (96, 50)
    )
    rows = road.filled(rng.integers(0, 50, 160).astype(np.int32), np.int32)
    args = [a, b, rows, road.array((96, 32), np.float32), 3, 160]
    meta = {"M": 32, "K": 64, "num_warps": 2}
    compiled, _ = road.check_equal(tiles_of_gathers, args, 1, meta, orders=["late"])
    assert compiled.check().ok
    kinds = {o.kind for o in walk(compiled.placed.body)}
    assert kinds >= {smem.cp_async_commit, tma.tma_load, mbarrier.mbarrier_wait}
    assert mbarrier.cp_async_arrive not in kinds


@wl.jit
def scaled_twice(
    a: Any, b: Any, rows: Any, o: Any, S: Any, M: tl.constexpr, K: tl.constexpr
) -> None:
    """What is gathered is scaled, then multiplied as columns and as rows."""
    m, k = tl.arange(0, M), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    acc = tl.zeros((M, K), tl.float32)
    for i in range(0, S, 16):
        y = tl.load(b + tl.load(rows + i + tl.arange(0, 16))[:, None] * K + k[None, :])
        y = (y * 2.0).to(tl.float16)
        acc = tl.dot(tl.dot(x, y.T).to(tl.float16), y, acc)
    tl.store(o + m[:, None] * K + k[None, :], acc)


def test_operands_of_two_products_are_computed_once() -> None:
    """Not by each warp that multiplies by them: what changes hands anyway does so for both products."""
    rng = np.random.default_rng(0)
    a, b = (
        road.filled(rng.integers(-2, 3, (n, 128)).astype(np.float32), np.float16) for n in (32, 50)
    )
    rows = road.filled(rng.integers(0, 50, 80).astype(np.int32), np.int32)
    args = [a, b, rows, road.array((32, 128), np.float32), 80]
    meta = {"M": 32, "K": 128, "num_warps": 2}
    compiled, _ = road.check_equal(scaled_twice, args, 1, meta, orders=["late"])
    assert compiled.check().ok
    products = (o for o in walk(compiled.placed.body) if o.kind is arith.mul)
    scaled = [o.result.type for o in products if isinstance(o.result.type, Tile)]
    assert [t.layout.registers for t in scaled if t.shape == (16, 128)] == [32]
