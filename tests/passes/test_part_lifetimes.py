"""Staging of stores in the bytes of rings, where that lets another CTA onto the multiprocessor."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
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


@wl.jit
def of_known_size(a_ptr, b_ptr, c_ptr, K: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    """The sizes are numbers in the text, as torch.compile writes them."""
    at, step = tl.arange(0, N), tl.arange(0, STEP)
    sums = tl.zeros((N, N), tl.float32)
    for k in range(0, K // STEP):
        a = tl.load(a_ptr + at[:, None] * K + (step + k * STEP)[None, :])
        b = tl.load(b_ptr + (step + k * STEP)[:, None] * N + at[None, :])
        sums += tl.dot(a, b)
    tl.store(c_ptr + at[:, None] * N + at[None, :], sums.to(tl.bfloat16))


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_loops_of_known_length_are_counted(steps: int) -> None:
    """Three slots of 32 KB and staging of 32 KB: with bytes of its own it would leave room for one CTA."""
    k = 64 * steps
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-2, 3, s).astype(BF16) for s in ((128, k), (k, 128)))
    c = np.zeros((128, 128), BF16)
    how = {"num_warps": 4, "num_stages": 3, "num_consumer_groups": 0, "num_buffers_warp_spec": 3}
    compiled = of_known_size.compile_for(a, b, c, K=k, N=128, STEP=64, grid=(1,), **how)
    assert compiled.plan.shared_bytes < 3 * (1 << 15) + 1024
    for order in ("late", "early", "reverse"):
        c[:] = 0
        compiled.simulate(a, b, c, grid=(1,), order=order)
        assert (c == (a.astype(np.float32) @ b.astype(np.float32)).astype(BF16)).all()
    assert compiled.check().ok
