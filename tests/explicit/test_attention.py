"""Flash attention written by hand: numbers, proof, resources."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from warploom.check import check
from warploom.kernels.explicit.attention import Attention

SCALE = 128**-0.5
variants = pytest.mark.parametrize(
    ("causal", "pingpong"), [(False, True), (True, True), (True, False)]
)


@functools.cache
def compiled(causal: bool, pingpong: bool) -> Any:
    kernel = Attention(causal, pingpong)
    return kernel.compile(["*bf16:16"] * 4 + ["i32", "i32", "fp32"])


def expected(q: Any, k: Any, v: Any, causal: bool) -> Any:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = np.einsum("hid,hjd->hij", q, k) * SCALE
    if causal:
        s = np.where(np.tril(np.ones(s.shape[1:], bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hij,hjd->hid", p / p.sum(-1, keepdims=True), v)


@variants
@pytest.mark.parametrize(("heads", "seq"), [(2, 200), (1, 384), (1, 40)])
def test_it_computes_attention(causal: bool, pingpong: bool, heads: int, seq: int) -> None:
    rng = np.random.default_rng(seq)
    q, k, v = (rng.standard_normal((heads, seq, 128)).astype(ml_dtypes.bfloat16) for _ in range(3))
    o = np.zeros_like(q)
    Attention(causal, pingpong)(q, k, v, o, heads, seq, SCALE * np.log2(np.e))
    error = np.abs(o.astype(np.float64) - expected(q, k, v, causal))
    assert error.max() < 0.02 and np.sqrt((error**2).mean()) < 0.002


@variants
def test_it_compiles_without_spills(causal: bool, pingpong: bool) -> None:
    assert compiled(causal, pingpong).resources.problems() == ()


@variants
def test_it_is_proved(causal: bool, pingpong: bool) -> None:
    x = np.zeros(16, ml_dtypes.bfloat16)
    blocks = (1, 2, 3, 4, 5, 7)
    cases = [((x, x, x, x, 1, 128 * n, 0.1), (n, 1)) for n in blocks]
    report = check(compiled(causal, pingpong).placed, cases)
    assert report.ok, str(report)
    assert len(report.runs) == len(cases)
