"""What an iteration loads is on its way at once, where it and what the loop sums up fill the registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.road import array, check_equal, filled
from warploom.ir.ops import tile


@wl.jit
def weights(x_ptr: Any, y_ptr: Any, o_ptr: Any, w_ptr: Any, n: Any, rows: tl.constexpr) -> None:
    """Sums of x·y along rows, which are stored, and along columns."""
    r, c = tl.arange(0, rows), tl.arange(0, 64)
    sums = tl.zeros((rows, 64), tl.float32)
    for i in range(n):
        at = (i * rows + r)[:, None] * 64 + c[None, :]
        x = tl.load(x_ptr + at).to(tl.float32)
        y = tl.load(y_ptr + at).to(tl.float32)
        sums += x * y
        tl.store(o_ptr + i * rows + r, tl.sum(x * y, axis=1))
    tl.store(w_ptr + c, tl.sum(sums, axis=0))


@pytest.mark.parametrize(("rows", "together"), [(32, 1), (16, 0)])
def test_nothing_computes_before_all_is_loaded(rows: int, together: int) -> None:
    """Of 32 rows a lane holds 128 registers, of 16 half of them: other warps have room then."""
    random = np.random.default_rng(0)
    x, y = (filled(random.integers(-2, 3, (3 * rows, 64)), ml_dtypes.bfloat16) for _ in range(2))
    outputs = [array((n,), np.float32) for n in (3 * rows, 64)]
    meta = {"rows": rows, "num_warps": 1}
    compiled, _ = check_equal(weights, [x, y, *outputs, 3], 1, meta)
    body = compiled.lowered.placed.body
    assert len(body.by_kind.get(tile.after, ())) == together
    (loop,) = (r for o in body.all_ops for r in o.regions if any(x.loads for x in r.ops))
    first = [o.loads for o in loop.ops if o.loads or o.kind.name == "cast"][:2]
    assert all(first) == bool(together)
