"""Reductions and scans by any function on the GPU: across registers, lanes and warps, along both axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom as wl
import warploom.language as tl
from tests.e2e.test_combine import recurrence, variance
from tests.e2e.test_known_places import rotated, widened

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("warps", [1, 4, 16])
@pytest.mark.parametrize("n", [64, 1024, 8192])
def test_variances(n: int, warps: int) -> None:
    x = torch.randn(37, n, device="cuda")
    out = torch.empty(37, device="cuda")
    variance[(37,)](x, out, N=n, num_warps=warps)
    torch.testing.assert_close(out, x.var(1, correction=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("n", "m", "warps"), [(16, 64, 4), (2, 2048, 8), (128, 8, 8), (1, 1024, 4)]
)
def test_scans_keep_the_order(n: int, m: int, warps: int, axis: int, back: bool) -> None:
    x = torch.randn(n, m, device="cuda")
    out = torch.empty_like(x)
    recurrence[(1,)](x, out, N=n, M=m, AXIS=axis, BACK=back, num_warps=warps)
    given: Any = np.moveaxis(x.cpu().numpy(), axis, 0)[:: -1 if back else 1]
    exact, before = np.zeros_like(given), np.zeros(given.shape[1], np.float32)
    for i, row in enumerate(given):
        before = exact[i] = before * 0.5 + row
    exact = np.moveaxis(exact[:: -1 if back else 1], 0, axis)
    np.testing.assert_allclose(out.cpu().numpy(), exact, rtol=1e-4, atol=1e-5)


@wl.jit
def rows_sorted(
    x_ptr: Any, up_ptr: Any, down_ptr: Any, N: tl.constexpr, M: tl.constexpr, AXIS: tl.constexpr
) -> None:
    at = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    up = tl.sort(tl.load(x_ptr + at), AXIS)
    tl.store(up_ptr + at, up)
    tl.store(down_ptr + at, tl.flip(up, AXIS))


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "int64", "int8"])
@pytest.mark.parametrize(
    ("n", "m", "axis", "warps"),
    [
        (1, 1024, 1, 4),
        (8, 32, 1, 1),
        (4, 256, 1, 2),
        (64, 8, 0, 4),
        (3, 100, 1, 4),
        (1, 4096, 1, 8),
    ],
)
def test_sorts_and_flips(n: int, m: int, axis: int, warps: int, dtype: str) -> None:
    """Partners in a thread, a warp and others."""
    generator = torch.Generator("cuda").manual_seed(n * m)
    x = torch.randint(-128, 128, (n, m), generator=generator, device="cuda")
    x = x.to(getattr(torch, dtype))
    up, down = torch.empty_like(x), torch.empty_like(x)
    rows_sorted[(1,)](x, up, down, N=n, M=m, AXIS=axis, num_warps=warps)
    assert torch.equal(up, x.sort(axis)[0]) and torch.equal(down, up.flip(axis))


def test_accesses_whose_places_are_known() -> None:
    x, y = (torch.randn(8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty(8, 256, device="cuda", dtype=torch.bfloat16)
    rotated[(2,)](x, y, out, B=1024, num_warps=4)
    halves = torch.cat([x, y], 1).reshape(8, 4, 2, 32)
    assert torch.equal(out, halves.flip(2).reshape(8, 256))
    x = torch.randn(3, 2752, device="cuda", dtype=torch.bfloat16)
    wide = torch.empty(3, 2752, device="cuda")
    widened[(3,)](x, wide, N=2752, B=4096, num_warps=4)
    torch.testing.assert_close(wide, x.float().exp(), rtol=1e-5, atol=1e-6)
