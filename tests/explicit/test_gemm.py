"""The explicit GEMM: it is the golden program, and it runs, checks and compiles."""

from __future__ import annotations

import functools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.canonical import canonical_text
from tests.pairwise import every
from warploom.check import check
from warploom.ir.parser import parse_func
from warploom.kernels.explicit.gemm import Gemm
from warploom.runtime.compiled import CompiledKernel

GOLDEN = Path(__file__).parents[1] / "golden" / "gemm_bf16_tn.warp.ir"


@functools.cache
def compiled() -> CompiledKernel:
    return Gemm().compile(["*bf16:16"] * 3 + ["i32:16"] * 3)


def test_it_is_the_golden_program() -> None:
    warp = next(f for name, f in compiled().lowered.steps if name == "translate")
    golden = parse_func(GOLDEN.read_text(encoding="utf-8"), str(GOLDEN))
    assert canonical_text(warp) == canonical_text(golden)


def test_it_compiles_without_spills() -> None:
    found = compiled().resources
    assert found.problems() == ()
    assert found.threads == 384 and found.registers == 168


def test_the_protocol_is_proved() -> None:
    report = check(compiled().placed)
    assert report.ok, str(report)
    assert not report.not_recurring


@pytest.mark.parametrize(("m", "n", "k"), [(192, 320, 208), (128, 256, 16), (64, 8, 512)])
@pytest.mark.each(2)
def test_it_computes_the_product(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(m + n + k)
    a = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    Gemm(programs=2)(a, b, c, m, n, k)
    want = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
    assert np.array_equal(c.view(np.uint16), want.view(np.uint16))


def test_it_explains_itself() -> None:
    text = compiled().explain()
    assert "consumer: 2 × 4 warps, 232 registers a thread" in text
    (line,) = (s for s in text.splitlines() if "self.mbarrier.arrive_and_expect_tx(" in s)
    assert "producer |" in line


CLUSTERS = [(2, "a"), (2, "b"), (4, "b")]


@functools.cache
def clustered(ctas: int, share: str) -> CompiledKernel:
    return Gemm(ctas=ctas, share=share).compile(["*bf16:16"] * 3 + ["i32:16"] * 3)


@pytest.mark.parametrize(("ctas", "share"), CLUSTERS)
def test_clusters_compute_the_product(ctas: int, share: str) -> None:
    for m, n, k in ((300, 600, 144), (64, 8, 16)):
        rng = np.random.default_rng(m)
        a = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
        b = rng.integers(-3, 4, (n, k)).astype(ml_dtypes.bfloat16)
        c = np.zeros((m, n), ml_dtypes.bfloat16)
        Gemm(programs=ctas, ctas=ctas, share=share)(a, b, c, m, n, k)
        want = (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)
        assert np.array_equal(c.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize(("ctas", "share"), every(2, CLUSTERS))
@pytest.mark.each(2)
def test_clusters_compile_and_their_protocol_is_proved(ctas: int, share: str) -> None:
    found = clustered(ctas, share).resources
    assert found.problems() == () and found.registers == 168
    report = check(clustered(ctas, share).placed)
    assert report.ok, str(report)
    assert not report.not_recurring


def test_descriptors_leave_the_rank_out_of_addresses() -> None:
    """With it, MN-major operands of every CTA but the first were read wrongly (seen on an H200)."""
    source = Gemm(ctas=2, transposed=False).compile(["*bf16:16"] * 3 + ["i32:16"] * 3).cuda
    made = [line for line in source.splitlines() if "= wgmma_desc<" in line]
    assert made and all(line.endswith("& 0x3ffff);") for line in made)
    assert "0x3ffff" not in compiled().cuda


def test_multicast_of_the_other_order() -> None:
    """B given as (K, N): its part of a slot is cut along the dense axis."""
    m, n, k = 200, 520, 96
    rng = np.random.default_rng(1)
    a = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.bfloat16)
    b = rng.integers(-3, 4, (k, n)).astype(ml_dtypes.bfloat16)
    c = np.zeros((m, n), ml_dtypes.bfloat16)
    Gemm(programs=2, ctas=2, transposed=False)(a, b, c, m, n, k)
    want = (a.astype(np.float32) @ b.astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(c.view(np.uint16), want.view(np.uint16))
