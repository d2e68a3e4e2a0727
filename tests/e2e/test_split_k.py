"""Products of few tiles, whose K is split among programs: right in every order, launch after launch, proved."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
from corpus.case import BF16, F16, F32, ints, stored, strides
from tests.e2e import road
from tests.pairwise import every
from warploom.errors import LaunchError
from warploom.kernels.gemm import gemm, persistent_grid
from warploom.kernels.split_k import (
    SPLIT_K_CONFIGS,
    SPLIT_K_IN_ORDER_CONFIGS,
    gemm_split_k,
    programs,
    short_gemm,
    workspace,
    worth_trying,
)
from warploom.target import SM_90A
from warploom.target.sm_80 import SM_80
from warploom.target.sm_86 import SM_86

# M, N, K, BLOCK_M, SPLIT_K, dtypes, orders in memory: nothing divides anything where it need not
CASES = {
    "two": (13, 150, 400, 16, 2, BF16, BF16, "rc"),
    "three": (16, 64, 512, 16, 3, F16, F32, "rr"),
    "eight-of-few-steps": (5, 70, 200, 16, 8, BF16, BF16, "rr"),
    "32-rows": (40, 128, 384, 32, 4, F16, F16, "cc"),
    "whole": (16, 192, 260, 16, 1, BF16, BF16, "rc"),
    "no-step": (16, 64, 0, 16, 2, BF16, BF16, "rc"),
}


def arguments(
    m: int, n: int, k: int, rows: int, split: int, dtype: Any, out: Any, orders: str, **tile: int
) -> Any:
    """(arguments, constexprs, grid, what C has to be); tile: other blocks than of 64"""
    a, b = stored(ints(m, k, dtype=dtype), orders[0]), stored(ints(k, n, dtype=dtype), orders[1])
    c = np.full((m, n), np.nan, out)
    meta = {"BLOCK_M": rows, "BLOCK_N": 64, "BLOCK_K": 64, "SPLIT_K": split, **tile}
    grid = programs(m, n)(meta)
    parts = np.full(math.prod(grid) * rows * meta["BLOCK_N"], np.nan, np.float32)
    args = (a, b, c, parts, np.zeros(grid[0], np.int32), m, n, k, *strides(a, b, c))
    return args, meta, grid, (a.astype(np.float64) @ b.astype(np.float64)).astype(out)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("unit", ["wgmma", "mma.sync"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.each(2)
def test_it_is_right_in_every_order_launch_after_launch(name: str, unit: str) -> None:
    args, meta, grid, want = arguments(*CASES[name])
    made = gemm_split_k.compile_for(*args, grid=grid, **meta, matrix_unit=unit)
    for order in road.default_orders():
        args[2][...] = np.nan
        made.simulate(*args, grid=grid, order=order, seed=1)
        assert np.array_equal(args[2], want), order
        assert not args[4].any()


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("name", every(2, ["two", "three", "32-rows", "whole"], first=1))
def test_it_is_proved(name: str) -> None:
    args, meta, grid, _ = arguments(*CASES[name])
    made = gemm_split_k.compile_for(*args, grid=grid, **meta)
    report = made.check(*args, grid=(*grid, 1))
    assert report.ok, str(report)


@pytest.mark.parametrize("config", every(2, SPLIT_K_CONFIGS), ids=str)
@pytest.mark.each(2)
def test_its_configs_compile_without_spills(config: wl.Config) -> None:
    signature = {"a_ptr": "*bf16:16", "b_ptr": "*bf16:16", "c_ptr": "*bf16:16"}
    signature |= {"parts_ptr": "*fp32:16", "counts_ptr": "*i32:16"}
    signature |= dict.fromkeys(("M", "N", "K", "stride_am", "stride_bn", "stride_cm"), "i32:16")
    signature |= dict.fromkeys(("stride_ak", "stride_bk", "stride_cn"), "i32=1")
    knobs = {k: v for k, v in config.all_kwargs.items() if k not in config.kwargs}
    made = gemm_split_k.compile(signature, dict(config.kwargs), strict=True, **knobs)
    assert made.resources.problems() == ()
    (ring,) = made.schedule.channels
    assert made.schedule.specialized and ring.depth == config.num_buffers_warp_spec
    assert ring.via == ("tma", "tma")


@pytest.mark.parametrize(("m", "n", "splits"), [(16, 4096, {1, 2, 4}), (16, 8192, {1, 2}), (1, 64, {1, 2, 4, 8}), (16, 14336, {1}), (20, 2048, {1, 2, 4})])  # fmt: skip
def test_k_is_split_where_the_grid_is_short(m: int, n: int, splits: set[int]) -> None:
    found = worth_trying(SPLIT_K_CONFIGS, {"M": m, "N": n})
    assert {c.kwargs["SPLIT_K"] for c in found} == splits
    parts, counts = workspace(m, n)
    for c in found:
        tiles, split = programs(m, n)(dict(c.kwargs))
        assert tiles <= counts
        assert split == 1 or tiles * split * c.kwargs["BLOCK_M"] * c.kwargs["BLOCK_N"] <= parts


def test_each_chip_has_configs_of_its_own() -> None:
    """20 rows of 4096 columns are 64 tiles: two programs each on sm_80, none more on sm_86's 84."""
    for target, parts in ((SM_90A, 128), (SM_80, 1), (SM_86, 1)):
        assert workspace(20, 4096, target.name) == (parts * 32 * 64 if parts > 1 else 1, 64)
    assert workspace(20, 2048, "sm_80")[0] == workspace(20, 2048, "sm_86")[0] == 64 * 32 * 64
    assert short_gemm.configs_for(SM_80) == tuple(SPLIT_K_IN_ORDER_CONFIGS)


