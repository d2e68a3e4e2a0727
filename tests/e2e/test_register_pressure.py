"""Tasks whose tiles take more registers than a thread has: slots are read anew, and ops are ordered by what is held."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.road import array, compile_for, expected_of, filled, same, simulated
from warploom.check import Verdict
from warploom.ir.core import Func
from warploom.ir.ops import control, smem, tile
from warploom.ir.types import shape_of
from warploom.passes.placed.register_pressure import Pressure, limit_of
from warploom.runtime import build
from warploom.runtime.compiled import CompiledKernel, compile_request
from warploom.runtime.nvrtc import Build
from warploom.schedule.resources import Headroom
from warploom.target import SM_90A


@wl.jit
def summed(v_ptr: Any, h_ptr: Any, g_ptr: Any, o_ptr: Any, s_ptr: Any) -> None:
    """Products with a state that is summed up as well, scaled by what was loaded before, and their running sum."""
    rows = tl.arange(0, 64)
    columns = tl.arange(0, 64)
    g = tl.load(g_ptr + rows[:, None] * 64 + columns[None, :])
    acc = tl.zeros((64, 64), tl.float32)
    norm = tl.zeros((64,), tl.float32)
    for i in range(2):
        k = i * 64 + tl.arange(0, 64)
        v = tl.load(v_ptr + rows[:, None] * 128 + k[None, :])
        h = tl.load(h_ptr + k[:, None] * 64 + columns[None, :])
        norm += tl.sum(h * h, axis=0)
        acc = tl.dot(v, h.to(tl.bfloat16), acc)
    y = acc * (g + 1.0)
    total = tl.cumsum(y, axis=0) + norm[None, :]
    tl.store(o_ptr + rows[:, None] * 64 + columns[None, :], y)
    tl.store(s_ptr + rows[:, None] * 64 + columns[None, :], total)


def arguments() -> list[Any]:
    random = np.random.default_rng(0)

    def integers(*shape: int, dtype: Any = np.float32) -> Any:
        return filled(random.integers(-2, 3, shape), dtype)

    out = [array((64, 64), np.float32) for _ in range(2)]
    return [integers(64, 128, dtype=ml_dtypes.bfloat16), integers(128, 64), integers(64, 64), *out]


def peak(func: Func) -> int:
    """What the tasks of a function with layouts are estimated to hold."""
    regions = [r for o in func.body.ops for r in o.regions]
    return max(Pressure(r).peak(r) for r in regions)


@lru_cache
def equal(warps: int) -> CompiledKernel:
    """As it is compiled where ptxas has spilled; PLACED computes what TILE computes."""
    args = arguments()
    first = compile_for(summed, args, 1, {"num_warps": warps, "matrix_unit": "mma.sync"})
    compiled = compile_request(first.request.with_headroom(Headroom(few_registers=True)))
    same(expected_of(compiled, args, 1), simulated(compiled, args, 1), "PLACED")
    return compiled


def at(compiled: CompiledKernel, name: str) -> Func:
    """The function after a pass."""
    return dict(compiled.lowered.steps)[name]


def test_tasks_that_hold_too_much_load_slots_anew_and_are_ordered() -> None:
    compiled = equal(2)
    placed = compiled.lowered.placed
    states = [o for o in placed.body.by_kind[smem.shared_load] if o.result.type.shape[0] == 64]
    slots = [o.operands[0] for o in states]
    assert len(slots) == len(set(slots)) + 1  # the state, for its sum and for the products
    limit = limit_of(SM_90A)
    assert peak(at(compiled, "assign_layouts")) > limit >= peak(at(compiled, "order_by_registers"))
    (main,) = (r for o in placed.body.ops for r in o.regions)
    kinds = [o.kind for o in main.ops]
    last = max(i for i, k in enumerate(kinds) if k is control.for_)
    assert kinds.index(tile.load_box) > last  # what is read after the loop alone


def test_of_a_long_text_what_holds_less_is_built_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NVRTC takes seconds for one: that of the usual schedule, estimated to spill, would be for nothing."""
    request, seen = equal(2).request.with_headroom(Headroom()), list[str]()

    def compile_text(source: str, plan: Any, *_: Any, want_ptx: bool) -> Build:
        seen.append(source)
        return Build(plan.name, b"cubin", "", 255, 0, 0, 0, 1, (), 1.0, "none", "")

    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "compile_text", compile_text)
    assert not compile_request(request).schedule.few_registers
    monkeypatch.setattr(build, "LONG", 100)
    monkeypatch.setenv("WARPLOOM_CACHE", str(tmp_path / "other"))
    compiled = compile_request(request)
    assert compiled.schedule.few_registers and compiled.cuda == seen[-1] and len(seen) == 2


