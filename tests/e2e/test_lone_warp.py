"""States that one warp sums up: what no ring brings of a step is loaded a step ahead."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.road import default_orders

pytestmark = pytest.mark.usefixtures("without_nvrtc")
BF16 = ml_dtypes.bfloat16


@wl.jit
def states(q, v, g, h, T, BT: tl.constexpr, K: tl.constexpr, V: tl.constexpr):
    """States in front of each chunk, from the last one backward, their rows gated and the sum decayed by the
    first head's numbers, which lie apart: TMA brings no such row."""
    k, n = tl.arange(0, K), tl.arange(0, V)
    state = tl.zeros((K, V), dtype=tl.float32)
    for chunk in range(tl.cdiv(T, BT) - 1, -1, -1):
        tl.store(h + chunk * K * V + k[:, None] * V + n[None, :], state)
        t = chunk * BT + tl.arange(0, BT)
        x = tl.load(q + k[:, None] + t[None, :] * K, mask=t[None, :] < T, other=0.0)
        y = tl.load(v + t[:, None] * V + n[None, :], mask=t[:, None] < T, other=0.0)
        gate = tl.load(g + t * 3, mask=t < T, other=0.0)
        last = tl.load(g + (min(chunk * BT + BT, T) - 1) * 3)
        state = tl.dot((x * gate[None, :]).to(x.dtype), y, state * last)


def exact(q: Any, v: Any, g: Any, T: int, BT: int) -> Any:
    found, state = [], np.zeros((q.shape[1], v.shape[1]))
    for at in range((T - 1) // BT * BT, -1, -BT):
        found.append(state)
        x = (q[at : at + BT].astype(np.float32) * g[at : at + BT, :1]).astype(BF16)
        state = state * g[min(at + BT, T) - 1, 0] + x.T.astype(float) @ v[at : at + BT].astype(
            float
        )
    return np.array(found[::-1])


def given(T: int, BT: int = 16, K: int = 32, V: int = 16) -> tuple[Any, ...]:
    random = np.random.default_rng(T)
    q, v = (random.standard_normal((T, n)).astype(BF16) for n in (K, V))
    g = random.uniform(0.5, 1.0, (T, 3)).astype(np.float32)
    return q, v, g, np.full((-(-T // BT), K, V), np.nan, np.float32)


def made(T: int, warps: int) -> Any:
    return states.compile_for(*given(T), T, BT=16, K=32, V=16, grid=(1,), num_warps=warps)


@pytest.mark.parametrize("T", [2, 16, 37, 100])
def test_gates_of_a_lone_warp_are_there_a_step_ahead(T: int) -> None:
    kernel = made(T, 1)
    (plan,) = kernel.schedule.pipelines
    assert len(plan.in_stage(0)) == 2 and kernel.schedule.channels
    for order in default_orders():
        q, v, g, h = given(T)
        kernel.simulate(q, v, g, h, T, grid=(1,), order=order)
        assert np.allclose(h, exact(q, v, g, T, 16), rtol=1e-4, atol=1e-4)


def test_it_is_checked_for_all_trip_counts() -> None:
    assert made(37, 1).check().ok


def test_several_warps_hide_each_other_s_waits() -> None:
    assert not made(37, 4).schedule.pipelines
