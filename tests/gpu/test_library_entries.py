"""The library's entries on CUDA tensors that are views of others: right, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from warploom.errors import LaunchError
from warploom.kernels.attention import attend
from warploom.kernels.fp8 import fp8_gemm
from warploom.kernels.gemm import gemm, persistent_grid

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("own_cache")]
torch = pytest.importorskip("torch")
M, N, K = 256, 192, 128


def integers(*shape: int) -> Any:
    return torch.randint(-3, 4, shape, device="cuda").to(torch.bfloat16)


def views() -> dict[str, tuple[Any, Any, Any]]:
    c = torch.full((M, N), torch.nan, device="cuda", dtype=torch.bfloat16)
    return {
        "dense": (integers(M, K), integers(K, N), c),
        "transposed": (integers(K, M).T, integers(N, K).T, c.view(N, M).T),
        "padded": (integers(M, K + 8)[:, :K], integers(K, N), c),
        "odd offset": (integers(M, K + 3)[:, 3:], integers(K, N + 1)[:, 1:], c),
        "expanded": (integers(1, K).expand(M, K), integers(K, N), c),
        "every other": (integers(2 * M, 2 * K)[::2, ::2], integers(K, N), c),
    }


@pytest.mark.parametrize(
    "name", ["dense", "transposed", "padded", "odd offset", "expanded", "every other"]
)
def test_gemm_of_views(name: str) -> None:
    a, b, c = views()[name]
    c.fill_(torch.nan)
    gemm[persistent_grid(M, N, 132)](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    assert torch.equal(c, (a.float() @ b.float()).to(torch.bfloat16))


def test_what_would_be_wrong_is_refused() -> None:
    by_token = torch.randn(40, 4, 64, device="cuda").bfloat16().transpose(0, 1)
    k, v, o = (torch.zeros(4, 40, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    counter = torch.zeros(2, device="cuda", dtype=torch.int32)
    with pytest.raises(LaunchError, match="attention: q is of shape"):
        attend(by_token, k, v, o, None, counter, programs=132)
    a, b = (torch.zeros(n, K, device="cuda").to(torch.float8_e4m3fn) for n in (M, N))
    rows, columns = (torch.ones(n, device="cuda") for n in (M, N))
    c = torch.zeros(M, N, device="cuda", dtype=torch.bfloat16)
    with pytest.raises(LaunchError, match="scale_a is of shape"):
        fp8_gemm[persistent_grid(M, N, 132)](a, b, columns, rows, c, M, N, K)
    assert not c.any() and not o.any()
