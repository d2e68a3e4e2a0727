"""Products of float32 as sums of 3 or 6 products of bf16: as precise as their parts, in every order, on every chip."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.road import default_orders
from warploom.ir.core import Level, walk
from warploom.ir.ops import tile
from warploom.ir.types import bf16, dtype_of

M, N, K = 32, 32, 64
# Of the result, to that of float64: what 16, and 24, bits of operands leave, and sums in float32.
WITHIN = {"bf16x3": 2e-5, "bf16x6": 3e-7}


@wl.jit
def matmul(a_ptr, b_ptr, c_ptr, k, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
           PRECISION: tl.constexpr):  # fmt: skip
    m, n, at = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BLOCK)
    acc = tl.zeros((M, N), tl.float32)
    for first in range(0, k, BLOCK):
        a = tl.load(a_ptr + m * k + first + at[None, :])
        b = tl.load(b_ptr + (first + at)[:, None] * N + n)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    tl.store(c_ptr + m * N + n, acc)


def arguments() -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((M, K), (K, N)))
    return a, b, np.zeros((M, N), np.float32), K


def compiled(precision: str, target: str, **more: Any) -> Any:
    meta = {"M": M, "N": N, "BLOCK": 32, "PRECISION": precision}
    return matmul.compile_for(*arguments(), grid=(1,), target=target, **meta, **more)


def apart(c: Any, a: Any, b: Any) -> float:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return float(np.linalg.norm(c - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize(("precision", "parts"), [("bf16x3", (2, 3)), ("bf16x6", (3, 6))])
@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "sm_120a"])
@pytest.mark.each(5)
def test_it_is_a_sum_of_products_of_bf16(precision: str, parts: Any, target: str) -> None:
    made = compiled(precision, target)
    found = [o for o in walk(made.lowered.at(Level.TILE).body) if o.kind is tile.dot]
    assert len(found) == parts[1]
    for axis in (0, 1):
        assert {dtype_of(o.operands[axis].type) for o in found} == {bf16}
        assert len({o.operands[axis] for o in found}) == parts[0]
    assert all(y.operands[2] is x.result for x, y in pairwise(found))
    assert made.resources.spill_bytes == 0
    for name in default_orders():
        a, b, c, k = arguments()
        made.simulate(a, b, c, k, grid=(1,), order=name)
        assert apart(c, a, b) < WITHIN[precision]
    assert made.check().ok


@pytest.mark.parametrize("precision", WITHIN)
def test_the_oracle(precision: str) -> None:
    """No product of parts is left out: each alone would be missed; infinities stay in their rows."""
    meta = {"M": M, "N": N, "BLOCK": 32, "PRECISION": precision}
    a, b, c, k = arguments()
    matmul[(1,)](a, b, c, k, **meta)
    assert apart(c, a, b) < WITHIN[precision]
    a[3, 5] = np.inf
    matmul[(1,)](a, b, c, k, **meta)
    assert not np.isfinite(c[3]).any() and np.isfinite(np.delete(c, 3, 0)).all()
