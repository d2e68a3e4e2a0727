"""Dots that share a left operand become one: where they may, what it looks like, and that it computes the same."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
from tests.e2e import road
from tests.e2e.shared_operands import descriptors, gated_scores, three_products
from tests.pairwise import diagonals
from warploom.ir.core import Level, walk
from warploom.ir.ops import mma
from warploom.runtime.compiled import CompiledKernel

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
TWO = {"num_consumer_groups": 2, "num_buffers_warp_spec": 3}
TILES = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "TRANSPOSED": False, "WAY": ""}


def integers(*shape: int, dtype: Any = BF16, pad: int = 0) -> Any:
    rng = np.random.default_rng(sum(shape) + pad)
    return road.filled(rng.integers(-2, 3, shape).astype(np.float32), dtype, pad=pad)


def arguments(
    transposed: bool, pad: int, dtype: Any = BF16, m: int = 200, n: int = 100, k: int = 144
) -> Any:
    a = integers(m, k, dtype=dtype, pad=pad)
    bs = [integers(*((n, k) if transposed else (k, n)), dtype=dtype, pad=pad) for _ in range(3)]
    for i, b in enumerate(bs):  # of the same shape, but not the same
        b[...] = np.roll(b, i + 1, axis=0)
    c = road.array((m, n), np.float32)
    leads = [x.strides[0] // x.itemsize for x in (a, bs[0], c)]
    return [a, *bs, c, m, n, k, *leads]


def widths(compiled: CompiledKernel) -> list[int]:
    """Columns of the wgmmas, in order."""
    ops = walk(compiled.lowered.at(Level.WARP).body)
    return [o.operands[1].type.shape[1] for o in ops if o.kind is mma.wgmma]  # type: ignore[attr-defined]


def check(args: Any, meta: dict[str, Any], columns: list[int]) -> CompiledKernel:
    compiled, _ = road.check_equal(three_products, args, (2, 2), meta, levels=True)
    assert widths(compiled) == columns
    return compiled


@pytest.mark.parametrize(("transposed", "pad"), diagonals(2, [False, True], [0, 4, 1]))
@pytest.mark.each(2)
def test_three_dots_become_one(transposed: bool, pad: int) -> None:
    """Whoever fills the ring, the right operands lie side by side, along rows or across them."""
    compiled = check(arguments(transposed, pad), {**TILES, **TWO, "TRANSPOSED": transposed}, [192])
    (ring,) = compiled.schedule.channels
    assert len(ring.items) == 4
    assert compiled.schedule.fused_dots == (("loop0/dot0", "loop0/dot1", "loop0/dot2"),)
    assert "one product of 192 columns with loop0/dot0, loop0/dot1" in compiled.explain()
    assert compiled.check().ok


@pytest.mark.parametrize("knobs", [{"num_warps": 8}, {"num_warps": 4, "num_stages": 1}], ids=str)
@pytest.mark.parametrize("pad", [0, 4])
@pytest.mark.each(2)
def test_uniform_kernels_too(knobs: dict[str, Any], pad: int) -> None:
    meta = {**TILES, "num_consumer_groups": 0, "num_stages": 2, **knobs}
    compiled = check(arguments(False, pad), meta, [192])
    assert compiled.check().ok


def test_as_many_as_an_instruction_takes() -> None:
    check(
        arguments(False, 0),
        {**TILES, **TWO, "BLOCK_N": 96, "BLOCK_M": 64, "num_consumer_groups": 1},
        [192, 96],
    )


@pytest.mark.parametrize(
    ("change", "columns", "why"),
    [
        ({"WAY": "exchanged"}, [64, 64, 64], "not carried from dot to dot alone"),
        ({"WAY": "read"}, [64, 128], "read elsewhere"),
        ({"BLOCK_M": 64}, [32, 32, 32], "divide the columns"),
        ({"BLOCK_N": 136}, [136, 136, 136], "more than the 256 of one instruction"),
    ],
    ids=["exchanged", "read", "split", "wide"],
)
@pytest.mark.each(2)
def test_what_stays_apart(change: dict[str, Any], columns: list[int], why: str) -> None:
    compiled = check(arguments(False, 0), {**TILES, **TWO, **change}, columns)
    assert why in compiled.explain()


def test_results_that_no_loop_carries() -> None:
    """What needs the first result comes behind the wide dot."""
    check(arguments(False, 0), {**TILES, **TWO, "WAY": "fresh"}, [128, 64])


def test_chains_of_sums() -> None:
    """Two dots an iteration on each sum, B2 in two of them: nothing can lie side by side twice."""
    check(arguments(False, 0), {**TILES, **TWO, "WAY": "twice"}, [64] * 4)


@pytest.mark.parametrize("promote", [None, 64])
@pytest.mark.each(2)
def test_8_bit_descriptors(promote: int | None) -> None:
    m, n, k = 160, 80, 160
    a, b1, b2 = (integers(rows, k, dtype=E4M3) for rows in (m, n, n))
    b2[...] = np.roll(b2, 1, axis=1)
    c = road.array((m, n), np.float32)
    blocks = [(128, 64), (48, 64), (48, 64), (128, 48)]
    args = [
        wl.TensorDescriptor.from_tensor(x, list(block))
        for x, block in zip((a, b1, b2, c), blocks, strict=True)
    ]
    meta = {"BLOCK_M": 128, "BLOCK_N": 48, "BLOCK_K": 64, "PROMOTE": promote, **TWO}
    compiled, found = road.check_equal(descriptors, [*args, m, n, k], 2, meta, levels=True)
    assert set(widths(compiled)) == {96}
    a, b1, b2 = (x.astype(np.float64) for x in (a, b1, b2))
    np.testing.assert_array_equal(found[3].base, (a @ b1.T) * (a @ b2.T))
    assert compiled.check().ok


def test_clusters_multicast_each_part() -> None:
    meta = {**TILES, **TWO, "BLOCK_M": 256, "num_ctas": 2}
    compiled = check(arguments(False, 0, m=300), meta, [192])
    assert any(a is not None for a in compiled.schedule.channels[0].multicast)
    assert compiled.check().ok


def test_early_dots_of_overlapping_iterations() -> None:
    seq, d = 300, 64
    q, k, g, v = (integers(seq + i, d)[:seq] for i in range(4))
    args = [q, k, g, v, road.array((seq, d), np.float32), seq]
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "D": d, "num_consumer_groups": 2}
    compiled, _ = road.check_equal(gated_scores, args, 3, meta, levels=True)
    assert compiled.schedule.pipelines and set(widths(compiled)) == {128, 64}
    assert compiled.check().ok
