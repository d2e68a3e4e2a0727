"""Staging of stores in the bytes of rings, where that lets another CTA onto the multiprocessor."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from corpus.choice_kernels import one_tile
from tests.e2e import road
from warploom.ir.ops import smem

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize(("stages", "parted"), [(6, True), (4, False), (8, False)])
def test_a_tile_leaves_through_the_ring_of_its_operands(stages: int, parted: bool) -> None:
    """128x128x32: 96 KB of six slots let in two CTAs, with 32 KB of staging one; 64 KB of four three and two,
    which are enough; 128 KB of eight one in any case."""
    m = n = 128
    k = 160
    rng = np.random.default_rng(3)
    a, b = (road.filled(rng.integers(-2, 3, (m, k)).astype(np.float32), BF16) for _ in range(2))
    c = road.array((m, n), BF16)
    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}
    how = {"num_consumer_groups": 0, "num_warps": 4, "num_stages": stages}
    compiled, found = road.check_equal(one_tile, [a, b, c, m, n, k, 0, 0, 0], (1, 1), blocks | how)
    np.testing.assert_array_equal(
        found[2].astype(np.float64), a.astype(np.float64) @ b.astype(np.float64).T
    )
    staging = [
        o
        for o in compiled.placed.body.ops
        if o.kind is smem.shared_alloc and o.attrs["name"].startswith("store")
    ]
    assert [bool(o.attrs.get("reuses")) for o in staging] == [parted]
    assert compiled.check().ok
