"""What NVRTC makes of kernels.  Of the library's, at the configs that they are tuned for: no spill, no stack,
no ptxas advisory, and registers as planned.  Of a sample of all GEMMs (all of them by `make spills`): the
same, or the user is told."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e import kernels, road, variants
from tests.e2e.gemms import Gemm
from tests.fuzz.case import Case
from tests.fuzz.draw import draw
from warploom.runtime.build import resources_fit
from warploom.runtime.compiled import CompiledKernel
from warploom.target import SM_90A

# A launch of three warp groups gets 65536 / 384 registers a thread, rounded down to a multiple of 8.
THREE_GROUPS = 168


def clean(compiled: CompiledKernel, registers: int) -> None:
    found = compiled.resources
    assert found.advisories == ()
    assert found.registers <= registers
    assert tuple(resources_fit(found, SM_90A)) == ()
    assert compiled.warnings == ()
    assert (found.spill_bytes, found.stack_bytes) == (0, 0)


def specialized(groups: int, depth: int | None = None) -> dict[str, Any]:
    return {"num_consumer_groups": groups, "num_buffers_warp_spec": depth, "strict": True}


def uniform(warps: int, stages: int) -> dict[str, Any]:
    return {"num_consumer_groups": 0, "num_warps": warps, "num_stages": stages}


def gemm(bm: int, bn: int, bk: int, **more: Any) -> Gemm:
    return Gemm(512, 512, 512, blocks=(bm, bn, bk), **more)


CASES: list[tuple[Gemm, dict[str, Any], int]] = [
    (gemm(128, 256, 64), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, orders="rr"), specialized(2, 4), THREE_GROUPS),
    (gemm(128, 256, 64, orders="cr", dtype="f16", out="f16"), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, orders="cc"), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, out="f32"), specialized(2), THREE_GROUPS),
    (gemm(128, 256, 64, kernel="host"), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, kernel="device"), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, pads=(4, 4, 4)), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, pads=(1, 1, 1)), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, pads=(1, 1, 0)), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, pads=(4, 4, 0)), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 64, pads=(2, 2, 0)), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 128, 64, out="f32", pads=(0, 0, 1)), specialized(2), THREE_GROUPS),
    (gemm(128, 256, 64, pads=(0, 0, 1)), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 128, 64, pads=(1, 1, 1)), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 128), specialized(2, 2), THREE_GROUPS),
    (gemm(128, 256, 128, dtype="e4m3"), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 256, 128, dtype="e5m2", out="f16"), specialized(2, 3), THREE_GROUPS),
    (gemm(128, 192, 64), specialized(2, 4), THREE_GROUPS),
    (gemm(128, 128, 64), specialized(2, 6), THREE_GROUPS),
    (gemm(128, 128, 64, dtype="f16", out="f16", orders="rr"), specialized(2, 1), THREE_GROUPS),
    (gemm(64, 256, 64), specialized(2), THREE_GROUPS),
    (gemm(64, 256, 64), specialized(1), 200),
    (gemm(64, 128, 64), specialized(1, 7), 128),
    (gemm(64, 128, 64), specialized(2), THREE_GROUPS),
    (gemm(64, 32, 256), specialized(1, 4), 128),
    (gemm(128, 256, 64), uniform(8, 3), 200),
    (gemm(128, 128, 64), uniform(4, 4), 200),
    (gemm(128, 128, 64, pads=(1, 1, 1)), uniform(8, 3), 200),
]


@pytest.mark.parametrize(
    ("case", "knobs", "registers"),
    [
        pytest.param(
            *c,
            id=f"{c[0]}-{'x'.join(map(str, c[0].blocks))}-{i}",
            marks=() if i % 2 else pytest.mark.thorough,
        )
        for i, c in enumerate(CASES)
    ],
)
@pytest.mark.each(2)
def test_tuned_gemms(case: Gemm, knobs: dict[str, Any], registers: int) -> None:
    args = case.args(*case.arrays(np.random.default_rng(0)))
    compiled = road.compile_for(case.jit, args, 1, {**case.meta, **knobs})
    clean(compiled, registers)
    depth = knobs.get("num_buffers_warp_spec")
    if depth is not None and compiled.schedule.specialized and case.pads == (0, 0, 0):
        assert [c.depth for c in compiled.schedule.channels] in ([depth], [depth - 1])


TILES = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
MATRIX = ["*bf16:16", "*bf16:16", "*bf16:16", "i32:16", "i32:16", "i32:16"]
ATTENTION = {"BLOCK_Q": 128, "BLOCK_K": 64, "HEAD": 64, "SOFTMAX": True}


@pytest.mark.parametrize("groups", [2, 0])
@pytest.mark.parametrize(
    ("kernel", "signature", "constexprs"),
    [
        (kernels.gated, ["*bf16:16", *MATRIX, "i32:16", "i32:16", "i32:16"], {**TILES, "BLOCK_N": 64}),
        (
            kernels.product_and_sums,
            [*MATRIX[:3], "*fp32:16", *MATRIX[3:], *["i32:16"] * 3],
            TILES,
        ),
        (kernels.batched, MATRIX, TILES),
        (kernels.attention, ["*bf16:16"] * 4 + ["fp32", "i32:16", "i32:16"], ATTENTION),
    ],
    ids=["gated", "product_and_sums", "batched", "attention"],
)  # fmt: skip
@pytest.mark.each(3)
def test_other_kernels(
    kernel: Any,
    signature: list[str],
    constexprs: dict[str, Any],
    groups: int,
) -> None:
    knobs = specialized(groups) if groups else uniform(8, 2)
    clean(kernel.compile(signature, constexprs, **knobs), 255 if not groups else THREE_GROUPS)


@pytest.mark.parametrize("seed", [13, 16])
def test_random_kernels(seed: int, tmp_path: Path) -> None:
    """Kernels with dots, of 16 two in a chain with operands in registers."""
    case = Case(draw(seed))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*not-as-asked")
        compiled = case.load(tmp_path).compile_for(
            *case.arguments(case.data), grid=case.kernel.grid, **case.kernel.knobs
        )
    assert compiled.resources.problems() == ()


SAMPLE = variants.sample(50, first=7)  # of `make spills`


@pytest.mark.parametrize(("case", "knobs"), SAMPLE, ids=map(variants.name, SAMPLE))
@pytest.mark.each(2)
def test_variants(case: Gemm, knobs: dict[str, Any]) -> None:
    """No tile up to 192x160 spills, and what does is told."""
    text = variants.told(case, knobs)
    bm, bn, _ = case.blocks
    assert not text or bm * bn > 128 * 256, text


@pytest.mark.parametrize(
    ("knobs", "entry", "budgets"),
    [
        ({"maxnreg": 128}, 128, [176, 32]),
        ({"maxnreg": 96}, 96, [128, 32]),
        # more than the limit, less than without one: it is inc that asks for them
        ({"maxnreg": 128, "reg_inc_consumer": 152, "reg_dec_producer": 72}, 128, [152, 72]),
        ({"maxnreg": 200, "num_consumer_groups": 2}, THREE_GROUPS, [232, 40]),
    ],
)
def test_the_pool_is_what_maxnreg_leaves(
    knobs: dict[str, Any], entry: int, budgets: list[int]
) -> None:
    """Tasks share it; a launch gets no more than there are."""
    case = gemm(128, 128, 64)
    args = case.args(*case.arrays(np.random.default_rng(0)))
    compiled = road.compile_for(case.jit, args, 1, {**case.meta, **knobs})
    clean(compiled, entry)
    assert [t.registers for t in compiled.schedule.tasks] == budgets
