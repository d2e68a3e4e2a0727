"""Loads of kernels without dots that run ahead in registers: what is computed, and what stays where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from warploom.ir.core import walk
from warploom.ir.ops import control, smem, task, tile
from warploom.runtime.compiled import CompiledKernel
from warploom.schedule.prefetch import BUDGET

ROWS = 8  # of the arrays; programs begin at `start`, so some have no iteration


@wl.jit
def centred(
    x_ptr: Any, y_ptr: Any, rows: Any, columns: Any, start: Any, BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:  # fmt: skip
    """Rows less their largest elements, and how many rows there were (carried)."""
    at = tl.arange(0, BLOCK)
    seen = 0
    for row in tl.range(start + tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-100)
        seen = seen + 1
        tl.store(y_ptr + row * columns + at, x - tl.max(x, axis=0) + seen, mask=at < columns)


def ahead(compiled: CompiledKernel) -> list[int]:
    return [p.distance for p in compiled.schedule.pipelines]


@pytest.mark.parametrize(
    "stages, found, rows",
    [(1, [], 3), (4, [2], 7), *((2, [1], n) for n in range(4)), *((3, [2], n) for n in range(8))],
)
@pytest.mark.each(2)
def test_every_number_of_iterations(stages: int, found: list[int], rows: int) -> None:
    """As many rows as are asked for, the others untouched; loads stay in the array, whose surroundings the
    simulator guards."""
    rng = np.random.default_rng(rows)
    x = road.filled(rng.integers(-9, 9, (ROWS, 40)), np.int32)
    args = [x, road.array((ROWS, 40), np.int32), rows, 40, 0]
    meta = {"BLOCK": 64, "STAGES": stages, "num_warps": 1}
    compiled, after = road.check_equal(centred, args, 1, meta, ("late",))
    seen = np.arange(1, rows + 1)[:, None]
    np.testing.assert_array_equal(after[1][:rows], x[:rows] - x[:rows].max(1)[:, None] + seen)
    assert ahead(compiled) == found


def test_programs_without_an_iteration_load_nothing() -> None:
    """The third program's rows would lie behind the array."""
    x = road.filled(np.arange(80), np.int32).reshape(2, 40)
    args = [x, road.array((2, 40), np.int32), 2, 40, 0]
    compiled, after = road.check_equal(centred, args, 3, {"BLOCK": 64, "STAGES": 3})
    np.testing.assert_array_equal(after[1], x - x.max(1)[:, None] + 1)
    assert ahead(compiled) == [2]


