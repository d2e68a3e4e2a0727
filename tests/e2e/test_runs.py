"""Pointers that are no box of a strided array: what is adjacent, aligned and masked alike moves at once."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from warploom.ir.core import OpKind, walk
from warploom.ir.ops import tile
from warploom.runtime.compiled import CompiledKernel


@wl.jit
def gather_rows(
    x_ptr: Any, rows_ptr: Any, out_ptr: Any, M: Any, N: Any, BM: tl.constexpr, BN: tl.constexpr
) -> None:
    """Rows that an index names; the columns in steps, the pointers carried."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BN)
    rows = tl.load(rows_ptr + r, mask=r < M, other=0)
    x = x_ptr + rows[:, None] * N + c[None, :]
    out = out_ptr + (M - 1 - rows[:, None]) * N + c[None, :]
    for n in range(0, N, BN):
        inside = (r[:, None] < M) & (n + c[None, :] < N)
        v = tl.load(x, mask=inside, other=2.0)
        tl.store(out, v + v, mask=inside)
        x += BN
        out += BN


def runs(compiled: CompiledKernel, *kinds: OpKind) -> list[tuple[int, ...]]:
    return [o.attrs.get("run", ()) for o in walk(compiled.placed.body) if o.kind in kinds]


@pytest.mark.parametrize(
    ("dtype", "n", "widest"),
    [
        (np.float32, 48, 4), (np.float32, 42, 2), (np.float32, 41, 1), (np.float16, 48, 8),
        (np.float16, 44, 4), (ml_dtypes.bfloat16, 46, 2), (np.float16, 45, 1), (np.int8, 48, 16),
        (np.int8, 42, 2), (np.int64, 42, 2), (np.float64, 41, 1), (ml_dtypes.float8_e4m3fn, 40, 8),
    ],
)  # fmt: skip
@pytest.mark.each(2)
def test_rows_that_an_index_names(dtype: Any, n: int, widest: int) -> None:
    rng = np.random.default_rng(n)
    m = 37
    x = road.filled(rng.integers(-4, 5, (1, m * n)).astype(np.float32), dtype)[0]
    rows = road.filled(rng.permutation(m).reshape(1, -1), np.int32)[0]
    out = road.array((1, m * n), dtype)[0]
    compiled, found = road.check_equal(gather_rows, [x, rows, out, m, n], 2, {"BM": 32, "BN": 64})
    got = found[2].reshape(m, n).astype(np.float64)
    np.testing.assert_array_equal(got[::-1], 2 * x.reshape(m, n).astype(np.float64))
    assert runs(compiled, tile.load, tile.store)[-2:] == [(1, widest) if widest > 1 else ()] * 2
    bits = 8 * widest * np.dtype(dtype).itemsize
    size = {int(s) for s in re.findall(r"\bload_global(\d+)(?:_if)?\(", compiled.cuda)}
    assert bits in size
    assert f"store_global{bits}(" in compiled.cuda
    assert compiled.resources.problems() == ()


@wl.jit
def masked(x_ptr: Any, out_ptr: Any, first: Any, N: Any, KIND: tl.constexpr) -> None:
    i = tl.arange(0, 256)
    if KIND == "le":
        inside = i <= N
    elif KIND == "odd start":
        inside = first + i < N
    elif KIND == "mirrored":
        inside = i < N
    else:
        inside = (i < N) & (i >= first)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=inside, other=7), mask=inside)


@pytest.mark.parametrize(
    ("kind", "first", "n", "widest"),
    [
        ("le", 0, 96, 1), ("odd start", 3, 96, 1), ("odd start", 8, 96, 4), ("mirrored", 0, 98, 2),
        ("between", 4, 96, 4), ("between", 6, 96, 2),
    ],
)  # fmt: skip
def test_masks_that_cut_a_run_keep_elements_apart(
    kind: str, first: int, n: int, widest: int
) -> None:
    x = road.filled(np.arange(256).reshape(1, -1), np.int32)[0]
    out = road.array((1, 256), np.int32)[0]
    compiled, _ = road.check_equal(masked, [x, out, first, n], 1, {"KIND": kind})
    assert runs(compiled, tile.load) == [(0, widest) if widest > 1 else ()]


def test_a_run_that_is_none_is_found_by_the_simulator() -> None:
    from tests.unit.codegen_kernels import kernel, placed
    from warploom.sim.machine import simulate
    from warploom.sim.report import ProtocolError

    text = """    %r = arange() {start=START, end=END} : tile<64xi32>
    %b = splat(%a) {shape=(64,)} : tile<64xptr<i32>>
    %p = addptr(%b, %r) : tile<64xptr<i32>>
    %v = load(%p) {run=(0, 4)} : tile<64xi32>
    store(%p, %v)"""
    for start in (0, 4, 2):
        body = text.replace("START", str(start)).replace("END", str(start + 64))
        func = placed(kernel("%a: ptr<i32>", body))
        a = road.filled(np.arange(80).reshape(1, -1), np.int32)[0]
        if start % 4 == 0:
            simulate(func, [a], 1)
            continue
        with pytest.raises(ProtocolError, match="runs of 4"):
            simulate(func, [a], 1)


@wl.jit
def add_rows(
    x_ptr: Any, rows_ptr: Any, out_ptr: Any, n: Any, N: tl.constexpr, BM: tl.constexpr
) -> None:
    """Rows are added to those that an index names."""
    r, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, N)
    rows = tl.load(rows_ptr + r, mask=r < n, other=0)
    x = tl.load(x_ptr + r[:, None] * N + c[None, :], mask=r[:, None] < n, other=0)
    tl.atomic_add(out_ptr + rows[:, None] * N + c[None, :], x, mask=r[:, None] < n)


def rows_to_add(dtype: Any, count: int = 70, width: int = 64) -> tuple[Any, Any, Any, Any]:
    """(x, the rows that each is added to, zeros, the sums: small whole numbers)."""
    rng = np.random.default_rng(5)
    x = rng.integers(-3, 4, (count, width)).astype(dtype)
    rows = rng.integers(0, 9, count).astype(np.int64)
    sums = np.zeros((9, width))
    np.add.at(sums, rows, x.astype(float))
    return x, rows, np.zeros((9, width), dtype), sums


@pytest.mark.parametrize(
    ("dtype", "most"), [(np.float32, 4), (np.float16, 8), (ml_dtypes.bfloat16, 8)]
)
def test_adjacent_floats_are_added_at_once(dtype: Any, most: int) -> None:
    x, rows, out, sums = rows_to_add(dtype)
    meta = {"N": 64, "BM": 32, "grid": (3,)}
    compiled = add_rows.compile_for(x, rows, out, 70, **meta)
    assert runs(compiled, tile.atomic) == [(1, most)]
    assert f"x{most}(" in compiled.asm["cuda"].rpartition("__global__")[2]
    compiled.simulate(x, rows, out, 70, grid=(3,))
    assert np.array_equal(out.astype(float), sums)
    for target in ("sm_80", "sm_90a"):  # bf16 by compare-and-swap where the chip has no atomic
        assert (
            add_rows.compile_for(x, rows, out, 70, **meta, target=target).resources.spill_bytes == 0
        )