def test_it_is_proved() -> None:
    assert equal(2).check().verdict is Verdict.PROVED


def test_tasks_that_fit_are_left_alone() -> None:
    compiled = equal(4)
    assert at(compiled, "reload_slots") is at(compiled, "merge_elects")
    assert at(compiled, "order_by_registers") is at(compiled, "assign_layouts")


@wl.jit
def states(v_ptr: Any, h_ptr: Any, g_ptr: Any, o_ptr: Any, s_ptr: Any) -> None:
    """A warp group's products with two states, and the sum of the states' product."""
    rows = tl.arange(0, 64)
    n = tl.arange(0, 128)
    at = n[:, None] * 128 + n[None, :]
    v = tl.load(v_ptr + rows[:, None] * 128 + n[None, :])
    h = tl.load(h_ptr + at)
    g = tl.load(g_ptr + at)
    tl.store(s_ptr, tl.sum(h * g))
    s = tl.dot(v, tl.trans(v)).to(tl.bfloat16)
    acc = tl.dot(v, h.to(tl.bfloat16))
    acc = tl.dot(v, g.to(tl.bfloat16), acc)
    acc = tl.dot(tl.trans(s), v, acc)
    tl.store(o_ptr + rows[:, None] * 128 + n[None, :], acc)


def test_a_warp_group_loads_slots_anew_where_that_relieves_it() -> None:
    random = np.random.default_rng(0)
    v = filled(random.integers(-1, 2, (64, 128)), ml_dtypes.bfloat16)
    h, g = (filled(random.integers(-2, 3, (128, 128)), np.float32) for _ in range(2))
    args = [v, h, g, array((64, 128), np.float32), array((1,), np.float32)]
    first = compile_for(states, args, 1, {"num_warps": 4})
    compiled = compile_request(first.request.with_headroom(Headroom(few_registers=True)))
    same(expected_of(compiled, args, 1), simulated(compiled, args, 1), "PLACED")

    anew = [
        o
        for o in compiled.placed.body.by_kind[smem.shared_load]
        if shape_of(o.result.type)[0] == 128
    ]
    assert len(anew) == 4 and len({o.operands[0] for o in anew}) == 2  # for the sum, for a product
    assert not compiled.resources.spill_bytes
    assert compiled.check().verdict is Verdict.PROVED


@wl.jit
def scores(q_ptr: Any, g_ptr: Any, k_ptr: Any, o_ptr: Any, n: Any) -> None:
    """Products of what was computed before the loop with columns scaled by a row, and products of these."""
    rows = tl.arange(0, 128)
    columns = tl.arange(0, 64)
    at = rows[:, None] * 64 + columns[None, :]
    g = tl.load(g_ptr + columns)
    q = (tl.load(q_ptr + at).to(tl.float32) + g[None, :]).to(tl.bfloat16)
    acc = tl.zeros((128, 64), tl.float32)
    for i in range(0, n, 32):
        k = tl.load(k_ptr + (i + tl.arange(0, 32))[:, None] * 64 + columns[None, :])
        scaled = (k.to(tl.float32) * g[None, :]).to(tl.bfloat16)
        s = tl.dot(q, tl.trans(scaled))
        acc = tl.dot((s - tl.max(s, axis=1)[:, None]).to(tl.bfloat16), k, acc)
    tl.store(o_ptr + at, (acc + q.to(tl.float32)).to(tl.bfloat16))