@wl.jit
def shifted(x_ptr: Any, y_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    at = tl.arange(0, BLOCK)
    for i in tl.range(0, n, num_stages=3):
        tl.store(y_ptr + i * BLOCK + at, tl.load(x_ptr + i * BLOCK + at) + 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("by, stays", [(64, True), (0, True), (512, False)])
def test_arguments_that_share_memory(by: int, stays: bool) -> None:
    """What is stored is the next iteration's block, or this one's: a launch sees that arguments overlap."""
    whole = road.filled(np.arange(768), np.int32)
    x, y = whole[:256], whole[by : by + 256]
    wanted = whole.copy()
    for at in range(0, 256, 64):
        wanted[by + at : by + at + 64] = wanted[at : at + 64] + 1
    compiled = road.compile_for(shifted, [x, y, 4], 1, {"BLOCK": 64})
    compiled.simulate(x, y, 4, grid=1, order="late")
    np.testing.assert_array_equal(whole, wanted)
    assert ahead(compiled) == ([] if stays else [2])


@wl.jit
def blockwise(x_ptr: Any, y_ptr: Any, out_ptr: Any, n: Any, BLOCK: tl.constexpr) -> None:
    """Nothing is asked for: the reduction in the loop decides.  One load by pointers, one as a box."""
    total = 0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0)
        y = tl.load(y_ptr + at // 2, mask=at < n, other=7)
        total += tl.sum(x, axis=0) * tl.max(y, axis=0)
    tl.store(out_ptr, total)


@pytest.mark.parametrize("n", [0, 100, 128, 300])
def test_where_threads_wait_for_each_other(n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = (road.filled(rng.integers(-9, 9, 320), np.int32) for _ in "xy")
    args = [x, y, road.array((1,), np.int32), n]
    compiled, after = road.check_equal(blockwise, args, 1, {"BLOCK": 128})
    at = np.arange(-(-n // 128) * 128)
    first = np.where(at < n, x[at % 320], 0).reshape(-1, 128)
    second = np.where(at < n, y[at // 2], 7).reshape(-1, 128)
    assert after[2][0] == (first.sum(1) * second.max(1)).sum() if n else after[2][0] == 0
    assert ahead(compiled) == [1]
    loop = next(o for o in walk(compiled.placed.body) if o.kind is control.for_)
    kinds = [o.kind for o in loop.regions[0].ops]
    loads = [i for i, k in enumerate(kinds) if k in (tile.load, tile.load_box)]
    assert len(loads) == 2 and max(loads) < kinds.index(tile.reduce)


@wl.jit
def held_back(
    x_ptr: Any, y_ptr: Any, index_ptr: Any, n: Any, BLOCK: tl.constexpr, HOW: tl.constexpr
) -> None:
    """Loads that must not run ahead: of what is written, behind what orders memory, from an address that was
    loaded or that the loop carries."""
    at = tl.arange(0, BLOCK)
    moved = 0
    for i in tl.range(0, n, num_stages=3):
        if HOW == "written":
            v = tl.load(y_ptr + i * BLOCK + at)
        elif HOW == "indexed":
            v = tl.load(x_ptr + tl.load(index_ptr + i) * BLOCK + at)
        elif HOW == "carried":
            v = tl.load(x_ptr + moved + at)
        else:
            v = tl.load(x_ptr + i * BLOCK + at)
        if HOW == "atomic":
            tl.atomic_add(index_ptr + i, 1, sem="acquire")
        moved += tl.minimum(tl.max(v, axis=0) + BLOCK, BLOCK)
        tl.store(y_ptr + i * BLOCK + at, v + 1)


@pytest.mark.filterwarnings("ignore:(?s).*not-as-asked")
@pytest.mark.parametrize("how", ["written", "indexed", "carried", "atomic", "plain"])
def test_what_stays(how: str) -> None:
    x, y = (road.filled(np.arange(256), np.int32) for _ in "xy")
    args = [x, y, road.filled(np.arange(4), np.int32), 4]
    compiled, after = road.check_equal(held_back, args, 1, {"BLOCK": 64, "HOW": how})
    np.testing.assert_array_equal(after[1], x + 1)
    assert ahead(compiled) == ([2] if how == "plain" else [])


def test_registers_limit_how_far() -> None:
    """A thread of one warp holds 8 of 256 words: an iteration's fit, two's don't; of 512 none."""
    x = road.filled(np.zeros((ROWS, 512)), np.int32)
    args = [x, road.array((ROWS, 512), np.int32), 4, 512, 0]
    for block, found in ((256, [1]), (512, [])):
        meta = {"BLOCK": block, "STAGES": 3, "num_warps": 1}
        if not found:
            with pytest.warns(wl.WarploomWarning, match="one stage instead of 3"):
                compiled = road.compile_for(centred, args, 1, meta)
            assert f"more than {BUDGET}" in compiled.explain()
        else:
            compiled = road.compile_for(centred, args, 1, meta)
        assert ahead(compiled) == found


@wl.jit
def normed(
    x_ptr: Any, w_ptr: Any, label_ptr: Any, y_ptr: Any, columns: Any, BLOCK: tl.constexpr,
    HOW: tl.constexpr,
) -> None:  # fmt: skip
    """A weight behind a sum, a number named by an index behind a loop."""
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < columns, other=0)
    total = tl.sum(x, axis=0)
    if HOW == "written":
        tl.store(w_ptr + at, x, mask=at < columns)
    if HOW == "atomic":
        tl.atomic_add(label_ptr + 1, 1, sem="acq_rel")
    start = total if HOW == "depends" else 0
    w = tl.load(w_ptr + start * 0 + tl.minimum(start, 0) + at, mask=at < columns, other=0)
    for i in range(0, columns, BLOCK // 4):
        total += tl.max(tl.load(x_ptr + i + at, mask=i + at < columns, other=0), axis=0)
    label = tl.load(label_ptr)
    chosen = tl.load(x_ptr + label)
    tl.store(y_ptr + at, w * total + chosen, mask=at < columns)


@pytest.mark.parametrize("how", ["plain", "written", "atomic", "depends"])
def test_loads_behind_what_threads_wait_for(how: str) -> None:
    rng = np.random.default_rng(1)
    x, w = (road.filled(rng.integers(0, 9, 40), np.int32) for _ in "xw")
    label = road.filled(np.array([7, 0]), np.int32)
    args = [x, w, label, road.array((40,), np.int32), 40]
    compiled, after = road.check_equal(normed, args, 1, {"BLOCK": 64, "HOW": how})
    weight = x if how == "written" else w
    total = x.sum() + sum(x[i:].max() for i in (0, 16, 32))
    np.testing.assert_array_equal(after[3], weight * total + x[7])
    early = compiled.schedule.hoisted_loads
    assert len(early) == {"plain": 3, "atomic": 0}.get(how, 2)
    main = next(o for o in walk(compiled.placed.body) if o.kind is task.tasks).regions[0]
    kinds = [o.kind for o in main.ops]
    first = kinds.index(tile.reduce)
    loads = [i for i, k in enumerate(kinds) if k in (tile.load, tile.load_box)]
    assert sum(i < first for i in loads) == 1 + len(early)


@wl.jit
def centred_rows(x_ptr: Any, y_ptr: Any, size_ptr: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    """Two walks along a row, as many steps each; a third whose length stands in memory."""
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x_ptr + start + at, mask=start + at < columns, other=0)
    mean = tl.sum(total, axis=0) // columns
    for _ in range(tl.load(size_ptr)):
        mean += tl.max(tl.load(x_ptr + at, mask=at < columns, other=0), axis=0)
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + start + at, mask=start + at < columns, other=0)
        tl.store(y_ptr + start + at, x - mean, mask=start + at < columns)


@pytest.mark.parametrize("columns, once", [(64, True), (40, True), (65, False), (200, False)])
def test_rows_that_fit_into_a_block(columns: int, once: bool) -> None:
    """A launch of one step has no loop but the one that it doesn't know, and loads x once for both walks."""
    x = road.filled(np.random.default_rng(columns).integers(0, 99, 256), np.int32)
    args = [x, road.array((256,), np.int32), road.filled(np.array([1]), np.int32), columns]
    compiled, after = road.check_equal(centred_rows, args, 1, {"BLOCK": 64})
    row = x[:columns]
    wanted = row - row.sum() // columns - row[:64].max()
    np.testing.assert_array_equal(after[1][:columns], wanted)
    assert compiled.request.launch.short == once
    ops = list(walk(compiled.placed.body))
    assert sum(o.kind is control.for_ for o in ops) == (1 if once else 3)
    loads = [o for o in ops if o.kind is tile.load_box]
    assert len(loads) == (3 if once else 5)  # loops that load ahead have two


def test_no_step_is_not_one() -> None:
    x = road.filled(np.arange(64), np.int32)
    args = [x, road.filled(np.full(64, 3), np.int32), road.filled(np.array([0]), np.int32), 0]
    compiled = road.compile_for(centred_rows, args, 1, {"BLOCK": 64})
    assert not compiled.request.launch.short


@wl.jit
def in_place(x_ptr: Any, rows: Any, columns: Any, BLOCK: tl.constexpr) -> None:
    """Twice all rows less a number made of their largest elements."""
    at = tl.arange(0, BLOCK)
    for _ in range(2):
        most = 0
        for row in tl.range(0, rows, num_stages=2):
            x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-(2**30))
            most = most * 2 + tl.max(x, axis=0)
        for row in tl.range(0, rows, num_stages=2):
            places = x_ptr + row * columns + (BLOCK - 1 - at)
            x = tl.load(places, mask=BLOCK - 1 - at < columns)
            tl.store(places, x - most, mask=BLOCK - 1 - at < columns)


@pytest.mark.filterwarnings("ignore::warploom.errors.WarploomWarning")
def test_loads_run_ahead_where_their_loop_stores_nothing() -> None:
    """The loop that changes the array keeps its order; the other one begins after a barrier."""
    x = road.filled(np.arange(6 * 40) % 7, np.int32).reshape(6, 40)
    args = [x, 6, 40]
    compiled, after = road.check_equal(in_place, args, 1, {"BLOCK": 64, "num_warps": 2})
    wanted = x.copy()
    for _ in range(2):
        most = 0
        for row in wanted:
            most = most * 2 + row.max()
        wanted -= most
    np.testing.assert_array_equal(after[0], wanted)
    (plan,) = compiled.schedule.pipelines
    (loop,) = (o for o in walk(compiled.lowered.tile.body) if o.id == plan.loop)
    assert not any(o.stores for o in loop.all_ops)
    outer = next(o for o in walk(compiled.lowered.placed.body) if o.kind is control.for_)
    ops = outer.regions[0].ops
    sync = next(i for i, o in enumerate(ops) if o.kind is smem.group_sync)
    assert sync < min(i for i, o in enumerate(ops) if any(x.loads for x in o.all_ops))
