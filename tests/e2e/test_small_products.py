"""Products of few rows by many warps: who loads and computes what several warps multiply, and where tiles lie
that a loop fills with sums."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.road import array, compile_for, expected_of, filled, same, simulated
from warploom.check import Verdict
from warploom.ir.core import walk
from warploom.ir.ops import control, tile
from warploom.ir.types import Tile
from warploom.layout.choose import conversion
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")


@wl.jit
def gated(q_ptr: Any, g_ptr: Any, k_ptr: Any, o_ptr: Any, gates: tl.constexpr) -> None:
    """q · 2^g times k: by a product in program 1, in program 0 column by column."""
    i = tl.program_id(0)
    rows = tl.arange(0, 16)
    columns = tl.arange(0, 64)
    at = rows[:, None] * 64 + columns[None, :]
    acc = tl.zeros((16, 16), tl.float32)
    if i > 0:
        q = tl.load(q_ptr + at)
        if gates:
            q = (q * tl.exp2(tl.load(g_ptr + at))).to(tl.bfloat16)
        k = tl.load(k_ptr + rows[None, :] * 64 + columns[:, None])
        acc = tl.dot(q, k)
    else:
        x = tl.load(q_ptr + at).to(tl.float32)
        if gates:
            x = x * tl.exp2(tl.load(g_ptr + at))
        for j in range(16):
            k = tl.load(k_ptr + j * 64 + columns).to(tl.float32)
            sums = tl.sum(x * k[None, :], 1)
            acc = tl.where((rows == j)[None, :], sums[:, None], acc)
    tl.store(o_ptr + i * 256 + rows[:, None] * 16 + rows[None, :], acc)


def arguments() -> list[Any]:
    random = np.random.default_rng(0)
    q, k = (filled(random.integers(-2, 3, (16, 64)), ml_dtypes.bfloat16) for _ in range(2))
    return [q, filled(random.integers(0, 3, (16, 64)), np.float32), k, array((2, 256), np.float32)]


@lru_cache
def equal(warps: int, gates: bool) -> CompiledKernel:
    """Compiled; PLACED computes what TILE computes."""
    args = arguments()
    compiled = compile_for(gated, args, 2, {"num_warps": warps, "gates": gates})
    expected = expected_of(compiled, args, 2)
    same(expected, simulated(compiled, args, 2), "PLACED")
    assert np.array_equal(expected[-1][0], expected[-1][1])  # both ways
    return compiled


def exchanged(compiled: CompiledKernel) -> set[int]:
    """The operands, by number, of the product that threads exchange."""
    ops = list(walk(compiled.placed.body))
    made = {v: o for o in ops for v in o.results}
    (dot,) = (o for o in ops if o.kind is tile.dot)
    found = set()
    for i, v in enumerate(dot.operands[:2]):
        o = made[v]
        if o.kind is tile.convert_layout:
            assert (
                conversion(o.operands[0].typed(Tile).layout, v.typed(Tile).layout).kind == "shared"
            )
            found.add(i)
    return found


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_what_many_warps_multiply_is_computed_once(warps: int) -> None:
    assert exchanged(equal(warps, True)) == ({0} if warps > 1 else set())


def test_what_is_only_loaded_is_loaded_where_it_is_multiplied() -> None:
    assert exchanged(equal(4, False)) == set()


@pytest.mark.parametrize("warps", [1, 4])
def test_what_a_loop_fills_with_sums_lies_as_they_do(warps: int) -> None:
    ops = list(walk(equal(warps, True).placed.body))
    (loop,) = (o for o in ops if o.kind is control.for_)
    assert tile.reduce in {o.kind for o in loop.all_ops}
    assert tile.convert_layout not in {o.kind for o in loop.all_ops}


def test_it_is_proved() -> None:
    assert equal(4, True).check().verdict is Verdict.PROVED
