"""A warp that fills its own slots waits for nobody who gives them back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.road import array, check_equal, filled
from tests.eject.owned import owned, same_program
from warploom.check import Verdict, check
from warploom.ir.ops import mbarrier, smem, task
from warploom.ir.rewrite import rewrite


@wl.jit
def state(k_ptr: Any, v_ptr: Any, g_ptr: Any, o_ptr: Any, n: Any, H: tl.constexpr) -> None:
    """For each of H heads the sum of products over time, by two rings that the warp runs ahead."""
    rows, columns = tl.arange(0, 64), tl.arange(0, 32)
    for head in range(H):
        h = tl.zeros((64, 32), tl.float32)
        for i in range(n):
            t = i * 64 + tl.arange(0, 64) + head * n * 64
            k = tl.load(k_ptr + t[:, None] * 64 + rows[None, :])
            g = tl.load(g_ptr + t[:, None] * 64 + rows[None, :])
            v = tl.load(v_ptr + t[:, None] * 32 + columns[None, :])
            h = tl.dot(tl.trans((k * g).to(tl.bfloat16)), v, h)
        out = (head * 64 + rows)[:, None] * 32 + columns[None, :]
        tl.store(o_ptr + out, h)


def arguments(n: int, heads: int) -> list[Any]:
    random = np.random.default_rng(0)

    def integers(width: int, dtype: Any) -> Any:
        return filled(random.integers(-2, 3, (64 * n * heads, width)), dtype)

    k, v = integers(64, ml_dtypes.bfloat16), integers(32, ml_dtypes.bfloat16)
    return [k, v, integers(64, np.float32), array((64 * heads, 32), np.float32), n]


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("warps", [1, 4], ids=["a warp", "a group that waits together"])
def test_who_fills_its_slots_gives_none_back(n: int, warps: int) -> None:
    meta = {"H": 2, "num_warps": warps, "num_stages": 2, "num_consumer_groups": 0}
    compiled, _ = check_equal(state, arguments(n, 2), 1, meta)
    body = compiled.lowered.placed.body
    assert mbarrier.mbarrier_arrive not in body.by_kind
    assert all(
        x.kind is not mbarrier.mbarrier_wait for o in body.by_kind[task.elect] for x in o.all_ops
    )
    barriers = body.by_kind[mbarrier.mbarrier_alloc]
    assert len(barriers) == (1 if warps == 1 else 3)  # a lone warp's ring holds all
    assert all(o.attrs["name"].startswith("full") for o in barriers)
    assert compiled.check().verdict is Verdict.PROVED


@pytest.mark.parametrize("warps", [1, 4])
def test_threads_meet_once_before_slots_are_filled_again(warps: int) -> None:
    """In the loop, also for the head after the next; without that it is a race."""
    meta = {"H": 2, "num_warps": warps, "num_stages": 2, "num_consumer_groups": 0}
    compiled, _ = check_equal(state, arguments(3, 2), 1, meta)
    placed = compiled.lowered.placed
    met = [
        before
        for r in (r for o in placed.body.all_ops for r in o.regions)
        for before, o in pairwise(r.ops)
        if before.kind is smem.group_sync
        and any(x.kind is mbarrier.mbarrier_expect for x in o.all_ops)
    ]
    assert len(met) == 1
    lost = rewrite(placed, lambda o, b: () if o in met else None)
    assert check(lost).verdict is Verdict.BROKEN


def test_several_warps_do() -> None:
    meta = {"H": 2, "num_warps": 2, "num_stages": 2}
    compiled, _ = check_equal(state, arguments(3, 2), 1, meta)
    assert mbarrier.mbarrier_arrive in compiled.lowered.placed.body.by_kind


def test_it_is_ejected_as_it_is(tmp_path: Path) -> None:
    meta = {"H": 2, "num_warps": 1, "num_stages": 2}
    compiled, _ = check_equal(state, arguments(1, 2), 1, meta)
    script, signature = owned(compiled.eject(), tmp_path, 1)
    same_program(compiled, script.compile(signature))
