"""Dots of few rows are made as their transposes (passes/tile/canonicalize/transpose_dots.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corpus.case import BF16, E4M3
from corpus.skinny import CASES, product
from tests.e2e.corpus import judging
from warploom.errors import CompileError

pytestmark = pytest.mark.usefixtures("without_nvrtc")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.each(2)
def test_products_of_few_rows(name: str, tmp_path: Path) -> None:
    said = judging.judge(CASES[name](), "tasks", tmp_path, orders=("late",), full=False)
    assert said.startswith("tasks")


@pytest.mark.parametrize("dtype", [BF16, E4M3], ids=["bf16", "e4m3"])
def test_every_form_of_a_turned_product(dtype: Any, tmp_path: Path) -> None:
    """8-bit operands lie along K, also where a script takes their transposes."""
    case = product(20, 70, 96, (16, 64, 32), dtype, "rc")
    assert judging.judge(case, "auto", tmp_path).startswith("tasks")


def test_a_sum_is_carried_as_it_is_made() -> None:
    """So a product waits for none of the step before; the kernel is told what became of its dot."""
    case = product(70, 200, 160, (16, 64, 32), BF16, "rc")
    compiled = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta)
    (loop,) = (part.split("yield")[0] for part in compiled.ir["WARP"].split("= for(")[1:2])
    assert "inflight<tile<64x16xf32" in loop and "pending=1" in loop and "pending=0" not in loop
    assert "made as its transpose" in compiled.explain()


@pytest.mark.parametrize("warps", [1, 2])
@pytest.mark.each(2)
def test_warps_that_do_rows_as_they_are_make_no_transpose(warps: int, tmp_path: Path) -> None:
    """wgmma takes four warps: mma.sync's 16 rows decide, of which 8 are none."""
    for rows, transposed in ((16, False), (8, True)):
        case = product(70, 200, 160, (rows, 64, 64), BF16, "rc")
        case = replace(case, knobs={**case.knobs, "num_warps": warps}, tasks=False)
        judging.judge(case, "auto", tmp_path, orders=("late",), full=False)
        knobs = {**case.meta, **case.knobs}
        told = case.kernel.compile_for(*case.args, grid=case.grid, **knobs).explain()
        assert ("made as its transpose" in told) == transposed
        assert "mma.sync m16n8k16" in told and "wgmma takes multiples" not in told


@pytest.mark.parametrize("tile", [(24, 48, 64), (20, 64, 64), (264, 64, 64)], ids=str)
@pytest.mark.each(2)
def test_what_neither_fills_an_instruction_of_a_warp_group(tile: tuple[int, int, int]) -> None:
    """Other instructions are filled in part, whichever way takes fewer; none where only warp groups multiply."""
    case = product(64, 64, 64, tile, BF16, "rc")
    compiled = case.kernel.compile_for(*case.args, grid=case.grid, **case.meta)
    assert "mma.sync instead of" in compiled.explain()
    with pytest.raises(CompileError) as refused:
        case.kernel.compile_for(*case.args, grid=case.grid, matrix_unit="wgmma", **case.meta)
    assert refused.value.code == "wgmma-m" and "made as its transpose" in str(refused.value)
