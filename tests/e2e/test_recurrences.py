"""A loop that carries a state: it stores the state, multiplies by it, and adds to it, as chunked delta rules do."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e import road
from warploom.ir.core import Op, walk
from warploom.ir.ops import control, smem, tile, tma

BF16 = ml_dtypes.bfloat16


@wl.jit
def recurrence(w_ptr, k_ptr, v_ptr, g_ptr, h_ptr, h2_ptr, u_ptr, T, BT: tl.constexpr, K: tl.constexpr,
               V: tl.constexpr):  # type: ignore[no-untyped-def]  # fmt: skip
    k, v = tl.arange(0, K), tl.arange(0, V)
    state = tl.zeros((K, V), tl.float32)
    other = tl.zeros((K, V), tl.float32)
    for step in range(tl.cdiv(T, BT)):
        t = step * BT + tl.arange(0, BT)
        mask = t[:, None] < T
        h = step * (K * V) + k[:, None] * V + v[None, :]
        tl.store(h_ptr + h, state.to(tl.bfloat16))
        tl.store(h2_ptr + h, other.to(tl.bfloat16))
        w = tl.load(w_ptr + t[:, None] * (2 * K) + k[None, :], mask=mask, other=0.0)
        acc = tl.dot(w, state.to(tl.bfloat16))
        w = tl.load(w_ptr + t[:, None] * (2 * K) + K + k[None, :], mask=mask, other=0.0)
        acc = tl.dot(w, other.to(tl.bfloat16), acc)
        u = tl.load(v_ptr + t[:, None] * V + v[None, :], mask=mask, other=0.0) - acc
        tl.store(u_ptr + t[:, None] * V + v[None, :], u.to(tl.bfloat16), mask=mask)
        scale = tl.load(g_ptr + (tl.minimum(step * BT + BT, T) - 1) * 3)
        u = (u * tl.load(g_ptr + t * 3, mask=t < T, other=0.0)[:, None]).to(tl.bfloat16)
        a = tl.load(k_ptr + t[:, None] * (2 * K) + k[None, :], mask=mask, other=0.0)
        state = tl.dot(tl.trans(a), u, state * scale)
        a = tl.load(k_ptr + t[:, None] * (2 * K) + K + k[None, :], mask=mask, other=0.0)
        other = tl.dot(tl.trans(a), u, other * scale)


def _data(rows: int) -> list[Any]:
    random = np.random.default_rng(rows)

    def sparse(*shape: int) -> Any:
        return road.filled(random.integers(-1, 2, shape) * (random.random(shape) < 0.1), BF16)

    steps = -(-rows // 64)
    signs = random.choice([-1.0, 1.0], (1, 3 * rows))
    return [
        sparse(rows, 128), sparse(rows, 128), sparse(rows, 64), road.filled(signs, np.float32)[0],
        *(road.array(shape, BF16) for shape in [(steps * 64, 64)] * 2 + [(rows, 64)]), rows,
    ]  # fmt: skip


def _expected(w: Any, k: Any, v: Any, g: Any) -> tuple[Any, Any, Any]:
    w, k, v, g = (x.astype(np.float64) for x in (w, k, v, g[::3]))
    state, h, u = np.zeros((128, 64)), [], []
    for at in range(0, len(w), 64):
        part = slice(at, at + 64)
        rounded = state.astype(BF16).astype(np.float64)
        h.append(rounded)
        new = v[part] - w[part] @ rounded
        u.append(new.astype(BF16).astype(np.float64))
        scaled = (new * g[part, None]).astype(BF16).astype(np.float64)
        state = state * g[part][-1] + k[part].T @ scaled
    halves = np.stack(h).reshape(-1, 2, 64, 64).transpose(1, 0, 2, 3).reshape(2, -1, 64)
    return *halves, np.concatenate(u)


@pytest.mark.parametrize("knobs", [{"num_consumer_groups": 1}, {"num_consumer_groups": 0}], ids=str)
@pytest.mark.parametrize("rows", [64, 250])
@pytest.mark.each(2)
def test_one_guard_serves_a_step(knobs: dict[str, Any], rows: int) -> None:
    """Of what threads store for copies and dots to read; and rows of numbers are loaded before it."""
    args = _data(rows)
    meta = {"BT": 64, "K": 64, "V": 64, **knobs}
    compiled, found = road.check_equal(recurrence, args, 1, meta)
    for x, wanted in zip(found[4:7], _expected(*args[:4]), strict=True):
        np.testing.assert_array_equal(x.astype(np.float64), wanted)
    report = compiled.check()
    assert report.ok, str(report)
    body = _steps(compiled.lowered.placed.body)
    kinds = [o.kind for o in body]
    assert kinds.count(tma.tma_store) == 3
    assert kinds.count(tma.tma_store_wait) == 1
    stores = kinds.count(smem.shared_store)
    assert stores == 6, "u is written once for both of its dots"
    assert kinds.count(smem.group_sync) <= stores + 1, "one barrier in front, one behind each"
    own = [i for i, o in enumerate(body) if o.kind in (tile.load, tile.load_box)]
    assert own and max(own) < kinds.index(smem.group_sync)


def _steps(region: Any) -> list[Op]:
    """The ops of the loop that multiplies."""
    loops = [o for o in walk(region) if o.kind is control.for_]
    loop = next(o for o in loops if any(x.kind is tma.tma_store for x in o.all_ops))
    return list(walk(loop.regions[0]))
