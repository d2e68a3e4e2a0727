"""Products of few rows that follow one another in a straight line: what threads hold they multiply."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.road import array, check_equal, filled
from warploom.check import Verdict
from warploom.ir.ops import mbarrier, smem, task, tile, tma


@wl.jit
def attend(q_ptr: Any, k_ptr: Any, g_ptr: Any, v_ptr: Any, o_ptr: Any, rows: tl.constexpr) -> None:
    """Of each block of rows (Q·Kᵀ, masked and scaled by column)·V."""
    t = tl.program_id(0) * rows + tl.arange(0, rows)
    d, i = tl.arange(0, 64), tl.arange(0, rows)
    q = tl.load(q_ptr + t[:, None] * 64 + d[None, :])
    k = tl.load(k_ptr + d[:, None] + t[None, :] * 64)
    scores = tl.dot(q, k)
    g = tl.load(g_ptr + t)
    scores = tl.where(i[:, None] <= i[None, :], scores * g[None, :], 0.0)
    v = tl.load(v_ptr + t[:, None] * 64 + d[None, :])
    tl.store(o_ptr + t[:, None] * 64 + d[None, :], tl.dot(scores.to(tl.bfloat16), v))


def arguments(rows: int) -> list[Any]:
    random = np.random.default_rng(0)

    def integers(*shape: int, dtype: Any = ml_dtypes.bfloat16) -> Any:
        return filled(random.integers(-1, 2, shape), dtype)

    n = 2 * rows
    q, k, v = (integers(n, 64) for _ in range(3))
    return [q, k, integers(n, dtype=np.float32), v, array((n, 64), np.float32)]


@pytest.mark.parametrize("warps", [2, 4])
def test_warps_multiply_what_they_hold(warps: int) -> None:
    """All is on its way before any thread waits, and no thread waits for another's part of the scores."""
    meta = {"rows": 16, "num_warps": warps, "store_buffers": 0}
    compiled, _ = check_equal(attend, arguments(16), 2, meta)
    assert compiled.check().verdict is Verdict.PROVED
    (phase,) = compiled.lowered.placed.body.by_kind[task.tasks]
    ops = phase.regions[0].ops
    assert not any(o.kind is smem.group_sync for o in phase.all_ops)
    assert len([o for o in ops if o.kind is tile.dot]) == 2
    waited = next(i for i, o in enumerate(ops) if o.kind is mbarrier.mbarrier_wait)
    brings = (tile.load, tile.load_box, tma.tma_load)
    assert not any(o.kind in brings for x in ops[waited:] for o in (x, *x.all_ops))