@lru_cache
def invariants(warps: int) -> CompiledKernel:
    """As it is compiled where ptxas has spilled; PLACED computes what TILE computes."""
    random = np.random.default_rng(0)
    q, k = (filled(random.integers(-1, 2, (n, 64)), ml_dtypes.bfloat16) for n in (128, 96))
    g = filled(random.integers(-1, 2, (64,)), np.float32)
    args = [q, g, k, array((128, 64), ml_dtypes.bfloat16), 96]
    meta = {"num_warps": warps, "num_stages": 2, "matrix_unit": "mma.sync"}
    first = compile_for(scores, args, 1, meta)
    compiled = compile_request(first.request.with_headroom(Headroom(few_registers=True)))
    for order in ("late", "early", "reverse"):
        same(expected_of(compiled, args, 1), simulated(compiled, args, 1, order=order), "PLACED")
    return compiled


def spilled(compiled: CompiledKernel) -> dict[tuple[int, ...], int]:
    """The shapes of tiles that were spilled to shared memory, and how often they are loaded."""
    placed = compiled.lowered.placed
    places = {
        o.result: o.attrs["shape"]
        for o in placed.body.by_kind[smem.shared_alloc]
        if o.attrs["name"].startswith("spilled")
    }
    slots = {o.result: o.operands[0] for o in placed.body.by_kind[smem.shared_slot]}
    loads = [slots.get(o.operands[0]) for o in placed.body.by_kind[smem.shared_load]]
    return {shape: loads.count(v) for v, shape in places.items()}


def test_what_a_loop_does_not_change_is_read_from_shared_memory() -> None:
    compiled = invariants(2)
    assert spilled(compiled) == {(128, 64): 1}  # the row beside it fits
    (loop,) = (o for o in compiled.lowered.placed.body.all_ops if o.kind is control.for_ and o.id)
    (first, _) = (o for o in loop.regions[0].ops if o.kind is tile.dot)
    made = {v: o for o in loop.regions[0].ops for v in o.results}
    assert made[first.operands[0]].kind is smem.shared_load  # in each iteration
    assert compiled.check().verdict is Verdict.PROVED


def test_what_fits_beside_an_iteration_stays_in_registers() -> None:
    assert spilled(invariants(4)) == {}


@wl.jit
def twice(q_ptr: Any, k_ptr: Any, v_ptr: Any, o_ptr: Any, n: Any) -> None:
    """Two sums over one loop, one of them of what was computed before it."""
    rows, columns, steps = tl.arange(0, 128), tl.arange(0, 64), tl.arange(0, 128)
    at = rows[:, None] * 64 + columns[None, :]
    q = tl.load(q_ptr + at)
    least = tl.minimum(q.to(tl.float32) * 2.0, 1.0).to(tl.bfloat16)
    acc = tl.zeros((128, 64), tl.float32)
    other = tl.zeros((128, 64), tl.float32)
    for i in range(0, n, 128):
        places = (i + steps)[:, None] * 64 + columns[None, :]
        k, v = tl.load(k_ptr + places), tl.load(v_ptr + places)
        s, t = tl.dot(least, tl.trans(k)), tl.dot(q, tl.trans(v))
        acc = tl.dot(tl.minimum(s, 2.0).to(tl.bfloat16), v, acc)
        other = tl.dot(tl.maximum(t, -2.0).to(tl.bfloat16), k, other)
    tl.store(o_ptr + at, acc - other + least.to(tl.float32))


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("n", [0, 256])
def test_each_replica_spills_a_tile_of_its_own(n: int) -> None:
    random = np.random.default_rng(0)
    q, k, v = (filled(random.integers(-1, 2, (m, 64)), ml_dtypes.bfloat16) for m in (128, 256, 256))
    args = [q, k, v, array((128, 64), np.float32), n]
    meta = {"num_warps": 8, "num_stages": 2, "num_consumer_groups": 0, "matrix_unit": "mma.sync"}
    first = compile_for(twice, args, 1, meta)
    compiled = compile_request(first.request.with_headroom(Headroom(few_registers=True)))
    found = compiled.lowered.placed.body.by_kind[smem.shared_alloc]
    assert {o.attrs["lead"] for o in found if o.attrs["name"].startswith("spilled")} == {(2,)}
    for order in ("late", "early", "reverse"):
        same(expected_of(compiled, args, 1), simulated(compiled, args, 1, order=order), order)
