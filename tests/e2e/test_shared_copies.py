"""Uniform kernels of two warp groups: both fill the slots, each its part."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import gemms, road
from tests.e2e.gemms import UNIFORM_TWO, Gemm
from tests.pairwise import every
from warploom.ir.core import walk
from warploom.ir.ops import control, smem, task, tma
from warploom.runtime.compiled import CompiledKernel

PLACE = {smem.cp_async: 1, smem.shared_store: 0}


def copied_by(compiled: CompiledKernel) -> Counter[str]:
    """Who makes the copies into slots: 'each' replica its part, or 'one' whatever it is."""
    (tasks,) = (o for o in compiled.placed.body.ops if o.kind is task.tasks)
    (region,) = tasks.regions
    parts = {o.result for o in walk(region) if o.kind is smem.shared_slice}
    alone = {
        i
        for o in walk(region)
        if o.kind is control.if_ and o.operands[0].hint == "alone"
        for r in o.regions
        for i in walk(r)
    }
    found: Counter[str] = Counter()
    for o in walk(region):
        if o.kind in PLACE:
            place = o.operands[PLACE[o.kind]]
            if place.hint == "staging":  # the result on its way out
                continue
            assert (place in parts) != (o in alone), "a whole slot is one replica's"
            found["one" if o in alone else "each"] += 1
        elif o.kind is tma.tma_load:
            assert o in alone
    return found


def check(case: Gemm, k: int, programs: int = 2, depth: int = 3) -> CompiledKernel:
    case = case.with_(k=k, programs=programs)
    a, b, c = case.arrays(np.random.default_rng(0))
    meta = {**case.meta, **UNIFORM_TWO, "num_stages": depth}
    compiled, found = road.check_equal(case.jit, case.args(a, b, c), programs, meta)
    np.testing.assert_array_equal(found[2], gemms.exact(a, b, case.out))
    assert compiled.schedule.split.count == 2
    return compiled


@pytest.mark.parametrize(
    ("pads", "orders", "via"),
    every(
        3,
        [
            ((4, 4, 0), "rc", {"cp_async"}),
            ((2, 2, 0), "rr", {"cp_async"}),
            ((1, 1, 0), "cc", {"registers"}),
            ((0, 1, 0), "rr", {"tma", "registers"}),
            ((0, 4, 0), "cr", {"tma", "cp_async"}),
            ((1, 4, 0), "rr", {"registers", "cp_async"}),
        ],
    ),
)
@pytest.mark.each(2)
def test_both_replicas_copy(pads: tuple[int, int, int], orders: str, via: set[str]) -> None:
    case = Gemm(150, 90, 64, pads=pads, orders=orders, blocks=(128, 64, 32))
    compiled = check(case, 100)
    assert {v for c in compiled.schedule.channels for v in c.via} == via
    assert set(copied_by(compiled)) == {"each"}
    report = compiled.check()
    assert report.ok, str(report)
    assert compiled.resources.problems() == ()


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("pad", [1, 4])
@pytest.mark.each(2)
def test_trip_counts_around_the_depth(depth: int, pad: int) -> None:
    case = Gemm(130, 64, 0, pads=(pad, pad, 0), orders="rr")
    for trips in sorted({0, 1, depth - 1, depth, depth + 1, 2 * depth + 1}):
        check(case, 32 * trips, 1, depth)


def test_a_slot_without_two_parts_is_one_replicas() -> None:
    """B's slots hold 8 rows of K: the swizzle has no period shorter than that."""
    case = Gemm(130, 20, 64, pads=(4, 4, 0), orders="rc", blocks=(128, 8, 64))
    compiled = check(case, 150)
    assert copied_by(compiled) == {"each": 2, "one": 2}  # before the loop, and in it
    assert compiled.check().ok


@wl.jit
def gathered(
    a_ptr: Any, rows_ptr: Any, b_ptr: Any, c_ptr: Any, M: Any, N: Any, K: Any,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
) -> None:  # fmt: skip
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn, rk = tl.arange(0, BN), tl.arange(0, BK)
    rows = tl.load(rows_ptr + rm, mask=rm < M, other=0)
    a = a_ptr + rows[:, None] * K + rk[None, :]
    b = b_ptr + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a, mask=(rm[:, None] < M) & (rk[None, :] + k < K), other=0.0)
        y = tl.load(b, mask=(rk[:, None] + k < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
        a += BK
        b += BK * N
    c = c_ptr + rm[:, None] * N + rn[None, :]
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@pytest.mark.parametrize(
    ("k", "via"), [(40, "cp_async"), (64, "cp_async"), (202, "cp_async"), (201, "registers")]
)
def test_a_tile_of_pointers_is_computed_by_parts(k: int, via: str) -> None:
    """Rows that an index names, carried through the loop: no box; the addresses are cut as well."""
    rng = np.random.default_rng(k)
    a, b = (
        road.filled(rng.integers(-3, 4, s).astype(np.float32), np.float16, pad=-(-s[1] % 8))
        for s in ((50, k), (k, 64))
    )
    rows = road.filled(rng.integers(0, 50, 150), np.int32)
    c = road.array((150, 64), np.float16)
    args = [a, rows, b, c, 150, 64, k]
    meta = {"BM": 128, "BN": 64, "BK": 32, **UNIFORM_TWO}
    compiled, found = road.check_equal(gathered, args, 2, meta, levels=True)
    exact = a[rows].astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(found[3], exact.astype(np.float16))
    assert compiled.schedule.channels[0].via[0] == via
    assert set(copied_by(compiled)) == {"each"}
    assert compiled.check().ok
    assert compiled.resources.problems() == ()
