"""Products of few tiles on a GPU: bit-equal on exact data in each configuration, launch after launch."""

from __future__ import annotations

import pytest

import warploom as wl
from tests.gpu.probe import needs_gpu
from warploom.kernels.split_k import SPLIT_K_CONFIGS, gemm_split_k, programs

pytestmark = [pytest.mark.gpu, needs_gpu]
torch = pytest.importorskip("torch")


@pytest.mark.parametrize("config", SPLIT_K_CONFIGS, ids=str)
@pytest.mark.parametrize("shape", [(16, 4096, 4096), (9, 1000, 700), (16, 64, 8192)], ids=str)
def test_exact_data_comes_out_bit_equal(config: wl.Config, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a = torch.randint(-2, 3, (m, k), device="cuda").bfloat16()
    b = torch.randint(-2, 3, (n, k), device="cuda").bfloat16().t()
    c = torch.empty(m, n, device="cuda")
    tiles, split = programs(m, n)(dict(config.kwargs))
    size = tiles * split * config.kwargs["BLOCK_M"] * config.kwargs["BLOCK_N"]
    parts = torch.full((size,), float("nan"), device="cuda")
    counts = torch.zeros(tiles, device="cuda", dtype=torch.int32)
    args = (a, b, c, parts, counts, m, n, k, *a.stride(), *b.stride(), *c.stride())
    for _ in range(20):
        c.fill_(float("nan"))
        gemm_split_k[tiles, split](*args, **config.all_kwargs)
        assert torch.equal(c.double(), a.double() @ b.double())
        assert not counts.any()
