"""Boxes of views that the program makes of what it reads: products of groups whose sizes stand in memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from tests.pairwise import diagonals
from warploom.ir.core import walk
from warploom.ir.ops import tile
from warploom.runtime.compiled import CompiledKernel


@wl.jit
def products(
    a_ptr: Any, b_ptr: Any, c_ptr: Any, starts_ptr: Any, sizes_ptr: Any, BLOCK: tl.constexpr,
    TRANSPOSED: tl.constexpr,
) -> None:  # fmt: skip
    """C = A·B of each group, masked along all axes; TRANSPOSED: B is N×K."""
    g = tl.program_id(0)
    m, n, k = (
        tl.load(sizes_ptr + g * 3),
        tl.load(sizes_ptr + g * 3 + 1),
        tl.load(sizes_ptr + g * 3 + 2),
    )
    a_base = a_ptr + tl.load(starts_ptr + g * 3)
    b_base = b_ptr + tl.load(starts_ptr + g * 3 + 1)
    c_base = c_ptr + tl.load(starts_ptr + g * 3 + 2)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    j, at = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        here = start + at
        a = tl.load(
            a_base + i[:, None] * k + here[None, :],
            mask=(i[:, None] < m) & (here[None, :] < k),
            other=0.0,
        )
        if TRANSPOSED:
            b = tl.load(
                b_base + j[:, None] * k + here[None, :],
                mask=(j[:, None] < n) & (here[None, :] < k),
                other=0.0,
            )
            sums += tl.dot(a, b.T)
        else:
            b = tl.load(
                b_base + here[:, None] * n + j[None, :],
                mask=(here[:, None] < k) & (j[None, :] < n),
                other=0.0,
            )
            sums += tl.dot(a, b)
    tl.store(c_base + i[:, None] * n + j[None, :], sums, mask=(i[:, None] < m) & (j[None, :] < n))


def boxes(compiled: CompiledKernel) -> int:
    """Loads and stores of the function at TILE that are boxes."""
    ops = walk(compiled.lowered.tile.body)
    return sum(o.kind in (tile.load_box, tile.store_box) for o in ops)


@pytest.mark.parametrize(
    ("transposed", "knobs"),
    diagonals(2, [False, True], [{}, {"num_consumer_groups": 0}, {"num_consumer_groups": 1}]),
)
def test_sizes_from_memory(transposed: bool, knobs: dict[str, int]) -> None:
    rng = np.random.default_rng(1)
    sizes = [(64, 64, 128), (37, 5, 71), (1, 1, 1), (100, 33, 65)]
    starts, (p, q, r) = [], (0, 1, 3)
    for m, n, k in sizes:
        starts.append((p, q, r))
        p, q, r = p + m * k, q + n * k, r + m * n
    a, b = (road.filled(rng.integers(-3, 4, (1, size)), np.float16)[0] for size in (p, q))
    c = road.array((1, r), np.float32)[0]
    tables = [road.filled(np.array(t).reshape(1, -1), np.int32)[0] for t in (starts, sizes)]
    meta = {"BLOCK": 64, "TRANSPOSED": transposed, **knobs}
    compiled, after = road.check_equal(products, [a, b, c, *tables], (4, 2), meta, ("late",))
    for (m, n, k), (i, j, o) in zip(sizes, starts, strict=True):
        x = a[i : i + m * k].reshape(m, k).astype(np.float32)
        y = b[j : j + n * k].astype(np.float32)
        y = y.reshape(n, k).T if transposed else y.reshape(k, n)
        np.testing.assert_array_equal(after[2][o : o + m * n].reshape(m, n), x @ y)
    assert boxes(compiled) == 2  # pointers do for words of 4 bytes: the results
    if not knobs:
        assert "load_units(" in compiled.cuda  # 16 bytes, wherever they begin


@wl.jit
def promised(a_ptr: Any, b_ptr: Any, c_ptr: Any, sizes_ptr: Any, BLOCK: tl.constexpr) -> None:
    """What is known to be aligned goes by pointers and cp.async."""
    k = tl.load(sizes_ptr)
    i = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        a_ptrs = a_ptr + i[:, None] * k + (start + i)[None, :]
        b_ptrs = b_ptr + i[:, None] * k + (start + i)[None, :]
        tl.multiple_of(a_ptrs, [16, 16])
        tl.multiple_of(b_ptrs, [16, 16])
        sums += tl.dot(tl.load(a_ptrs), tl.load(b_ptrs).T)
    tl.store(c_ptr + i[:, None] * BLOCK + i[None, :], sums)


def test_what_is_promised_stays_by_pointers() -> None:
    rng = np.random.default_rng(2)
    a, b = (road.filled(rng.integers(-3, 4, (64, 128)), np.float16) for _ in "ab")
    args = [a, b, road.array((64, 64), np.float32), road.filled(np.array([128]), np.int32)]
    compiled, after = road.check_equal(promised, args, 1, {"BLOCK": 64}, ("late",))
    np.testing.assert_array_equal(after[2], a.astype(np.float32) @ b.astype(np.float32).T)
    assert boxes(compiled) == 1 and re.search(r"cp_async(_if)?<16>\(", compiled.cuda)


@wl.jit
def unmasked(a_ptr: Any, b_ptr: Any, c_ptr: Any, sizes_ptr: Any, BLOCK: tl.constexpr) -> None:
    """Whole blocks only: nothing tells where the arrays end."""
    k = tl.load(sizes_ptr)
    i = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, 32):
        at = start + tl.arange(0, 32)
        a = tl.load(a_ptr + i[:, None] * k + at[None, :])
        b = tl.load(b_ptr + i[:, None] * k + at[None, :])
        sums += tl.dot(a, b.T)
    tl.store(c_ptr + i[:, None] * BLOCK + i[None, :], sums)


def test_nothing_is_loaded_behind_an_end_that_is_not_known() -> None:
    """No units of the next step, which may lie behind the array."""
    rng = np.random.default_rng(3)
    a, b = (road.filled(rng.integers(-3, 4, (64, 96)), np.float16) for _ in "ab")
    args = [a, b, road.array((64, 64), np.float32), road.filled(np.array([96]), np.int32)]
    meta = {"BLOCK": 64, "num_consumer_groups": 1}
    compiled, after = road.check_equal(unmasked, args, 1, meta, ("late",))
    np.testing.assert_array_equal(after[2], a.astype(np.float32) @ b.astype(np.float32).T)
    assert boxes(compiled) == 3 and "load_whole(" in compiled.cuda
    assert "are_read" not in compiled.cuda
