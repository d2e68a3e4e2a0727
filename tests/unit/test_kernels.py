"""The library's tuned GEMM: every config compiles within limits, and the grid covers every tile.  The page of
the library's kernels names what there is."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.pairwise import every
from warploom import kernels
from warploom.kernels.gemm import (
    GEMM_CONFIGS,
    GEMM_IN_ORDER_CONFIGS,
    gemm,
    gemm_pointers,
    grouped_tile,
    persistent_grid,
)

ROOT = Path(__file__).parents[2]
ORDERS = {  # strides of a K-major and of an N-major B
    "TN": {"stride_bk": "i32=1", "stride_bn": "i32:16"},
    "NN": {"stride_bk": "i32:16", "stride_bn": "i32=1"},
}


@pytest.mark.parametrize("index", every(2, range(len(GEMM_CONFIGS))))
@pytest.mark.each(2)
def test_every_config_compiles_within_limits(index: int) -> None:
    config = GEMM_CONFIGS[index]
    dtype, order = [("bf16", "TN"), ("bf16", "NN"), ("fp16", "TN")][index % 3]
    signature = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), f"*{dtype}:16")
    signature |= dict.fromkeys(("M", "N", "K", "stride_am", "stride_cm"), "i32:16")
    signature |= {"stride_ak": "i32=1", "stride_cn": "i32=1", **ORDERS[order]}
    tile = dict(config.kwargs)
    knobs = {k: v for k, v in config.all_kwargs.items() if k not in tile}
    kernel = gemm_pointers.compile(signature=signature, constexprs=tile, strict=True, **knobs)
    resources = kernel.resources
    assert resources.spill_bytes == 0 and resources.stack_bytes == 0
    assert resources.advisories == ()
    assert kernel.schedule.specialized
    assert {c.via for c in kernel.schedule.channels} == {("tma", "tma")}
    assert kernel.schedule.channels[0].depth == config.num_buffers_warp_spec


def test_the_tuned_gemm_is_the_same_kernel() -> None:
    assert gemm.fn is gemm_pointers
    assert gemm.configs == (*GEMM_CONFIGS, *GEMM_IN_ORDER_CONFIGS)


@pytest.mark.parametrize(
    "m,n", [(8192, 8192), (1, 1), (64, 8192), (1000, 3000), (0, 64), (2048, 2048)]
)
@pytest.mark.parametrize("multiprocessors", [132, 1, 7])
def test_the_grid_takes_the_fewest_programs_for_its_turns(
    m: int, n: int, multiprocessors: int
) -> None:
    for config in GEMM_CONFIGS:
        tiles = wl.cdiv(m, config.kwargs["BLOCK_M"]) * wl.cdiv(n, config.kwargs["BLOCK_N"])
        (programs,) = persistent_grid(m, n, multiprocessors)(dict(config.kwargs))
        if not tiles:
            assert programs == 0
            continue
        assert 1 <= programs <= min(multiprocessors, tiles)
        turns = wl.cdiv(tiles, multiprocessors)
        assert wl.cdiv(tiles, programs) == turns
        assert programs == 1 or wl.cdiv(tiles, programs - 1) > turns


@wl.jit
def visits(
    m_ptr: Any, n_ptr: Any, tiles_m: Any, tiles_n: Any, GROUP_M: tl.constexpr, SERPENTINE: tl.constexpr
) -> None:  # fmt: skip
    """Where the program's tile is."""
    tile = tl.program_id(0)
    pid_m, pid_n = grouped_tile(tile, tiles_m, tiles_n, GROUP_M, SERPENTINE)
    tl.store(m_ptr + tile, pid_m)
    tl.store(n_ptr + tile, pid_n)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (4, 1), (7, 4), (1, 6)])
def test_every_tile_is_visited_once_in_bands(rows: int, columns: int, back: bool) -> None:
    m, n = np.zeros(rows * columns, np.int32), np.zeros(rows * columns, np.int32)
    visits[(rows * columns,)](m, n, rows, columns, GROUP_M=2, SERPENTINE=back)
    wanted = []
    for band in range(0, rows, 2):
        along = range(columns)[:: -1 if back and band % 4 else 1]
        wanted += [(row, column) for column in along for row in range(band, min(band + 2, rows))]
    assert list(zip(m.tolist(), n.tolist(), strict=True)) == wanted


@pytest.mark.parametrize(
    "order,columns,promoted",
    [("TN", 64, [256, 256]), ("NN", 64, [256, 128]), ("NN", 128, [256, 256])],
)
def test_the_l2_fetches_what_the_program_reads_next(
    order: str, columns: int, promoted: list[int]
) -> None:
    """Half of 256 bytes of a row of B (K×N) would be the next program's, where the tile has 64 columns."""
    signature = dict.fromkeys(("a_ptr", "b_ptr", "c_ptr"), "*bf16:16")
    signature |= dict.fromkeys(("M", "N", "K", "stride_am", "stride_cm"), "i32:16")
    signature |= {"stride_ak": "i32=1", "stride_cn": "i32=1", **ORDERS[order]}
    tile = {"BLOCK_M": 64, "BLOCK_N": columns, "BLOCK_K": 64, "GROUP_M": 8}
    kernel = gemm_pointers.compile(signature=signature, constexprs=tile, num_consumer_groups=1)
    assert [m.promote for m in kernel.plan.maps][:2] == promoted


def test_the_page_of_kernels_names_what_there_is() -> None:
    page = (ROOT / "docs" / "kernels.md").read_text()
    named = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    modules = (m for m in pkgutil.iter_modules(kernels.__path__) if not m.ispkg)
    tuned = {
        name
        for module in modules
        for name, value in vars(importlib.import_module(f"warploom.kernels.{module.name}")).items()
        if isinstance(value, type(gemm))
    }
    assert named == tuned
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(tests) > 15
    for file, name in tests:
        functions = [
            n for n in ast.parse((ROOT / file).read_text()).body if isinstance(n, ast.FunctionDef)
        ]
        assert name in {f.name for f in functions}, f"{file}::{name}"
