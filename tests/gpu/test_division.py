"""Division of float32 on a GPU: / within 2 units in the last place, div_rn exact."""

from __future__ import annotations

from typing import Any

import pytest

import warploom as wl
import warploom.language as tl

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


@wl.jit
def quotients(x_ptr: Any, y_ptr: Any, fast_ptr: Any, exact_ptr: Any, BLOCK: tl.constexpr) -> None:
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(fast_ptr + at, x / y)
    tl.store(exact_ptr + at, tl.div_rn(x, y))


def test_how_exact_quotients_are() -> None:
    n = 1 << 20
    x, y = (
        torch.randn(n, device="cuda") * 2.0 ** torch.randint(-30, 30, (n,), device="cuda")
        for _ in "xy"
    )
    special = [0.0, -0.0, 1.0, float("inf"), -3.0, 7.0, 1e38, 1e-38]
    pairs = torch.cartesian_prod(torch.tensor(special), torch.tensor(special)).cuda()
    x[: len(pairs)], y[: len(pairs)] = pairs[:, 0], pairs[:, 1]
    fast, exact = torch.empty_like(x), torch.empty_like(x)
    quotients[n // 1024,](x, y, fast, exact, BLOCK=1024)
    wanted = x / y
    assert torch.equal(exact.nan_to_num(7.0), wanted.nan_to_num(7.0))
    true = x.double() / y.double()
    normal = wanted.isfinite() & (wanted.abs() > 1e-37)
    unit = torch.finfo(torch.float32).eps * true.abs()
    assert ((fast.double() - true).abs() <= 2 * unit)[normal].all()
    assert torch.equal(fast.isnan(), wanted.isnan())
