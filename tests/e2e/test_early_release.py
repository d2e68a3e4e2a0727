"""Slots whose contents registers hold over a loop are given back before it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from warploom.ir.core import walk
from warploom.ir.ops import control, mbarrier

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@wl.jit
def scaled(q, g, k, out, T, ROWS: tl.constexpr, BT: tl.constexpr, K: tl.constexpr):
    """Sums of products of scaled queries, which each step scales by what it was scaled with before."""
    col, t = tl.arange(0, K), tl.arange(0, 16)
    for first in range(0, ROWS, BT):
        row = first + tl.arange(0, BT)
        gate = tl.load(g + row[:, None] * K + col[None, :])
        x = tl.load(q + row[:, None] * K + col[None, :])
        x = (x.to(tl.float32) * gate).to(x.dtype)
        acc = tl.zeros((BT, K), dtype=tl.float32)
        for at in range(0, T, 16):
            keys = tl.load(k + col[:, None] + (at + t)[None, :] * K)
            s = tl.dot(x, keys)
            acc = tl.dot(s.to(x.dtype), tl.trans(keys), acc * gate)
        tl.store(out + row[:, None] * K + col[None, :], acc)


def given() -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    q, k = (random.standard_normal((n, 64)).astype(BF16) for n in (256, 48))
    g = random.uniform(0.5, 1.0, (256, 64)).astype(np.float32)
    return q, g, k, np.full((256, 64), np.nan, np.float32), 48


def test_what_registers_hold_over_a_loop_is_given_back_before_it() -> None:
    q, g, k, out, T = given()
    kernel = scaled.compile_for(q, g, k, out, T, ROWS=256, BT=128, K=64, grid=(1,), num_warps=2)
    ops = list(walk(kernel.placed.body))
    loop = max(i for i, o in enumerate(ops) if o.kind in control.LOOPS)
    early = [o.operands[0].hint for o in ops[:loop] if o.kind is mbarrier.mbarrier_arrive]
    assert "empty_gate" in early
    kernel.simulate(q, g, k, out, T, grid=(1,))
    x = (q.astype(np.float32) * g).astype(BF16).astype(np.float32)
    wanted = np.zeros((256, 64), np.float32)
    for at in range(0, T, 16):
        keys = k[at : at + 16].astype(np.float32)
        wanted = wanted * g + (x @ keys.T).astype(BF16).astype(np.float32) @ keys
    assert np.linalg.norm(out - wanted) < 1e-2 * np.linalg.norm(wanted)
    assert kernel.check().ok
