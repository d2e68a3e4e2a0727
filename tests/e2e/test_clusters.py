"""num_ctas from the launch to the cubin: the library's GEMM in clusters."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.conftest import no_nvrtc
from warploom.kernels.gemm import gemm_pointers
from warploom.runtime.compiled import CompiledKernel

BF16 = ml_dtypes.bfloat16
TILES = {2: (256, 256), 4: (256, 512)}


def arguments(m: int, n: int, k: int) -> list[Any]:
    rng = np.random.default_rng(m)
    a = rng.integers(-3, 4, (m, k)).astype(BF16)
    b = rng.integers(-3, 4, (n, k)).astype(BF16).T
    c = np.zeros((m, n), BF16)
    return [a, b, c, m, n, k, *(s // 2 for x in (a, b, c) for s in x.strides)]


@functools.cache
def compiled(ctas: int) -> CompiledKernel:
    bm, bn = TILES[ctas]
    meta = {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": 64, "GROUP_M": 4}
    return gemm_pointers.compile_for(
        *arguments(64, 64, 64), grid=(2,), num_ctas=ctas, num_consumer_groups=2, **meta
    )


@pytest.mark.parametrize("ctas", TILES)
def test_it_compiles_without_spills(ctas: int) -> None:
    kernel = compiled(ctas)
    assert kernel.resources.problems() == () and kernel.resources.registers == 168
    assert kernel.plan.cluster == (ctas, 1, 1)
    assert f"__cluster_dims__({ctas}, 1, 1)" in kernel.cuda and "multicast::cluster" in kernel.cuda


@pytest.mark.parametrize("ctas", TILES)
def test_it_computes_the_product(ctas: int) -> None:
    args = arguments(304, 528, 208)
    compiled(ctas).simulate(*args, grid=(2,))
    a, b, c = args[:3]
    want = (a.astype(np.float32) @ b.astype(np.float32)).astype(BF16)
    assert np.array_equal(c.view(np.uint16), want.view(np.uint16))


def test_the_protocol_is_proved() -> None:
    report = compiled(2).check()
    assert report.ok, str(report)


def test_it_explains_itself() -> None:
    text = compiled(2).explain()
    assert "a cluster of 2 CTAs, each with 1/2 of M" in text
    assert "multicast: each CTA loads 1/2 of axis" in text


def test_a_launch_counts_clusters() -> None:
    """The plan multiplies the grid; a call on host arrays gives each cluster its tile."""
    args = arguments(300, 264, 64)
    gemm_pointers[(2,)](
        *args, BLOCK_M=256, BLOCK_N=128, BLOCK_K=64, GROUP_M=2, num_ctas=2, num_consumer_groups=1
    )
    a, b, c = args[:3]
    want = (a.astype(np.float32) @ b.astype(np.float32)).astype(BF16)
    assert np.array_equal(c.view(np.uint16), want.view(np.uint16))


def test_slots_that_threads_fill_are_released_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A is stored by threads, whose order a relaxed arrival would not hand on; B is multicast."""
    monkeypatch.setattr("warploom.runtime.build.compile_text", no_nvrtc)
    rows, *args = arguments(128, 64, 192)
    a = np.zeros((128, 193), BF16)[:, :192]
    a[:] = rows
    args = [a, *args[:5], 193, *args[6:]]
    meta = {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1}
    meta |= {"num_ctas": 2, "num_consumer_groups": 1, "num_buffers_warp_spec": 1}
    kernel = gemm_pointers.compile_for(*args, grid=(1,), **meta)
    assert {c.via for c in kernel.schedule.channels} == {("registers", "tma")}
    kernel.simulate(*args, grid=(1,))
    want = (a.astype(np.float32) @ args[1].astype(np.float32)).astype(BF16)
    assert np.array_equal(args[2], want)