def test_its_workspace_is_looked_at() -> None:
    a, b, c = np.ones((16, 64), BF16), np.ones((64, 128), BF16), np.zeros((16, 128), BF16)
    parts, counts = (
        np.zeros(n, t) for n, t in zip(workspace(16, 128), (np.float32, np.int32), strict=True)
    )
    sizes = (16, 128, 64, *strides(a, b, c))
    for held, drawn, told in (
        (parts[:-1], counts, "parts is of shape"),
        (parts, counts.astype(np.float32), "counts is of f32"),
    ):
        with pytest.raises(LaunchError, match=told):
            short_gemm[programs(16, 128)](a, b, c, held, drawn, *sizes)
    short_gemm[programs(16, 128)](a, b, c, parts, counts, *sizes)
    assert (c == 64).all()


def product(entry: Any, grid: Any, m: int = 40, n: int = 72, k: int = 64) -> Any:
    """C of a call on this grid, or what it raises; A and B are ones."""
    a, b, c = (np.ones(s, ml_dtypes.bfloat16) for s in ((m, k), (k, n), (m, n)))
    c[:] = 0
    more = [
        np.zeros(size, t) for size, t in zip(workspace(m, n), (np.float32, np.int32), strict=True)
    ]
    entry[grid](a, b, c, *(more if entry is short_gemm else ()), m, n, k, k, 1, n, 1, n, 1)
    return c


@pytest.mark.parametrize(
    ("entry", "grid"),
    [
        *((short_gemm, grid) for grid in ((1,), (3, 3), (2, 1, 2), (0,), lambda meta: (9,))),
        *((gemm, grid) for grid in ((0,), (2, 2), (2, 1, 3), lambda meta: (1, 2))),
    ],
)
def test_a_grid_that_the_kernel_is_not_made_for(entry: Any, grid: Any) -> None:
    """It would leave tiles out, or count parts that are none, without a word."""
    with pytest.raises(LaunchError, match="the grid is") as refused:
        product(entry, grid)
    assert refused.value.code == "library-argument"


def test_grids_that_a_kernel_is_made_for() -> None:
    for grid in ((1,), (5,), (100,), persistent_grid(40, 72, 4)):
        assert (product(gemm, grid) == 64).all()
    assert (product(short_gemm, programs(40, 72)) == 64).all()
    assert product(gemm, (0,), m=0).size == 0


def test_a_grid_is_looked_at_in_a_warm_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arguments, seen before, on another grid."""
    entry, started = copy.copy(gemm), []
    prepared = SimpleNamespace(start=started.append)
    hit = (prepared, None, lambda: True), entry.configs[0]
    monkeypatch.setattr(entry, "_seen", SimpleNamespace(find=lambda *_: hit))
    args = (None, None, None, 40, 72, 64, 64, 1, 72, 1, 72, 1)
    entry.launch((2,), *args)
    entry.launch(persistent_grid(40, 72, 4), *args)
    with pytest.raises(LaunchError, match="the grid is"):
        entry.launch((2, 2), *args)
    assert len(started) == 2
